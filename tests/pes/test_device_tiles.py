"""Collectives on tiles in kernels, against the same on gathered arrays."""

import itertools

import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.device.collectives import scratch

ME, N = shmem.my_pe, shmem.n_pes
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
          "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip
DTYPES = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def members(n):
    """ctx.members of n PEs."""
    return 1 << (n - 1).bit_length()


def tensor(array):
    return torch.from_numpy(array).to(shmem.zeros(1).device)


def values(dtype, shape, pe, turn=0):
    """What PE ``pe`` brings, the same on all PEs: exact sums and products in every dtype."""
    generator = np.random.default_rng([pe, turn, np.dtype(dtype).itemsize])
    return generator.integers(0, 4, shape).astype(dtype)


def every(dtype, shape, turn=0):
    return np.stack([values(dtype, shape, pe, turn) for pe in range(N())])


@triton.jit
def reducing(ctx, x, y, rows: tl.constexpr, columns: tl.constexpr, op: tl.constexpr):
    at = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
    start = tl.program_id(0) * rows * columns
    tl.store(y + start + at, dev.all_reduce(ctx, tl.load(x + start + at), op))


@pytest.mark.parametrize("dtype, op", [
    *itertools.product(DTYPES, ["sum", "max"]),
    *itertools.product(["int32", "uint64", "int8"], ["prod", "min", "and", "or", "xor"]),
    ("float32", "prod"), ("float16", "min"),
])  # fmt: skip
def test_all_reduce_combines_the_tiles_of_all_pes(dtype, op):
    x, y = tensor(values(dtype, (4, 8), ME())), tensor(np.zeros((4, 8), dtype))
    reducing[(1,)](shmem.device_context(), x, y, 4, 8, op)
    np.testing.assert_array_equal(y.cpu().numpy(), UFUNCS[op].reduce(every(dtype, (4, 8)), dtype=dtype))


@pytest.mark.parametrize(
    "dtype, columns", [("int16", 1), ("int16", 64), ("int64", 64), ("float32", 1024), ("int16", 4096)]
)
def test_all_reduce_of_any_size_takes_as_many_turns_as_it_needs(dtype, columns):
    """By words, in one step and in two: what one turn cannot hold takes several."""
    x, y = tensor(values(dtype, (4, columns), ME())), tensor(np.zeros((4, columns), dtype))
    reducing[(1,)](shmem.device_context(), x, y, 4, columns, "sum")
    np.testing.assert_array_equal(y.cpu().numpy(), every(dtype, (4, columns)).sum(axis=0, dtype=dtype))


@pytest.mark.parametrize("programs", [1, 5])
def test_all_programs_of_a_grid_reduce_at_once_call_after_call(programs):
    shape = (programs, 2, 16)
    for turn in range(4):
        x, y = tensor(values("float32", shape, ME(), turn)), tensor(np.zeros(shape, "float32"))
        reducing[(programs,)](shmem.device_context(), x, y, 2, 16, "sum")
        np.testing.assert_array_equal(y.cpu().numpy(), every("float32", shape, turn).sum(axis=0))


@triton.jit
def slots(ctx, places):
    tl.store(places + scratch.program(), scratch.slot_of(ctx, "all_reduce"))


def test_each_program_of_a_grid_has_a_slot_of_its_own():
    """In the interpreter, where one program runs after the other, one slot would serve all."""
    context, places = shmem.device_context(), tensor(np.zeros(6, "int64"))
    slots[(2, 3)](context, places)
    assert places.diff().tolist() == [context.slot] * 5


@triton.jit
def reducing_scalars(ctx, x, y, count, op: tl.constexpr):
    for place in range(count):
        tl.store(y + place, dev.all_reduce(ctx, tl.load(x + place), op))


def test_all_reduce_takes_a_scalar_and_calls_follow_each_other_in_one_kernel():
    x, y = tensor(values("int32", 50, ME())), tensor(np.zeros(50, "int32"))
    reducing_scalars[(1,)](shmem.device_context(), x, y, 50, "sum")
    np.testing.assert_array_equal(y.cpu().numpy(), every("int32", 50).sum(axis=0))


