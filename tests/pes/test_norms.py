"""all_reduce_rms_norm, reduce_scatter_rms_norm and its form with an all-gather: every schedule and dtype against float64."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, equal_on_all_pes, odd, of_the_caller, placed, random, refused_on_all_pes, replayed
from pyshmem import ops
from pyshmem.ops import plans as plans_of_models
from pyshmem.ops import workspace
from pyshmem.ops.machine import Machine
from pyshmem.ops.norms import all_reduce_rms_norm as of_all
from pyshmem.ops.norms import reduce_scatter_rms_norm as of_shares
from pyshmem.ops.norms.schedules import SCHEDULES
from pyshmem.ops.norms.share_schedules import SHARES
from pyshmem.ops.shares import share_of, start_of
from support import be_late, here, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
EPS = 1e-5
GPU = torch.cuda.is_available()
WHOLE, SHARE, GATHER = "all_reduce_rms_norm", of_shares.NAME, of_shares.GATHER
OPERATORS = {WHOLE: SCHEDULES, SHARE: SHARES, GATHER: SHARES}
every_operator = pytest.mark.parametrize("name", OPERATORS)
every_schedule = pytest.mark.parametrize(
    "name, schedule", [(name, schedule) for name, schedules in OPERATORS.items() for schedule in schedules]
)


class Case:
    """Operands of all PEs of a team, and what is wanted here, in float64."""

    def __init__(self, name, tokens=5, hidden=70, dtype=torch.float32, seed=1, team=None, weight_dtype=None):
        self.team, self.name, self.dtype = shmem.TEAM_WORLD if team is None else team, name, dtype
        self.me, self.n = self.team.my_pe(), self.team.n_pes()
        self.parts = [random(seed * 100 + pe, tokens, hidden, dtype=dtype) for pe in range(self.n)]
        self.x = self.parts[self.me].clone()
        self.weight = random(seed * 100 + 51, hidden, dtype=weight_dtype or dtype)
        self.whole = random(seed * 100 + 50, tokens, hidden, dtype=dtype)
        self.residual = self.whole if name == WHOLE else self.whole[self.share(self.me)].clone()

    def share(self, pe):
        """The rows of a PE."""
        first = start_of(len(self.x), pe, self.n)
        return slice(first, first + share_of(len(self.x), pe, self.n))

    @property
    def wanted(self):
        if self.name == WHOLE:
            return of_all.reference(self.parts, self.residual, self.weight, EPS)
        every = [
            of_shares.reference(self.parts, self.whole[self.share(pe)], self.weight, EPS, pe) for pe in range(self.n)
        ]
        out, residual = every[self.me]
        return (torch.cat([made for made, _ in every]) if self.name == GATHER else out), residual

    def call(self, schedule="auto", **more):
        operator = getattr(ops, self.name)
        return operator(self.x, self.residual, self.weight, EPS, team=self.team, schedule=schedule, **more)

    def check(self, results, note="", wanted=None):
        for name, result, right in zip(("out", "residual_out"), results, wanted or self.wanted, strict=True):
            assert result.shape == right.shape and result.dtype == self.dtype
            close_to(result, right, BOUNDS[self.dtype], f"{name} {note}")


def poisoned(case):
    """Two results full of NaN, with a guard behind, after a barrier: a PE that is ahead writes those of the others."""
    most = len(case.x) + 1
    found = [shmem.full((most, case.x.shape[1]), float("nan"), dtype=case.dtype) for _ in range(2)]
    shmem.barrier_all()
    return [each[: len(wanted)] for each, wanted in zip(found, case.wanted, strict=True)], found


@every_schedule
def test_every_schedule_gives_the_norm_and_the_residual_at_odd_sizes(name, schedule):
    for dtype in BOUNDS:
        for tokens, hidden in ((1, 34), (7, 70), (3, 2)) if schedule == "words" else ((1, 37), (7, 70), (2, 1)):
            case = Case(name, tokens, hidden, dtype)
            results, whole = poisoned(case)
            assert case.call(schedule, out=results[0], residual_out=results[1]) == tuple(results)
            case.check(results, (dtype, tokens, hidden))
            shmem.barrier_all()
            assert all(each[len(result) :].isnan().all() for each, result in zip(whole, results, strict=True))


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@every_schedule
def test_every_schedule_gives_the_norm_at_the_sizes_of_models(name, schedule):
    for tokens, hidden in ((1, 8192), (9, 8192), (64, 8192), (513, 8192), (40, 7168), (2000, 5120), (3, 16384)):
        if schedule == "words" and hidden > 8192:
            continue
        case = Case(name, tokens, hidden, torch.bfloat16)
        for _ in range(3):
            results, _ = poisoned(case)
            case.call(schedule, out=results[0], residual_out=results[1])
            case.check(results, (tokens, hidden))


@every_schedule
def test_all_pes_get_the_same_bits_and_schedules_and_operators_agree_on_the_residual(name, schedule):
    case = Case(name, 6, 70, torch.bfloat16)
    made, kept = case.call(schedule)
    for result in {WHOLE: (made, kept), GATHER: (made,), SHARE: ()}[name]:
        equal_on_all_pes(shmem.array(result))
    rows = slice(None) if name == WHOLE else case.share(case.me)
    residual = torch.zeros_like(case.x)
    residual[rows] = case.residual
    for other in ("pull", "bulk_synchronous"):
        wanted = ops.all_reduce_rms_norm(case.x, residual, case.weight, EPS, schedule=other)
        assert torch.equal(kept, wanted[1][rows])


@every_schedule
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(name, schedule):
    """Each call has other values in the same x, which is overwritten as soon as the stream has done the call before.

    One token: of shares all PEs but the first have no rows, and wait for nobody's data. Other lengths share their memory.
    """
    for lengths in ((1, 1, 1), (5, 8, 6)):
        cases = [Case(name, tokens, 34, seed=seed) for seed, tokens in enumerate(lengths)]
        every = [case.wanted for case in cases]
        room = shmem.empty((max(lengths), 34))
        for turn in range(500 if GPU else 6):
            case = cases[turn % 3]
            if shmem.my_pe() == turn // 2 % shmem.n_pes():
                be_late(20000 if GPU else 300_000)  # longer than the others need to come to what it sends
            case.x = room[: len(case.x)].copy_(case.x)
            found = case.call(schedule, reuse=True)
            if turn < 10 or turn % 97 == 0:
                case.check(found, turn, every[turn % 3])
            case.x = case.parts[shmem.my_pe()]
        made = plans_of_models._plans.values()
        rooms = {id(plan.space.room) for plan in made if plan.problem.tokens in lengths}
        assert len(rooms) <= (2 if schedule == "bulk_synchronous" else 1)  # some of its lengths want x copied


@every_schedule
def test_a_new_length_of_a_known_power_of_two_is_asked_of_no_other_pe(name, schedule, monkeypatch):
    Case(name, 7, 34).call(schedule)
    monkeypatch.setattr(plans_of_models, "require_alike", None)
    monkeypatch.setattr(workspace, "Room", None)
    for seed, tokens in enumerate((8, 5, 6, 7, 8)):
        case = Case(name, tokens, 34, seed=seed)
        case.check(case.call(schedule), tokens)


@every_operator
def test_operands_of_a_new_length_are_checked_on_their_own_pe(name):
    for tokens in (8, 6):
        Case(name, tokens, 34).call()
    case = Case(name, 7, 34)
    if case.me == 0:
        case.residual = case.residual[:-1]
        with refuses(name, "residual: got shape"):
            case.call()


@every_operator
def test_the_rows_of_two_calls_lie_in_different_slots(name):
    """A PE that is ahead sends those of its next call, of another length, while another one still reads these."""
    n, me = shmem.n_pes(), shmem.my_pe()
    cases = [Case(name, (3 if name == WHOLE else 3 * n) + more, 34, seed=more + 1) for more in range(2)]
    for case in cases:
        case.call("push")
        shmem.barrier_all()
    slots = next(iter(plans_of_models._plans.values())).space["slots"].view(2, n, -1, 34)
    for turn, case in enumerate(cases, 1):
        for pe, part in enumerate(case.parts):
            if pe != me:
                sent = part if name == WHOLE else part[case.share(me)]
                assert torch.equal(slots[turn % 2, pe, : len(sent)], sent.to(slots.dtype))


@pytest.mark.parametrize("name", [SHARE, GATHER])
def test_a_pe_without_rows_ends_no_call_before_all_pes_have_begun_it(name):
    """Else it would be two calls ahead, and write what another one still reads. Flags say which calls have begun."""
    case = Case(name, 1, 34)
    for turn in range(1, 4):
        case.call("push")
        if GPU:
            torch.cuda.synchronize()  # the call has ended, not only been enqueued
        flags = next(iter(plans_of_models._plans.values())).space["flags"]
        others = [pe for pe in range(shmem.n_pes()) if pe != shmem.my_pe()]
        assert all(shmem.signal_fetch(flags.view(2, -1)[0, pe : pe + 1]) >= turn for pe in others)


@every_schedule
def test_x_may_be_private_or_symmetric(name, schedule):
    case = Case(name, 2 * shmem.n_pes(), 34)
    case.check(case.call(schedule), "private")
    case.x = shmem.array(case.x)
    case.check(case.call(schedule), "symmetric")


@every_schedule
def test_addresses_and_results_of_one_pe_alone_find_the_plan(name, schedule):
    """They are private: no other PE waits, nor compiles. Results that peers write are the plan's."""
    case = Case(name, 2 * shmem.n_pes(), 34, torch.bfloat16)
    wanted = case.wanted
    case.check(case.call(schedule), wanted=wanted)
    if shmem.my_pe() == 0:
        case.x, case.residual, case.weight = map(odd, (case.x, case.residual, case.weight))
    case.check(case.call(schedule), "odd operands", wanted)
    if shmem.my_pe() == 0 and name != GATHER:
        results = tuple(odd(torch.zeros_like(each, dtype=case.dtype)) for each in wanted)
        assert case.call(schedule, out=results[0], residual_out=results[1]) == results
        case.check(results, "odd results", wanted)
    else:
        case.call(schedule)
    assert len(plans_of_models._plans) == 1


