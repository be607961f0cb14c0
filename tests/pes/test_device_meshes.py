"""Tensors over meshes of PEs in kernels: elements, tiles and indices, against torch on the whole and the layout."""

import math

import hypothesis
import hypothesis.strategies as st
import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import GUARD, assert_same, interpreted, payload
from test_device_partitioned import refused
from test_partitioned_meshes import distributions

pytestmark = pytest.mark.usefixtures("beside_the_heap")
few = hypothesis.settings(max_examples=8)
planes = st.tuples(st.integers(1, 15), st.integers(1, 15))


def whole(shape, turn=1, dtype=torch.float32):
    return payload(0, turn, math.prod(shape), dtype).view(shape)


def made(shape, how, dtype=torch.float32):
    tensor = shmem.partitioned(shape, dtype=dtype, **how)
    tensor.scatter(whole(shape, 1, dtype) if shmem.my_pe() == 0 else None)
    return tensor


@triton.jit
def turn_over(part, out, values, B: tl.constexpr):
    """Load the whole tensor into out, and then store the values to it, each PE those whose indices add up to its number."""
    row, col = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    here = (row < part.rows) & (col < part.cols)
    tl.store(out + row * B + col, dev.load_at(part, row, col, here, -1))
    dev.barrier_all(part.ctx)
    mine = here & ((row + col) % dev.n_pes(part.ctx) == dev.my_pe(part.ctx))
    dev.store_at(part, row, col, tl.load(values + row * part.cols + col, mask=mine, other=0), mine)
    dev.barrier_all(part.ctx)
    pointers, pe = dev.locate(part, row, col, here)
    dev.atomic_add(part.ctx, pointers, 1, pe, mask=here)
    dev.atomic_add_at(part, row, col, 1, here)


@few
@hypothesis.given(st.data(), planes)
def test_elements_of_a_mesh_are_loaded_stored_and_added_to_at_their_owners(data, shape):
    how = data.draw(distributions(shape).filter(lambda how: None not in how["dim"]))
    tensor, out = made(shape, how, torch.int32), torch.full((16, 16), GUARD, dtype=torch.int32)
    turn_over[(1,)](tensor.partition, out, whole(shape, 2, torch.int32), 16)
    wanted = torch.full((16, 16), -1, dtype=torch.int32)
    wanted[: shape[0], : shape[1]] = whole(shape, 1, torch.int32)
    assert_same(out, wanted)
    assert_same(tensor.gather(), whole(shape, 2, torch.int32) + 2 * shmem.n_pes())
    tensor.free()


@triton.jit
def copy_tiles(part, to, BM: tl.constexpr, BN: tl.constexpr):
    """The PEs copy tiles in turn, whoever has them."""
    for number in range(dev.my_pe(part.ctx), tl.cdiv(part.rows, BM) * tl.cdiv(part.cols, BN), dev.n_pes(part.ctx)):
        row, col = number // tl.cdiv(part.cols, BN) * BM, number % tl.cdiv(part.cols, BN) * BN
        dev.store_tile(to, row, col, dev.load_tile(part, row, col, BM, BN, across=True), across=True)


@few
@hypothesis.given(st.data(), planes)
def test_tiles_across_owners_have_each_element_from_its_owner(data, shape):
    some = distributions(shape).filter(lambda how: None not in how["dim"])
    tensor, to = made(shape, data.draw(some)), shmem.partitioned(shape, **data.draw(some))
    copy_tiles[(1,)](tensor.partition, to.partition, 4, 8)
    assert_same(to.gather(), whole(shape))
    to.free()
    tensor.free()


@pytest.mark.parametrize("dim", [0, 1])
def test_tiles_across_owners_of_one_axis_too(dim):
    tensor, to = made((13, 7), {"dim": dim, "block": 3}), shmem.partitioned((13, 7), dim=1 - dim, block=2)
    copy_tiles[(1,)](tensor.partition, to.partition, 8, 4)
    assert_same(to.gather(), whole((13, 7)))


@triton.jit
def add_tiles(part, out, DIMS: tl.constexpr):
    """Double each tile of 2 x 2 x ... elements of a tensor of 4 x 4 x ..., one PE a tile, and load all of it."""
    if DIMS == 4:
        for number in range(dev.my_pe(part.ctx), 16, dev.n_pes(part.ctx)):
            i, j, k, m = number // 8 * 2, number // 4 % 2 * 2, number // 2 % 2 * 2, number % 2 * 2
            tile = dev.load_tile(part, (i, j, k, m), (2, 2, 2, 2), across=True)
            dev.store_tile(part, (i, j, k, m), tile * 2, across=True)
        dev.barrier_all(part.ctx)
        tile = tl.reshape(dev.load_tile(part, (0, 0, 0, 0), (4, 4, 4, 4), across=True), [256])
        tl.store(out + tl.arange(0, 256), tile)
    elif DIMS == 3:
        i, j, k = tl.arange(0, 4)[:, None, None], tl.arange(0, 4)[None, :, None], tl.arange(0, 4)[None, None, :]
        if dev.my_pe(part.ctx) == 0:
            dev.store_at(part, (i, j, k), 0, dev.load_at(part, (i, j, k)) * 2)
        dev.barrier_all(part.ctx)
        tl.store(out + i * 16 + j * 4 + k, dev.load_tile(part, (0, 0, 0), (4, 4, 4), across=True))
    else:
        if dev.my_pe(part.ctx) == 0:
            dev.store_tile(part, (0,), dev.load_tile(part, (0,), (4,), across=True) * 2, across=True)
        dev.barrier_all(part.ctx)
        tl.store(out + tl.arange(0, 4), dev.load_tile(part, (0,), (4,), across=True))


