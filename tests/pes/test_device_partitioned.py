"""Partitioned tensors in kernels: elements by their place in the whole, against torch on the whole."""

import re

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import AMO_DTYPES, GUARD, assert_same, interpreted, name_of, payload, refuses
from team_shapes import SHAPES
from triton.runtime.errors import InterpreterError

pytestmark = pytest.mark.usefixtures("beside_the_heap")

# (shape, dim, block): blocks by rows and by columns, in turn, larger than a tile or not, and parts that are short or empty
CUTS = [((13, 6), 0, None), ((13, 6), 1, None), ((13, 6), 0, 2), ((13, 6), 1, 1), ((1, 9), 0, 4), ((16, 16), 1, 16)]
every_cut = pytest.mark.parametrize("cut", CUTS, ids=str)


def whole(shape, turn, dtype=torch.float32):
    return payload(0, turn, shape[0] * shape[1], dtype).view(shape)


def made(cut, turn, dtype=torch.float32, team=None):
    """A partitioned tensor with the values of ``whole``."""
    shape, dim, block = cut
    tensor = shmem.partitioned(shape, dtype=dtype, dim=dim, block=block, team=team)
    if tensor:
        tensor.scatter(whole(shape, turn, dtype) if tensor.team.my_pe() == 0 else None)
    return tensor


@triton.jit
def load_all(part, out, BM: tl.constexpr, BN: tl.constexpr):
    """The whole and what is outside, where -1 is loaded, into out (BM, BN)."""
    row, col = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    tile = dev.load_at(part, row, col, (row < part.rows) & (col < part.cols), -1)
    tl.store(out + row * BN + col, tile)


@triton.jit
def store_own_turn(part, values, BM: tl.constexpr, BN: tl.constexpr):
    """Every PE writes the elements whose places add up to its number."""
    row, col = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    mine = (row + col) % dev.n_pes(part.ctx) == dev.my_pe(part.ctx)
    here = (row < part.rows) & (col < part.cols) & mine
    dev.store_at(part, row, col, tl.load(values + row * part.cols + col, mask=here, other=0), here)


@triton.jit
def add_all(part, ADD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    row, col = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    dev.atomic_add_at(part, row, col, ADD, (row < part.rows) & (col < part.cols))


@every_cut
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=name_of)
def test_load_at_gives_every_element_from_its_owner(cut, dtype):
    tensor, (rows, cols) = made(cut, 1, dtype), cut[0]
    out = torch.full((16, 16), GUARD, dtype=dtype)
    load_all[(1,)](tensor.partition, out, 16, 16)
    wanted = torch.full((16, 16), -1, dtype=dtype)
    wanted[:rows, :cols] = whole(cut[0], 1, dtype)
    assert_same(out, wanted)


@every_cut
def test_store_at_writes_every_element_to_its_owner_and_no_other(cut, me, npes):
    tensor = made(cut, 1)
    tensor._shard.view(-1)[:] = GUARD  # what lies beyond a part too
    shmem.barrier_all()
    store_own_turn[(1,)](tensor.partition, whole(cut[0], 2), 16, 16)
    assert_same(tensor.gather(), whole(cut[0], 2))
    axis, mine = cut[1], tensor.layout.n_local(me)
    assert (tensor._shard.narrow(axis, mine, tensor._shard.shape[axis] - mine) == GUARD).all()


@every_cut
def test_atomic_add_at_adds_what_every_pe_adds(cut, npes):
    tensor = made(cut, 1, torch.int32)
    for _ in range(3):
        add_all[(1,)](tensor.partition, 2, 16, 16)
    assert_same(tensor.gather(), whole(cut[0], 1, torch.int32) + 6 * npes)


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=name_of)
def test_atomic_add_at_takes_the_types_of_atomics(dtype, npes):
    tensor = shmem.partitioned((9, 2), dtype=dtype, block=1)
    add_all[(1,)](tensor.partition, 3, 16, 2)
    assert tensor.gather().cpu().numpy().tolist() == [[3 * npes] * 2] * 9


