"""A wait in a kernel that is over its limit ends, and leaves word of who waited for what."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base import kernel_timeouts

LIMIT = 20_000_000  # nanoseconds


@pytest.fixture
def words(amd):
    """The record. Waits may give up in this test; the next one finds no trace of that."""
    amd.limits = True
    yield amd.words
    shmem.barrier_all()
    amd.limits = False
    amd.words.zero_()
    amd.begin()  # a barrier that was given up leaves PEs in different ones
    shmem.barrier_all()


def hasty():
    return shmem.device_context()._replace(limit=LIMIT)


@triton.jit
def wait(ctx, word, value):
    dev.wait_until(ctx, word, dev.CMP_GE, value)


@triton.jit
def wait_for_signal(ctx, signal, out):
    tl.store(out, dev.signal_wait_until(ctx, signal, dev.CMP_EQ, 7))


@triton.jit
def meet(ctx):
    dev.barrier_all(ctx)


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize(("dtype", "seen", "wanted"), [(torch.int32, -5, 3), (torch.uint64, 5, 2**64 - 1)], ids=str)
def test_a_wait_over_its_limit_says_what_it_saw_and_wanted(dtype, seen, wanted, num_warps, words, amd, me):
    padding, word = shmem.zeros(3, dtype=dtype), shmem.full(1, seen, dtype=dtype)
    wait[(1,)](hasty(), word, torch.tensor(wanted, dtype=dtype).item(), num_warps=num_warps)
    text = kernel_timeouts.describe_record(words.tolist())
    offset = word.data_ptr() - amd.base
    assert text.startswith(
        f"kernel: wait_until: PE {me}: ivar: got {seen} at heap offset {offset} in 0.02 s; expected a value >= {wanted};"
    ), text
    assert words[kernel_timeouts.CLAIM] == 1 and padding.data_ptr() < word.data_ptr()


@triton.jit
def wait_for_many(ctx, ROUTINE: tl.constexpr, words, n, status, value):
    ROUTINE(ctx, words, n, status, dev.CMP_EQ, value)


@pytest.mark.parametrize(("name", "said"), [("wait_until_all", ""), ("wait_until_any", "none, but ")])
def test_a_wait_on_many_words_over_its_limit_names_one_that_counts(name, said, words, amd, me):
    ivars, status = shmem.zeros(300, dtype=torch.int64), torch.ones(300, dtype=torch.int32)
    status[290] = 0
    wait_for_many[(1,)](hasty(), getattr(dev, name), ivars, 300, status, 7)
    offset = ivars.data_ptr() + 290 * 8 - amd.base
    assert kernel_timeouts.describe_record(words.tolist()).startswith(
        f"kernel: {name}: PE {me}: ivars: got {said}0 at heap offset {offset} in 0.02 s; expected a value == 7;"
    )


def test_waits_after_one_that_gave_up_return_at_once_and_leave_its_record(words):
    signal, out = shmem.zeros(1, dtype=torch.uint64), torch.full((1,), 99, dtype=torch.uint64)
    words[kernel_timeouts.ROUTINE] = words[kernel_timeouts.CLAIM] = 1
    before = words.clone()
    wait_for_signal[(1,)](shmem.device_context()._replace(limit=10**15), signal, out)
    assert out.item() == 0
    assert torch.equal(words, before)


def test_a_barrier_that_nobody_joins_names_a_pe_that_did_not_come(words, me, npes):
    if me == 0:
        meet[(1,)](hasty())
        assert words[kernel_timeouts.ROUTINE] == (kernel_timeouts.CODES["barrier_all"] if npes > 1 else 0)
        if npes > 1:
            assert 1 <= words[kernel_timeouts.MISSING] < npes
            assert f"kernel: barrier_all: PE 0: ctx: got no call from PE {words[kernel_timeouts.MISSING]} " in (
                kernel_timeouts.describe_record(words.tolist())
            )
