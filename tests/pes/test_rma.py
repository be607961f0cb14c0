"""9.6 remote memory access: put, get, p, g, and the strided and non-blocking forms."""

import numpy as np
import pytest
import torch
from support import (
    AMO_DTYPES, DTYPES, GUARD, RMA_DTYPES, assert_same, foreign, guarded, here, name_of, neighbours, octets, payload,
    refuses, untouched,
)  # fmt: skip

import pyshmem as shmem

PUTS = [shmem.put, shmem.put_nbi]
GETS = [shmem.get, shmem.get_nbi]
by_name = {"ids": lambda each: each.__name__}


@pytest.mark.parametrize("put", PUTS, **by_name)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_put_writes_the_source_on_the_peer_and_nothing_behind_it(put, dtype):
    left, me, right = neighbours()
    for count in (0, 1, 7, 1000):
        target, whole = guarded(count, dtype)
        put(target, payload(me, count, count, dtype), right)
        shmem.barrier_all()
        assert_same(target, payload(left, count, count, dtype))
        assert untouched(whole[count:])


@pytest.mark.parametrize("get", GETS, **by_name)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_get_reads_the_peers_source_and_fills_no_more_than_its_target(get, dtype):
    left, me, right = neighbours()
    for count in (0, 1, 7, 1000):
        source = shmem.array(payload(me, count, count + 1, dtype))
        private = torch.empty(count + 1, dtype=dtype)
        octets(private).fill_(GUARD)
        get(private[:count], source, right)
        shmem.quiet()
        assert_same(private[:count], payload(right, count, count + 1, dtype)[:count])
        assert (octets(private[count:]) == GUARD).all()


def test_put_is_seen_by_the_peer_without_any_call_of_the_peer(me, npes):
    """Progress: the last PE computes on its memory, and what the others put appears there."""
    inbox = shmem.zeros(npes, dtype=torch.int64)
    last = npes - 1
    shmem.put(inbox[me : me + 1], torch.tensor([me + 1]), last)
    if me == last:
        while inbox.tolist() != list(range(1, npes + 1)):  # check: ignore, nothing but time orders them
            pass


@pytest.mark.parametrize("put", PUTS, **by_name)
@pytest.mark.parametrize("get", GETS, **by_name)
def test_nbi_forms_are_complete_after_quiet(put, get, me):
    """The source is free again, the target holds the data, and the peer sees it by a flag put afterwards."""
    left, me, right = neighbours()
    inbox, flag, taken = (shmem.zeros(n, dtype=torch.int64) for n in (64, 1, 1))
    source, back = torch.empty(64, dtype=torch.int64), torch.empty(64, dtype=torch.int64)
    for turn in range(1, 51):
        source.copy_(payload(me, turn, 64, torch.int64))
        put(inbox, source, right)
        shmem.quiet()
        get(back, inbox, right)
        source.fill_(-1)
        shmem.quiet()
        shmem.p(flag, turn, right)
        shmem.wait_until(flag, ">=", turn)
        assert_same(inbox.clone(), payload(left, turn, 64, torch.int64))
        assert_same(back, payload(me, turn, 64, torch.int64))
        shmem.p(taken, turn, left)
        shmem.wait_until(taken, ">=", turn)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_put_and_get_move_the_first_size_elements(size):
    left, me, right = neighbours()
    target, whole = guarded(8, torch.int32)
    shmem.put(target, payload(me, 1, 12, torch.int32), right, size=size)
    shmem.barrier_all()
    assert_same(target[:size], payload(left, 1, size, torch.int32))
    assert untouched(whole[size:])
    back = torch.full((6,), GUARD, dtype=torch.int32)
    shmem.get(back, target, right, size)
    assert_same(back[:size], payload(me, 1, size, torch.int32))
    assert (back[size:] == GUARD).all()


def test_put_fills_part_of_a_larger_target_and_get_reads_part_of_a_larger_source():
    left, me, right = neighbours()
    target, whole = guarded(10, torch.int16)
    shmem.put(target, payload(me, 1, 3, torch.int16), right)
    shmem.barrier_all()
    assert_same(target[:3], payload(left, 1, 3, torch.int16))
    assert untouched(whole[3:])
    back = torch.empty(2, dtype=torch.int16)
    shmem.get(back, target, right)
    assert_same(back, payload(me, 1, 2, torch.int16))


