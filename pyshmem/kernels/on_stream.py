"""The kernels of collectives that are enqueued on torch's current stream, and the choice among them.

Program p exchanges data only with program p on the other PEs. All counters are in the scratch memory of the team, so CUDA
graphs can replay the kernels. See pyshmem.host.streams.collectives.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.device import transport
from pyshmem.device.arch.fields import decoded
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.targets import TARGETS
from pyshmem.device.collectives.arrays import cast_array, cast_in_turns, gather, swap
from pyshmem.device.collectives.low_latency import combine_lanes, send_lanes
from pyshmem.device.collectives.packing import bits_of, combine, shared_by, summed_in, words_in
from pyshmem.device.collectives.reductions import fold, fold_part
from pyshmem.device.collectives.scratch import (
    BULK,
    after,
    begin,
    count_of,
    end,
    enter,
    exchange,
    piece_of,
    programs_of,
    slot_at,
    slot_of,
)  # fmt: skip
from pyshmem.device.collectives.tiles import WORDS_MEMBERS
from pyshmem.device.context import DeviceContext, my_pe, n_pes
from pyshmem.device.ordering import barrier_all
from pyshmem.kernels.bound_kernels import Bound, bind, may_be_early
from pyshmem.kernels.compiled import CachedKernel
from pyshmem.kernels.method_tables import APART, HALVES, SENT, WORDS, Row, first, tables
from pyshmem.memory.areas import MOST_PES
from pyshmem.native._native import REDUCTIONS

NUMBERS = {getattr(torch, name): getattr(tl, name) for name in REDUCTIONS["min"]}  # real dtypes
BITS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
PLAIN = ["target", "source", "count"]


@triton.jit(do_not_specialize=PLAIN)
def reduce_tiles(
    ctx,
    target: tl.int64,
    source: tl.int64,
    count: tl.int32,
    TYPE: tl.constexpr,
    OP: tl.constexpr,
    BLOCK: tl.constexpr,
    ODD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Reduce tiles. Each program has a scratch slot and a tile of ``BLOCK`` lanes, which fits into a piece of the slot.

    target, source: multiples of 4.
    ODD: whether the last lane has one element instead of two. The bytes after it in source are read and ignored.
    """
    words: tl.constexpr = words_in(TYPE)
    shared: tl.constexpr = shared_by(2, TYPE)
    slot = slot_at(ctx, tl.program_id(0))
    place = tl.arange(0, BLOCK)
    lane = tl.program_id(0) * BLOCK + place
    if EARLY:
        gpu.follow()
    turn = begin(slot)
    lanes = tl.load(array_at(source, lane_of(TYPE)) + lane, mask=lane * shared < count, other=0)
    lanes = lanes if words == 2 else lanes.to(tl.int32)
    send_lanes(ctx, slot, turn, lanes, place * words, place >= 0, words)
    total = combine_lanes(ctx, slot, turn, place * words, place >= 0, TYPE, shared, OP).to(lane_of(TYPE))
    if ODD:
        tl.store(array_at(target, bits_of(TYPE)) + 2 * lane, total.to(bits_of(TYPE)), mask=2 * lane + 1 == count)
        tl.store(array_at(target, lane_of(TYPE)) + lane, total, mask=2 * lane + 1 < count)
    else:
        tl.store(array_at(target, lane_of(TYPE)) + lane, total, mask=lane * shared < count)
    tl.store(count_of(slot, 0), turn)


@triton.jit(do_not_specialize=PLAIN)
def reduce_arrays(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr, APART: tl.constexpr
):
    fold(ctx, "reduce_on_stream", OP, True, array_at(target, TYPE), array_at(source, TYPE), count, APART)


