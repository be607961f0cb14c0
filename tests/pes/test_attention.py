"""attention: sequences that are divided among PEs in both orders, uneven, masked and of odd sizes, against float64."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, odd, of_the_caller, placed, random, refused_on_all_pes, replayed
from pyshmem import ops
from pyshmem.ops import plans, workspace
from pyshmem.ops import torch as tp
from pyshmem.ops.attention import prefill_schedules as attention_schedules
from pyshmem.ops.attention import prefill_slots
from pyshmem.ops.attention.prefill import places_of, reference
from pyshmem.ops.attention.prefill_schedules import SCHEDULES
from pyshmem.ops.attention.segments import ORDERS
from support import be_late, here, refuses, work

pytestmark = pytest.mark.usefixtures("plans_closed")

BOUNDS = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}
GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
every_order = pytest.mark.parametrize("order", ORDERS)


def dtypes_of(schedule):
    """Torch's kernels give the sums of weights that several PEs need on GPUs for 16 bits alone."""
    return list(BOUNDS)[1:] if schedule == "library" and GPU and shmem.n_pes() > 1 else list(BOUNDS)


class Case:
    """A batch of sequences that the PEs of a team have in an order, and what is wanted here, in float64."""

    def __init__(
        self, size=45, batch=1, heads=2, kv_heads=1, dim=16, dtype=torch.float32, seed=1, team=None, order="contiguous",
        causal=True, scale=None,
    ):  # fmt: skip
        self.team = shmem.TEAM_WORLD if team is None else team
        me, n = self.team.my_pe(), self.team.n_pes()
        self.dtype, self.options = dtype, {"causal": causal, "scale": scale, "order": order}
        q = random(seed, batch, size, heads, dim, dtype=dtype)
        k, v = (random(seed + i, batch, size, kv_heads, dim, dtype=dtype) for i in (100, 200))
        places = places_of(size, me, n, order).to(here())
        self.q, self.k, self.v = (each[:, places].contiguous() for each in (q, k, v))
        self.wanted, self.size = reference(self.q, places, k, v, causal, scale), size

    def call(self, schedule="auto", **more):
        options = {"size": self.size, "team": self.team, "schedule": schedule} | self.options | more
        return ops.attention(self.q, self.k, self.v, **options)

    def check(self, result, note=""):
        assert result.shape == self.wanted.shape and result.dtype == self.dtype
        if result.numel():
            close_to(result, self.wanted, BOUNDS[self.dtype], note)


@every_schedule
@every_order
def test_every_schedule_gives_the_attention_of_this_pes_tokens(schedule, order):
    for dtype, causal in zip(dtypes_of(schedule), (True, False, True), strict=False):
        case = Case(dtype=dtype, order=order, causal=causal)
        out = torch.full_like(case.q, float("nan"))
        assert case.call(schedule, out=out) is out
        case.check(out, (dtype, causal))


@every_schedule
def test_addresses_and_results_of_one_pe_alone_find_the_plan(schedule):
    case = Case(dtype=dtypes_of(schedule)[0])
    case.check(case.call(schedule))
    if shmem.my_pe() == 0:
        case.q, case.k, case.v = map(odd, (case.q, case.k, case.v))
        out = odd(torch.zeros_like(case.q))
        assert case.call(schedule, out=out) is out
        case.check(out)
    else:
        case.check(case.call(schedule))
    (plan,) = plans._plans.values()
    if schedule != "library":  # torch compiles nothing
        assert len(plan._step.kernel._forms) == (2 if shmem.my_pe() == 0 else 1), "kernels are compiled for addresses"


@pytest.mark.parametrize("heads, kv_heads, dim", [(1, 1, 16), (4, 2, 8), (2, 2, 20)])
def test_numbers_of_heads_and_their_widths_are_any(heads, kv_heads, dim):
    case = Case(33, 2, heads, kv_heads, dim, order="zigzag")
    for schedule in ("auto", "copy_engine"):
        case.check(case.call(schedule))


@every_order
@pytest.mark.parametrize("size", [0, 1, 2, 5, 17, 32, 100])
def test_any_number_of_tokens_is_divided_among_the_pes(order, size):
    """Shares without tokens, of less than a tile, of a tile, and of several that are not whole."""
    for schedule in SCHEDULES:
        case = Case(size, heads=1, order=order, dtype=dtypes_of(schedule)[0])
        case.check(case.call(schedule))


