"""Which plans are kept: those of a team go by its own calls, and with it."""

import gc
import re
import weakref
from functools import partial

import numpy as np
import pyshmem as shmem
import pytest
import torch
from pyshmem import ops
from pyshmem.ops import plans, workspace
from pyshmem.ops.experts import operators as experts
from pyshmem.ops.gemm import operators as products
from pyshmem.ops.gemm.selection import ABLE
from pyshmem.ops.descriptions import all_but, described
from pyshmem.ops.machine import eight_bits
from pyshmem.ops.norms import problem as norms
from support import here, live, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

N = 8  # columns


def product(rows, team=None):
    """All elements are 2 times the PEs of the team."""
    return ops.gemm_all_reduce(torch.ones(rows, 2, device=here()), torch.ones(2, N, device=here()), team=team)


def norm(rows, team=None):
    """All elements are 1."""
    x = torch.ones(rows, N, device=here())
    return ops.all_reduce_rms_norm(x, torch.zeros_like(x), torch.ones(N, device=here()), team=team)[0]


kinds = pytest.mark.parametrize("call", [product, norm])


@pytest.fixture
def kept():
    return plans._plans


def few(kept, monkeypatch):
    """Let a team have two plans, whether they share memory or not."""
    monkeypatch.setattr(kept, "most", 2)
    monkeypatch.setattr(plans, "MOST_SHARING", 2)


@kinds
def test_a_team_that_has_ended_gives_the_memory_of_its_plans_back(call, reserve):
    """Before the next plan is made, so that the reserve suffices for team after team."""
    most = 0
    for turn in range(4):
        team = shmem.TEAM_WORLD.split_strided(0, 1, max(1, shmem.n_pes() - 1))
        if team:
            call(3, team)
            most = most or len(reserve.taken)
            assert len(reserve.taken) == most, f"turn {turn}"
            team.destroy()
        shmem.barrier_all()


@kinds
def test_a_ready_call_of_a_team_that_has_ended_is_refused(call, npes):
    team = shmem.TEAM_WORLD.split_strided(0, 1, npes)
    for _ in range(2):
        call(3, team)
    team.destroy()
    with pytest.raises(shmem.ArgumentError, match="^(gemm_all_reduce|all_reduce_rms_norm): PE .*: team: got"):
        call(3, team)


@kinds
def test_plans_of_a_small_team_do_not_close_those_of_all_pes(call, kept, reserve, monkeypatch, me, npes):
    """Closing these is collective over all PEs, and only PE 0 makes more plans."""
    if npes < 2:
        pytest.skip("there is no smaller team")
    few(kept, monkeypatch)
    wanted = [call(rows).clone() for rows in (2, 3)]
    of_all = list(kept.values())
    team = shmem.TEAM_WORLD.split_strided(0, 1, 1)
    if me == 0:
        for rows in range(2, 7):
            call(rows, team)
        assert len(kept) == 4
    assert [plan for plan in kept.values() if plan.team is shmem.TEAM_WORLD] == of_all
    assert [torch.equal(call(rows), each) for rows, each in zip((2, 3), wanted, strict=True)] == [True, True]


@kinds
def test_the_plan_used_longest_ago_goes_first(call, kept, monkeypatch):
    few(kept, monkeypatch)
    for rows in (2, 3, 2, 4):
        call(rows)
    assert len(kept) == 2
    held = list(kept)
    call(2)
    assert sorted(map(str, kept)) == sorted(map(str, held))  # that of 3 rows had gone


def test_a_plan_refuses_operands_that_it_was_not_made_for():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b)
    for other in (torch.ones(3, 8), torch.ones(4, 8, dtype=torch.float16), None):
        given = None if other is None else other.to(here())
        with refuses("gemm_all_gather", "a: got .*; expected .* <plan of gemm_all"):
            plan(given, b)
    assert (plan(a, b) == 8).all()