@triton.jit
def one_dimension(part, out, BLOCK: tl.constexpr):
    """A reversed copy; every PE's owners write."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, dev.load_at(part, part.rows - 1 - i, mask=i < part.rows), mask=i < part.rows)
    here = (i < part.rows) & (dev.owner(part, i, i < part.rows) == dev.my_pe(part.ctx))
    dev.barrier_all(part.ctx)
    dev.store_at(part, i, 0, -i, here)


@pytest.mark.parametrize("block", [None, 1, 3])
def test_a_tensor_of_one_dimension_is_indexed_by_rows(block, me):
    tensor = shmem.partitioned(29, dtype=torch.int32, block=block)
    tensor.scatter(payload(0, 1, 29, torch.int32) if me == 0 else None)
    out = torch.full((32,), GUARD, dtype=torch.int32)
    one_dimension[(1,)](tensor.partition, out, 32)
    assert_same(out[:29], payload(0, 1, 29, torch.int32).flip(0))
    assert (out[29:] == GUARD).all()
    assert_same(tensor.gather(), -torch.arange(29, dtype=torch.int32))


@triton.jit
def load_tiles(part, out, BM: tl.constexpr, BN: tl.constexpr):
    """The tensor tile by tile, a program each, into out, in rows of the grid's width."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    place = (row + tl.arange(0, BM)[:, None]) * (tl.num_programs(1) * BN) + col + tl.arange(0, BN)[None, :]
    tl.store(out + place, dev.load_tile(part, row, col, BM, BN))


@triton.jit
def store_tiles(part, values, BM: tl.constexpr, BN: tl.constexpr):
    """PEs write the tiles of the tensor in turn."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    place = (row + tl.arange(0, BM)[:, None]) * (tl.num_programs(1) * BN) + col + tl.arange(0, BN)[None, :]
    if (tl.program_id(0) + tl.program_id(1)) % dev.n_pes(part.ctx) == dev.my_pe(part.ctx):
        dev.store_tile(part, row, col, tl.load(values + place))


# (shape, dim, block, tile): tiles that divide the blocks; at the end of the tensor they reach outside
TILED = [
    ((14, 7), 0, 4, (4, 8)),
    ((14, 7), 0, 4, (2, 4)),
    ((6, 13), 1, 4, (8, 4)),
    ((6, 13), 1, 4, (4, 2)),
    ((5, 5), 0, 8, (8, 8)),
]
every_tile = pytest.mark.parametrize("case", TILED, ids=str)


@every_tile
def test_load_tile_gives_a_tile_from_its_owner_and_0_outside(case):
    (rows, cols), dim, block, (BM, BN) = case
    tensor, grid = made(case[:3], 1), (triton.cdiv(rows, BM), triton.cdiv(cols, BN))
    out = torch.full((grid[0] * BM, grid[1] * BN), float(GUARD))
    load_tiles[grid](tensor.partition, out, BM, BN)
    wanted = torch.zeros_like(out)
    wanted[:rows, :cols] = whole((rows, cols), 1)
    assert_same(out, wanted)


def test_load_tile_of_floats_of_eight_bits_gives_their_bits_and_0_outside():
    tensor = shmem.partitioned((6, 5), dtype=torch.float8_e5m2, block=2)
    tensor._shard.view(torch.uint8).fill_(0x3C)
    shmem.barrier_all()
    out = torch.full((8, 8), GUARD, dtype=torch.uint8)
    load_tiles[(4, 1)](tensor.partition, out.view(torch.float8_e5m2), 2, 8)
    wanted = torch.zeros_like(out)
    wanted[:6, :5] = 0x3C
    assert_same(out, wanted)


@every_tile
def test_store_tile_writes_the_tensor_and_nothing_outside(case, me):
    (rows, cols), dim, block, (BM, BN) = case
    tensor, grid = made(case[:3], 1), (triton.cdiv(rows, BM), triton.cdiv(cols, BN))
    tensor._shard.view(-1)[:] = GUARD
    values = whole((grid[0] * BM, grid[1] * BN), 2)
    shmem.barrier_all()
    store_tiles[grid](tensor.partition, values, BM, BN)
    assert_same(tensor.gather(), values[:rows, :cols].contiguous())
    mine = tensor.layout.n_local(me)
    assert (tensor._shard.narrow(dim, mine, tensor._shard.shape[dim] - mine) == GUARD).all()


@triton.jit
def tell_indices(part, out, EXTENT: tl.constexpr, BLOCK: tl.constexpr):
    """Of every index of the cut dimension its owner, number and itself again; then how many every PE has."""
    i = tl.arange(0, BLOCK)
    here = i < EXTENT
    pe, number = dev.owner(part, i, here), dev.local_index(part, i, here)
    tl.store(out + i, pe, mask=i < EXTENT)
    tl.store(out + EXTENT + i, number, mask=i < EXTENT)
    tl.store(out + 2 * EXTENT + i, dev.global_index(part, number, pe, here), mask=here)
    for member in range(dev.n_pes(part.ctx)):
        tl.store(out + 3 * EXTENT + member, dev.n_local(part, member))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("block", [None, 1, 5, 50])
@pytest.mark.parametrize("extent", [1, 7, 32])
def test_the_indices_in_kernels_are_the_layouts(extent, block, dim, npes):
    tensor = shmem.partitioned((extent, 3) if dim == 0 else (3, extent), dtype=torch.int8, dim=dim, block=block)
    out, layout = torch.full((3 * extent + npes,), -1), tensor.layout
    tell_indices[(1,)](tensor.partition, out, extent, 32)
    assert out[:extent].tolist() == [layout.owner(i) for i in range(extent)]
    assert out[extent : 2 * extent].tolist() == [layout.local_index(i) for i in range(extent)]
    assert out[2 * extent : 3 * extent].tolist() == list(range(extent))
    assert out[3 * extent :].tolist() == [layout.n_local(pe) for pe in range(npes)]


@triton.jit
def tell_owners(part, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, dev.owner(part, i - BLOCK // 2, i < 0))


def test_a_masked_out_index_outside_the_tensor_has_an_owner_in_the_team(npes):
    """A masked-out lane's owner is looked up where a table holds the peers' distances."""
    out = torch.full((64,), -1)
    tell_owners[(1,)](shmem.partitioned(5, dtype=torch.int8, block=2).partition, out, 64)
    assert all(0 <= owner < npes for owner in out.tolist())


@triton.jit
def tell_address(part, row, col, out):
    pointer, pe = dev.locate(part, row, col)
    tl.store(out, pointer.to(tl.int64) - part.data.to(tl.int64))
    tl.store(out + 1, pe)


@interpreted
@pytest.mark.parametrize("dim", [0, 1])
def test_places_are_counted_in_64_bits(dim, npes):
    """Of a tensor larger than this machine: locate reads nothing. AMD's compiler would see how small the array is."""
    rows, cols = 1 << 20, 1 << 14
    block = (rows, cols)[dim] // npes
    part = shmem.partitioned((8, 8), dtype=torch.float64, dim=dim).partition
    part = part._replace(rows=rows, cols=cols, block=block, pitch=cols if dim == 0 else block)
    out = torch.zeros(2, dtype=torch.int64)
    row, col = (block - 1, cols - 1) if dim == 0 else (rows - 1, block - 1)
    tell_address[(1,)](part, row, col, out)
    assert out.tolist() == [8 * (row * part.pitch + col), 0]