@every_order
def test_even_shares_need_no_size(order):
    case = Case(2 * 7 * shmem.n_pes(), order=order)
    case.check(case.call(size=None))


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@every_schedule
def test_every_schedule_gives_the_attention_at_the_sizes_of_models(schedule):
    for size, batch, dim, dtype, order, causal in (
        (4096, 1, 128, torch.bfloat16, "zigzag", True), (1000, 3, 64, torch.float16, "contiguous", True),
        (3000, 1, 192, torch.bfloat16, "zigzag", False), (1000, 1, 128, torch.float32, "zigzag", True),
    ):  # fmt: skip
        case = Case(size, batch, 8, 2, dim, dtype, order=order, causal=causal)
        if dtype not in dtypes_of(schedule) or (dim > 128 and dtypes_of(schedule) != list(BOUNDS)):
            continue
        for _ in range(3):
            out = torch.full_like(case.q, float("nan"))
            case.check(case.call(schedule, out=out), (dtype, dim, size, causal))


def test_scale_is_any_number():
    for scale in (0.0, 0.7, -0.7):
        case = Case(scale=scale)
        case.check(case.call(), scale)
        case.check(case.call("copy_engine"), scale)


@every_schedule
def test_a_causal_mask_hides_later_keys(schedule):
    """Those of later tokens, here and on later PEs."""
    case = Case(20 * shmem.n_pes(), dtype=dtypes_of(schedule)[0])
    usual = case.call(schedule).clone()
    first = 7 if shmem.my_pe() == 0 else 0  # on PE 0 from the eighth token on, and all of the others
    case.k[:, first:], case.v[:, first:] = 1e4, 1e4
    found = case.call(schedule)
    if shmem.my_pe() == 0:
        assert torch.equal(found[:, :7], usual[:, :7])
    assert (found[:, first:] != usual[:, first:]).any(-1).all()


@every_schedule
def test_not_a_number_in_a_key_reaches_the_queries_that_see_it_and_no_others(schedule):
    case = Case(20 * shmem.n_pes(), heads=2, kv_heads=2, dtype=dtypes_of(schedule)[0])
    if shmem.my_pe() == 0:
        case.k[0, 7, 1, 3] = float("nan")
    found = case.call(schedule)
    first = 7 if shmem.my_pe() == 0 else 0
    assert found[:, first:, 1].isnan().all()
    for result, wanted in ((found[:, :, 0], case.wanted[:, :, 0]), (found[:, :first, 1], case.wanted[:, :first, 1])):
        if result.numel():
            close_to(result, wanted, BOUNDS[case.dtype])


@every_schedule
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(schedule, monkeypatch):
    """Each call has other values in the same memory, overwritten as soon as the stream has done the call before."""
    puts = prefill_slots.put

    def late(*given):  # the others have made the tiles of their own keys by then
        be_late((4000 if GPU else 4000000) // shmem.n_pes() if shmem.my_pe() == 0 else 0)
        puts(*given)

    monkeypatch.setattr(prefill_slots, "put", late)
    dtype = dtypes_of(schedule)[0]
    cases = [Case(20, heads=1, seed=seed, causal=False, dtype=dtype) for seed in range(3)]
    q, k, v = (each.clone() for each in (cases[0].q, cases[0].k, cases[0].v))
    for turn in range(300 if GPU else 4):
        case = cases[turn % 3]
        if shmem.my_pe() == turn // 2 % shmem.n_pes():
            work(20000)
        for mine, its in ((q, case.q), (k, case.k), (v, case.v)):
            mine.copy_(its)
        result = ops.attention(q, k, v, size=case.size, schedule=schedule, reuse=True, **case.options)
        if turn < 10 or turn % 97 == 0:
            case.check(result, turn)


@every_schedule
@every_order
def test_sequences_of_other_lengths_share_memory_and_are_right_in_any_order(schedule, order, monkeypatch):
    """Those of a known power of two, where there is room, are asked of no other PE. The one that grew made the room."""
    cases = [Case(size, seed=size, order=order, dtype=dtypes_of(schedule)[0]) for size in (40, 64, 33, 52, 3, 64, 47)]
    for turn, case in enumerate(cases):
        if turn == 2:
            monkeypatch.setattr(workspace, "Room", None)
        case.check(case.call(schedule), turn)
        if shmem.my_pe() == turn % shmem.n_pes():
            be_late(20000 if GPU else 300_000)
    monkeypatch.setattr(plans, "require_alike", None)
    for size in (64, 35, 61, 52):
        case = Case(size, seed=size + 1, order=order, dtype=dtypes_of(schedule)[0])
        case.check(case.call(schedule), size)
    assert len({id(plan.space.room) for plan in plans._plans.values()}) == 2


def test_own_keys_are_stored_behind_the_start_of_all_pes(monkeypatch):
    """Until then peers may put keys of a call of another length to this place. Streams alone show it, if a peer is late."""
    steps = []
    for owner, name in ((attention_schedules, "await_mark"), (attention_schedules.CopyEngine, "store")):
        usual = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, name=name, usual=usual: (steps.append(name), usual(*given)))
    Case().call("copy_engine")
    assert steps == ["await_mark", "store"]


