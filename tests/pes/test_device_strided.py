"""9.6 in kernels: iput, iget, ibput, ibget. Every byte that is not named by the strides stays as it was."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import assert_same, guarded, interpreted, neighbours, payload
from triton.runtime.errors import InterpreterError

pytestmark = pytest.mark.usefixtures("beside_the_heap")

DTYPES = [torch.int8, torch.float64]
# dst, sst, bsize, nblocks: more elements than threads, blocks of more than that, blocks in a row, sources that overlap, none
BLOCKS = [(5, 4, 3, 400), (290, 280, 270, 3), (4, 4, 4, 5), (4, 1, 4, 6), (7, 3, 0, 4), (7, 3, 2, 0)]
ELEMENTS = [(1, 1, 1, 7), (3, 2, 1, 1100), (1, 4, 1, 130), (5, 1, 1, 1), (2, 3, 1, 0)]


@triton.jit
def move_elements(ctx, routine: tl.constexpr, dest, source, dst, sst, n, pe):
    routine(ctx, dest, source, dst, sst, n, pe)


@triton.jit
def move_blocks(ctx, routine: tl.constexpr, dest, source, dst, sst, bsize, n, pe):
    routine(ctx, dest, source, dst, sst, bsize, n, pe)


def move(name, dest, source, dst, sst, bsize, nblocks, pe):
    ctx, routine = shmem.device_context(), getattr(dev, name)
    if name.startswith("ib"):
        move_blocks[(1,)](ctx, routine, dest, source, dst, sst, bsize, nblocks, pe)
    else:
        move_elements[(1,)](ctx, routine, dest, source, dst, sst, nblocks, pe)


def span(stride, bsize, nblocks):
    return (nblocks - 1) * stride + bsize if bsize * nblocks else 0


def moved(into, of, dst, sst, bsize, nblocks):
    """``into`` with the blocks of ``of`` in their places."""
    block, inside = torch.arange(nblocks, device="cpu")[:, None], torch.arange(bsize, device="cpu")[None, :]
    result = into.cpu().clone()
    result[(block * dst + inside).reshape(-1)] = of.cpu()[(block * sst + inside).reshape(-1)]
    return result


def cases():
    return [(name, *case) for name in ("iput", "iget") for case in ELEMENTS] + [
        (name, *case) for name in ("ibput", "ibget") for case in BLOCKS
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_strided_copies_write_the_places_that_the_strides_name_and_no_others(case, dtype):
    name, dst, sst, bsize, nblocks = case
    left, me, right = neighbours()
    here, there = span(dst, bsize, nblocks), span(sst, bsize, nblocks)
    _, target = guarded(here, dtype, behind=9)
    before = target.clone()
    shmem.barrier_all()
    if name.endswith("put"):
        move(name, target, payload(me, 1, there + 9, dtype), dst, sst, bsize, nblocks, right)
        shmem.barrier_all()
        sent = payload(left, 1, there + 9, dtype)
    else:
        move(name, target, shmem.array(payload(me, 1, there + 9, dtype)), dst, sst, bsize, nblocks, right)
        sent = payload(right, 1, there + 9, dtype)
    assert_same(target.clone().cpu(), moved(before, sent, dst, sst, bsize, nblocks))


@triton.jit
def put_and_meet(ctx, target, source, found, right):
    """Other threads wrote the source; others read what came: the diagonal of a matrix goes round."""
    lane = tl.arange(0, 64)
    tl.store(source + lane, lane * 100 + dev.my_pe(ctx))
    dev.iput(ctx, target, source, 9, 9, 8, right)
    tl.store(source + lane, -1)
    dev.barrier_all(ctx)
    tl.store(found + 63 - lane, tl.load(target + 63 - lane))


def test_a_kernel_sends_a_diagonal_it_has_just_written_and_may_write_again():
    left, _, right = neighbours()
    target, source, found = shmem.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64), torch.zeros(64)
    put_and_meet[(1,)](shmem.device_context(), target, source, found, right)
    assert found.tolist() == [lane * 100 + left if lane % 9 == 0 else 0 for lane in range(64)]


@interpreted
@pytest.mark.parametrize("name", ["iput", "iget", "ibput", "ibget"])
def test_strided_copies_refuse_what_does_not_fit_and_write_nothing(name, me, npes):
    whole, private = shmem.zeros(100, dtype=torch.int64), torch.ones(100, dtype=torch.int64)
    near, far = ("dest", "source") if name.endswith("put") else ("source", "dest")
    count, bsize, nbytes = ("nblocks", 2, 101 * 8) if name.startswith("ib") else ("nelems", 1, 100 * 8)
    cases = [
        (shmem.OutOfRangeError, f"dst: got 0; expected {bsize} or more", (0, 1, bsize, 3, me)),
        (shmem.OutOfRangeError, "sst: got -1; expected 1 or more", (2, -1, bsize, 3, me)),
        (shmem.OutOfRangeError, f"{count}: got -3; expected 0 or more", (2, 2, bsize, -3, me)),
        (shmem.OutOfRangeError, f"pe: got {npes}; expected a PE .*", (2, 2, bsize, 3, npes)),
        (shmem.ArgumentError, "dst: got 2.5; expected an integer", (2.5, 2, bsize, 3, me)),
        (shmem.NotSymmetricError, f"{near}: got {nbytes + 8} bytes at .*", (50, 50, bsize, 3, me)),
    ]
    if bsize > 1:
        cases.append((shmem.OutOfRangeError, "dst: got 2; expected 3 or more", (2, 3, 3, 3, me)))
        cases.append((shmem.OutOfRangeError, "bsize: got -1; expected 0 or more", (2, 3, -1, 3, me)))
    for kind, words, arguments in cases:
        refused(kind, rf"{name}: PE {me}: {words}", name, (whole, private), *arguments)
    words = rf"{name}: PE {me}: {far}: got a pointer to fp32; expected a pointer to int64"
    refused(shmem.DtypeError, words, name, (whole, private.float()), 3, 3, bsize, 3, me)
    assert whole.tolist() == [0] * 100 and private.tolist() == [1] * 100


def refused(kind, words, name, arrays, *arguments):
    dest, source = arrays if name.endswith("put") else arrays[::-1]
    with pytest.raises(InterpreterError, match=words) as caught:
        move(name, dest, source, *arguments)
    assert type(caught.value.__cause__) is kind