@pytest.mark.parametrize("schedule", ["bulk_synchronous", "copy_engine", "fused"])
@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_gather"])
def test_operands_of_another_layout_on_one_pe_find_the_plan(operator, schedule, me):
    """Rows with a gap between them, columns, and odd addresses are private to a PE: no other one waits, nor compiles."""
    if schedule not in ABLE[operator]:
        pytest.skip("it has no such schedule")
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    gapped, columns = torch.ones(4, 11, device=here())[:, :8], torch.ones(8, 4, device=here()).T
    odd = torch.ones(33, device=here())[1:].view(4, 8)
    wanted = getattr(ops, operator)(a, b, schedule=schedule).clone()
    for other in (gapped, columns, odd):
        result = getattr(ops, operator)(a if me else other, b, schedule=schedule)
        assert torch.equal(result, wanted)
    assert len(plans._plans) == 1


def test_operands_at_addresses_of_another_alignment_have_kernels_of_their_own():
    """Rows of 200 bytes: no pitch tells the two apart, and kernels that read rows as flat memory load 16 bytes at once."""
    b = torch.ones(100, 32, dtype=torch.bfloat16, device=here())
    buffer = torch.ones(1604, dtype=torch.bfloat16, device=here())
    plan = ops.plan("all_gather_gemm", buffer[:1600].view(16, 100), b)
    for start in (0, 4, 0):
        assert (plan(buffer[start : start + 1600].view(16, 100), b) == 100).all()
    assert len(plan._steps) == 2


def test_a_plan_made_ahead_has_the_kernels_of_each_layout_that_it_was_asked_for():
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b)
    assert ops.plan("gemm_all_gather", torch.ones(8, 4, device=here()).T, b) is plan
    assert len(plan._steps) == 2


@pytest.mark.parametrize("schedule", ["bulk_synchronous", "copy_engine", "fused"])
def test_a_plan_keeps_no_operand(schedule):
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    ops.gemm_all_gather(a, b, schedule=schedule)
    held = weakref.ref(a)
    del a
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("ahead", [False, True], ids=["found", "named"])
def test_what_is_no_team_is_refused_by_name(ahead):
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    plan = ops.plan("gemm_all_gather", a, b) if ahead else None
    for team in ("x", shmem.TEAM_INVALID):
        with refuses("gemm_all_gather", "team: ", shmem.ShmemError):
            ops.gemm_all_gather(a, b, team=team, plan=plan)


def test_plans_go_in_one_order_on_all_pes_though_one_has_another_layout(me):
    """Closing a plan is collective. PE 1 alone comes with rows that it has not had before."""
    b = torch.ones(8, 8, device=here())
    first, second = (ops.plan("gemm_all_gather", torch.ones(rows, 8, device=here()), b) for rows in (4, 5))
    ops.gemm_all_gather(torch.ones(5, 8, device=here()), b, plan=second)
    rows = torch.ones(4, 8 + 3 * (me == 1), device=here())[:, :8]
    ops.gemm_all_gather(rows, b, plan=first)
    assert sorted(plans._plans.values(), key=lambda plan: plan.used) == [second, first]


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_a_product_without_rows_is_empty(split):
    a, b = torch.ones(0, 8, device=here()), torch.ones(8, 8, device=here())
    columns = 8 * shmem.n_pes() if split == "columns" else 8
    assert ops.gemm_all_gather(a, b, split).shape == (0, columns)


def test_what_an_ended_team_of_all_pes_had_is_freed_when_all_pes_come(reserve, npes):
    """A smaller team that makes a plan meanwhile waits for nobody."""
    if npes < 2:
        pytest.skip("there is no smaller team")
    whole = shmem.TEAM_WORLD.split_strided()
    product(3, whole)
    whole.destroy()
    small = shmem.TEAM_WORLD.split_strided(0, 1, 1)
    if small:
        product(2, small)
    shmem.barrier_all()
    before = len(plans._plans)
    product(4)
    assert len(plans._plans) == before  # one has come, and one has gone


# whose flags count: of one power of two, a plan of more rows than the first has memory of its own
COUNTED = {("gemm_reduce_scatter", "fused"), ("all_gather_gemm", "fused")}
LENGTHS = (5, 3, 7, 1, 5, 8, 2, 7, 6, 3)
SCHEDULES = [(operator, schedule) for operator, able in ABLE.items() for schedule in ("auto", *able)]