@pytest.mark.parametrize("columns", [16, 2048])
def test_all_reduce_of_floats_has_the_same_bits_on_all_pes_and_is_near_to_float64(columns):
    numbers = [np.random.default_rng(pe).standard_normal((4, columns)).astype("float32") for pe in range(N())]
    x, y = tensor(numbers[ME()]), shmem.zeros((4, columns), dtype=torch.float32)
    reducing[(1,)](shmem.device_context(), x, y, 4, columns, "sum")
    np.testing.assert_allclose(y.cpu().numpy(), np.sum(numbers, axis=0, dtype="float64"), atol=N() * 1e-6)
    shmem.barrier_all()
    theirs = torch.zeros_like(y)
    shmem.get(theirs, y, (ME() + 1) % N())
    assert torch.equal(theirs.view(torch.int32), y.view(torch.int32))
    shmem.barrier_all()
    shmem.free(y)


def test_half_types_are_summed_in_float32():
    """1 + n * eps / 2 is lost, step by step, in the half type."""
    for dtype, eps in ((torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)):
        x = torch.full((2, 8), 1.0 if ME() == 0 else eps / 2, dtype=dtype, device=tensor(np.zeros(1)).device)
        y = torch.zeros_like(x)
        reducing[(1,)](shmem.device_context(), x, y, 2, 8, "sum")
        assert (y == torch.tensor(1 + (N() - 1) * eps / 2).to(dtype)).all()


@triton.jit
def gathering(ctx, x, y, rows: tl.constexpr, columns: tl.constexpr, members: tl.constexpr):
    at = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
    found = dev.all_gather(ctx, tl.load(x + at))
    tl.store(y + (tl.arange(0, members) * rows * columns)[:, None, None] + at[None, :, :], found)


@pytest.mark.parametrize("dtype, columns", [("int8", 4), ("float16", 1024), ("int64", 256)])
def test_all_gather_gives_a_row_of_each_pe_and_zeros_behind(dtype, columns):
    most = members(N())
    x, y = tensor(values(dtype, (2, columns), ME())), tensor(np.ones((most, 2, columns), dtype))
    gathering[(1,)](shmem.device_context(), x, y, 2, columns, most)
    wanted = np.zeros((most, 2, columns), dtype)
    wanted[: N()] = every(dtype, (2, columns))
    np.testing.assert_array_equal(y.cpu().numpy(), wanted)


@triton.jit
def rows_moving(ctx, x, y, z, members: tl.constexpr, columns: tl.constexpr):
    lane = tl.arange(0, columns)
    at = (tl.arange(0, members) * columns)[:, None] + lane[None, :]
    tl.store(y + at, dev.all_to_all(ctx, tl.load(x + at)))
    tl.store(z + lane, dev.reduce_scatter(ctx, tl.load(x + at), "sum"))


@pytest.mark.parametrize("dtype, columns", [("uint8", 2), ("float32", 512), ("int64", 256)])
def test_all_to_all_and_reduce_scatter_send_row_j_to_pe_j(dtype, columns):
    most = members(N())
    x, y = tensor(values(dtype, (most, columns), ME())), tensor(np.ones((most, columns), dtype))
    z = tensor(np.zeros(columns, dtype))
    rows_moving[(1,)](shmem.device_context(), x, y, z, most, columns)
    columns_of_me = every(dtype, (most, columns))[:, ME()]
    np.testing.assert_array_equal(y.cpu().numpy()[: N()], columns_of_me)
    assert not y.cpu().numpy()[N() :].any()
    np.testing.assert_array_equal(z.cpu().numpy(), columns_of_me.sum(axis=0, dtype=dtype))


@triton.jit
def reduce_scatter_of_one_row(ctx, x, y, members: tl.constexpr):
    tl.store(y, dev.reduce_scatter(ctx, tl.load(x + tl.arange(0, members)), "max"))