@triton.jit(do_not_specialize=PLAIN)
def reduce_sent(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr
):
    """Each PE sends its source to all, into their scratch memory, which costs one meeting: nobody waits for a target.

    Each program has ``BLOCK`` elements, which fit into a piece of its slot.
    """
    slot = slot_of(ctx, "reduce_on_stream")
    place = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    to, of, left = array_at(target, TYPE) + first, array_at(source, TYPE) + first, count - first
    whole = (left >= BLOCK) & (((target | source) & 15) == 0)
    turn = begin(slot)
    values = load_own(ctx, of, place, left, whole)
    mine = piece_of(ctx, slot, BULK, turn, my_pe(ctx))
    pe = my_pe(ctx)
    for _ in range(1, n_pes(ctx)):
        pe = after(ctx, pe)
        transport.store_piece(ctx, transport.piece_on(ctx, mine, pe), values, place, place >= 0)
    exchange(ctx, "reduce_on_stream", slot, turn)
    total = found(ctx, slot, turn, 0, place, values)
    for member in range(1, n_pes(ctx)):
        total = combine(OP, total, found(ctx, slot, turn, member, place, values))
    if whole:
        transport.store_block(ctx, to, place, total, my_pe(ctx), left, True)
    else:
        transport.store_block(ctx, to, place, total, my_pe(ctx), left, False)
    end(ctx, slot, turn)


@triton.jit
def load_own(ctx, source, place, left, whole):
    """The elements at ``place``, by 16 bytes if all are there and aligned, or zeros for those from ``left`` on."""
    if whole:
        values = transport.load_block(ctx, source, place, my_pe(ctx), left, True)
    else:
        values = transport.load_block(ctx, source, place, my_pe(ctx), left, False)
    return values


@triton.jit
def found(ctx, slot, turn, member, place, values):
    """What a member has sent, or this PE's own values, in the type in which they are combined."""
    piece = transport.pointer_to(piece_of(ctx, slot, BULK, turn, member), values.dtype)
    there = tl.load(piece + place, mask=(place >= 0) & (member != my_pe(ctx)), other=0)
    return tl.where(member == my_pe(ctx), values, there).to(summed_in(values.dtype))


@triton.jit(do_not_specialize=PLAIN)
def scan_arrays(
    ctx,
    target: tl.int64,
    source: tl.int64,
    count: tl.int64,
    TYPE: tl.constexpr,
    OP: tl.constexpr,
    ROUTINE: tl.constexpr,
):
    """OP: "inscan" or "exscan"."""
    fold(ctx, ROUTINE, OP, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=PLAIN)
def reduce_blocks(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr, OP: tl.constexpr):
    """Combine this PE's block of all sources, of ``count`` elements, into its target. Nobody else reads or writes either."""
    slot, first, part = enter(ctx, "reduce_scatter_on_stream", True, count)
    turn = begin(slot)
    exchange(ctx, "reduce_scatter_on_stream", slot, turn)
    block = array_at(source, TYPE) + (count * my_pe(ctx) + first)
    fold_part(ctx, OP, array_at(target, TYPE) + first, block, part, True)
    exchange(ctx, "reduce_scatter_on_stream", slot, turn + 1)
    end(ctx, slot, turn + 1)


@triton.jit(do_not_specialize=PLAIN)
def gather_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr):
    come(ctx, "fcollect_on_stream")
    gather(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=PLAIN)
def swap_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, TYPE: tl.constexpr):
    come(ctx, "alltoall_on_stream")
    swap(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count)


@triton.jit(do_not_specialize=[*PLAIN, "root"])
def cast_arrays(ctx, target: tl.int64, source: tl.int64, count: tl.int64, root: tl.int64, TYPE: tl.constexpr):
    come(ctx, "broadcast_on_stream")
    cast_array(ctx, True, array_at(target, TYPE), array_at(source, TYPE), count, root.to(tl.int32))


@triton.jit(do_not_specialize=[*PLAIN, "root"])
def cast_shares(
    ctx, target: tl.int64, source: tl.int64, count: tl.int64, root: tl.int64, TYPE: tl.constexpr, TURNS: tl.constexpr
):
    """As cast_arrays, for many bytes to more than one other member."""
    come(ctx, "broadcast_on_stream")
    cast_in_turns(ctx, array_at(target, TYPE), array_at(source, TYPE), count, root.to(tl.int32), TURNS)