def test_programs_dealt_to_chiplets_make_every_tile(monkeypatch):
    """As on a GPU of three, which each have heads in succession."""
    whole = attention_schedules.machine()
    monkeypatch.setattr(attention_schedules, "machine", lambda: whole._replace(chiplets=3))
    case = Case(100, heads=4, kv_heads=2)
    case.check(case.call("copy_engine"))


class Gradients:
    """A sequence that the PEs have in an order, and the gradients of this PE's part, in float64."""

    def __init__(self, size, order, causal, dtype, heads=4, kv_heads=2, dim=16, team=None):
        team = shmem.TEAM_WORLD if team is None else team
        me, n = team.my_pe(), team.n_pes()
        self.options = {"causal": causal, "order": order, "size": size, "team": team}
        shapes = (heads, kv_heads, kv_heads, heads)
        whole = [random(i, 2, size, each, dim, dtype=dtype) for i, each in enumerate(shapes)]
        places, self.dtype = places_of(size, me, n, order).to(here()), dtype
        *self.given, self.gradient = (each[:, places].contiguous() for each in whole)
        exact = [each.double().requires_grad_() for each in whole[:3]]
        found = reference(exact[0], torch.arange(size, device=here()), *exact[1:], causal)
        self.wanted = [each[:, places] for each in torch.autograd.grad(found, exact, whole[3].double())]

    def check(self, call=ops.attention, **more):
        given = [each.detach().requires_grad_() for each in self.given]
        result = call(*given, **self.options | more)
        for found, wanted in zip(torch.autograd.grad(result, given, self.gradient), self.wanted, strict=True):
            assert found.dtype == self.dtype and found.shape == wanted.shape
            error = (found.double() - wanted).norm() / wanted.norm().clamp(min=1)  # those of a single key are 0
            assert error < 3 * BOUNDS[self.dtype], (self.options, more, error)


@every_order
@pytest.mark.parametrize("size", [0, 1, 3, 45] if GPU else [0, 1, 45])
def test_gradients_of_any_number_of_tokens_are_those_of_the_whole_sequence(size, order):
    """Sums of all PEs' queries for a PE's keys, with heads that share them, by torch's kernels and by gathered keys."""
    for causal in (True, False):
        for schedule in ("library", "bulk_synchronous"):
            Gradients(size, order, causal, dtypes_of(schedule)[0]).check(schedule=schedule)


@pytest.mark.skipif(not GPU, reason="the CPU has other kernels")
@every_order
@pytest.mark.parametrize("dim", [64, 128])
def test_gradients_by_torchs_kernels_at_the_sizes_of_models(dim, order):
    for size, causal, dtype in ((2001, True, torch.bfloat16), (1024, True, torch.float16), (777, False, torch.float16)):
        Gradients(size, order, causal, dtype, 8, 2, dim).check()


