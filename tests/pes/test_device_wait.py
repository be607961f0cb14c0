"""9.10 in kernels: wait_until and test, on the four types, with the type's signedness."""

import operator
import threading

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import AMO_INTEGERS, aside, name_of, neighbours, work

pytestmark = pytest.mark.usefixtures("beside_the_heap")

COMPARISONS = {
    "CMP_EQ": operator.eq,
    "CMP_NE": operator.ne,
    "CMP_GT": operator.gt,
    "CMP_GE": operator.ge,
    "CMP_LT": operator.lt,
    "CMP_LE": operator.le,
}


def extremes(dtype):
    limits = torch.iinfo(dtype)
    return [limits.min, limits.min + 1, limits.max // 2, limits.max // 2 + 1, limits.max - 1, limits.max]


def waits(dtype):
    """(comparison, value before, value waited for, value that ends the wait); the sign bit decides in each."""
    low, *_, high = extremes(dtype)
    top = high if dtype.is_signed else high // 2 + 1  # seen as signed: the lowest number
    return [
        ("CMP_EQ", low, high, high),
        ("CMP_NE", top, top, low),
        ("CMP_GT", 1 if not dtype.is_signed else -1, top - 1, top),
        ("CMP_GE", 1 if not dtype.is_signed else -1, top, top),
        ("CMP_LT", top, 1 if not dtype.is_signed else -1, low),
        ("CMP_LE", top, 1 if not dtype.is_signed else -1, low + 1),
    ]


@triton.jit
def wait_kernel(ctx, ivar, data, seen, value, CMP: tl.constexpr):
    dev.wait_until(ctx, ivar, CMP, value)
    tl.store(seen, tl.load(data))


@triton.jit
def compare_all(ctx, ivar, found, value):
    tl.store(found, dev.test(ctx, ivar, dev.CMP_EQ, value))
    tl.store(found + 1, dev.test(ctx, ivar, dev.CMP_NE, value))
    tl.store(found + 2, dev.test(ctx, ivar, dev.CMP_GT, value))
    tl.store(found + 3, dev.test(ctx, ivar, dev.CMP_GE, value))
    tl.store(found + 4, dev.test(ctx, ivar, dev.CMP_LT, value))
    tl.store(found + 5, dev.test(ctx, ivar, dev.CMP_LE, value))


@pytest.mark.parametrize("cmp", COMPARISONS)
@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=name_of)
def test_wait_until_waits_for_its_comparison(dtype, cmp):
    """The left neighbour's host writes late, data first: a wait that ends too early finds no data."""
    left, _, right = neighbours()
    _, first, value, last = next(each for each in waits(dtype) if each[0] == cmp)
    assert not COMPARISONS[cmp](first, value) and COMPARISONS[cmp](last, value)
    ivar, data = shmem.full(1, first, dtype=dtype), shmem.full(1, -1, dtype=torch.int32)
    seen = torch.zeros(1, dtype=torch.int32)

    def write():
        work(200000)
        shmem.p(data, shmem.my_pe(), right)
        shmem.fence()
        shmem.p(ivar, last, right)

    writer = threading.Thread(target=aside(write))
    writer.start()
    wait_kernel[(1,)](shmem.device_context(), ivar, data, seen, value, getattr(dev, cmp))
    writer.join()
    assert seen.item() == left


@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=name_of)
def test_test_says_what_the_comparison_says(dtype):
    ivar, found = shmem.zeros(1, dtype=dtype), torch.zeros(6, dtype=torch.bool)
    for word in extremes(dtype):
        for value in extremes(dtype):
            shmem.p(ivar, word, shmem.my_pe())
            shmem.quiet()
            compare_all[(1,)](shmem.device_context(), ivar, found, value)
            assert found.tolist() == [compare(word, value) for compare in COMPARISONS.values()], (word, value)


@triton.jit
def poll(ctx, flag, data, found, polls):
    """The classic loop: test, and count the turns."""
    turns = 0
    while not dev.test(ctx, flag, dev.CMP_EQ, 1):
        turns += 1
    tl.store(found, tl.load(data))
    tl.store(polls, turns)


def test_test_is_an_acquire_and_does_not_wait():
    left, _, right = neighbours()
    flag, data = shmem.zeros(1, dtype=torch.uint32), shmem.full(1, -1, dtype=torch.int64)
    found, polls = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    def write():
        work(200000)
        shmem.p(data, shmem.my_pe(), right)
        shmem.fence()
        shmem.p(flag, 1, right)

    # returns, with nobody to write
    compare_all[(1,)](shmem.device_context(), flag, torch.zeros(6, dtype=torch.bool), 1)
    writer = threading.Thread(target=aside(write))
    writer.start()
    poll[(1,)](shmem.device_context(), flag, data, found, polls)
    writer.join()
    assert found.item() == left


@triton.jit
def ping_pong(ctx, word, pe, FIRST: tl.constexpr, turns):
    """Two PEs take turns on each other's word; the value names the turn."""
    for turn in range(1, turns + 1):
        if FIRST:
            dev.p(ctx, word, turn, pe)
            dev.wait_until(ctx, word, dev.CMP_EQ, turn)
        else:
            dev.wait_until(ctx, word, dev.CMP_EQ, turn)
            dev.p(ctx, word, turn, pe)


@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=name_of)
def test_two_kernels_take_turns_by_p_and_wait_until(dtype, me, npes):
    word, pair = shmem.zeros(1, dtype=dtype), me ^ 1
    if pair < npes:
        ping_pong[(1,)](shmem.device_context(), word, pair, me < pair, 100)
        assert word.item() == 100


@triton.jit
def wait_wrapped(ctx, ivar, found, value):
    dev.wait_until(ctx, ivar, dev.CMP_EQ, value)
    tl.store(found, dev.test(ctx, ivar, dev.CMP_EQ, value))


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64], ids=name_of)
def test_a_negative_value_meets_an_unsigned_word_as_in_c(dtype, me):
    ivar, found = shmem.full(1, torch.iinfo(dtype).max, dtype=dtype), torch.zeros(1, dtype=torch.bool)
    wait_wrapped[(1,)](shmem.device_context(), ivar, found, -1)
    assert found.item()
