"""9.9 broadcast and reductions: right on every PE, for every type, back to back without a word between, and in place."""

import numpy as np
import pytest
import torch
from support import (
    DTYPES, FP8_DTYPES, RMA_DTYPES, as_dtype, assert_same, from_pe, guarded, name_of, octets, payload, refused_by_all,
    untouched, work,
)  # fmt: skip

import pyshmem as shmem

SIZES = [0, 1, 7, 1000]
TEAMS = [None, shmem.TEAM_WORLD, shmem.TEAM_SHARED]
REALS = [dtype for dtype in RMA_DTYPES if not dtype.is_complex]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [dtype for dtype in REALS if not dtype.is_floating_point]
OPERATORS = {"sum": (np.add, REALS + COMPLEX), "prod": (np.multiply, REALS + COMPLEX),
             "min": (np.minimum, REALS), "max": (np.maximum, REALS), "and": (np.bitwise_and, INTEGERS),
             "or": (np.bitwise_or, INTEGERS), "xor": (np.bitwise_xor, INTEGERS)}  # fmt: skip
REDUCTIONS = [(op, dtype) for op, (_, dtypes) in OPERATORS.items() for dtype in dtypes]
ids = {"ids": lambda each: name_of(each) if isinstance(each, torch.dtype) else str(each)}


# ---- broadcast ----


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_broadcast_writes_every_target_the_roots_too_and_nothing_else(dtype, me, npes):
    for count in SIZES:
        for root in range(npes):
            source = shmem.array(payload(me, root, count, dtype))
            target, whole = guarded(count, dtype)
            shmem.broadcast(target, source, root)
            assert_same(target, payload(root, root, count, dtype))
            assert_same(source, payload(me, root, count, dtype))
            assert untouched(whole[count:])
            shmem.free(source)
            shmem.free(whole)


@pytest.mark.parametrize("size", [0, 1, 5, None])
def test_broadcast_moves_the_first_size_elements_of_any_shapes(size, me, npes):
    source = shmem.array(payload(me, 1, 6, torch.int32).view(2, 3))
    target, whole = guarded(8, torch.int32)
    count = 6 if size is None else size
    shmem.broadcast(target.view(2, 2, 2), source, npes - 1, size)
    assert_same(target[:count], payload(npes - 1, 1, count, torch.int32))
    assert untouched(whole[count:])


def test_broadcast_in_place_and_of_one_element(me, npes):
    array, single = shmem.array(payload(me, 1, 100, torch.int64)), shmem.full((), me, dtype=torch.int32)
    for root in range(npes):
        shmem.broadcast(array, array, root)
        shmem.broadcast(single, single, root)
        assert_same(array, payload(0, 1, 100, torch.int64))  # root 0 was the first
        assert single.item() == 0
        shmem.sync_all()  # the next root writes at once


