"""Collectives on symmetric arrays, executed: narrow and wide accesses, the ends of arrays, both forms, and call after call."""

import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
from support import assert_same, guarded, payload, untouched
from test_collectives import combined, operand


@triton.jit
def moves(ctx, once, twice, all_of, apart, source, n, root):
    dev.broadcast_grid(ctx, once, source, n, root)
    dev.fcollect_grid(ctx, twice, source, n)
    dev.collect(ctx, all_of, source, n - dev.my_pe(ctx))
    dev.alltoalls(ctx, apart, source, 1, 2, n // 2 // dev.n_pes(ctx))


def test_arrays_arrive_whole_at_their_places(me, npes):
    """More than a block of the widest copies of one wave, and some."""
    dtype, n = torch.int8, 4400
    each = n // 2 // npes
    sources = [payload(pe, 1, n, dtype) for pe in range(npes)]
    source = shmem.array(sources[me])
    sizes = [n, n * npes, sum(n - pe for pe in range(npes)), each * npes]
    dests = [guarded(size, dtype) for size in sizes]
    moves[(1,)](shmem.device_context(), *(dest for dest, _ in dests), source, n, npes - 1, num_warps=1)
    parts = [mine[::2][each * me : each * (me + 1)] for mine in sources]
    wanted = [sources[-1], torch.cat(sources), torch.cat([mine[: n - pe] for pe, mine in enumerate(sources)])]
    for (dest, whole), right in zip(dests, [*wanted, torch.cat(parts)], strict=True):
        assert_same(dest, right)
        assert untouched(whole[dest.numel() :])


@triton.jit
def sums(ctx, inplace, dest, source, n):
    dev.sum_reduce_grid(ctx, inplace, inplace, n)
    dev.sum_exscan(ctx, dest, source, n)
    dev.barrier_all_grid(ctx)
    dev.max_reduce(ctx, source, inplace, n)
    dev.barrier_all_grid(ctx)


def test_sums_and_scans_are_right_to_the_last_element(me, npes):
    """More than a block of the widest accesses of one wave on each of two PEs, and some."""
    dtype, n = torch.bfloat16, 2 * 2048 + 500
    inplace, source = shmem.array(operand("sum", me, 1, n, dtype)), shmem.array(operand("sum", me, 2, n, dtype))
    dest, whole = guarded(n, dtype)
    sums[(1,)](shmem.device_context(), inplace, dest, source, n, num_warps=1)
    total = combined("sum", 1, n, dtype, npes)
    assert_same(inplace, total)
    assert_same(source, total)  # of one total the largest
    before = sum((operand("sum", pe, 2, n, dtype).double() for pe in range(me)), torch.zeros(n))
    assert_same(dest, before.to(dtype))
    assert untouched(whole[n:])
