"""Runs a work on a matrix by a schedule: the kernels that join the two, which do not see each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.choosing import choose
from pyshmem.irregular.cuts import Cut
from pyshmem.irregular.launching import Bound, Launch, kind_of, stream_of
from pyshmem.irregular.matrix import CSR, LARGEST_PIECE
from pyshmem.irregular.schedules import (
    Schedule,
    dynamic,
    group_mapped,
    merge_path,
    nonzero_split,
    program_mapped,
    row_blocks,
    row_split,
)
from pyshmem.irregular.sizing import PIECES, WAVES, WIDE, alone, blocking, finishing, fitting, multiprocessors
from pyshmem.irregular.walking import (
    finish_empty_tiles,
    in_sequence,
    only_tile,
    side_by_side,
    side_by_side_in_piece,
    within_tile,
)
from pyshmem.runtime import interpreter
from pyshmem.runtime.arguments import is_int
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.gpu.launch import early_launcher

SCHEDULES: dict[str, Schedule] = {
    "program_mapped": program_mapped.SCHEDULE,
    "row_split": row_split.SCHEDULE,
    "group_mapped": group_mapped.SCHEDULE,
    "row_blocks": row_blocks.SCHEDULE,
    "merge_path": merge_path.SCHEDULE,
    "nonzero_split": nonzero_split.SCHEDULE,
    "dynamic": dynamic.SCHEDULE,
}
AUTO = "auto"
SUMS = {torch.float32: tl.float32, torch.float64: tl.float64, torch.int32: tl.int32, torch.int64: tl.int64}


class Work(NamedTuple):
    """What is done with a matrix: each atom gives a value, and each tile gets the sum of its atoms' values once.

    atom: a jit function (operands, atoms, lanes, mask) that returns the values of ``atoms``, an array of indices whose
        axis for lanes has length 1. lanes numbers a tile's sums along that axis. What masked atoms give is ignored.
    tile: a jit function (operands, tiles, lanes, sums, mask) that takes the finished sums of ``tiles`` where mask is set.
    operands: a NamedTuple of tensors and numbers, which both functions get. Triton has no fields ``type`` and ``values``.
    width: the sums of a tile; lanes counts up to the next power of 2.  dtype: theirs: float32, float64, int32 or int64.
    """

    atom: Any
    tile: Any
    operands: tuple[Any, ...]
    width: int = 1
    dtype: torch.dtype = torch.float32


@triton.jit
def split_tiles(
    piece, offsets, marks, filled, begin, end, number, after, heads, tails, stored, operands,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Go through a piece that may begin and end within tiles. The arguments are those of ``go_through``."""
    if WIDTH >= WIDE:
        parts = tl.cast(piece, tl.int64) * WIDTH
        if after > number:
            side_by_side_in_piece(
                operands, offsets, filled, begin, end, tl.maximum(number - 1, 0), after, heads + parts, tails + parts,
                ATOM, TILE, SUM, True, ROWS, BLOCK, WIDTH,
            )  # fmt: skip
        else:  # no tile begins in the piece
            tail, head = within_tile(operands, marks, begin, end, stored, ATOM, SUM, ROWS * BLOCK, WIDTH)
            place = parts + tl.arange(0, WIDTH)[:, None]
            tl.store(heads + place, head)
            tl.store(tails + place, tail)
    else:
        if after == number:
            tail, head = within_tile(operands, marks, begin, end, stored, ATOM, SUM, BLOCK, WIDTH)
        else:
            tail, head = in_sequence(operands, marks, filled, begin, end, stored, number, ATOM, TILE, SUM, BLOCK, WIDTH)
        place = tl.cast(piece, tl.int64) * WIDTH + tl.arange(0, WIDTH)[:, None]
        tl.store(heads + place, head)
        tl.store(tails + place, tail)