@pytest.mark.parametrize("count, turns", [(1, 300), (200_000, 24)])
def test_broadcasts_follow_each_other_without_a_word_between(count, turns, me, npes):
    """Nobody synchronises: a source is written just before the call and again just after; another PE is late each time."""
    source, targets = shmem.empty(count, dtype=torch.int64), shmem.zeros(turns, count, dtype=torch.int64)
    for turn, target in enumerate(targets):
        root = turn // 2 % npes
        if me == (turn // 3) % npes:
            work(5000)
        source.fill_(100 * turn + me)
        shmem.broadcast(target, source, root)
        shmem.p(source[-1], -1, me)
        shmem.quiet()
        source.fill_(-1)
        assert (target == 100 * turn + root).all(), f"turn {turn} on PE {me}: {target.unique().tolist()}"


# ---- reductions ----


def operand(op, pe, turn, count, dtype):
    """A PE's source: the products stay within half precision, the sums of 8-bit types wrap around."""
    values = payload(pe, turn, count, torch.int64)
    return as_dtype(values % 3 + 1 if op == "prod" else values - 50 if dtype.is_signed else values, dtype)


def combined(op, turn, count, dtype, npes):
    """The reduction of all PEs' operands by NumPy: half types in float32."""
    parts = [operand(op, pe, turn, count, dtype) for pe in range(npes)]
    wide = dtype in (torch.float16, torch.bfloat16)
    rows = np.stack([(part.float() if wide else part).cpu().numpy() for part in parts])
    with np.errstate(over="ignore"):
        return torch.from_numpy(OPERATORS[op][0].reduce(rows, axis=0, dtype=rows.dtype)).to(dtype)


@pytest.mark.parametrize("op, dtype", REDUCTIONS, **ids)
def test_reduction_gives_numpys_result_on_every_pe(op, dtype, me, npes):
    for turn, count in enumerate(SIZES):
        source = shmem.array(operand(op, me, turn, count, dtype))
        target, whole = guarded(count, dtype)
        getattr(shmem, op + "_reduce")(target, source)
        assert_same(target, combined(op, turn, count, dtype, npes))
        assert_same(source, operand(op, me, turn, count, dtype))
        assert untouched(whole[count:])
        octets(target).fill_(0)
        shmem.barrier_all()
        shmem.reduce(target, source, op)
        assert_same(target, combined(op, turn, count, dtype, npes))
        assert untouched(whole[count:])


@pytest.mark.parametrize("op, dtype", REDUCTIONS, **ids)
def test_reduction_in_place(op, dtype, me, npes):
    for turn, count in enumerate(SIZES):
        array = shmem.array(operand(op, me, turn, count, dtype))
        getattr(shmem, op + "_reduce")(array, array)
        assert_same(array, combined(op, turn, count, dtype, npes))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, *COMPLEX], **ids)
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_reductions_of_fractions_have_the_same_bits_on_all_pes(op, dtype, me, npes):
    """Rounding depends on the order, so one order must serve all. Half types are rounded once, at the end."""
    exact = [
        torch.rand(1001, dtype=torch.float64, generator=torch.Generator().manual_seed(pe)) + 0.5 for pe in range(npes)
    ]
    source, target = shmem.array(exact[me].to(dtype)), shmem.empty(1001, dtype=dtype)
    getattr(shmem, op + "_reduce")(target, source)
    shmem.barrier_all()  # the call itself completes only the local target
    for pe in range(npes):
        assert_same(from_pe(target, pe), target.clone())
    parts = torch.stack([each.to(dtype).to(torch.complex128) for each in exact])
    wanted = parts.sum(0) if op == "sum" else parts.prod(0)
    rounding = torch.finfo(dtype).eps * (0.51 if dtype.itemsize == 2 else npes)
    torch.testing.assert_close(target.cpu().to(torch.complex128), wanted, rtol=rounding, atol=0)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint64], **ids)
