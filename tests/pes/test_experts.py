"""moe_dispatch and moe_combine: rows, counts and weighted sums against float64, for uneven tokens known only when kernels run."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, odd, of_the_caller, placed, refused_on_all_pes
from pyshmem import ops
from pyshmem.ops import aligned
from pyshmem.ops.machine import Machine
from pyshmem.ops.experts import schedules
from pyshmem.ops.experts import operators as experts
from pyshmem.ops import plans as plans_of_models
from pyshmem.ops.experts.schedules import SCHEDULES
from pyshmem.ops.experts.operators import reference
from pyshmem.ops.float8 import KIND, Scaled
from support import be_late, here, refuses
from tokens import BOUNDS, Case, bits, numbers

pytestmark = pytest.mark.usefixtures("plans_closed")

GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
one_kernel = pytest.mark.parametrize("schedule", ["words", "fused"])


@every_schedule
def test_every_schedule_brings_rows_to_experts_and_weighted_sums_back(schedule):
    for dtype in BOUNDS:
        Case(dtype=dtype).round_trip(schedule, dtype)


@every_schedule
@pytest.mark.parametrize("scales, hidden", [((), 40), ((1,), 40), ((3,), 300), ((2,), 256)], ids=str)
def test_numbers_of_8_bits_cross_with_the_scales_of_their_rows_or_blocks(schedule, scales, hidden):
    """As they are: no number is rounded, and sums are made of bfloat16."""
    for seed in range(2):
        Case(hidden=hidden, scales=scales, seed=seed).round_trip(schedule)


def test_numbers_of_8_bits_that_a_norm_has_made_can_be_sent():
    case = Case(lambda pe: 5, 64)
    x, listed, weights = case.every[case.me]
    made, _ = ops.all_reduce_rms_norm(x, torch.zeros_like(x), torch.ones(64, device=here()), out_dtype=KIND)
    found = ops.moe_dispatch(made, listed, weights, case.experts)
    sums = ops.moe_combine(found.rows.to(torch.bfloat16), found.handle)
    close_to(sums, weights.double().sum(1, keepdim=True) * numbers(made), 1e-2)


@every_schedule
def test_codes_of_8_bits_that_are_no_numbers_cross_as_they_are(schedule):
    case = Case(lambda pe: 16, 16, scales=())
    for x, _, _ in case.every:
        x.values.view(torch.uint8).copy_(torch.arange(256, dtype=torch.uint8).view(16, 16))
    case.check(case.dispatch(schedule))


@every_schedule
def test_rows_of_8_bits_beyond_the_capacity_are_dropped_with_their_scales(schedule, monkeypatch):
    guarded = guard_results(monkeypatch)
    case, capacity = Case(scales=(1,)), 3
    found = case.dispatch(schedule, capacity, overflow="drop")
    for place, part in enumerate(bits(found.rows)):
        wanted, _ = reference([(bits(x)[place], *lists) for x, *lists in case.every], case.experts, case.me)
        assert torch.equal(part, wanted[:capacity])
    assert all((each == 77).all() for each in guarded)


SHAPES = [
    {"hidden": 1, "top": 1}, {"hidden": 33, "local": 1}, {"hidden": 16, "local": 5, "top": 3}, {"top": 9, "local": 9},
    {"index": torch.int64},
]  # fmt: skip


@every_schedule
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_of_experts_and_widths_of_rows_are_any(schedule, shape):
    Case(**shape).round_trip(schedule)


@pytest.mark.skipif(not GPU, reason="the interpreter is slow")
@every_schedule
def test_every_schedule_is_right_at_the_sizes_of_models(schedule):
    for tokens in (1, 130, 900, 2500):
        case = Case(lambda pe, tokens=tokens: tokens - pe % 2, 1024, 16, 8, torch.bfloat16)
        for turn in range(3):
            case.round_trip(schedule, (tokens, turn))


@every_schedule
def test_addresses_results_and_indices_of_one_pe_alone_find_the_plan(schedule):
    case = Case(dtype=torch.bfloat16)
    case.round_trip(schedule)
    x, listed, weights = case.every[case.me]
    if case.me == 0:
        case.every[0] = odd(x), odd(listed.to(torch.int64)), odd(weights)
        found = case.dispatch(schedule)
        case.check(found)
        out = odd(torch.zeros_like(x))
        ops.moe_combine(odd(case.applied(found)), found.handle, out)
        case.check_sums(out)
    else:
        case.round_trip(schedule)
    assert len(plans_of_models._plans) == 1


@every_schedule
def test_a_pe_or_all_may_have_no_tokens(schedule):
    for tokens in (lambda pe: 5 * (pe % 2), lambda pe: 5 * ((pe + 1) % 2), lambda pe: 0):
        Case(tokens).round_trip(schedule)


@every_schedule
def test_experts_may_have_no_tokens_and_tokens_no_experts(schedule):
    """The first token has none, the second has some, and all others go to the last expert."""

    def choose(pe, listed):
        listed[:, 1:], listed[:, 0] = -1, listed.shape[1] - 1
        listed[:1] = -1
        return listed

    Case(choose=choose).round_trip(schedule)
    Case(
        choose=lambda pe, listed: listed.masked_fill(torch.arange(listed.numel()).view(listed.shape) % 3 > 0, -1)
    ).round_trip(schedule)


@every_schedule
def test_a_token_may_list_an_expert_twice(schedule):
    """It gets a row for each, and both weights."""
    case = Case(top=2, choose=lambda pe, listed: torch.cat([listed, listed[:, :1]], 1))
    case.round_trip(schedule, capacity=3 * case.room * case.n)


@every_schedule
def test_numbers_of_tokens_may_change_up_to_the_room(schedule):
    """All calls have one plan: PEs need not know of each other's numbers."""
    for seed in range(4):
        case = Case(lambda pe, seed=seed: (3 * pe + 5 * seed) % 9, seed=seed)
        case.room = 11
        case.round_trip(schedule, seed)
    assert len(plans_of_models._plans) == 1