@triton.jit
def whole_tiles(
    offsets, marks, filled, begin, end, number, after, heads, tails, stored, operands,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Go through a piece of whole tiles. The arguments are those of ``go_through``."""
    if WIDTH >= WIDE:
        side_by_side_in_piece(
            operands, offsets, filled, begin, end, number, after, heads, tails, ATOM, TILE, SUM, False, ROWS, BLOCK, WIDTH
        )  # fmt: skip
    else:
        in_sequence(operands, marks, filled, begin, end, stored, number, ATOM, TILE, SUM, BLOCK, WIDTH)


@triton.jit
def go_through(
    piece, offsets, marks, filled, empty, begins, numbers, heads, tails, pieces, vacant, stored, operands,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, FLAT: tl.constexpr, SPLITS: tl.constexpr,
    ALONE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Go through a piece. The arguments are those of ``execute``."""
    begin, end = tl.load(begins + piece), tl.load(begins + piece + 1)
    if FLAT:
        number, after = tl.load(numbers + piece), tl.load(numbers + piece + 1)
    if EARLY:  # where pieces lie never changes; all else may come from the kernel in front
        gpu.follow()
    if FLAT:
        if SPLITS:
            split_tiles(
                piece, offsets, marks, filled, begin, end, number, after, heads, tails, stored, operands,
                ATOM, TILE, SUM, BLOCK, ROWS, WIDTH,
            )  # fmt: skip
        else:
            if ALONE > 0 and after == number + 1:
                only_tile(operands, marks, filled, begin, end, stored, number, ATOM, TILE, SUM, max(ALONE, 1), WIDTH)
            else:
                whole_tiles(
                    offsets, marks, filled, begin, end, number, after, heads, tails, stored, operands,
                    ATOM, TILE, SUM, BLOCK, ROWS, WIDTH,
                )  # fmt: skip
        if vacant > 0:  # divisions cost as much as many atoms
            share = tl.cast(vacant, tl.int64)
            first, last = piece * share // pieces, (piece + 1) * share // pieces
            finish_empty_tiles(operands, empty, first, last, TILE, SUM, ROWS * BLOCK, WIDTH)
    else:
        side_by_side(operands, offsets, begin, end, ATOM, TILE, SUM, ROWS, BLOCK, WIDTH)


@triton.jit(do_not_specialize=["pieces", "vacant", "stored"])
def execute(
    offsets, marks, filled, empty, begins, numbers, queue, heads, tails, pieces, vacant, stored, operands,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, TAKE: tl.constexpr, QUEUED: tl.constexpr,
    FLAT: tl.constexpr, SPLITS: tl.constexpr, ALONE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Go through pieces of a matrix. Of those that begin or end within a tile, store the sums of these tiles' parts.

    begins: where each piece begins: its atom if FLAT, else its tile.  numbers: how many tiles with atoms begin before it.
    heads, tails: for each piece: the sum of the tile in which it ends, and of the tile in which it begins, if that ends in
    the piece.  empty: the ``vacant`` tiles without atoms, which are shared out evenly if FLAT.  stored: the number of atoms.
    ALONE: the atoms at a time of a piece that is one tile; 0 if the schedule has none.  EARLY: the kernel begins before the
    one in front ends, and lets the next do so.
    """
    programs = tl.num_programs(0)
    if QUEUED and EARLY:
        gpu.follow()
    piece = TAKE(queue, tl.program_id(0) - programs, programs)
    if QUEUED:
        while piece < pieces:
            go_through(
                piece, offsets, marks, filled, empty, begins, numbers, heads, tails, pieces, vacant, stored,
                operands, ATOM, TILE, SUM, FLAT, SPLITS, ALONE, False, BLOCK, ROWS, WIDTH,
            )  # fmt: skip
            piece = TAKE(queue, piece, programs)
        if piece == pieces + programs - 1:  # no program takes from the queue after this one
            tl.store(queue, 0)
    else:
        go_through(
            piece, offsets, marks, filled, empty, begins, numbers, heads, tails, pieces, vacant, stored, operands,
            ATOM, TILE, SUM, FLAT, SPLITS, ALONE, EARLY, BLOCK, ROWS, WIDTH,
        )  # fmt: skip


@triton.jit(do_not_specialize=["count"])
def finish_split_tiles(
    closed, opening, closing, heads, tails, count, operands,
    TILE: tl.constexpr, SUM: tl.constexpr, EARLY: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Finish ``count`` tiles that are split: add their parts in the same order always. ROWS tiles, LANES parts at once."""
    lanes = tl.arange(0, WIDTH)[None, :]
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    live = number < count
    first = tl.load(opening + number, mask=live, other=0)
    last = tl.load(closing + number, mask=live, other=0)
    tile = tl.load(closed + number, mask=live, other=0)
    if EARLY:
        gpu.follow()
    sums = tl.zeros((ROWS, LANES, WIDTH), dtype=SUM)
    for step in range(0, tl.max(last - first), LANES):
        part = first[:, :, None] + step + tl.arange(0, LANES)[None, :, None]
        place = part.to(tl.int64) * WIDTH + lanes[None, :, :]
        sums += tl.load(heads + place, mask=part < last[:, :, None], other=0)
    tail = tl.load(tails + last.to(tl.int64) * WIDTH + lanes, mask=live, other=0)
    TILE(operands, tile, lanes, tl.sum(sums, axis=1) + tail, live)


class Prepared(NamedTuple):
    """How a work of a width and a type is launched. constants, finishing_constants: of the kernels, but those of the work.

    bound: by the stream, the work's functions and the kind of its operands.
    """

    cut: Cut
    width: int
    grid: tuple[int, ...]
    constants: dict[str, Any]
    warps: int
    finishing_grid: tuple[int, ...]
    finishing_constants: dict[str, Any]
    bound: dict[Any, Bound]


def run(work: Work, matrix: CSR, schedule: str | Schedule = "merge_path", size: int | None = None) -> None:
    """Do ``work`` with every atom and tile of ``matrix``, enqueued on torch's current stream.

    schedule: a name in SCHEDULES, "auto" for one that suits the matrix, or a Schedule.  size: of a piece; None is the
        schedule's own, less for a small matrix.
    Order: sums are made in an order that the matrix, the schedule and the size give: the same bits in every run. The first
        run of a matrix with a schedule and a size waits for the stream.
    Errors: ArgumentError.
    Spec: none.
    """
    key = (schedule, size, work.width, work.dtype)
    try:
        found = matrix.kept.get(key)
    except TypeError:
        found = None  # an argument that cannot be in a key, which is refused
    if found is None:
        chosen, size = _checked(matrix, schedule, size, work.width)
        if not matrix.rows:
            return
        found = matrix.kept[key] = _prepare(work, matrix, chosen, size)
    _launch(found, work, matrix)


def _checked(matrix: CSR, schedule: str | Schedule, size: int | None, width: int) -> tuple[Schedule, int]:
    name = choose(matrix) if schedule == AUTO else schedule
    chosen = SCHEDULES.get(name) if isinstance(name, str) else name
    if not isinstance(chosen, Schedule):
        refuse(ArgumentError, "run", "schedule", repr(schedule), f"a Schedule or one of {AUTO}, {', '.join(SCHEDULES)}")
    if size is None:
        size = fitting(chosen, matrix.rows, matrix.atoms, PIECES * multiprocessors(matrix.device), width)
    require_size(size)
    if matrix.device.type == "cpu" and not interpreter.active():
        refuse(
            ArgumentError, "run", "matrix", "a matrix in CPU memory", "one in GPU memory, since kernels are compiled"
        )
    return chosen, size


def require_size(size: Any) -> int:
    """Return ``size``, of a piece. Errors: ArgumentError."""
    if not is_int(size) or not 1 <= size <= LARGEST_PIECE:
        refuse(ArgumentError, "run", "size", repr(size), f"an int, 1 to {LARGEST_PIECE}")
    return size


def _prepare(work: Work, matrix: CSR, schedule: Schedule, size: int) -> Prepared:
    cut = matrix.kept.get((schedule, size))
    if cut is None:
        cut = matrix.kept[schedule, size] = Cut(matrix, schedule, size)
    width = triton.next_power_of_2(work.width)
    block, rows = blocking(matrix.rows, matrix.atoms, schedule, size, width, work.dtype.itemsize, cut.longest)
    programs = min(cut.pieces, WAVES * multiprocessors(matrix.device)) if schedule.queued else cut.pieces
    kinds = {"SUM": SUMS[work.dtype]}
    early = not interpreter.active() and bool(early_launcher())
    constants = kinds | {
        "TAKE": schedule.take, "QUEUED": schedule.queued, "FLAT": schedule.flat, "SPLITS": schedule.splits,
        "ALONE": alone(schedule, width, work.dtype.itemsize), "EARLY": early, "BLOCK": block, "ROWS": rows,
        "WIDTH": width,
    }  # fmt: skip
    rows, lanes = finishing(cut.spread, width * work.dtype.itemsize)
    finishing_grid = (-(-cut.closing.numel() // rows),)
    finishing_constants = {**kinds, "EARLY": early, "ROWS": rows, "LANES": lanes, "WIDTH": width}
    return Prepared(cut, width, (programs,), constants, schedule.warps, finishing_grid, finishing_constants, {})


def _launch(found: Prepared, work: Work, matrix: CSR) -> None:
    stream = stream_of(matrix.device)
    key = kind_of(work.operands, stream, id(work.atom), id(work.tile))
    bound = found.bound.get(key)
    if bound is None:
        bound = found.bound[key] = Bound(stream, list(_launches(found, work, matrix, stream)), work.operands)
    bound(work.operands)


def _launches(found: Prepared, work: Work, matrix: CSR, stream: int) -> Iterator[Launch]:
    """Yield the kernels of a work, with all but its operands."""
    cut = found.cut
    heads, tails, queue = cut.storage(found.width, work.dtype, stream)
    fixed = (
        matrix.offsets, *cut.marked, cut.begins, cut.numbers, queue, heads, tails, cut.pieces, cut.vacant,
        matrix.atoms,
    )  # fmt: skip
    constants = {"ATOM": work.atom, "TILE": work.tile, **found.constants}
    yield Launch(execute, found.grid, fixed, constants, {"num_warps": found.warps})
    if cut.spread:
        fixed = cut.closed, cut.opening, cut.closing, heads, tails, cut.splits
        yield Launch(
            finish_split_tiles, found.finishing_grid, fixed, {"TILE": work.tile, **found.finishing_constants}, {}
        )