@pytest.mark.parametrize("operator, schedule", SCHEDULES)
def test_calls_that_differ_in_rows_share_memory_and_are_right_in_any_order(operator, schedule, me, npes):
    """The first has memory as small as it wants, the next larger one makes it for more, up to a power of two of bytes."""
    b = torch.ones(6, 4, device=here())
    begins = operator in ("gemm_all_gather", "all_gather_gemm")  # each PE has rows of its own
    for turn, rows in enumerate(LENGTHS):
        a = torch.full((rows, 6), float(10 * turn + me), device=here())
        found = getattr(ops, operator)(a, b, schedule=schedule)
        sums = torch.full((rows, 4), 6.0 * (10 * turn * npes + npes * (npes - 1) / 2), device=here())
        gathered = torch.cat([torch.full((rows, 4), 6.0 * (10 * turn + pe), device=here()) for pe in range(npes)])
        wanted = gathered if begins else sums[: len(found)]
        assert torch.equal(found, wanted), f"turn {turn}"
    rooms = {id(plan.space.room) for plan in plans._plans.values()}
    assert len(rooms) <= (5 if (operator, schedule) in COUNTED else 3)


@pytest.mark.parametrize("operator, schedule", SCHEDULES)
def test_a_length_between_those_of_its_power_of_two_is_asked_of_no_other_pe(operator, schedule, monkeypatch, npes):
    """The first plan has its own memory, that for more rows has it for all of its power of two."""
    b = torch.ones(6, 4, device=here())

    def call(rows):
        found = getattr(ops, operator)(torch.ones(rows, 6, device=here()), b, schedule=schedule)
        assert (found == (6 if operator in ("gemm_all_gather", "all_gather_gemm") else 6 * npes)).all(), rows

    for rows in (10, 16):
        call(rows)
    monkeypatch.setattr(plans, "require_alike", None)
    monkeypatch.setattr(workspace, "Room", None)
    monkeypatch.setattr(products, "problem_of", None)  # nor are operands like those before checked again
    for rows in (9, 13, 12, 15, 13):
        call(rows)
    assert len(plans._plans) == 6


def normalise(operator, rows, me, npes, kept=None):
    """Return what a norm makes of ones, with residuals of zeros. kept: how many there are; None: as many as it wants."""
    share = rows if operator == "all_reduce_rms_norm" else rows // npes + (me < rows % npes)
    x, residual = torch.ones(rows, N, device=here()), torch.zeros(share if kept is None else kept, N, device=here())
    return getattr(ops, operator)(x, residual, torch.ones(N, device=here()))


@pytest.mark.parametrize(
    "operator", ["all_reduce_rms_norm", "reduce_scatter_rms_norm", "reduce_scatter_rms_norm_all_gather"]
)
def test_rows_of_norms_like_those_before_are_not_checked_again_but_for_their_numbers(operator, monkeypatch, me, npes):
    for rows in (10, 16):
        normalise(operator, rows, me, npes)
    monkeypatch.setattr(norms, "checked", None)
    for rows in (9, 13, 12, 15, 13):
        out, sums = normalise(operator, rows, me, npes)
        assert (sums == npes).all() and torch.allclose(out, torch.ones_like(out)), rows
    monkeypatch.undo()
    for rows in (13, 14):  # of a plan that there is, and of none
        with refuses(operator, "residual: got shape"):
            normalise(operator, rows, me, npes, kept=20)


def test_tokens_of_a_dispatch_like_those_before_are_not_checked_again_but_for_their_numbers(monkeypatch, me, npes):
    x, weights = torch.ones(8, 4, device=here()), torch.ones(8, 1, device=here())
    indices = torch.full((8, 1), me, device=here())

    def dispatch(rows, most=8, listed=None):
        return ops.moe_dispatch(x[:rows], indices[: listed or rows], weights[:rows], npes, tokens=most)

    dispatch(8)
    monkeypatch.setattr(experts, "_checked", None)
    for rows in (5, 1, 7):
        found = dispatch(rows)
        assert found.counts.tolist() == [rows] and (found.rows[:rows] == 1).all()
    monkeypatch.undo()
    with refuses("moe_dispatch", "indices: got shape"):
        dispatch(5, listed=6)