def test_min_and_max_reach_the_ends_of_the_range(op, dtype, me, npes):
    if dtype.is_floating_point:
        ends = [float("-inf"), float("inf"), -0.5]
    else:
        ends = [torch.iinfo(dtype).min, torch.iinfo(dtype).max, torch.iinfo(dtype).max // 2 + 1]
    source, target = shmem.full(2, ends[me % 3], dtype=dtype), shmem.zeros(2, dtype=dtype)
    shmem.reduce(target, source, op)
    assert target.tolist() == [(min if op == "min" else max)(ends[: min(npes, 3)])] * 2


@pytest.mark.parametrize("team", TEAMS, ids=["None", "TEAM_WORLD", "TEAM_SHARED"])
@pytest.mark.parametrize("size", [0, 1, 5, None])
def test_reduction_of_the_first_size_elements_of_any_shapes(size, team, me, npes):
    source = shmem.array(payload(me, 1, 6, torch.int32).view(3, 2))
    target, whole = guarded(8, torch.int32)
    count = 6 if size is None else size
    shmem.sum_reduce(target.view(4, 2), source, size, team)
    group = team or shmem.TEAM_WORLD
    pes = [group.translate_pe(i, shmem.TEAM_WORLD) for i in range(group.n_pes())]
    assert_same(target[:count], sum(payload(pe, 1, count, torch.int32) for pe in pes))
    assert untouched(whole[count:])


@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
@pytest.mark.parametrize("count", [1, 3, 200_000])
def test_reductions_follow_each_other_without_a_word_between(count, in_place, me, npes):
    """A source is written just before the call and, where it is not the target, just after; another PE is late each time."""
    source, targets = shmem.empty(count, dtype=torch.int64), shmem.zeros(16, count, dtype=torch.int64)
    for turn, target in enumerate(targets):
        if me == (turn // 3) % npes:
            work(5000)
        if in_place:
            source = target
        source.fill_(turn + 10**me)
        shmem.sum_reduce(target, source)
        if not in_place:
            shmem.p(source[-1], -1, me)
            shmem.quiet()
            source.fill_(-1)
        wanted = turn * npes + sum(10**pe for pe in range(npes))
        assert (target == wanted).all(), f"turn {turn} on PE {me}: {target.unique().tolist()}, wanted {wanted}"


def test_collectives_of_different_kinds_follow_each_other(me, npes):
    array, total, low = (shmem.zeros(50, 8, dtype=torch.int64) for _ in range(3))
    for turn in range(50):
        array[turn].fill_(turn * npes + me)
        shmem.sum_reduce(total[turn], array[turn])
        shmem.broadcast(array[turn], total[turn], turn % npes)
        shmem.min_reduce(low[turn], array[turn])
        shmem.sync(shmem.TEAM_SHARED)
        assert low[turn].tolist() == [turn * npes * npes + sum(range(npes))] * 8


# ---- what is refused ----


UNDEFINED = [
    (op, dtype)
    for op in OPERATORS
    for dtype in (torch.bool, *FP8_DTYPES, *COMPLEX, torch.float32, torch.bfloat16)
    if (op, dtype) not in REDUCTIONS
]


@pytest.mark.parametrize("op, dtype", UNDEFINED, **ids)
def test_reductions_refuse_types_they_are_not_defined_for(op, dtype, me):
    array, target = shmem.ones(4, dtype=dtype), shmem.zeros(4, dtype=dtype)
    for routine, call in (
        ("reduce", lambda: shmem.reduce(target, array, op)),
        (op + "_reduce", lambda: getattr(shmem, op + "_reduce")(target, array)),
    ):
        text = rf"^{routine}: PE {me}: target: got {name_of(dtype)} elements; expected one of "
        refused_by_all(shmem.DtypeError, text, call, array, target)


@pytest.mark.parametrize("op", ["product", "", None, 1, ["sum"]])
def test_reduce_refuses_operators_it_does_not_know(op, me):
    array = shmem.ones(4)
    refused_by_all(
        shmem.ArgumentError,
        rf"^reduce: PE {me}: op: got .*; expected one of sum, prod, min, max, and, or, xor$",
        lambda: shmem.reduce(array, array, op),
        array,
    )


COLLECTIVES = {
    "broadcast": lambda target, source, **options: shmem.broadcast(target, source, 0, **options),
    "reduce": lambda target, source, **options: shmem.reduce(target, source, "max", **options),
    **{f"{op}_reduce": getattr(shmem, f"{op}_reduce") for op in OPERATORS},
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_refuse_operands_that_do_not_fit(name, me):
    target, source, call = shmem.zeros(4), shmem.full(6, 7.0), COLLECTIVES[name]
    head = rf"^{name}: PE {me}: "
    for error, text, arguments, options in (
        (shmem.OutOfRangeError, r"source: got 6 elements, with target of 4 and source of 6; expected at most",
         (target, source), {}),
        (shmem.OutOfRangeError, r"size: got 5 elements, with target of 4 and source of 6; expected", (target, source),
         {"size": 5}),
        (shmem.OutOfRangeError, r"size: got 7 elements, with target of 6 and source of 6; expected", (source, source),
         {"size": 7}),
        (shmem.OutOfRangeError, r"size: got -1; expected 0 or more", (target, source), {"size": -1}),
        (shmem.ArgumentError, r"size: got 1.5; expected an int", (target, source), {"size": 1.5}),
        (shmem.DtypeError, r"source: got int32 elements; expected the float32 of target",
         (target, shmem.ones(4, dtype=torch.int32)), {}),
        (shmem.ArgumentError, r"source: got an array of shape \(2,\) that is not C-contiguous", (target, source[::3]),
         {}),
        (shmem.ArgumentError, r"target: got a list; expected a torch tensor or a NumPy array", ([1.0], source), {}),
        (shmem.ArgumentError, r"team: got str; expected a Team, or None for TEAM_WORLD", (target, source),
         {"team": "world"}),
    ):  # fmt: skip
        refused_by_all(error, head + text, lambda a=arguments, o=options: call(*a, **o), target, source)


@pytest.mark.parametrize("root", [-1, 99])
def test_broadcast_refuses_a_root_that_is_no_member(root, me, npes):
    target, source = shmem.zeros(4), shmem.full(4, 7.0)
    pattern = rf"^broadcast: PE {me}: root: got {root}; expected a PE from 0 to {npes - 1} of TEAM_WORLD$"
    refused_by_all(shmem.OutOfRangeError, pattern, lambda: shmem.broadcast(target, source, root), target, source)


@pytest.mark.parametrize("root", [None, "0", 0.0, False])
def test_broadcast_refuses_a_root_that_is_no_int(root, me):
    target, source = shmem.zeros(4), shmem.full(4, 7.0)
    pattern = rf"^broadcast: PE {me}: root: got {root!r}; expected an int$"
    refused_by_all(shmem.ArgumentError, pattern, lambda: shmem.broadcast(target, source, root), target, source)
