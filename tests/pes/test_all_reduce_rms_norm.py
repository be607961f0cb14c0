"""all_reduce_rms_norm: every schedule and dtype against float64, on poisoned results, with the same bits on all PEs."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, equal_on_all_pes, placed, random, refused_on_all_pes, replayed
from pyshmem import ops
from pyshmem.ops.machine import Machine
from pyshmem.ops.norms import all_reduce_rms_norm as norm
from pyshmem.ops import plans as plans_of_models
from pyshmem.ops.norms.all_reduce_rms_norm import reference
from pyshmem.ops.norms.schedules import SCHEDULES
from support import here, work

pytestmark = pytest.mark.usefixtures("plans_closed")

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
EPS = 1e-5
GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


class Case:
    """Operands of all PEs of a team, and what is wanted here, in float64."""

    def __init__(self, tokens=5, hidden=70, dtype=torch.float32, seed=1, team=None, weight_dtype=None):
        self.team = shmem.TEAM_WORLD if team is None else team
        self.parts = [random(seed * 100 + pe, tokens, hidden, dtype=dtype) for pe in range(self.team.n_pes())]
        self.x = self.parts[self.team.my_pe()].clone()
        self.residual = random(seed * 100 + 50, tokens, hidden, dtype=dtype)
        self.weight = random(seed * 100 + 51, hidden, dtype=weight_dtype or dtype)
        self.wanted = reference(self.parts, self.residual, self.weight, EPS)
        self.dtype = dtype

    def call(self, schedule="auto", **more):
        return ops.all_reduce_rms_norm(
            self.x, self.residual, self.weight, EPS, team=self.team, schedule=schedule, **more
        )

    def check(self, results, note=""):
        for name, result, wanted in zip(("out", "residual_out"), results, self.wanted, strict=True):
            assert result.shape == wanted.shape and result.dtype == self.dtype
            close_to(result, wanted, BOUNDS[self.dtype], f"{name} {note}")


def poisoned(case):
    """Two results full of NaN."""
    return [torch.full_like(case.x, float("nan")) for _ in range(2)]


@every_schedule
def test_every_schedule_gives_the_norm_and_the_residual_at_odd_sizes(schedule):
    for dtype in BOUNDS:
        for tokens, hidden in ((1, 34), (5, 70), (3, 2)) if schedule == "words" else ((1, 37), (5, 70), (3, 1)):
            case = Case(tokens, hidden, dtype)
            results = poisoned(case)
            assert case.call(schedule, out=results[0], residual_out=results[1]) == tuple(results)
            case.check(results, (dtype, tokens, hidden))


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@every_schedule
def test_every_schedule_gives_the_norm_at_the_sizes_of_models(schedule):
    for tokens, hidden in ((1, 8192), (8, 8192), (64, 8192), (513, 8192), (40, 7168), (17, 5120), (3, 16384)):
        if schedule == "words" and hidden > 8192:
            continue
        case = Case(tokens, hidden, torch.bfloat16)
        for _ in range(3):
            results = poisoned(case)
            case.call(schedule, out=results[0], residual_out=results[1])
            case.check(results, (tokens, hidden))


@every_schedule
def test_all_pes_get_the_same_bits_and_schedules_agree_on_the_residual(schedule):
    case = Case(4, 70, torch.bfloat16)
    results = [shmem.array(each) for each in case.call(schedule)]
    for result in results:
        equal_on_all_pes(result)
    assert torch.equal(case.call("bulk_synchronous")[1], results[1])


@every_schedule
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(schedule):
    """Each call has other values in the same x, which is overwritten as soon as the stream has done the call before."""
    cases = [Case(3, 34, seed=seed) for seed in range(3)]
    x = shmem.empty(cases[0].x.shape)
    for turn in range(1000 if GPU else 9):
        case = cases[turn % 3]
        if shmem.my_pe() == turn // 2 % shmem.n_pes():
            work(20000)
        x.copy_(case.x)
        case.x = x
        before = case.call(schedule)
        if turn < 10 or turn % 97 == 0:
            case.check(before, turn)
        case.x = case.parts[shmem.my_pe()]


def test_the_rows_of_two_calls_lie_in_different_slots():
    """A PE that is ahead sends those of its next call while another one still reads these."""
    cases = [Case(2, 34, seed=seed) for seed in (1, 2)]
    for case in cases:
        case.call("push")
        shmem.barrier_all()
    slots = next(iter(plans_of_models._plans.values())).space["slots"].view(2, shmem.n_pes(), 2, 34)
    for turn, case in enumerate(cases, 1):
        for pe, part in enumerate(case.parts):
            if pe != shmem.my_pe():
                assert torch.equal(slots[turn % 2, pe], part)


@every_schedule
def test_x_may_be_private_or_symmetric(schedule):
    case = Case(3, 34)
    case.check(case.call(schedule), "private")
    case.x = shmem.array(case.x)
    case.check(case.call(schedule), "symmetric")


@every_schedule
def test_the_residual_may_be_updated_in_place_and_nothing_else_is_written(schedule):
    case = Case(3, 34, weight_dtype=torch.float32, dtype=torch.float16)
    kept = case.weight.clone(), case.x.clone()
    out = poisoned(case)[0]
    case.check(case.call(schedule, out=out, residual_out=case.residual))
    assert torch.equal(kept[0], case.weight) and torch.equal(kept[1], case.x)


@every_schedule
def test_results_of_the_plan_live_until_the_next_call_but_one(schedule):
    cases = [Case(2, 34, seed=seed) for seed in (1, 2, 3)]
    results = [case.call(schedule) for case in cases[:2]]
    for case, result in zip(cases, results, strict=False):
        case.check(result)
    assert cases[2].call(schedule)[0].data_ptr() == results[0][0].data_ptr()


def test_teams_of_some_pes_sum_over_their_members(smaller_teams):
    for team in smaller_teams:
        for schedule in SCHEDULES if team else ():
            case = Case(3, 34, team=team)
            for _ in range(3):
                case.check(case.call(schedule), schedule)


@every_schedule
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_stays_with_its_token(schedule):
    case, last = Case(3, 34), shmem.n_pes() - 1
    case.parts[last][1, 5] = float("nan")
    case.x = case.parts[shmem.my_pe()].clone()
    case.residual[2, 0] = float("inf")
    out, kept = case.call(schedule)
    wanted = reference(case.parts, case.residual, case.weight, EPS)
    assert out[1].isnan().all() and kept[1].isnan().tolist() == [place == 5 for place in range(34)]
    assert out[2].isnan().tolist() == [place == 0 for place in range(34)] and not out[2, 1:].any()
    for result, right in ((out[0], wanted[0][0]), (kept[0], wanted[1][0]), (kept[2, 1:], wanted[1][2, 1:])):
        close_to(result, right, BOUNDS[torch.float32])


@every_schedule
def test_no_tokens_give_empty_results(schedule):
    out, rest = Case(0, 34).call(schedule)
    assert out.shape == rest.shape == (0, 34)


def test_auto_takes_words_then_push_then_what_needs_no_slots(monkeypatch):
    monkeypatch.setattr(norm, "machine", lambda: Machine("nvidia", 132, 1, True))
    few = shmem.n_pes() <= 2
    most = norm.MOST_PUSHED if few else norm.MOST_PUSHED_BY_MORE
    chosen = [norm._best(shmem.TEAM_WORLD, nbytes, True) for nbytes in (norm.MOST_WORDS, norm.MOST_WORDS + 1, most)]
    assert chosen == ["words", "push", "push"]
    assert norm._best(shmem.TEAM_WORLD, 1, False) == "push"
    assert norm._best(shmem.TEAM_WORLD, most + 1, True, scaled=True) == "bulk_synchronous"
    assert norm._best(shmem.TEAM_WORLD, most + 1, True) == ("pull" if few else "bulk_synchronous")


def operands():
    return {
        "x": torch.ones(3, 8, device=here()), "residual": torch.ones(3, 8, device=here()),
        "weight": torch.ones(8, device=here()),
    }  # fmt: skip


REFUSED = [
    ("x: got list; wants a torch tensor", {"x": [1.0]}),
    (r"x: got shape \(8,\); wants shape \(tokens, hidden\)", {"x": torch.ones(8)}),
    ("x: got torch.int32; wants one of", {"x": torch.ones(3, 8, dtype=torch.int32)}),
    ("x: got rows of 0 elements", {"x": torch.ones(3, 0)}),
    (r"x: got strides \(1, 3\)", {"x": "transposed"}),
    (r"residual: got shape \(2, 8\); wants shape \(3, 8\)", {"residual": torch.ones(2, 8)}),
    ("residual: got torch.float16", {"residual": torch.ones(3, 8, dtype=torch.float16)}),
    (r"weight: got shape \(3,\); wants shape \(8,\)", {"weight": torch.ones(3)}),
    ("weight: got torch.bfloat16; wants one of torch.float32", {"weight": torch.ones(8, dtype=torch.bfloat16)}),
    ("eps: got -1", {"eps": -1}),
    ("eps: got True", {"eps": True}),
    ("schedule: got 'quick'; wants auto or words", {"schedule": "quick"}),
    (r"schedule: got \['words'\]; wants auto or words", {"schedule": ["words"]}),
    (r"eps: got \[1e-05\]; wants a number", {"eps": [1e-5]}),
    ("residual_out: got None", {"out": torch.ones(3, 8)}),
    ("out: got shape", {"out": torch.ones(3, 9), "residual_out": torch.ones(3, 8)}),
    ("team: got", {"team": shmem.TEAM_INVALID}),
]


@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed):
    given = placed(operands() | changed)
    if given["x"] == "transposed":
        given["x"] = torch.ones(8, 3, device=here()).T
    with pytest.raises(shmem.ShmemError, match=rf"^all_reduce_rms_norm: PE \d+: {message}"):
        ops.all_reduce_rms_norm(**given)


def test_results_in_memory_that_is_read_are_refused():
    given = operands()
    spare = torch.ones(3, 8, device=here())
    for name, results in (
        ("out: got memory of x", (given["x"], spare)), ("residual_out: got memory of x", (spare, given["x"])),
        ("out: got memory of residual", (given["residual"], spare)), ("out: got memory of residual_out", (spare, spare)),
    ):  # fmt: skip
        with pytest.raises(shmem.ArgumentError, match=rf"^all_reduce_rms_norm: PE \d+: {name};"):
            ops.all_reduce_rms_norm(**given, out=results[0], residual_out=results[1])


def test_a_refusal_of_one_pe_is_raised_on_all():
    """The others would wait in a kernel for it."""
    refused_on_all_pes("all_reduce_rms_norm", operands(), "weight")


def test_pes_that_call_differently_are_refused_on_all():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    given = operands() | {"eps": 1e-6 if shmem.my_pe() == 0 else 1e-5}
    with pytest.raises(
        shmem.ArgumentError, match=r"^all_reduce_rms_norm: PE .*: x: got .*1e-06.* on PE 0 and .*1e-05.* on PE 1"
    ):
        ops.all_reduce_rms_norm(**given)


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@every_schedule
def test_graphs_capture_and_replay_every_schedule(schedule):
    case = Case(9, 1024, torch.bfloat16)
    case.x = shmem.array(case.x)
    for result in replayed(lambda: case.call(schedule)):
        case.check(result)