@pytest.mark.parametrize("operator, schedule", [each for each in SCHEDULES if each[1] == "fused"])
def test_calls_of_several_tiles_that_differ_in_rows_do_not_take_what_belongs_to_another_call(
    operator, schedule, me, npes
):
    """No PE waits between calls, and each is the last one in turn: flags and slots of the others' next call come early."""
    b = torch.ones(40, 70, device=here())
    for turn, rows in enumerate((66, 100, 37, 98, 128, 65, 97, 38, 66)):
        if turn % npes == me:
            torch.ones(300, 300).matmul(torch.ones(300, 300))
        a = torch.arange(rows, device=here())[:, None] + torch.full((rows, 40), float(1000 * turn + me), device=here())
        found = getattr(ops, operator)(a, b, schedule=schedule)
        every = [40 * (a[:, :1] + pe - me).expand(rows, 70) for pe in range(npes)]
        wanted = torch.cat(every) if operator in ("gemm_all_gather", "all_gather_gemm") else sum(every)
        if operator == "gemm_reduce_scatter":
            wanted = wanted.tensor_split(npes)[me]
        assert torch.equal(found, wanted), f"turn {turn}"


@pytest.mark.parametrize("schedule", ["bulk_synchronous", "copy_engine", "fused"])
def test_a_new_length_finds_kernels_for_the_layout_of_each_pe(schedule, me, npes):
    """Rows with gaps and columns on PE 1 alone: what PEs write for each other lies where both expect it."""
    b = torch.ones(6, 4, device=here())
    for turn, rows in enumerate((16, 10, 13, 9, 15)):
        a = torch.full((rows, 6 + (me == 1) * turn), float(turn + me), device=here())[:, :6]
        if me == 1 and turn == 3:
            a = a.T.contiguous().T
        found = ops.gemm_all_gather(a, b, schedule=schedule)
        wanted = torch.cat([torch.full((rows, 4), 6.0 * (turn + pe), device=here()) for pe in range(npes)])
        assert torch.equal(found, wanted), f"turn {turn}"


def test_operands_of_a_new_length_are_checked_on_their_own_pe(me):
    b = torch.ones(6, 4, device=here())
    for rows in (16, 12):
        ops.gemm_all_reduce(torch.ones(rows, 6, device=here()), b)
    if me == 0:
        with refuses("gemm_all_reduce", "a: got strides"):
            ops.gemm_all_reduce(torch.ones(11, 12, device=here())[:, ::2], b)
    shmem.barrier_all()


@pytest.mark.parametrize("operator", ["gemm_all_reduce", "gemm_reduce_scatter"])
def test_a_size_that_is_no_number_is_refused_though_operands_are_like_those_before(operator):
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, N, device=here())
    for rows in (3, 4):  # those of a size that is no number are counted as 3 or 4, too
        getattr(ops, operator)(a[:rows], b)
    for size in (-5, "4", 4.0, True, [4]):
        with refuses(operator, "size: got .*; expected an int, 0 or more"):
            getattr(ops, operator)(a, b, size=size)


def given_to(operator, npes):
    """Arguments that an operator takes."""
    ones, eight = partial(torch.ones, device=here()), eight_bits()[1][0]
    if operator == "flash_decode":
        return ones(2, 4, 16), ones(2, 5, 2, 16), ones(2, 5, 2, 16)
    if operator == "attention":
        return (ones(1, 4, 2, 16),) * 3
    if operator == "moe_dispatch":
        return ones(1, 16), torch.zeros(1, 1, dtype=torch.int32, device=here()), ones(1, 1)
    if "norm" in operator:
        return ones(npes, N), ones(npes if operator == "all_reduce_rms_norm" else 1, N), ones(N)
    return ones(1, 32).to(eight), ones(32, 16).to(eight)