def test_put_and_get_take_slices_and_views_of_symmetric_arrays():
    left, me, right = neighbours()
    target, whole = guarded(24, torch.float64)
    grid = whole[:24].view(4, 6)
    shmem.put(grid[1:3], payload(me, 1, 12, torch.float64).view(2, 6), right)
    shmem.put(grid[3, 2:5], payload(me, 2, 3, torch.float64), right)
    shmem.put(target.view(torch.uint8)[:8], payload(me, 3, 8, torch.uint8), right)
    shmem.barrier_all()
    assert_same(grid[1:3].clone(), payload(left, 1, 12, torch.float64).view(2, 6))
    assert_same(grid[3, 2:5].clone(), payload(left, 2, 3, torch.float64))
    assert_same(target[:1].view(torch.uint8), payload(left, 3, 8, torch.uint8))
    assert untouched(target[1:6]) and untouched(target[18:20]) and untouched(target[23:]) and untouched(whole[24:])
    back = torch.empty(2, 6, dtype=torch.float64)
    shmem.get(back, grid[1:3], right)
    assert_same(back, payload(me, 1, 12, torch.float64).view(2, 6))


@pytest.mark.parametrize(
    "dtype", [*RMA_DTYPES[:8], torch.float16, torch.float32, torch.float64, torch.complex64], ids=name_of
)
def test_put_and_get_take_numpy_arrays_on_both_sides(dtype):
    left, me, right = neighbours()
    target, whole = guarded(9, dtype)
    shmem.put(foreign(target), payload(me, 1, 9, dtype, "cpu").numpy(), right)
    shmem.barrier_all()
    assert_same(target, payload(left, 1, 9, dtype))
    assert untouched(whole[9:])
    back = np.empty(9, name_of(dtype))
    shmem.get(back, foreign(target), right)
    assert_same(torch.from_numpy(back), payload(me, 1, 9, dtype))


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_put_get_p_and_g_move_types_that_torch_lacks_through_numpy_views(dtype):
    left, me, right = neighbours()
    itemsize = np.dtype(dtype).itemsize
    target = shmem.zeros(8 * itemsize, dtype=torch.uint8, device="cpu").numpy().view(dtype)
    value = dtype(1) / dtype(3) + me  # more digits than a float64 has
    shmem.put(target[:6], np.arange(6).astype(dtype) + value, right)
    shmem.p(target[7:], value, right)
    shmem.barrier_all()
    sent = dtype(1) / dtype(3) + left
    np.testing.assert_array_equal(target, [*(np.arange(6).astype(dtype) + sent), 0, sent])
    back = np.zeros(6, dtype)
    shmem.get(back, target[:6], right)
    np.testing.assert_array_equal(back, np.arange(6).astype(dtype) + value)
    assert shmem.g(target[7:], right) == value


def test_put_moves_memory_that_overlaps_within_one_pe(me):
    array = shmem.arange(10)
    shmem.put(array[1:], array[:9], me)  # check: ignore, the specification leaves it open
    shmem.quiet()
    assert array.tolist() == [0, *range(9)]


def test_put_takes_a_numpy_integer_as_pe_with_and_without_a_context():
    left, me, right = neighbours()
    target = shmem.full(2, -1, dtype=torch.int64)
    shmem.p(target[:1], me, np.int32(right))
    shmem.p(target[1:], me, np.uint8(right), ctx=shmem.CTX_DEFAULT)
    shmem.barrier_all()
    assert target.tolist() == [left, left]


def test_put_refuses_a_lazily_negated_source(me):
    """z.conj().imag of one element is contiguous, but its memory is not its value."""
    lazy = torch.tensor([3 + 4j]).conj().imag
    target = shmem.zeros(1)
    with refuses("put", "source: got a lazily .*; expected .*resolve_neg"):
        shmem.put(target, lazy, me)
    assert target.item() == 0
    shmem.put(target, lazy.resolve_neg(), me)
    shmem.quiet()
    assert target.item() == -4


# value, then what g finds. Limits of each type, and what is converted because it is held exactly.
ELEMENTS = [
    (torch.bool, [True, False, 1, 0, 1.0, np.True_]),
    (torch.int8, [-128, 127, 5.0, np.int64(-3), True]),
    (torch.int16, [-(2**15), 2**15 - 1, np.float64(7)]),
    (torch.int32, [-(2**31), 2**31 - 1, np.uint64(9)]),
    (torch.int64, [-(2**63), 2**63 - 1, 2.0**62, np.int64(-(2**63))]),
    (torch.uint8, [0, 255, np.uint8(200)]),
    (torch.uint16, [0, 2**16 - 1]),
    (torch.uint32, [0, 2**32 - 1, np.int8(1)]),
    (torch.uint64, [0, 2**64 - 1, 2**63, 2.0**63, np.uint64(2**64 - 1)]),
    (torch.float16, [1.5, -65504.0, 2048, float("inf"), 65519.0, 0.1]),
    (torch.bfloat16, [1.5, 256, -float("inf"), 0.1]),
    (torch.float8_e4m3fn, [1.5, 448, -0.1]),
    (torch.float8_e5m2, [1.5, 57344, float("inf")]),
    (torch.float32, [0.1, 2**24, 2**127, 1e38, -0.0, np.float64(0.5), True]),
    (torch.float64, [0.1, 2**53, 2**1023, 1.7e308, 5e-324, np.float32(0.1)]),
    (torch.complex64, [1 + 2j, 3, 0.5, np.complex64(1j)]),
    (torch.complex128, [0.1 + 0.2j, 2**53, -1, np.complex128(1j)]),
]