@one_kernel
def test_another_number_of_tokens_prepares_no_kernel(schedule, monkeypatch):
    first = Case(lambda pe: 7)
    first.room = 11
    first.round_trip(schedule, 0)
    made = []
    monkeypatch.setattr(aligned, "Prepared", lambda *given, **options: made.append(given))
    for tokens in (3, 11, 1):
        case = Case(lambda pe, tokens=tokens: tokens)
        case.room = 11
        case.round_trip(schedule, tokens)
    assert not made


def test_without_a_room_it_is_the_most_tokens_of_all_pes():
    case = Case()
    case.room = None
    found = case.dispatch("fused")
    case.check(found)
    assert len(found.rows) == (7 + 3 * (case.n - 1)) * 3 * case.n, "enough for any choice of experts"


@every_schedule
def test_rows_of_an_expert_are_in_the_order_of_pes_and_tokens_whatever_the_order_of_calls(schedule):
    """The reference has this order; the same call gives the same bits."""
    case = Case(dtype=torch.bfloat16)
    first = case.round_trip(schedule).clone()
    for _ in range(2):
        assert torch.equal(case.round_trip(schedule), first)


@every_schedule
def test_sums_have_the_same_bits_in_whatever_order_a_token_lists_its_experts(schedule):
    case = Case(dtype=torch.bfloat16, top=6)
    first = case.round_trip(schedule).clone()
    case.every = [(x, listed.flip(1).contiguous(), weights.flip(1).contiguous()) for x, listed, weights in case.every]
    assert torch.equal(case.round_trip(schedule), first)


@every_schedule
def test_not_a_number_stays_with_its_token(schedule):
    case = Case()
    for x, _, _ in case.every:
        x[2] = float("nan")
    found = case.dispatch(schedule)
    sums = ops.moe_combine(case.applied(found), found.handle)
    assert sums.isnan().all(1).nonzero().flatten().tolist() == [2] and sums.isnan().any(1).sum() == 1


