"""reduce_scatter_rms_norm and its form with an all-gather: every schedule against float64, on shares of any size."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, equal_on_all_pes, placed, random, refused_on_all_pes, replayed
from pyshmem import ops
from pyshmem.ops.machine import Machine
from pyshmem.ops import plans as plans_of_models
from pyshmem.ops.norms import reduce_scatter_rms_norm as norm
from pyshmem.ops.norms.reduce_scatter_rms_norm import reference
from pyshmem.ops.shares import share_of, start_of
from support import here, work

pytestmark = pytest.mark.usefixtures("plans_closed")

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
EPS = 1e-5
GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", norm.SHARES)
both = pytest.mark.parametrize("name", [norm.NAME, norm.GATHER])


class Case:
    """Operands of all PEs of a team, and what is wanted here, in float64."""

    def __init__(self, name, tokens=5, hidden=70, dtype=torch.float32, seed=1, team=None, weight_dtype=None):
        self.team, self.name, self.dtype = shmem.TEAM_WORLD if team is None else team, name, dtype
        me, n = self.team.my_pe(), self.team.n_pes()
        self.parts = [random(seed * 100 + pe, tokens, hidden, dtype=dtype) for pe in range(n)]
        self.x = self.parts[me].clone()
        residual = random(seed * 100 + 50, tokens, hidden, dtype=dtype)
        self.weight = random(seed * 100 + 51, hidden, dtype=weight_dtype or dtype)
        shares = [slice(start_of(tokens, pe, n), start_of(tokens, pe, n) + share_of(tokens, pe, n)) for pe in range(n)]
        self.residual = residual[shares[me]].clone()
        every = [reference(self.parts, residual[shares[pe]], self.weight, EPS, pe) for pe in range(n)]
        self.wanted = every[me]
        if name == norm.GATHER:
            self.wanted = torch.cat([made for made, _ in every]), every[me][1]

    def call(self, schedule="auto", **more):
        operator = getattr(ops, self.name)
        return operator(self.x, self.residual, self.weight, EPS, team=self.team, schedule=schedule, **more)

    def check(self, results, note=""):
        for name, result, wanted in zip(("out", "residual_out"), results, self.wanted, strict=True):
            assert result.shape == wanted.shape and result.dtype == self.dtype
            close_to(result, wanted, BOUNDS[self.dtype], f"{name} {note}")


def poisoned(case):
    """Two results full of NaN, with a guard behind, after a barrier: a PE that is ahead writes those of the others."""
    most = len(case.x) + 1
    found = [shmem.full((most, case.x.shape[1]), float("nan"), dtype=case.dtype) for _ in range(2)]
    shmem.barrier_all()
    return [each[: len(wanted)] for each, wanted in zip(found, case.wanted, strict=True)], found


@both
@every_schedule
def test_every_schedule_gives_the_norm_and_the_residual_of_shares_of_odd_sizes(schedule, name):
    for dtype in BOUNDS:
        for tokens, hidden in ((1, 37), (7, 70), (2, 1)):
            case = Case(name, tokens, hidden, dtype)
            results, whole = poisoned(case)
            assert case.call(schedule, out=results[0], residual_out=results[1]) == tuple(results)
            case.check(results, (dtype, tokens, hidden))
            shmem.barrier_all()
            assert all(each[len(result) :].isnan().all() for each, result in zip(whole, results, strict=True))


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@both
@every_schedule
def test_every_schedule_gives_the_norm_at_the_sizes_of_models(schedule, name):
    for tokens, hidden in ((1, 8192), (9, 8192), (513, 8192), (40, 7168), (2000, 5120)):
        case = Case(name, tokens, hidden, torch.bfloat16)
        for _ in range(3):
            results, _ = poisoned(case)
            case.call(schedule, out=results[0], residual_out=results[1])
            case.check(results, (tokens, hidden))


@both
@every_schedule
def test_the_residual_has_the_bits_of_the_all_reduce_and_gathered_rows_are_the_same_on_all_pes(schedule, name):
    case = Case(name, 6, 70, torch.bfloat16)
    made, kept = case.call(schedule)
    if name == norm.GATHER:
        equal_on_all_pes(shmem.array(made))
    mine = slice(start_of(6, shmem.my_pe(), shmem.n_pes()), None)
    whole = torch.zeros_like(case.x)
    whole[mine][: len(kept)] = case.residual
    wanted = ops.all_reduce_rms_norm(case.x, whole, case.weight, EPS, schedule="pull")
    assert torch.equal(kept, wanted[1][mine][: len(kept)])


@both
@every_schedule
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(schedule, name):
    """Each call has other values in the same x, which is overwritten as soon as the stream has done the call before.

    One token: all PEs but the first have no rows, and wait for nobody's data.
    """
    for tokens in (1, 5):
        cases = [Case(name, tokens, 34, seed=seed) for seed in range(3)]
        x = shmem.empty(cases[0].x.shape)
        for turn in range(500 if GPU else 6):
            case = cases[turn % 3]
            if shmem.my_pe() == turn // 2 % shmem.n_pes():
                work(20000)
            x.copy_(case.x)
            case.x = x
            found = case.call(schedule)
            if turn < 10 or turn % 97 == 0:
                case.check(found, turn)
            case.x = case.parts[shmem.my_pe()]


@both
def test_the_rows_of_two_calls_lie_in_different_slots(name):
    """A PE that is ahead sends those of its next call while another one still reads these."""
    n, me = shmem.n_pes(), shmem.my_pe()
    cases = [Case(name, 2 * n, 34, seed=seed) for seed in (1, 2)]
    for case in cases:
        case.call("push")
        shmem.barrier_all()
    slots = next(iter(plans_of_models._plans.values())).space["slots"].view(2, n, 2, 34)
    for turn, case in enumerate(cases, 1):
        for pe, part in enumerate(case.parts):
            sent = part[2 * me : 2 * me + 2] if pe != me else torch.zeros(2, 34, device=here())  # nothing to itself
            assert torch.equal(slots[turn % 2, pe], sent.to(slots.dtype))


@both
def test_a_pe_without_rows_ends_no_call_before_all_pes_have_begun_it(name):
    """Else it would be two calls ahead, and write what another one still reads. Flags say which calls have begun."""
    case = Case(name, 1, 34)
    for turn in range(1, 4):
        case.call("push")
        flags = next(iter(plans_of_models._plans.values())).space["flags"]
        others = [pe for pe in range(shmem.n_pes()) if pe != shmem.my_pe()]
        assert all(flags.view(2, -1)[0, pe].item() >= turn for pe in others)


@both
@every_schedule
def test_x_may_be_private_or_symmetric(schedule, name):
    case = Case(name, 2 * shmem.n_pes(), 34)
    case.check(case.call(schedule), "private")
    case.x = shmem.array(case.x)
    case.check(case.call(schedule), "symmetric")


@both
@every_schedule
def test_the_residual_may_be_updated_in_place_and_nothing_else_is_written(schedule, name):
    case = Case(name, 3, 34, weight_dtype=torch.float32, dtype=torch.float16)
    kept = case.weight.clone(), case.x.clone()
    (out, _), _ = poisoned(case)
    case.check(case.call(schedule, out=out, residual_out=case.residual))
    assert torch.equal(kept[0], case.weight) and torch.equal(kept[1], case.x)


@both
@every_schedule
def test_results_of_the_plan_live_until_the_next_call_but_one(schedule, name):
    cases = [Case(name, 3, 34, seed=seed) for seed in (1, 2, 3)]
    results = [case.call(schedule) for case in cases[:2]]
    for case, result in zip(cases, results, strict=False):
        case.check(result)
    assert cases[2].call(schedule)[0].data_ptr() == results[0][0].data_ptr()


def test_teams_of_some_pes_sum_over_their_members(smaller_teams):
    for team in smaller_teams:
        for name in (norm.NAME, norm.GATHER) if team else ():
            for schedule in norm.SHARES:
                case = Case(name, 3, 34, team=team)
                for _ in range(2):
                    case.check(case.call(schedule), schedule)


@both
@every_schedule
def test_no_tokens_give_empty_results(schedule, name):
    out, rest = Case(name, 0, 34).call(schedule)
    assert out.shape == rest.shape == (0, 34)


def test_auto_pushes_few_rows_and_pulls_many(monkeypatch):
    monkeypatch.setattr(norm, "machine", lambda: Machine("nvidia", 132, 1, True))
    monkeypatch.setattr(shmem.TEAM_WORLD.meeting, "spans", False)
    assert norm._best(shmem.TEAM_WORLD, norm.MOST_PUSHED, True) == "push"
    assert norm._best(shmem.TEAM_WORLD, norm.MOST_PUSHED + 1, False) == "pull"
    assert norm._best(shmem.TEAM_WORLD, norm.MOST_PUSHED + 1, True) == "bulk_synchronous"


def operands():
    share = share_of(3, shmem.my_pe(), shmem.n_pes())
    return {
        "x": torch.ones(3, 8, device=here()), "residual": torch.ones(share, 8, device=here()),
        "weight": torch.ones(8, device=here()),
    }  # fmt: skip


REFUSED = [
    ("x: got list; wants a torch tensor", {"x": [1.0]}),
    (r"residual: got shape \(4, 8\); wants shape \(\d, 8\)", {"residual": torch.ones(4, 8)}),
    ("weight: got torch.bfloat16; wants one of torch.float32", {"weight": torch.ones(8, dtype=torch.bfloat16)}),
    ("eps: got -1", {"eps": -1}),
    ("schedule: got 'words'; wants auto or push", {"schedule": "words"}),
    ("out_dtype: got torch.float64; wants None, torch.float32", {"out_dtype": torch.float64}),
    ("team: got", {"team": shmem.TEAM_INVALID}),
]


@both
@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed, name):
    with pytest.raises(shmem.ShmemError, match=rf"^{name}: PE \d+: {message}"):
        getattr(ops, name)(**placed(operands() | changed))


def test_results_have_the_shape_of_the_share_or_of_all_rows():
    for name, rows in ((norm.NAME, 4), (norm.GATHER, 4)):
        given = operands() | {"out": torch.ones(rows, 8, device=here())}
        given["residual_out"] = torch.ones_like(given["residual"])
        with pytest.raises(
            shmem.ArgumentError, match=rf"^{name}: PE \d+: out: got shape \(4, 8\); wants shape \(\d, 8\)"
        ):
            getattr(ops, name)(**given)


@pytest.mark.parametrize("schedule", ["push", "pull"])
def test_gathered_rows_are_not_stored_in_private_memory(schedule):
    """Not even where a call with symmetric results has made a plan."""
    case = Case(norm.GATHER, 3, 34)
    results, _ = poisoned(case)
    case.call(schedule, out=results[0], residual_out=results[1])
    private = torch.full_like(results[0], 7.0)
    with pytest.raises(
        shmem.NotSymmetricError, match=r"^reduce_scatter_rms_norm_all_gather: PE \d+: out: got .*private"
    ):
        case.call(schedule, out=private, residual_out=results[1])
    assert (private == 7).all()


def test_a_refusal_of_one_pe_is_raised_on_all():
    refused_on_all_pes("reduce_scatter_rms_norm", operands(), "weight")


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@both
@every_schedule
def test_graphs_capture_and_replay_every_schedule(schedule, name):
    case = Case(name, 9, 1024, torch.bfloat16)
    case.x = shmem.array(case.x)
    for result in replayed(lambda: case.call(schedule)):
        case.check(result)