@pytest.mark.parametrize("operator, option, value, other", [
    *(("all_gather_gemm", *each) for each in (("size", int, float), ("size", int, np.int64), ("columns", int, float))),
    ("gemm_all_reduce", "tile", (16, 16, 32), (16, 16.0, 32)), ("gemm_reduce_scatter", "use_fast_accum", True, 1),
    *((f"{name}_rms_norm", "eps", 1, True) for name in ("all_reduce", "reduce_scatter")),
    ("attention", "causal", True, 1), ("attention", "scale", 1.0, True), ("attention", "size", int, float),
    ("flash_decode", "scale", 1.0, True), ("moe_dispatch", "experts", int, float), ("moe_dispatch", "tokens", 1, True),
    ("moe_dispatch", "capacity", int, float),
])  # fmt: skip
def test_a_value_of_another_type_is_refused_though_an_equal_one_came_before(operator, option, value, other, npes):
    """A type in place of a value: it makes one of what all PEs have."""
    whole = {("all_gather_gemm", "columns"): 16, ("attention", "size"): 4}.get((operator, option), 1) * npes
    value, other = (each(whole) if isinstance(each, type) else each for each in (value, other))
    given, options = given_to(operator, npes), {"experts": npes} if operator == "moe_dispatch" else {}
    if "gemm" in operator:
        options = {name: torch.ones(1, device=here()) for name in ("scale_a", "scale_b")}
    for _ in range(2):
        getattr(ops, operator)(*given, **options | {option: value})
        with refuses(operator, f"{option}: got {re.escape(repr(other))}; expected"):
            getattr(ops, operator)(*given, **options | {option: other})


def test_rows_that_overlap_are_refused_though_a_single_row_like_them_was_taken(me, npes):
    """The distance of a single row to the next one may be anything."""
    b, memory = torch.ones(8, N, device=here()), torch.ones(64, device=here())
    last, rows = npes - 1, 2 * npes - 1  # of the last PE, which has one row, then two of them
    ops.gemm_all_gather(memory.as_strided((1, 8), (1, 1)) if me == last else memory[:16].view(2, 8), b, size=rows)
    if me == last and npes > 1:
        with refuses("gemm_all_gather", "a: got strides"):
            ops.gemm_all_gather(memory.as_strided((2, 8), (1, 1)), b, size=rows + 1)


@pytest.mark.parametrize(
    "operator", ["all_reduce_rms_norm", "reduce_scatter_rms_norm", "reduce_scatter_rms_norm_all_gather"]
)
def test_arrays_of_norms_that_are_no_matrices_are_refused_by_name(operator):
    x, weight, number = torch.ones(4, N, device=here()), torch.ones(N, device=here()), torch.ones((), device=here())
    for name, given in (
        ("x", (None, x, weight)), ("x", (number, x, weight)), ("residual", (x, None, weight)),
        ("residual", (x, number, weight)), ("residual", (x, weight, weight)),
    ):  # fmt: skip
        with refuses(operator, f"{name}: got "):
            getattr(ops, operator)(*given)


@pytest.mark.parametrize("schedule", ["bulk_synchronous", "fused"])
def test_plans_of_other_lengths_keep_the_memory_of_one_that_is_closed(schedule, npes):
    a, b = torch.ones(16, 6, device=here()), torch.ones(6, 4, device=here())
    first, second = (ops.plan("gemm_all_reduce", a[:rows], b, schedule=schedule) for rows in (16, 11))
    first.close()
    for rows in (11, 12, 16, 11):
        assert (ops.gemm_all_reduce(a[:rows], b, schedule=schedule) == 6 * npes).all()
    second.close()
    assert (ops.gemm_all_reduce(a[:14], b, schedule=schedule) == 6 * npes).all()


def test_sizes_that_change_with_the_rows_find_their_plans(me, npes):
    """size= differs from call to call, and PEs have one row more or less."""
    b = torch.ones(6, 4, device=here())
    for size in (31, 30, 17, 29, 32, 18):
        rows = size // npes + (me < size % npes)
        found = ops.all_gather_gemm(torch.full((rows, 6), float(size), device=here()), b, size=size)
        assert found.shape == (size, 4) and (found == 6 * size).all()


def test_results_that_are_reused_live_until_the_next_call_but_one_though_lengths_change(me, npes):
    b = torch.ones(6, 4, device=here())
    of = [torch.full((rows, 6), float(turn), device=here()) for turn, rows in enumerate((8, 3, 5, 8, 2))]
    before = None
    for turn, a in enumerate(of):
        found = ops.gemm_all_reduce(a, b, reuse=True)
        assert before is None or (before == 6.0 * (turn - 1) * npes).all()
        assert (found == 6.0 * turn * npes).all()
        before = found