@pytest.mark.parametrize(
    "dtype, values", ELEMENTS, ids=lambda each: name_of(each) if isinstance(each, torch.dtype) else ""
)
def test_p_writes_one_value_and_g_reads_it(dtype, values):
    left, me, right = neighbours()
    _, whole = guarded(0, dtype, behind=3)
    for value in values:
        shmem.p(whole[1:2], value, right)
        shmem.barrier_all()
        expected = rounded(value, dtype)
        assert_same(whole[1:2], expected)
        assert shmem.g(whole[1:2], right) == expected.item()
        assert type(shmem.g(whole[1], left)) is type(expected.item())
        assert untouched(whole[:1]) and untouched(whole[2:])
        shmem.barrier_all()


def rounded(value, dtype):
    """What torch makes of ``value`` in ``dtype``."""
    if isinstance(value, np.generic):
        value = value.item()
    if dtype in AMO_DTYPES[:4]:
        value = int(value)
    return torch.tensor([value], dtype=dtype)


def test_p_keeps_nan(me):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn):
        target = shmem.zeros(1, dtype=dtype)
        shmem.p(target, float("nan"), me)
        shmem.quiet()
        assert np.isnan(shmem.g(target, me))


REFUSED = [
    (torch.bool, [2, -1, 0.5]),
    (torch.int8, [300, -129, 1.5, 1j]),
    (torch.int16, [2**15, -(2**15) - 1]),
    (torch.int32, [2**31, 0.1, float("nan")]),
    (torch.int64, [2**63, -(2**63) - 1, 2.0**63, float("inf")]),
    (torch.uint8, [-1, 256]),
    (torch.uint16, [-1, 2**16]),
    (torch.uint32, [-1, 2**32, np.int8(-1)]),
    (torch.uint64, [-1, 2**64, -0.5]),
    (torch.float16, [65520.0, 1e300, 2049, 1j]),
    (torch.bfloat16, [257, 1e39]),
    (torch.float8_e4m3fnuz, [500, 500.0, 241]),
    (torch.float32, [2**24 + 1, 2**128, 1e39, 10**400]),
    (torch.float64, [2**53 + 1, 2**1024, 10**400]),
    (torch.complex64, [1e300, 2**24 + 1, complex(0, 1e39)]),
    (torch.complex128, [2**53 + 1, 10**400]),
]


@pytest.mark.parametrize(
    "dtype, values", REFUSED, ids=lambda each: name_of(each) if isinstance(each, torch.dtype) else ""
)
def test_p_refuses_what_the_element_cannot_hold_and_writes_nothing(dtype, values, me, npes):
    _, whole = guarded(0, dtype, behind=3)
    for value in values:
        with refuses("p", f"value: got .*; expected a value that {name_of(dtype)}", shmem.DtypeError):
            shmem.p(whole[1:2], value, (me + 1) % npes)
    for value in ("1", None, [1], torch.tensor([1, 1])):
        with refuses("p", r"value: got an? \w+; expected a Python or NumPy scalar", shmem.DtypeError):
            shmem.p(whole[1:2], value, (me + 1) % npes)
    shmem.barrier_all()
    assert untouched(whole)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("tst, sst", [(1, 1), (1, 3), (3, 1), (2, 5)])
def test_iput_and_iget_move_every_sth_element_and_nothing_between(dtype, tst, sst):
    left, me, right = neighbours()
    for count in (0, 1, 6):
        _, whole = guarded(0, dtype, behind=tst * max(count - 1, 0) + 3)
        expected = whole.clone()
        shmem.barrier_all()
        shmem.iput(whole[1:-1], payload(me, 1, sst * 6, dtype), right, tst, sst, count)
        shmem.barrier_all()
        octets(expected).view(-1, dtype.itemsize)[1 : 1 + tst * count : tst] = octets(
            payload(left, 1, sst * 6, dtype)
        ).view(-1, dtype.itemsize)[: sst * count : sst]
        assert_same(whole, expected)
        source = shmem.array(payload(me, 2, sst * 6, dtype))
        _, back = guarded(0, dtype, behind=tst * max(count - 1, 0) + 3)
        expected = back.clone()
        shmem.iget(back[1:-1], source, right, tst, sst, count)
        octets(expected).view(-1, dtype.itemsize)[1 : 1 + tst * count : tst] = octets(
            payload(right, 2, sst * 6, dtype)
        ).view(-1, dtype.itemsize)[: sst * count : sst]
        assert_same(back, expected)