@every_operator
def test_what_one_pe_alone_has_wrong_is_refused_there_though_the_plan_is_ready(name):
    case = Case(name, 3, 8)
    case.call()
    gapped = torch.ones(3, 11, device=here())[:, :8]
    with refuses(name, r"x: got strides \(11, 1\)"):
        getattr(ops, name)(gapped, case.residual, case.weight, EPS)
    case.check(case.call())


@every_schedule
def test_the_residual_may_be_updated_in_place_and_nothing_else_is_written(name, schedule):
    case = Case(name, 3, 34, weight_dtype=torch.float32, dtype=torch.float16)
    kept, wanted = (case.weight.clone(), case.x.clone()), case.wanted
    (out, _), _ = poisoned(case)
    case.check(case.call(schedule, out=out, residual_out=case.residual), wanted=wanted)
    assert torch.equal(kept[0], case.weight) and torch.equal(kept[1], case.x)


@every_schedule
def test_results_are_the_callers_or_two_of_the_plan_in_turn(name, schedule):
    of_the_caller(lambda **more: Case(name, 3, 34).call(schedule, **more), tuple)


def test_teams_of_some_pes_sum_over_their_members(smaller_teams):
    for team in smaller_teams:
        for name, schedules in OPERATORS.items() if team else ():
            for schedule in schedules:
                case = Case(name, 3, 34, team=team)
                for _ in range(3):
                    case.check(case.call(schedule), (name, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_stays_with_its_token(schedule):
    case, last = Case(WHOLE, 3, 34), shmem.n_pes() - 1
    case.parts[last][1, 5] = float("nan")
    case.x = case.parts[shmem.my_pe()].clone()
    case.residual[2, 0] = float("inf")
    (out, kept), wanted = case.call(schedule), case.wanted
    assert out[1].isnan().all() and kept[1].isnan().tolist() == [place == 5 for place in range(34)]
    assert out[2].isnan().tolist() == [place == 0 for place in range(34)] and not out[2, 1:].any()
    for result, right in ((out[0], wanted[0][0]), (kept[0], wanted[1][0]), (kept[2, 1:], wanted[1][2, 1:])):
        close_to(result, right, BOUNDS[torch.float32])


@every_schedule
def test_no_tokens_give_empty_results(name, schedule):
    out, rest = Case(name, 0, 34).call(schedule)
    assert out.shape == rest.shape == (0, 34)


def test_auto_takes_words_then_push_then_what_needs_no_slots(monkeypatch):
    monkeypatch.setattr(of_all, "machine", lambda: Machine("nvidia", 132, 1, True))
    few, most = shmem.n_pes() <= 2, of_all.MOST_PUSHED
    chosen = [
        of_all._best(shmem.TEAM_WORLD, nbytes, True) for nbytes in (of_all.MOST_WORDS, of_all.MOST_WORDS + 1, most)
    ]
    assert chosen == (["words", "push", "push"] if few else ["words"] + 2 * ["bulk_synchronous"])
    assert of_all._best(shmem.TEAM_WORLD, 1, False) == ("push" if few else "bulk_synchronous")
    assert of_all._best(shmem.TEAM_WORLD, most + 1, True, scaled=True) == "bulk_synchronous"
    assert of_all._best(shmem.TEAM_WORLD, most + 1, True) == ("pull" if few else "bulk_synchronous")


def test_auto_pushes_few_rows_and_pulls_many(monkeypatch):
    monkeypatch.setattr(of_shares, "machine", lambda: Machine("nvidia", 132, 1, True))
    monkeypatch.setattr(shmem.TEAM_WORLD.meeting, "spans", False)
    most = of_shares.MOST_PUSHED if shmem.n_pes() <= 2 else of_shares.MOST_PUSHED_BY_MORE
    assert of_shares._best(shmem.TEAM_WORLD, most, True) == "push"
    assert of_shares._best(shmem.TEAM_WORLD, most + 1, False) == "pull"
    assert of_shares._best(shmem.TEAM_WORLD, most + 1, True) == "bulk_synchronous"


def operands(name=WHOLE):
    rows = 3 if name == WHOLE else share_of(3, shmem.my_pe(), shmem.n_pes())
    return {
        "x": torch.ones(3, 8, device=here()), "residual": torch.ones(rows, 8, device=here()),
        "weight": torch.ones(8, device=here()),
    }  # fmt: skip


REFUSED = [
    ("x: got list; expected a torch tensor", {"x": [1.0]}),
    (r"x: got shape \(8,\); expected shape \(tokens, hidden\)", {"x": torch.ones(8)}),
    ("x: got torch.int32; expected one of", {"x": torch.ones(3, 8, dtype=torch.int32)}),
    ("x: got rows of 0 elements", {"x": torch.ones(3, 0)}),
    (r"x: got strides \(1, 3\)", {"x": lambda x: x.T.contiguous().T}),
    ("residual: got torch.float16", {"residual": lambda residual: residual.half()}),
    (r"weight: got shape \(3,\); expected shape \(8,\)", {"weight": torch.ones(3)}),
    ("weight: got torch.bfloat16; expected one of torch.float32", {"weight": torch.ones(8, dtype=torch.bfloat16)}),
    ("eps: got -1", {"eps": -1}),
    ("eps: got True", {"eps": True}),
    (r"eps: got \[1e-05\]; expected a number", {"eps": [1e-5]}),
    ("team: got", {"team": shmem.TEAM_INVALID}),
    (r"residual: got shape \(4, 8\); expected shape \(\d, 8\)", {"residual": torch.ones(4, 8)}),
    ("out_dtype: got torch.float64; expected None, torch.float32", {"out_dtype": torch.float64}),
    ("schedule: got 'quick'; expected auto or ", {"schedule": "quick"}),
    (r"schedule: got \['words'\]; expected auto or ", {"schedule": ["words"]}),
]


@every_operator
@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed, name):
    given = operands(name)
    given |= placed({key: each(given[key]) if callable(each) else each for key, each in changed.items()})
    with refuses(name, message, shmem.ShmemError):
        getattr(ops, name)(**given)


@every_operator
def test_results_of_another_shape_or_one_alone_are_refused(name):
    given = operands(name)
    for message, results in (
        ("residual_out: got None", (torch.ones_like(given["residual" if name == SHARE else "x"]), None)),
        (r"out: got shape \(4, 8\); expected shape \(\d, 8\)", (torch.ones(4, 8, device=here()), given["residual"])),
    ):
        with refuses(name, message):
            getattr(ops, name)(**given, out=results[0], residual_out=results[1])


def test_results_in_memory_that_is_read_are_refused():
    given = operands()
    spare = torch.ones(3, 8, device=here())
    for name, results in (
        ("out: got memory of x", (given["x"], spare)), ("residual_out: got memory of x", (spare, given["x"])),
        ("out: got memory of residual", (given["residual"], spare)), ("out: got memory of residual_out", (spare, spare)),
    ):  # fmt: skip
        with refuses("all_reduce_rms_norm", f"{name};"):
            ops.all_reduce_rms_norm(**given, out=results[0], residual_out=results[1])


@pytest.mark.parametrize("schedule", ["push", "pull"])
def test_gathered_rows_are_not_stored_in_private_memory(schedule):
    """Not even where a call with symmetric results has made a plan."""
    case = Case(GATHER, 3, 34)
    results, _ = poisoned(case)
    case.call(schedule, out=results[0], residual_out=results[1])
    private = torch.full_like(results[0], 7.0)
    with refuses("reduce_scatter_rms_norm_all_gather", "out: got .*private", shmem.NotSymmetricError):
        case.call(schedule, out=private, residual_out=results[1])
    assert (private == 7).all()


@pytest.mark.parametrize("name", [WHOLE, SHARE])
def test_a_refusal_of_one_pe_is_raised_on_all(name):
    """The others would wait in a kernel for it."""
    refused_on_all_pes(name, operands(name), "weight")


def test_pes_that_call_differently_are_refused_on_all():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    given = operands() | {"eps": 1e-6 if shmem.my_pe() == 0 else 1e-5}
    with refuses("all_reduce_rms_norm", "eps: got 1e-06 on PE 0 and 1e-05 on PE 1; expected the same call"):
        ops.all_reduce_rms_norm(**given)


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@every_schedule
def test_graphs_capture_and_replay_every_schedule(name, schedule):
    case = Case(name, 9, 1024, torch.bfloat16)
    case.x = shmem.array(case.x)
    for result in replayed(lambda: case.call(schedule)):
        case.check(result)