def test_torchs_kernels_make_the_gradients_wherever_they_made_the_result(monkeypatch):
    """Without another forward pass, and one behind the other in the same memory, though what one PE sends is late."""
    puts = prefill_slots.put

    def late(*given):
        work(400000 // shmem.n_pes() if not GPU and shmem.my_pe() == 0 else 0)
        puts(*given)

    monkeypatch.setattr(prefill_slots, "put", late)
    dtype = torch.float16 if GPU else torch.float32  # for which torch's kernels give the sums of weights
    cases = [Gradients(45, "zigzag", causal, dtype) for causal in (True, False)]
    for case in cases * 2:
        case.check(schedule="library")
        case.check(tp.attention, schedule="library", team="world")
    assert {key[0] for key in plans._plans} == {"attention", "attention_backward"}


def test_teams_of_some_pes_share_their_tokens(smaller_teams):
    for team in smaller_teams:
        for schedule in SCHEDULES if team else ():
            case = Case(heads=1, team=team, order="zigzag", dtype=dtypes_of(schedule)[0])
            case.check(case.call(schedule), schedule)


def test_results_are_the_callers_or_two_of_the_plan_in_turn():
    of_the_caller(Case().call)


def test_no_sequences_give_an_empty_result():
    assert Case(6, 0).call().shape == Case(6, 0).q.shape


def operands():
    k, v = (torch.ones(2, 5, 2, 16, device=here()) for _ in range(2))
    return {"q": torch.ones(2, 5, 4, 16, device=here()), "k": k, "v": v}


REFUSED = [
    ("q: got int; expected a torch tensor", {"q": 1}),
    (r"q: got shape \(4, 16\); expected shape \(batch, tokens, heads, dim\)", {"q": torch.ones(4, 16)}),
    ("q: got torch.int32", {"q": torch.ones(2, 5, 4, 16, dtype=torch.int32)}),
    (
        r"k: got shape \(2, 6, 2, 16\); expected shape \(batch 2, tokens 5, kv_heads, dim 16\)",
        {"k": torch.ones(2, 6, 2, 16)},
    ),
    ("k: got torch.float16", {"k": torch.ones(2, 5, 2, 16, dtype=torch.float16)}),
    ("k: got 3 heads, with 4 of q", {"k": torch.ones(2, 5, 3, 16), "v": torch.ones(2, 5, 3, 16)}),
    (r"v: got shape \(2, 6, 2, 16\); expected shape \(2, 5, 2, 16\)", {"v": torch.ones(2, 6, 2, 16)}),
    ("q: got heads of 257 elements; expected 1 to 256", {name: torch.ones(1, 1, 1, 257) for name in "qkv"}),
    ("causal: got 1; expected True or False", {"causal": 1}),
    ("scale: got 'half'", {"scale": "half"}),
    ("size: got 5.0; expected the tokens", {"size": 5.0}),
    ("q: got 5 tokens; expected 999: this PE's of ", {"size": 999 * shmem.n_pes()}),
    ("order: got 'sorted'; expected contiguous or zigzag", {"order": "sorted"}),
    ("out: got shape", {"out": torch.ones(2, 4, 8)}),
    ("out: got torch.bfloat16", {"out": torch.ones(2, 5, 4, 16, dtype=torch.bfloat16)}),
    ("schedule: got 'words'; expected auto or library", {"schedule": "words"}),
    (r"schedule: got \['copy_engine'\]; expected auto or library", {"schedule": ["copy_engine"]}),
    (r"order: got \['zigzag'\]; expected contiguous or zigzag", {"order": ["zigzag"]}),
    (
        r"schedule: got 'library' with scale -1\.0; expected auto, copy_engine or",
        {"schedule": "library", "scale": -1.0},
    ),
    ("team: got", {"team": shmem.TEAM_INVALID}),
]


@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed):
    given = placed(operands() | changed)
    with refuses("attention", message, shmem.ShmemError):
        ops.attention(**given)


def test_a_result_in_memory_of_q_is_refused():
    given = operands()
    with refuses("attention", "out: got memory of q;"):
        ops.attention(**given, out=given["q"])


def test_a_refusal_of_one_pe_is_raised_on_all():
    """The others would wait for its keys."""
    refused_on_all_pes("attention", operands(), "v")


def test_calls_that_differ_between_pes_are_refused_on_all():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    with refuses("attention", "causal: got False on PE 0 and True on PE 1; expected the same call", shmem.ShmemError):
        ops.attention(**operands(), causal=shmem.my_pe() == 1)


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@every_schedule
@every_order
def test_graphs_capture_and_replay_every_schedule(schedule, order):
    case = Case(1500, 2, 8, 2, 128, torch.bfloat16, order=order)
    for result in replayed(lambda: case.call(schedule)):
        case.check(result)