@one_kernel
def test_a_row_crosses_only_to_pes_that_have_an_expert_for_it(schedule):
    """Slots of all others stay as they were."""
    case = Case(top=1)
    case.dispatch(schedule)
    shmem.barrier_all()
    slots = next(iter(plans_of_models._plans.values())).space["slots"].view(2, case.n, case.room, -1)[1]
    for pe, (x, listed, _) in enumerate(case.every):
        here = (listed // 3 == case.me).any(1) & (pe != case.me)
        assert torch.equal(slots[pe, : len(x)], torch.where(here[:, None], x, 0.0))


@every_schedule
def test_calls_follow_each_other_without_a_barrier_though_one_pe_is_late(schedule):
    """Each call has other values in the same memory, overwritten as soon as the stream has done the call before."""
    cases = [Case(lambda pe: 5, 16, seed=seed) for seed in range(3)]
    mine = [each.clone() for each in cases[0].every[cases[0].me]]
    for turn in range(300 if GPU else 6):
        case = cases[turn % 3]
        if case.me == turn // 2 % case.n:
            be_late(20000 if GPU else 3_000_000)  # longer than its part of an interpreted kernel
        for one, other in zip(mine, case.every[case.me], strict=True):
            one.copy_(other)
        found = ops.moe_dispatch(*mine, case.experts, tokens=5, schedule=schedule, reuse=True)
        results = found.rows * (1.0 if turn % 2 else 2.0)
        sums = ops.moe_combine(results, found.handle, reuse=True)
        if turn < 10 or turn % 37 == 0:
            case.check(found, turn)
            x, _, weights = case.every[case.me]
            close_to(sums, weights.double().sum(1, keepdim=True) * x.double() * (2 - turn % 2), 1e-5, turn)


def test_results_are_the_callers_or_two_of_the_plan_in_turn():
    case = Case()
    of_the_caller(case.dispatch, lambda found: (found.rows[: sum(case.counts)], *found[1:3]))
    found = case.dispatch()
    results = case.applied(found)
    of_the_caller(lambda **more: ops.moe_combine(results, found.handle, **more))


@one_kernel
def test_rows_are_spread_when_they_have_arrived_though_a_peer_sends_many_more(schedule):
    """The PEs with one row know all places while others still send."""
    Case(lambda pe: 96 if pe % 2 else 1, 16, top=1).round_trip(schedule)


@one_kernel
def test_two_calls_write_different_slots(schedule):
    """A PE that is ahead sends its next call's rows, or sums, while another one still reads these."""
    case, held = Case(), []
    found = case.dispatch(schedule)
    for call in (lambda: None, lambda: ops.moe_combine(found.rows, found.handle)):
        call()
        shmem.barrier_all()
        held.append(next(iter(plans_of_models._plans.values())).space["slots"].view(2, -1).clone())
        shmem.barrier_all()
    assert torch.equal(held[0][1], held[1][1]), "the second call wrote what the first one had"
    assert not held[0][0].any() and held[1][0].any() == (case.n > 1)


@one_kernel
def test_two_dispatches_write_different_slots_scales_and_lists(schedule):
    """A PE that is ahead sends those of its next call while another one still reads these."""
    case, held = Case(scales=(1,)), []
    names = ["bits", "scales", *["words"] * (schedule == "words")]
    for _ in range(2):
        plan = case.dispatch(schedule).handle.plan
        shmem.barrier_all()
        held.append({name: plan.space[name].view(-1).view(torch.uint8).view(2, -1).clone() for name in names})
        shmem.barrier_all()
    for name in names:
        (unused, first), (second, kept) = held[0][name], held[1][name]
        assert torch.equal(first, kept), f"{name}: the second call wrote what the first one had"
        assert not unused.any() and second.any() == (case.n > 1 or name == "words"), name


@every_schedule
def test_a_handle_of_a_plan_that_is_closed_is_refused(schedule):
    """Its slots are free memory."""
    found = Case().dispatch(schedule)
    ops.clear()
    with refuses("moe_combine", r"handle: got .* plan that ops\.clear has closed"):
        ops.moe_combine(found.rows, found.handle)


def guard_results(monkeypatch):
    """Results have three more rows than a plan knows of. Return the list of these, which hold 77."""
    guarded, new = [], experts.new

    def with_guard(dtype, *shape):
        whole = new(dtype, shape[0] + 3, *shape[1:]).fill_(77)
        guarded.append(whole[shape[0] :])
        return whole[: shape[0]]

    monkeypatch.setattr(experts, "new", with_guard)
    return guarded


@every_schedule
def test_rows_beyond_the_capacity_are_dropped_by_choice_and_never_written(schedule, monkeypatch):
    """The first rows in order are kept; sums lack the others, and what is behind the result stays as it was."""
    guarded = guard_results(monkeypatch)
    case = Case()
    for capacity in (1, sum(case.counts) // 2 + 1):
        found = case.dispatch(schedule, capacity, overflow="drop")
        ends = torch.tensor([0, *case.counts]).cumsum(0).clamp(max=capacity)
        assert found.offsets.tolist() == ends.tolist() and found.counts.tolist() == ends.diff().tolist()
        assert torch.equal(found.rows, case.rows[:capacity])
        sums = ops.moe_combine(found.rows, found.handle)
        assert not sums.isnan().any()
        assert all((each == 77).all() for each in guarded)
        ops.moe_combine(found.rows, found.handle)  # nothing is recorded


def exceed(schedule):
    """A call whose rows no PE has room for."""
    case = Case()
    found = case.dispatch(schedule, 1)
    if GPU:
        torch.cuda.synchronize()
    return case, found


@every_schedule
def test_rows_beyond_the_capacity_are_an_error_of_the_next_call(schedule):
    case, found = exceed(schedule)
    message = rf"^moe_dispatch: PE \d+: capacity: got {sum(case.counts)} rows .*; expected at most the 1 of capacity="
    with pytest.raises(shmem.OutOfRangeError, match=message):
        ops.moe_combine(found.rows, found.handle)
    case.round_trip(schedule)  # it is raised once


def test_rows_beyond_the_capacity_are_an_error_of_finalize():
    shmem.init()
    exceed("fused")
    with refuses("moe_dispatch", "capacity", shmem.OutOfRangeError):
        shmem.finalize()
    shmem.finalize()


@every_schedule
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_numbers_of_no_expert_are_ignored_and_an_error_of_the_next_call(schedule, index):
    case = Case(index=index)
    wrong = case.experts if index is torch.int32 else 2**33
    for pe, (_, listed, _) in enumerate(case.every):
        listed[4, 1] = wrong if pe % 2 else -2
    case.rows, case.counts = reference(case.every, case.experts, case.me)
    found = case.dispatch(schedule)
    case.check(found)
    message = rf"^moe_dispatch: PE \d+: indices: got something else for token 4; expected experts 0 to {case.experts - 1}, or -1"
    with pytest.raises(shmem.OutOfRangeError, match=message):
        case.dispatch(schedule)


def test_teams_of_some_pes_share_their_experts(smaller_teams):
    for team in smaller_teams:
        for schedule in SCHEDULES if team else ():
            Case(team=team).round_trip(schedule)


def test_lists_of_few_tokens_go_by_words_and_those_of_many_do_not(monkeypatch):
    """Whatever is asked for: a program of "words" reads all entries."""
    problem = Case().dispatch("fused").handle.plan.problem
    monkeypatch.setattr(schedules, "machine", lambda: Machine("nvidia", 132, 1, True))
    for asked in ("auto", "words"):
        for room, chosen in ((1, "words"), (10000, "fused")):
            assert schedules.schedule_of(asked, problem._replace(room=room)) == chosen


@pytest.mark.parametrize("room", [1, 2, 7, 128, 513, 2048, 8192])
@pytest.mark.parametrize("programs", [1, 7, 8, 132])
def test_programs_divide_all_tokens_and_each_kind_of_work(room, programs, monkeypatch):
    monkeypatch.setattr(schedules, "machine", lambda: Machine("nvidia", programs, 1, True))
    monkeypatch.setattr(schedules.interpreter, "active", lambda: False)
    for way in (schedules.THERE, schedules.BACK):
        started, work = schedules.division(room, way)
        assert started <= programs and 1 <= work.pushers <= started and 0 <= work.first < started
        assert (work.parts - 1) * work.each < room <= work.parts * work.each and 1 <= work.chunk <= work.each
        assert work.first in (0, work.pushers), "a program has no work"


def operands():
    listed = torch.tensor([[0, 1], [1, 0], [0, -1]], dtype=torch.int32, device=here())
    return {
        "x": torch.ones(3, 16, device=here()), "indices": listed, "weights": torch.ones(3, 2, device=here()),
        "experts": 2 * shmem.n_pes(),
    }  # fmt: skip


REFUSED = [
    ("x: got int; expected a torch tensor", {"x": 1}),
    (r"x: got shape \(16,\); expected shape \(tokens, hidden\)", {"x": torch.ones(16)}),
    ("x: got torch.int32", {"x": torch.ones(3, 16, dtype=torch.int32)}),
    ("x: got rows of 0 elements; expected 1 to", {"x": torch.ones(3, 0)}),
    (r"x.values: got torch.uint8", {"x": Scaled(torch.ones(3, 16, dtype=torch.uint8), torch.ones(3))}),
    (r"x.scales: got shape \(2,\); expected shape \(3,\)", {"x": Scaled(torch.ones(3, 16).to(KIND), torch.ones(2))}),
    (
        r"x.scales: got shape \(3, 2\); expected shape \(3, 1\)",
        {"x": Scaled(torch.ones(3, 16).to(KIND), torch.ones(3, 2))},
    ),
    ("x.scales: got torch.float16", {"x": Scaled(torch.ones(3, 16).to(KIND), torch.ones(3).half())}),
    (
        r"indices: got shape \(2, 2\); expected shape \(tokens 3, top_k\)",
        {"indices": torch.ones(2, 2, dtype=torch.int32)},
    ),
    ("indices: got torch.int16", {"indices": torch.ones(3, 2, dtype=torch.int16)}),
    ("indices: got 33 experts of a token; expected 1 to 32", {"indices": torch.ones(3, 33, dtype=torch.int32)}),
    (r"weights: got shape \(3, 1\); expected shape \(3, 2\)", {"weights": torch.ones(3, 1)}),
    ("weights: got torch.float16", {"weights": torch.ones(3, 2, dtype=torch.float16)}),
    ("experts: got 0; expected a multiple of the", {"experts": 0}),
    ("experts: got 2.0; expected a multiple of the", {"experts": 2.0}),
    ("capacity: got 0; expected a number of rows, 1 or more", {"capacity": 0}),
    ("capacity: got True; expected a number of rows", {"capacity": True}),
    ("tokens: got 2; expected at least this PE's 3 tokens", {"tokens": 2}),
    ("overflow: got 'wrap'; expected error or drop", {"overflow": "wrap"}),
    ("schedule: got 'push'; expected auto or words, fused, bulk_synchronous", {"schedule": "push"}),
    ("team: got", {"team": shmem.TEAM_INVALID}),
]


@pytest.mark.parametrize("message, changed", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, changed):
    given = placed(operands() | changed)
    if isinstance(given["x"], Scaled):
        given["x"] = Scaled(*(each.to(here()) for each in given["x"]))
    with refuses("moe_dispatch", message, shmem.ShmemError):
        ops.moe_dispatch(**given)


def test_experts_that_the_pes_cannot_share_equally_are_refused():
    n = shmem.n_pes()
    if n < 2:
        pytest.skip("one PE has all experts")
    with refuses("moe_dispatch", f"experts: got {n + 1}; expected a multiple of the {n}"):
        ops.moe_dispatch(**operands() | {"experts": n + 1})


def test_a_refusal_of_one_pe_is_raised_on_all():
    """The others would wait in a kernel for it."""
    refused_on_all_pes("moe_dispatch", operands(), "weights")


def test_wrong_arguments_of_combine_are_refused_with_their_name():
    found = ops.moe_dispatch(**operands())
    rows, handle = found.rows, found.handle
    for message, given in (
        ("handle: got Tensor; expected the handle that moe_dispatch returned", (rows, rows)),
        (r"rows: got shape \(1, 16\)", (rows[:1], handle)),
        ("rows: got torch.float16", (rows.half(), handle)),
        (r"out: got shape \(2, 16\); expected shape \(3, 16\)", (rows, handle, rows[:2].clone())),
        ("out: got memory of rows", (rows, handle, rows[:3])),
    ):
        with refuses("moe_combine", message, shmem.ShmemError):
            ops.moe_combine(*given)


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@every_schedule
def test_graphs_replay_both_ways_with_counts_of_each_replay(schedule):
    cases = [Case(lambda pe: 600, 256, 8, 4, torch.bfloat16, seed) for seed in range(3)]
    mine = [each.clone() for each in cases[0].every[cases[0].me]]

    def layer():
        found = ops.moe_dispatch(*mine, cases[0].experts, schedule=schedule)
        return found, ops.moe_combine(found.rows, found.handle)

    layer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found, sums = layer()
    for turn in range(12):
        case = cases[turn % 3]
        for one, other in zip(mine, case.every[case.me], strict=True):
            one.copy_(other)
        graph.replay()
        torch.cuda.synchronize()
        case.check(found, turn)
        x, _, weights = case.every[case.me]
        close_to(sums, weights.double().sum(1, keepdim=True) * x.double(), 1e-2, turn)
