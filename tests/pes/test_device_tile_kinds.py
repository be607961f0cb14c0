"""Tiles of every kind come back as they went in: scalars of few bits, numbers that the compiler knows, floats of 8 bits."""

import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base import interpreter
from support import from_pe, work

interpreted = pytest.mark.skipif(not interpreter.active(), reason="compiled, such a call is refused by the compiler")
NARROW = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.float16, torch.bfloat16]
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2]


@triton.jit
def scalars(ctx, source, out, right, left):
    """What each call returns goes on to the next, which takes it as what it was."""
    mine = tl.load(source)
    for _ in range(2):
        mine = dev.all_reduce(ctx, mine, "max")
    mine = dev.broadcast(ctx, mine, 0)
    mine = dev.sendrecv(ctx, mine, right, left)
    dev.send(ctx, mine, right)
    tl.store(out, dev.recv(ctx, tl.load(source), left))
    rows = tl.full([ctx.members], 0, mine.dtype) + tl.load(source)
    dev.send(ctx, dev.reduce_scatter(ctx, rows, "max"), right)
    tl.store(out + 1, dev.recv(ctx, tl.load(source), left))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_scalar_comes_back_with_the_dtype_it_went_in_with(dtype, me, npes):
    source, out = torch.tensor([me + 3]).to(dtype).to(shmem.zeros(1).device), shmem.zeros(2, dtype=dtype)
    scalars[(1,)](shmem.device_context(), source, out, (me + 1) % npes, (me - 1) % npes)
    assert out.tolist() == [npes + 2] * 2


@triton.jit
def known(ctx, out, one, right, left):
    tl.store(out, dev.all_reduce(ctx, one, "sum"))
    tl.store(out + 1, dev.all_reduce(ctx, 2, "sum"))
    tl.store(out + 2, dev.broadcast(ctx, 7, 0))
    dev.send(ctx, 9, right)
    tl.store(out + 3, dev.recv(ctx, 0, left))


def test_a_number_that_the_compiler_knows_is_a_tile(me, npes):
    """A kernel's argument of 1 is one: Triton compiles it in."""
    for one in (1, 2):
        out = shmem.zeros(4, dtype=torch.int32)
        known[(1,)](shmem.device_context(), out, one, (me + 1) % npes, (me - 1) % npes)
        assert out.tolist() == [one * npes, 2 * npes, 7, 9]


@triton.jit
def moved(ctx, source, gathered, exchanged, cast, passed, right, left, WIDTH: tl.constexpr):
    lane, row = tl.arange(0, WIDTH), tl.arange(0, ctx.members)
    tile = tl.load(source + lane)
    places = row[:, None] * WIDTH + lane[None, :]
    tl.store(gathered + places, dev.all_gather(ctx, tile))
    tl.store(exchanged + places, dev.all_to_all(ctx, tl.load(source + places)))
    tl.store(cast + lane, dev.broadcast(ctx, tile, 0))
    tl.store(passed + lane, dev.sendrecv(ctx, tile, right, left))


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_floats_of_eight_bits_are_moved_as_they_are(dtype, me, npes):
    width, members = 16, 1 << (npes - 1).bit_length()
    sent = shmem.array(((torch.arange(members * width) * 7 + me * 31) % 256).to(torch.uint8))
    rows = [from_pe(sent, pe).reshape(members, width).cpu() for pe in range(npes)]
    outs = [torch.zeros(size * width, dtype=torch.uint8, device=sent.device) for size in (members, members, 1, 1)]
    left = (me - 1) % npes
    moved[(1,)](
        shmem.device_context(), sent.view(dtype), *(out.view(dtype) for out in outs), (me + 1) % npes, left, width
    )
    gathered, exchanged, cast, passed = (out.reshape(-1, width).cpu() for out in outs)
    blank = torch.zeros((members - npes, width), dtype=torch.uint8)
    assert torch.equal(gathered, torch.cat([*(each[:1] for each in rows), blank]))
    assert torch.equal(exchanged, torch.cat([*(each[me : me + 1] for each in rows), blank]))
    assert torch.equal(cast, rows[0][:1]) and torch.equal(passed, rows[left][:1])