def test_reduce_scatter_of_one_dimension_gives_a_scalar():
    x, y = tensor(values("int32", members(N()), ME())), tensor(np.zeros(1, "int32"))
    reduce_scatter_of_one_row[(1,)](shmem.device_context(), x, y, members(N()))
    assert y.item() == every("int32", members(N()))[:, ME()].max()


# ---- along an axis ----


@triton.jit
def store_block(to, block):
    """Store a block of two dimensions by rows."""
    rows: tl.constexpr = block.shape[0]
    columns: tl.constexpr = block.shape[1]
    tl.store(to + tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :], block)


@triton.jit
def cutting(ctx, x, scattered, gathered, exchanged, SIDE: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    tile = tl.load(x + tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :])
    store_block(scattered, dev.reduce_scatter(ctx, tile, OP, axis=AXIS))
    store_block(gathered, dev.all_gather(ctx, tile, axis=AXIS))
    store_block(exchanged, dev.all_to_all(ctx, tile, axis=AXIS))


@pytest.mark.parametrize("dtype, axis, side", [
    ("float32", 0, 16), ("float32", 1, 16), ("int8", 1, 32), ("float16", 0, 16), ("uint64", 1, 32), ("float64", 0, 32)
])  # fmt: skip
def test_an_axis_is_cut_into_a_piece_for_each_member_and_nobodys_pieces_are_zeros(dtype, axis, side):
    """ctx.members pieces: piece j is PE j's on any number of PEs, and those up to the power of two are nobody's."""
    most = members(N())
    tiles = every(dtype, (side, side))
    shapes = [[side, side] for _ in range(3)]
    shapes[0][axis] //= most
    shapes[1][axis] *= most
    outs = [tensor(np.ones(shape, dtype)) for shape in shapes]
    cutting[(1,)](shmem.device_context(), tensor(tiles[ME()]), *outs, side, axis, "sum")
    scattered, gathered, exchanged = (out.cpu().numpy() for out in outs)
    nobodys = most - N()
    total = tiles.sum(axis=0, dtype=dtype)
    np.testing.assert_array_equal(scattered, np.split(total, most, axis)[ME()])
    np.testing.assert_array_equal(gathered, np.concatenate([*tiles, *[np.zeros((side, side), dtype)] * nobodys], axis))
    pieces = [np.split(tile, most, axis)[ME()] for tile in tiles] + [np.zeros(shapes[0], dtype)] * nobodys
    np.testing.assert_array_equal(exchanged, np.concatenate(pieces, axis))


@triton.jit
def scanning(ctx, x, y, z, count: tl.constexpr, op: tl.constexpr):
    lane = tl.arange(0, count)
    tl.store(y + lane, dev.scan(ctx, tl.load(x + lane), op))
    tl.store(z + lane, dev.scan(ctx, tl.load(x + lane), op, exclusive=True))


@pytest.mark.parametrize("dtype, op, first", [
    ("float32", "sum", 0), ("int8", "min", 127), ("float16", "max", -np.inf), ("uint32", "and", 2**32 - 1),
    ("uint64", "min", 2**64 - 1), ("int64", "prod", 1), ("int32", "and", -1), ("uint8", "max", 0),
])  # fmt: skip
def test_scan_combines_the_tiles_of_the_pes_up_to_this_one_or_before_it(dtype, op, first):
    tiles = every(dtype, 128)
    y, z = (tensor(np.zeros(128, dtype)) for _ in range(2))
    scanning[(1,)](shmem.device_context(), tensor(tiles[ME()]), y, z, 128, op)
    np.testing.assert_array_equal(y.cpu().numpy(), UFUNCS[op].reduce(tiles[: ME() + 1], dtype=dtype))
    before = UFUNCS[op].reduce(tiles[: ME()], dtype=dtype) if ME() else np.full(128, first, dtype)
    np.testing.assert_array_equal(z.cpu().numpy(), before)


# ---- one way ----


@triton.jit
def casting(ctx, x, y, root, columns: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, columns)
    tl.store(y + at, dev.broadcast(ctx, tl.load(x + at), root))