@pytest.mark.parametrize(
    "nothing", [torch.empty(0), np.empty(0, np.float32), torch.empty(3, 0)], ids=["torch", "numpy", "2-d"]
)
def test_calls_of_length_0_are_legal_for_empty_and_for_private_arrays(nothing, npes):
    """A NULL with length 0 is legal everywhere, towards every PE."""
    for pe in range(npes):
        shmem.put(nothing, nothing, pe)
        shmem.put_nbi(nothing, nothing, pe)
        shmem.get(nothing, nothing, pe)
        shmem.get_nbi(nothing, nothing, pe)
        shmem.put(torch.ones(3), torch.ones(3), pe, size=0)
        shmem.get(torch.ones(3), torch.ones(3), pe, size=0)
        shmem.iput(nothing, nothing, pe, 1, 1, 0)
        shmem.iget(nothing, nothing, pe, 1, 1, 0)


WORDS = [(torch.int16, 0x5555), (torch.int32, 0x55555555), (torch.int64, 0x5555555555555555)]


@pytest.mark.parametrize("dtype, pattern", WORDS, ids=["2 bytes", "4 bytes", "8 bytes"])
@pytest.mark.parametrize("write", ["p", "put", "iput"])
def test_an_aligned_word_is_never_seen_torn(write, dtype, pattern, me, npes):
    """All PEs but the first hammer one word there with two values of which no byte is equal; the first reads."""
    target = shmem.full(1, pattern, dtype=dtype)
    finished = shmem.zeros(1, dtype=torch.int32)
    values = (pattern, ~pattern)
    sources = [torch.tensor([each], dtype=dtype) for each in values]
    calls = {
        "p": lambda i: shmem.p(target, values[i], 0),  # check: ignore, either value will do
        "put": lambda i: shmem.put(target, sources[i], 0),  # check: ignore, either value will do
        "iput": lambda i: shmem.iput(target, sources[i], 0, 1, 1, 1),  # check: ignore, either value will do
    }
    if me:
        for i in range(20000):
            calls[write](i % 2)
        shmem.atomic_inc(finished, 0)
    else:
        seen = set()
        while not shmem.test(finished, "==", npes - 1):
            seen.update(shmem.g(target, 0) for _ in range(100))
        assert seen <= set(values), [hex(each & (1 << 8 * dtype.itemsize) - 1) for each in seen]


def test_arrays_of_non_blocking_calls_may_be_let_go_of(me, npes):
    """Their memory is nobody else's before the quiet: on a GPU torch would give it to the next array at once."""
    left, right = (me - 1) % npes, (me + 1) % npes
    inbox, source = shmem.zeros(50, 4096, dtype=torch.int64), shmem.array(payload(me, 7, 4096, torch.int64))
    for turn in range(50):
        shmem.put_nbi(inbox[turn], payload(me, turn, 4096, torch.int64), right)
        shmem.get_nbi(torch.empty_like(source), source, right)
        spoilt = [torch.full_like(source, -1) for _ in range(3)]
    assert all((each == -1).all() for each in spoilt)
    shmem.quiet()
    shmem.barrier_all()
    for turn in range(50):
        assert_same(inbox[turn], payload(left, turn, 4096, torch.int64))


@pytest.mark.parametrize("stride", [2**40, 2**60, 2**61 + 1, 2**64 + 1], ids=hex)
def test_strides_of_one_element_or_block_may_be_of_any_size(stride):
    """No PE computes with them: on other nodes, too."""
    left, me, right = neighbours()
    target, back = (shmem.zeros(4, dtype=torch.int64) for _ in range(2))
    source = payload(me, 1, 4, torch.int64)
    shmem.iput(target, source, right, stride, stride, 1)
    shmem.ibput(target[1:], source[1:], right, stride, stride, 2, 1)
    shmem.barrier_all()
    wanted = payload(left, 1, 4, torch.int64)
    assert target.tolist() == [*wanted[:3].tolist(), 0]
    shmem.iget(back, target, me, stride, stride, 1)
    shmem.ibget(back[1:], target[1:], me, stride, stride, 2, 1)
    assert back.tolist() == target.tolist()
    shmem.barrier_all()


def test_a_wrong_pe_says_in_which_order_the_arguments_are():
    """A program in C's order passes a number of elements as the PE."""
    x, source = shmem.zeros(4), torch.zeros(4, device=here())
    with refuses(
        "put", r"pe: got 99; expected .*; the arguments are target, source, pe, size, and C's", shmem.OutOfRangeError
    ):
        shmem.put(x, source, 99, 0)