@triton.jit
def mark(part, bit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointers, pes = dev.locate(part, i, mask=i < part.rows)
    dev.atomic_or(part.ctx, pointers, bit, pes, mask=i < part.rows)


def test_locate_gives_what_every_other_call_takes(me, npes):
    tensor = shmem.partitioned((11,), dtype=torch.int32, block=2)
    mark[(1,)](tensor.partition, 1 << me, 16)
    assert tensor.gather().tolist() == [(1 << npes) - 1] * 11


@pytest.mark.parametrize("name", SHAPES)
def test_a_partition_names_its_team_whatever_teams_the_program_has(name, npes):
    """There is no other context to be confused with: PEs are those of the tensor's team."""
    start, stride, size = SHAPES[name](npes)
    team = shmem.TEAM_WORLD.split_strided(start, stride, size)
    tensor = made(((13, 6), 0, 2), 3, team=team)
    if team:
        out = torch.full((16, 16), GUARD, dtype=torch.float32)
        load_all[(1,)](tensor.partition, out, 16, 16)
        assert_same(out[:13, :6].contiguous(), whole((13, 6), 3))
        assert tensor.partition is tensor.partition and tensor.partition.ctx is shmem.device_context(team)
    shmem.barrier_all()
    tensor.free()
    team.destroy()


@triton.jit
def bad_call(part, routine: tl.constexpr, arguments):
    routine(part, *arguments)


@triton.jit
def bad_tile(part, row, col, HOW: tl.constexpr):
    if HOW == "load":
        dev.load_tile(part, row, col, 4, 4)
    if HOW == "store":
        dev.store_tile(part, row, col, tl.zeros((4, 4), tl.float32))
    if HOW == "flat":
        dev.store_tile(part, row, col, tl.zeros((4,), tl.float32))
    if HOW == "block":
        dev.load_tile(part, row + tl.arange(0, 4), col, 4, 4)


def refused(kind, words, kernel, *arguments):
    with pytest.raises(InterpreterError) as caught:
        kernel[(1,)](*arguments)
    error = caught.value.__cause__
    assert type(error) is kind, repr(error)
    assert re.fullmatch(rf"kernel {kernel.__name__}: {words}", str(error)), str(error)


@interpreted
@pytest.mark.parametrize("name", ["load_at", "store_at", "atomic_add_at", "locate"])
def test_places_outside_the_tensor_are_refused_and_nothing_is_written(name, me):
    tensor = made(((7, 5), 0, 2), 1)
    value = (1.0,) if name in ("store_at", "atomic_add_at") else ()
    for argument, row, col, got, most in (("rows", 7, 0, 7, 6), ("rows", -1, 0, -1, 6), ("cols", 0, 5, 5, 4)):
        words = rf"{name}: PE {me}: {argument}: got {got}; expected one from 0 to {most} of the whole tensor"
        refused(shmem.OutOfRangeError, words, bad_call, tensor.partition, getattr(dev, name), (row, col, *value))
    words = rf"{name}: PE {me}: rows: got 1.5; expected an integer"
    refused(shmem.ArgumentError, words, bad_call, tensor.partition, getattr(dev, name), (1.5, 0, *value))
    words = rf"{name}: PE {me}: part: got a pointer to fp32; expected the partition of a PartitionedTensor, as the first argument"
    refused(shmem.ArgumentError, words, bad_call, tensor.local, getattr(dev, name), (0, 0, *value))
    assert_same(tensor.gather(), whole((7, 5), 1))


@interpreted
def test_a_tile_of_two_blocks_is_refused_and_nothing_is_written(me):
    tensor = made(((14, 7), 0, 6), 1)
    columns = made(((7, 14), 1, 6), 1)
    for how in ("load", "store"):
        words = rf"{how}_tile: PE {me}: row: got a tile of 4 to 7; expected one inside a block of 6, which one PE has; or across"
        refused(shmem.ArgumentError, words, bad_tile, tensor.partition, 4, 0, how)
        words = rf"{how}_tile: PE {me}: col: got a tile of 10 to 13; expected one inside a block of 6, which one PE has; or across"
        refused(shmem.ArgumentError, words, bad_tile, columns.partition, 0, 10, how)
        words = rf"{how}_tile: PE {me}: row: got -1; expected 0 or more"
        refused(shmem.OutOfRangeError, words, bad_tile, tensor.partition, -1, 0, how)
    refused(
        shmem.ArgumentError,
        rf"store_tile: PE {me}: value: got a block of fp32; expected a block of two dimensions",
        bad_tile,
        tensor.partition,
        0,
        0,
        "flat",
    )
    refused(
        shmem.ArgumentError,
        rf"load_tile: PE {me}: row: got a block of int32; expected one number",
        bad_tile,
        tensor.partition,
        0,
        0,
        "block",
    )
    assert_same(tensor.gather(), whole((14, 7), 1))


@interpreted
def test_a_tensor_that_was_freed_is_refused_in_kernels(me):
    tensor = made(((7, 5), 0, 2), 1)
    part = tensor.partition
    tensor.free()
    words = rf"load_at: PE {me}: pointers: got 4 bytes at heap offset \d+; expected live .*"
    refused(shmem.NotSymmetricError, words, bad_call, part, dev.load_at, (0, 0))


@interpreted
@pytest.mark.parametrize("name", ["load_at", "load_tile", "locate", "owner", "local_index", "global_index", "n_local"])
def test_a_partition_of_before_finalize_is_refused(name, me):
    part = made(((7, 5), 0, 2), 1).partition
    part = part._replace(ctx=part.ctx._replace(generation=part.ctx.generation - 2))
    arguments = {"load_tile": (0, 0, 2, 2), "global_index": (0, 0)}.get(name, (0,))
    words = rf"{name}: PE {me}: ctx: got a device context of before finalize; expected .*"
    refused(shmem.NotInitializedError, words, bad_call, part, getattr(dev, name), arguments)


def test_a_partition_is_of_members_only(me, npes):
    team = shmem.TEAM_WORLD.split_strided(0, 1, 1)
    tensor = shmem.partitioned((4, 4), team=team)
    if me:
        with refuses("partition", "team: got .*; expected a team this PE is in"):
            _ = tensor.partition
    tensor.free()
    team.destroy()


@interpreted
@pytest.mark.parametrize("dim", [0, 1])
def test_indices_and_pes_that_there_are_not_are_refused(me, npes, dim):
    tensor = shmem.partitioned((7, 7), dtype=torch.int32, dim=dim)
    with_row = r"index: got {}; expected one from 0 to 6 of the whole tensor"
    cases = [(dev.owner, (index,), with_row.format(index)) for index in (-1, 7)]
    cases += [(dev.local_index, (index,), with_row.format(index)) for index in (-1, 7)]
    cases += [(dev.n_local, (pe,), rf"pe: got {pe}; expected a PE from 0 to {npes - 1} .*") for pe in (-1, npes)]
    cases += [(dev.global_index, (0, npes), rf"pe: got {npes}; expected a PE from 0 to {npes - 1} .*")]
    cases += [(dev.global_index, (7, me), r"number: got 7; expected one from 0 to \d+ of those that pe has")]
    for call, arguments, words in cases:
        refused(
            shmem.OutOfRangeError, f"{call.__name__}: PE {me}: {words}", bad_call, tensor.partition, call, arguments
        )
    shmem.barrier_all()