@pytest.mark.parametrize("columns", [1, 512])
def test_broadcast_gives_all_the_roots_tile_from_every_root(columns):
    x = tensor(values("float32", (2, columns), ME()))
    for root in range(N()):
        y = tensor(np.zeros((2, columns), "float32"))
        casting[(2,)](shmem.device_context(), x, y, root, columns)
        np.testing.assert_array_equal(y.cpu().numpy(), values("float32", (2, columns), root))


@triton.jit
def casting_on(ctx, y, count, root):
    for turn in range(count):
        tile = tl.arange(0, 16) + turn * 16 + dev.my_pe(ctx) * 1000000
        tl.store(y + turn * 16 + tl.arange(0, 16), dev.broadcast(ctx, tile, root))


@triton.jit
def streaming(ctx, y, count, to, of):
    """The first PE of a chain sends, the last receives, those between pass on."""
    for turn in range(count):
        tile = tl.arange(0, 16) + turn * 16
        if of >= 0:
            tile = dev.recv(ctx, tile * 0, of)
        if to >= 0:
            dev.send(ctx, tile, to)
        tl.store(y + turn * 16 + tl.arange(0, 16), tile)


def be_late():
    """The last PE begins when the others are as far ahead as they can come."""
    if ME() == N() - 1:
        torch.mm(torch.ones(1500, 1500), torch.ones(1500, 1500))


def test_broadcasts_of_a_root_far_ahead_of_its_readers_arrive_unharmed():
    count = 1000 if torch.cuda.is_available() else 50
    y = tensor(np.zeros(count * 16, "int32"))
    be_late()
    casting_on[(1,)](shmem.device_context(), y, count, 0)
    assert torch.equal(y.cpu(), torch.arange(count * 16, dtype=torch.int32))


def test_messages_of_a_sender_far_ahead_arrive_in_order_and_unharmed():
    count = 1000 if torch.cuda.is_available() else 50
    y = tensor(np.zeros(count * 16, "int32"))
    be_late()
    streaming[(1,)](shmem.device_context(), y, count, ME() + 1 if ME() + 1 < N() else -1, ME() - 1)
    assert torch.equal(y.cpu(), torch.arange(count * 16, dtype=torch.int32))


@triton.jit
def around(ctx, x, y, columns: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, columns)
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    tl.store(y + at, dev.sendrecv(ctx, tl.load(x + at), (me + 1) % n, (me + n - 1) % n))


@pytest.mark.parametrize("columns", [1, 512])
def test_sendrecv_goes_around_a_ring_with_tiles_larger_than_all_pieces(columns):
    x, y = tensor(values("int64", (2, columns), ME())), tensor(np.zeros((2, columns), "int64"))
    around[(2,)](shmem.device_context(), x, y, columns)
    np.testing.assert_array_equal(y.cpu().numpy(), values("int64", (2, columns), (ME() - 1) % N()))


# ---- teams, scratch, refusals ----


def test_tiles_of_a_team_meet_only_its_members_and_a_later_team_finds_clean_scratch():
    for turn in range(3):
        halves = [shmem.TEAM_WORLD.split_strided(part, 2) for part in range(min(2, N()))]
        team = halves[ME() % 2]
        x, y = tensor(values("int32", (2, 64), ME(), turn)), tensor(np.zeros((2, 64), "int32"))
        reducing[(1,)](shmem.device_context(team), x, y, 2, 64, "sum")
        np.testing.assert_array_equal(y.cpu().numpy(), every("int32", (2, 64), turn)[ME() % 2 :: 2].sum(axis=0))
        team.destroy()


def test_scratch_of_the_program_takes_a_large_tile_in_one_turn():
    own = shmem.zeros(1 << 20, dtype=torch.uint8)
    ctx = shmem.device_context(scratch=own)
    assert ctx is shmem.device_context(scratch=own) and ctx is not shmem.device_context()
    x, y = tensor(values("int32", (4, 512), ME())), tensor(np.zeros((4, 512), "int32"))
    reducing[(1,)](ctx, x, y, 4, 512, "sum")
    np.testing.assert_array_equal(y.cpu().numpy(), every("int32", (4, 512)).sum(axis=0))
    shmem.barrier_all()
    shmem.free(own)