@triton.jit
def combined(ctx, source, reduced, scattered, before, WIDTH: tl.constexpr):
    lane = tl.arange(0, WIDTH)
    tile = tl.load(source + lane)
    tl.store(reduced + lane, dev.all_reduce(ctx, tile, "sum"))
    tl.store(scattered + tl.arange(0, WIDTH // ctx.members), dev.reduce_scatter(ctx, tile, "max", axis=0))
    tl.store(before + lane, dev.scan(ctx, tile, "sum", exclusive=True))


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_floats_of_eight_bits_are_combined_in_float32_and_rounded_once(dtype, me, npes):
    """Step by step in the dtype, what the other PEs add would be lost."""
    width, members = 32, 1 << (npes - 1).bit_length()
    ones = torch.arange(width) % 2 + 1
    tiles = [(ones * (1.0 if pe == 0 else 5 / 64)).to(dtype).float() for pe in range(npes)]
    source = tiles[me].to(dtype).to(shmem.zeros(1).device)
    sizes = width, width // members, width
    outs = [torch.zeros(size, dtype=torch.uint8, device=source.device).view(dtype) for size in sizes]
    combined[(1,)](shmem.device_context(), source, *outs, width)
    reduced, scattered, before = (out.cpu().float() for out in outs)
    assert torch.equal(reduced, torch.stack(tiles).sum(0).to(dtype).float())
    piece = slice(me * width // members, (me + 1) * width // members)
    assert torch.equal(scattered, tiles[0][piece])
    assert torch.equal(before, torch.stack([torch.zeros(width), *tiles[:me]]).sum(0).to(dtype).float())


@triton.jit
def masks(ctx, source, out, right, left, WIDTH: tl.constexpr):
    lane = tl.arange(0, WIDTH)
    mask = tl.load(source + lane) != 0
    tl.store(out + lane, dev.all_reduce(ctx, mask, "or"))
    tl.store(out + WIDTH + lane, dev.all_reduce(ctx, mask, "and"))
    tl.store(out + 2 * WIDTH + lane, dev.scan(ctx, mask, "and", exclusive=True))
    tl.store(out + 3 * WIDTH + lane, dev.broadcast(ctx, mask, 0))
    tl.store(out + 4 * WIDTH + lane, dev.sendrecv(ctx, mask, right, left))
    tl.store(out + 5 * WIDTH + lane, dev.all_to_all(ctx, dev.all_to_all(ctx, mask, axis=0), axis=0))


def test_masks_are_moved_and_combined_by_and_or_and_xor(me, npes):
    width, members = 32, 1 << (npes - 1).bit_length()
    tiles = [torch.arange(width) * (pe + 3) % 5 < 3 for pe in range(npes)]
    out = torch.zeros(6 * width, dtype=torch.int32, device=shmem.zeros(1).device)
    masks[(1,)](
        shmem.device_context(), tiles[me].to(torch.int32).to(out.device), out, (me + 1) % npes, (me - 1) % npes, width
    )
    ours, whole = torch.arange(width) < npes * width // members, torch.stack(tiles)
    before = whole[:me].all(0)
    wanted = [whole.any(0), whole.all(0), before, tiles[0], tiles[(me - 1) % npes], tiles[me] & ours]
    assert torch.equal(out.cpu().reshape(6, width), torch.stack(wanted).to(torch.int32))


@triton.jit
def reduced(ctx, x, op: tl.constexpr):
    dev.all_reduce(ctx, tl.load(x + tl.arange(0, 4)), op)


@triton.jit
def scattered(ctx, x, op: tl.constexpr):
    dev.reduce_scatter(ctx, tl.load(x + tl.arange(0, ctx.members)), op)


@interpreted
@pytest.mark.parametrize("op", ["", None, 0, "mean", "SUM"], ids=repr)
def test_what_is_no_operator_is_refused(op, me):
    x = shmem.zeros(64, dtype=torch.int32)
    for kernel, routine in ((reduced, "all_reduce"), (scattered, "reduce_scatter")):
        with pytest.raises(Exception, match=rf"{routine}: PE {me}: op: got {op!r}; expected one of sum, prod, min"):
            kernel[(1,)](shmem.device_context(), x, op)


@triton.jit
def bad_call(ctx, x, pe, CALL: tl.constexpr):
    if CALL == "recv":
        dev.recv(ctx, x, 0)
    elif CALL == "to":
        dev.sendrecv(ctx, 1, pe, 0)
    elif CALL == "of":
        dev.sendrecv(ctx, 1, 0, pe)
    else:
        dev.broadcast(ctx, 1, pe)


@interpreted
@pytest.mark.parametrize(("call", "words"), [
    ("recv", "recv: PE {me}: like: got a pointer to int32; expected numbers in registers"),
    ("to", "sendrecv: PE {me}: to: got 99; expected a PE from 0"),
    ("of", "sendrecv: PE {me}: of: got 99; expected a PE from 0"),
    ("root", "broadcast: PE {me}: root: got 99; expected a PE from 0"),
])  # fmt: skip
def test_a_refusal_names_the_argument_as_the_call_does(call, words, me):
    x = shmem.zeros(4, dtype=torch.int32)
    with pytest.raises(Exception, match=words.format(me=me)):
        bad_call[(1,)](shmem.device_context(), x, 99, call)


@triton.jit
def bad_axis(ctx, x, CALL: tl.constexpr, AXIS: tl.constexpr):
    tile = tl.load(x + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :])
    if CALL == "reduce_scatter":
        dev.reduce_scatter(ctx, tile, "sum", axis=AXIS)
    elif CALL == "all_gather":
        dev.all_gather(ctx, tile, axis=AXIS)
    elif CALL == "all_to_all":
        dev.all_to_all(ctx, tile, axis=AXIS)
    elif CALL == "scalar":
        dev.all_gather(ctx, 1, axis=AXIS)
    else:
        dev.scan(ctx, tile > 0, "sum")


@interpreted
@pytest.mark.parametrize(("call", "axis", "words"), [
    ("reduce_scatter", 2, "reduce_scatter: PE {me}: axis: got 2; expected a dimension of the tile, from 0 to 1"),
    ("all_to_all", -1, "all_to_all: PE {me}: axis: got -1; expected a dimension of the tile, from 0 to 1"),
    ("all_gather", "rows", "all_gather: PE {me}: axis: got 'rows'; expected a dimension of the tile, from 0 to 1"),
    ("scalar", 0, "all_gather: PE {me}: tile: got a value of int32; expected a block, for an axis"),
    ("scan", 0, "scan: PE {me}: tile: got a block of int1; expected a dtype that sum is defined for"),
])  # fmt: skip
def test_a_wrong_axis_is_refused(call, axis, words, me):
    x = shmem.zeros(8, dtype=torch.int32)
    with pytest.raises(Exception, match=words.format(me=me)):
        bad_axis[(1,)](shmem.device_context(), x, call, axis)


@interpreted
def test_a_dimension_with_less_than_an_index_for_each_member_is_refused(me, npes):
    if npes < 3:
        pytest.skip("two rows are enough for two PEs")
    x, members = shmem.zeros(8, dtype=torch.int32), 1 << (npes - 1).bit_length()
    for call in ("reduce_scatter", "all_to_all"):
        words = f"{call}: PE {me}: tile: got a block of int32; expected a block whose dimension 0 is a multiple of {members}"
        with pytest.raises(Exception, match=words):
            bad_axis[(1,)](shmem.device_context(), x, call, 0)


@triton.jit
def collecting(ctx, dest, source, count):
    dev.collect(ctx, dest, source, count)


@interpreted
def test_a_collect_that_found_no_room_leaves_the_next_one_in_order(me, npes):
    dest, source = shmem.zeros(npes + 3, dtype=torch.int32), shmem.full(8, me + 1, dtype=torch.int32)
    ctx = shmem.device_context()
    for turn in range(4):
        with pytest.raises(Exception, match=rf"collect: PE {me}: dest: got {4 * (npes + 4)} bytes"):
            collecting[(1,)](ctx, dest, source, 5 if me == turn % npes else 1)
        assert not dest.any()
        if me == turn % npes:
            work(50_000)
        collecting[(1,)](ctx, dest, source, 1)
        np.testing.assert_array_equal(dest.numpy(), [*range(1, npes + 1), 0, 0, 0])
        shmem.barrier_all()
        dest.zero_()
        shmem.barrier_all()


@triton.jit
def fetching(ctx, fetch, words):
    dev.atomic_fetch_add_nbi(ctx, fetch, words + tl.arange(0, 4), 1, 0)


@interpreted
def test_a_fetch_without_room_for_all_words_is_refused_before_any_changes(me):
    fetch, words = shmem.zeros(1, dtype=torch.int64), shmem.zeros(4, dtype=torch.int64)
    with pytest.raises(
        Exception, match=rf"PE {me}: fetch: got a pointer to int64; expected a place for each of the po"
    ):
        fetching[(1,)](shmem.device_context(), fetch, words)
    shmem.barrier_all()
    assert not words.any()