@few
@hypothesis.given(st.data(), st.sampled_from([1, 3, 4]))
def test_tiles_of_one_to_four_dimensions_are_named_by_tuples(data, dims):
    how = data.draw(distributions((4,) * dims).filter(lambda how: None not in how["dim"]))
    tensor, out = made((4,) * dims, how), torch.full((4,) * dims, float(GUARD))
    add_tiles[(1,)](tensor.partition, out, dims)
    assert_same(out, whole((4,) * dims) * 2)
    assert_same(tensor.gather(), out)
    tensor.free()


@triton.jit
def tell_indices(part, out, EXTENT: tl.constexpr, DIM: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    here = i < EXTENT
    place, number = dev.owner(part, i, here, DIM), dev.local_index(part, i, here, DIM)
    tl.store(out + i, place, mask=here)
    tl.store(out + EXTENT + i, number, mask=here)
    tl.store(out + 2 * EXTENT + i, dev.global_index(part, number, place, here, DIM), mask=here)
    for place in range(PLACES):
        tl.store(out + 3 * EXTENT + place, dev.n_local(part, place, DIM))
    tl.store(out + 3 * EXTENT + PLACES, dev.my_place(part, DIM))


@pytest.mark.parametrize("mesh", ["square", "rows", "columns", "copies"])
def test_the_indices_of_each_dimension_in_kernels_are_the_layouts(mesh, me, npes):
    half = next(each for each in (2, 3, 1) if npes % each == 0)
    how = {
        "square": {"mesh": (half, npes // half)},
        "rows": {"mesh": (npes, 1)},
        "columns": {"dim": 1},
        "copies": {"mesh": (half, npes // half), "dim": (None, 0)},
    }
    tensor = shmem.partitioned((11, 7), dtype=torch.int8, block=(2, 3), **how[mesh])
    for dim, cut in enumerate(tensor.layout.cuts):
        out = torch.full((3 * cut.extent + cut.n_pes + 1,), -1)
        tell_indices[(1,)](tensor.partition, out, cut.extent, dim, cut.n_pes, 16)
        wanted = [cut.owner(i) for i in range(cut.extent)] + [cut.local_index(i) for i in range(cut.extent)]
        wanted += [*range(cut.extent), *map(cut.n_local, range(cut.n_pes)), tensor.layout.owners(me)[dim]]
        assert out.tolist() == wanted


@triton.jit
def add_to_copy(part, B: tl.constexpr):
    i = tl.arange(0, B)
    dev.store_at(part, i, 0, dev.load_at(part, i, mask=i < part.rows, other=0) + dev.my_pe(part.ctx), i < part.rows)


def test_a_pe_accesses_the_copy_that_it_has(me, npes):
    """All PEs are two axes, the first of one PE: along the second each has a copy."""
    tensor = shmem.partitioned((5,), dtype=torch.int32, mesh=(1, npes), dim=(0, None))
    add_to_copy[(1,)](tensor.partition, 8)
    shmem.barrier_all()
    assert (tensor.local == me).all()


@triton.jit
def bad_call(part, routine: tl.constexpr, arguments):
    routine(part, *arguments)


@interpreted
def test_wrong_numbers_of_indices_and_unnamed_dimensions_are_refused(me, npes):
    cube, plane = shmem.partitioned((4, 4, 4), mesh=(npes, 1)), shmem.partitioned((4, 4), mesh=(npes, 1), block=1)
    cases = [
        (cube, dev.load_at, (0, 0), "rows: got 2 indices; expected a tuple of 3"),
        (plane, dev.load_at, ((0, 0, 0),), "rows: got 3 indices; expected a tuple of 2"),
        (cube, dev.load_tile, ((0, 0, 0), (2, 2)), "col: got 2 extents; expected an extent for each of 3 dimensions"),
        (plane, dev.owner, (0,), "dim: got None; expected a dimension from 0 to 1: not one is distributed here"),
        (plane, dev.n_local, (0, 2), "dim: got 2; expected a dimension from 0 to 1"),
        (plane, dev.load_tile, (0, 0, 2, 2), "row: got a tile of 0 to 1; expected one inside a block of 1, which one PE has; or across"),
    ]  # fmt: skip
    for tensor, call, arguments, words in cases:
        refused(shmem.ArgumentError, f"{call.__name__}: PE {me}: {words}", bad_call, tensor.partition, call, arguments)
    words = rf"owner: PE {me}: index: got 4; expected one from 0 to 3 of the whole tensor"
    refused(shmem.OutOfRangeError, words, bad_call, plane.partition, dev.owner, (4, None, 0))
    words = rf"n_local: PE {me}: pe: got 1; expected one from 0 to 0 along the axis of the dimension"
    refused(shmem.OutOfRangeError, words, bad_call, plane.partition, dev.n_local, (1, 1))