@triton.jit(do_not_specialize=["target", "source"])
def meet_all(ctx, target: tl.int64, source: tl.int64, EARLY: tl.constexpr):
    """Meet at a barrier. target and source are not used; all kernels here have them."""
    if EARLY:
        gpu.follow()
    barrier_all(ctx)


@triton.jit
def come(ctx, routine: tl.constexpr):
    """Wait until the streams of all PEs have reached this kernel, so that targets may be written."""
    slot = slot_of(ctx, routine)
    turn = begin(slot)
    exchange(ctx, routine, slot, turn)
    end(ctx, slot, turn)


@triton.jit
def array_at(address, TYPE: tl.constexpr):
    return address.to(tl.pointer_type(TYPE))


@triton.constexpr_function
def lane_of(element: tl.dtype) -> tl.dtype:
    """Return the integer type of the data that one thread sends."""
    return tl.int32 if shared_by(2, element) == 2 else bits_of(element)


# ---- the choice of the kernel and of the number of programs ----


_cached = cache(CachedKernel)  # made at the first use: interpreted kernels need none
FEW_BYTES = 1 << 20  # a root sends so many to each member itself
MANY_BYTES = 1 << 25  # more are passed on in 4 turns, and so many in 2
_MOVES = {"fcollect": gather_arrays, "alltoall": swap_arrays, "broadcast": cast_arrays}


def reduction(context: DeviceContext, members: int, op: str, dtype: torch.dtype, count: int, aligned: bool) -> Bound:
    """Plan a reduction. members: the PEs of the team.  aligned: whether both arrays begin at multiples of 4 bytes."""
    row, block = reduction_row(context, members, dtype, count, aligned)
    if row.kind == WORDS:
        return _tiles(context, op, dtype, count, block, row.warps)
    return _sent(context, op, dtype, count, row) if row.kind == SENT else _arrays(context, op, dtype, count, row)