@pytest.mark.parametrize("operator", ["gemm_reduce_scatter", "all_gather_gemm", "all_reduce_rms_norm", "attention"])
def test_results_that_are_reused_have_the_same_two_places_for_all_lengths(operator, npes):
    """A new length takes no memory of torch's for them, whether peers write them or not."""
    b, weight = torch.ones(6, 4, device=here()), torch.ones(6, device=here())

    def call(rows):
        a = torch.ones(rows * npes, 6, device=here())
        if operator == "attention":
            q = a.view(1, rows * npes, 1, 6)
            return ops.attention(q, q, q, reuse=True)
        if operator == "all_reduce_rms_norm":
            return ops.all_reduce_rms_norm(a, a, weight, reuse=True)[1]
        return getattr(ops, operator)(a, b, reuse=True)

    places = [call(rows).data_ptr() for rows in (16, 16, 15, 15, 16, 15)]
    assert places[:2] * 3 == places and places[0] != places[1]


@pytest.mark.parametrize("operator", ["gemm_all_reduce", "all_gather_gemm", "all_reduce_rms_norm", "attention"])
def test_clear_gives_the_heap_back_and_forgets_all_plans_after_many_lengths(operator, me, npes):
    """Plans of a power of two share their memory, which the last of them frees."""
    b, before = torch.ones(6, 4, device=here()), live()
    for rows in range(1, 301, 7):
        if operator == "all_reduce_rms_norm":
            normalise(operator, rows, me, npes)
        elif operator == "attention":
            ops.attention(*(torch.ones(1, rows, 1, 8, device=here()),) * 3, schedule="copy_engine")
        else:
            getattr(ops, operator)(torch.ones(rows, 6, device=here()), b, schedule="fused")
    made = [weakref.ref(plan) for plan in plans._plans.values()]
    assert len(made) == 43 and live() != before
    ops.clear()
    gc.collect()
    assert live() == before and not any(plan() for plan in made)
    norm(2)  # what looks for memory drops rooms that no plan holds
    assert sum(map(len, workspace._rooms.values())) == 1


def test_a_full_heap_makes_room_by_the_plans_used_longest_ago(monkeypatch):
    """No plan is in use by more than the call that needs it."""
    made, align = [], shmem.align

    def narrow(alignment, nbytes, *more, **options):
        if sum(plans.is_live(plan) for plan in plans._plans.values()) >= 3:
            raise shmem.HeapExhaustedError("as if it were full")
        return align(alignment, nbytes, *more, **options)

    monkeypatch.setattr(shmem, "align", narrow)
    a = torch.ones(4, 6, device=here())
    for columns in (4, 5, 6, 7, 8):
        made.append(ops.plan("gemm_all_gather", a, torch.ones(6, columns, device=here())))
    assert [plans.is_live(plan) for plan in made] == [False, False, True, True, True]


def test_the_plan_that_was_used_longest_ago_goes_first_though_calls_find_theirs_ready(monkeypatch):
    monkeypatch.setattr(plans._plans, "most", 3)
    monkeypatch.setattr(plans, "MOST_SHARING", 3)
    b = torch.ones(8, 8, device=here())
    operands = [torch.ones(rows, 8, device=here()) for rows in (1, 2, 3, 4)]
    for each in operands[:3]:
        for _ in range(2):
            ops.gemm_reduce_scatter(each, b)
    made = [ops.plan("gemm_reduce_scatter", each, b) for each in operands[:3]]
    for each in operands[:2]:
        ops.gemm_reduce_scatter(each, b)
    made.append(ops.plan("gemm_reduce_scatter", operands[3], b))
    assert [plans.is_live(plan) for plan in made] == [True, True, False, True]
    assert ops.plan("gemm_reduce_scatter", operands[0], b) is made[0]


def test_all_but_some_words_of_what_describes_operands_is_alike_where_only_these_differ():
    def kept(rows, columns, dtype=torch.float32):
        a = torch.ones(rows, columns, dtype=dtype, device=here())
        return all_but(3, 9)(described(None, a, a))  # rows: behind one word of None, and in a matrix of six

    assert kept(3, 6) == kept(8, 6)
    assert len({kept(3, 6), kept(3, 7), kept(3, 6, torch.float16)}) == 3
