"""9.6 ibput and ibget: blocks at equal distances, and nothing between them."""

import pytest
import torch
from support import RMA_DTYPES, assert_same, from_pe, guarded, here, name_of, neighbours, octets, payload, refuses

import pyshmem as shmem

# tst, sst, bsize, nblocks
SHAPES = [(1, 1, 1, 1), (3, 2, 2, 4), (5, 5, 5, 3), (4, 7, 3, 10), (2, 1, 2, 5), (9, 0x10, 8, 4)]
ids = {"ids": name_of}


def span(stride, bsize, nblocks):
    return (nblocks - 1) * stride + bsize


def wanted(before, source, tst, sst, bsize, nblocks):
    result = before.clone()
    for block in range(nblocks):
        result[block * tst : block * tst + bsize] = source[block * sst : block * sst + bsize]
    return result


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", RMA_DTYPES, **ids)
def test_ibput_writes_the_blocks_on_pe_and_nothing_else(dtype, shape, me):
    tst, sst, bsize, nblocks = shape
    left, _, right = neighbours()
    target, whole = guarded(span(tst, bsize, nblocks), dtype, 3)
    before = whole.clone()
    shmem.barrier_all()  # no block arrives before all have their clones
    size = span(sst, bsize, nblocks)
    shmem.ibput(whole, payload(me, 1, size, dtype), right, *shape)
    shmem.barrier_all()
    assert_same(whole.clone(), wanted(before, payload(left, 1, size, dtype), *shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", RMA_DTYPES, **ids)
def test_ibget_reads_the_blocks_of_pe_and_writes_nothing_else(dtype, shape, me):
    tst, sst, bsize, nblocks = shape
    _, _, right = neighbours()
    size = span(sst, bsize, nblocks)
    source = shmem.array(payload(me, 1, size, dtype))
    target = torch.empty(span(tst, bsize, nblocks) + 3, dtype=dtype, device=here())
    octets(target).fill_(77)
    before = target.clone()
    shmem.ibget(target, source, right, *shape)
    assert_same(target, wanted(before, payload(right, 1, size, dtype), *shape))
    assert_same(from_pe(source, right), payload(right, 1, size, dtype))


@pytest.mark.parametrize("name", ["ibput", "ibget"])
def test_no_blocks_or_empty_blocks_move_nothing(name, me):
    array = shmem.full(4, me, dtype=torch.int64)
    for bsize, nblocks in ((0, 5), (3, 0), (0, 0)):
        getattr(shmem, name)(array, shmem.zeros(4, dtype=torch.int64), me, 5, 5, bsize, nblocks)
        getattr(shmem, name)(shmem.zeros(0), shmem.zeros(0), me, 5, 5, bsize, nblocks)
    assert array.tolist() == [me] * 4


@pytest.mark.parametrize("name", ["ibput", "ibget"])
def test_what_does_not_fit_is_refused_and_nothing_moves(name, me, npes):
    target, source, call = shmem.zeros(10), shmem.ones(10), getattr(shmem, name)
    for error, text, arguments in (
        (
            shmem.OutOfRangeError,
            "target: got 10 elements; expected at least 11, for 3 blocks of 3 at stride 4",
            (me, 4, 3, 3, 3),
        ),
        (shmem.OutOfRangeError, "source: got 10 elements; expected at least 12", (me, 3, 5, 2, 3)),
        (shmem.ArgumentError, "tst: got 2; expected 3 or more, with blocks of 3", (me, 2, 3, 3, 2)),
        (shmem.ArgumentError, "sst: got 0; expected 1 or more", (me, 3, 0, 3, 2)),
        (shmem.OutOfRangeError, "bsize: got -1; expected 0 or more", (me, 1, 1, -1, 2)),
        (shmem.ArgumentError, "nblocks: got 1.0; expected an int", (me, 1, 1, 1, 1.0)),
        (shmem.OutOfRangeError, f"pe: got {npes}; expected a PE", (npes, 1, 1, 1, 1)),
    ):
        with refuses(name, text, error):
            call(target, source, *arguments)
    with refuses(name, "source: got int32 elements; expected the float32 of target", shmem.DtypeError):
        call(target, shmem.zeros(10, dtype=torch.int32), me, 1, 1, 1, 1)
    private = torch.zeros(10)
    with refuses(name, f"{'target' if name == 'ibput' else 'source'}: got .* private", shmem.NotSymmetricError):
        call(private, private, me, 1, 1, 1, 1)
    shmem.barrier_all()
    assert (target == 0).all() and (source == 1).all() and (private == 0).all()