def reduction_row(
    context: DeviceContext, members: int, dtype: torch.dtype, count: int, aligned: bool
) -> tuple[Row, int]:
    """Return the row of a reduction, and the lanes of a tile. Kernels of WORDS and SENT take private arrays, too."""
    nbytes, room = count * dtype.itemsize, programs_of(context)
    for row in tables().pairs if members == 2 else tables().teams:
        if nbytes > row.most:
            continue
        if row.kind == WORDS and aligned and members <= WORDS_MEMBERS.value:
            shared, words = _packing(dtype)
            lanes = -(-count // shared)
            block = min(row.size // words, 1 << (lanes - 1).bit_length())
            if -(-lanes // block) <= room and 8 * row.size <= context.piece:
                return row, block
        elif row.kind != WORDS and (row.kind != SENT or (-(-nbytes // row.size) <= room and row.size <= context.piece)):
            return row, 0
    raise AssertionError("the last row takes every call")


def _tiles(context: DeviceContext, op: str, dtype: torch.dtype, count: int, block: int, warps: int) -> Bound:
    shared, _ = _packing(dtype)
    early, ours = may_be_early(), of_team(context)
    kind = NUMBERS[dtype], op, block, count % shared == 1, early
    return _bound(reduce_tiles, ours, kind, warps, -(-count // (shared * block)), (count,), early)


@cache
def _packing(dtype: torch.dtype) -> tuple[int, int]:
    """Return the elements of a lane, and its words."""
    element = NUMBERS[dtype]
    return int(shared_by(2, element)), int(words_in(element))


def _sent(context: DeviceContext, op: str, dtype: torch.dtype, count: int, row: Row) -> Bound:
    block = row.size // dtype.itemsize
    return _bound(reduce_sent, context, (NUMBERS[dtype], op, block), row.warps, -(-count // block), (count,))


def combines(dtype: torch.dtype, members: int, arch: str) -> bool:
    """Return whether a kernel can reduce arrays of ``dtype`` in a team of ``members`` PEs, on GPUs of ``arch``."""
    return dtype in NUMBERS and members <= MOST_PES and arch in TARGETS


def waited_for(context: DeviceContext, op: str, dtype: torch.dtype, count: int) -> Bound | None:
    """Plan a reduction that the host waits for. Return None if the team's scratch memory has no slot for a program."""
    if programs_of(context) <= 0:
        return None
    return _arrays(context, op, dtype, count, _large(count * dtype.itemsize))


def _arrays(context: DeviceContext, op: str, dtype: torch.dtype, count: int, row: Row) -> Bound:
    kind = NUMBERS[dtype], op, row.kind == APART
    return _bound(reduce_arrays, context, kind, row.warps, at_most(row.size, context), (count,))


def scan(context: DeviceContext, routine: str, dtype: torch.dtype, count: int) -> Bound:
    """Plan sum_inscan or sum_exscan."""
    row = _large(count * dtype.itemsize)
    kind = NUMBERS[dtype], routine.removeprefix("sum_"), f"{routine}_on_stream"
    return _bound(scan_arrays, context, kind, row.warps, at_most(row.size, context), (count,))


def scattering(context: DeviceContext, members: int, op: str, dtype: torch.dtype, count: int) -> Bound:
    """Plan reduce_scatter. count: the elements of a block."""
    row = _large(members * count * dtype.itemsize)
    kind = NUMBERS[dtype], op
    return _bound(reduce_blocks, context, kind, row.warps, at_most(row.size, context), (count,))


def _large(nbytes: int) -> Row:
    """The row of a reduction by shares."""
    return first((row for row in tables().teams if row.kind in (HALVES, APART)), nbytes)


def movement(context: DeviceContext, routine: str, itemsize: int, count: int, root: int) -> Bound:
    """Plan fcollect, alltoall or broadcast. itemsize, count: the bytes of an element, and the elements to each PE."""
    counts = (count, root) if routine == "broadcast" else (count,)
    kernel, constants = _MOVES[routine], (BITS[itemsize],)
    nbytes = count * itemsize
    if routine == "broadcast" and decoded(context.n_pes) > 2 and nbytes > FEW_BYTES:
        kernel, constants = cast_shares, (BITS[itemsize], 2 if nbytes <= MANY_BYTES else 4)
    row = first(tables().copies, nbytes)
    return _bound(kernel, context, constants, row.warps, at_most(row.size, context), counts)


def barrier(context: DeviceContext) -> Bound:
    early = may_be_early()
    return _bound(meet_all, context, (early,), 4, 1, (), early)


def _bound(
    kernel: Any, context: DeviceContext, kind: tuple[Any, ...], warps: int, programs: int, counts: tuple[int, ...],
    early: bool = False,
) -> Bound:  # fmt: skip
    """Plan a kernel of these constants on so many programs. counts: its last arguments."""
    return _uncounted(kernel, context, kind, warps, programs, len(counts), early).ending(2, *counts)


@lru_cache(maxsize=1024)
def _uncounted(
    kernel: Any, context: DeviceContext, kind: tuple[Any, ...], warps: int, programs: int, counts: int, early: bool
) -> Bound:  # fmt: skip
    """Plan a kernel for any counts: only they differ between most lengths."""
    loaded = _cached(kernel).find(context, 0, 0, *[0] * counts, *kind, num_warps=warps)
    return bind(loaded, (programs,), (context,), 2, early)


def at_most(programs: int, context: DeviceContext) -> int:
    """Return the grid of up to so many programs."""
    return max(min(programs, programs_of(context)), 1)


@cache
def of_team(context: DeviceContext) -> DeviceContext:
    """Return the context with constants for the fields that all members share, for kernels compiled for one team."""
    same = ("n_pes", "stride", "slot", "slots", "piece")
    return context._replace(**{name: tl.constexpr(getattr(context, name)) for name in same})
