"""Runs a work on a matrix by a schedule: the kernels that join the two, which do not see each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.irregular.matrix import CSR, LARGEST_PIECE
from pyshmem.irregular.schedules import Schedule, dynamic, group_mapped, merge_path, nonzero_split, program_mapped
from pyshmem.irregular.walking import in_sequence, side_by_side
from pyshmem.runtime import interpreter
from pyshmem.runtime.errors import ArgumentError, refuse

SCHEDULES: dict[str, Schedule] = {
    "program_mapped": program_mapped.SCHEDULE,
    "group_mapped": group_mapped.SCHEDULE,
    "merge_path": merge_path.SCHEDULE,
    "nonzero_split": nonzero_split.SCHEDULE,
    "dynamic": dynamic.SCHEDULE,
}
_SUMS = {torch.float32: tl.float32, torch.float64: tl.float64, torch.int32: tl.int32, torch.int64: tl.int64}
_ATOMS = 16 if interpreter.active() else 128  # in sequence at a time; the interpreter scans them one by one
_ELEMENTS = 1024  # of sums that a program has at a time, 4 to 8 a thread
_INTERPRETED_PROGRAMS = 2  # they run one after the other
_WAVES = 8  # programs of a queue for each multiprocessor


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


@triton.jit(do_not_specialize=["tiles", "atoms", "pieces", "size"])
def execute(
    operands, offsets, queue, heads, tails, opened, tiles, atoms, pieces, size,
    ATOM: tl.constexpr, TILE: tl.constexpr, SUM: tl.constexpr, BEGINS: tl.constexpr, TAKE: tl.constexpr,
    FLAT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Go through pieces of a matrix. Of those that begin or end within a tile, store the sums of these tiles' parts.

    heads, tails, opened: for each piece: the sum of the tile in which it ends, of the tile in which it begins, if that ends
    in the piece, and the tile in which it ends.
    """
    INDEX: tl.constexpr = offsets.dtype.element_ty
    tiles, atoms, size = tl.cast(tiles, INDEX), tl.cast(atoms, INDEX), tl.cast(size, INDEX)
    programs = tl.num_programs(0)
    piece = tl.cast(TAKE(queue, tl.program_id(0) - programs, programs), INDEX)
    while piece < pieces:
        tile, atom = BEGINS(offsets, tiles, atoms, piece, size)
        tile_end, atom_end = BEGINS(offsets, tiles, atoms, piece + 1, size)
        if FLAT:
            tail, head = in_sequence(
                operands, offsets, tiles, tile, atom, tile_end, atom_end, ATOM, TILE, SUM, BLOCK, WIDTH
            )
            if SPLITS:
                place = tl.cast(piece, tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, :]
                tl.store(heads + place, head)
                tl.store(tails + place, tail)
                tl.store(opened + piece, tile_end)
        else:
            side_by_side(operands, offsets, tile, tile_end, ATOM, TILE, SUM, BLOCK, LANES, WIDTH)
        piece = tl.cast(TAKE(queue, piece, programs), INDEX)


@triton.jit(do_not_specialize=["tiles", "atoms", "size"])
def finish_split_tiles(
    operands, offsets, heads, tails, opened, tiles, atoms, size,
    TILE: tl.constexpr, SUM: tl.constexpr, BEGINS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Finish the tile in which a piece begins, if it also ends there: add its parts, always in the order of pieces."""
    INDEX: tl.constexpr = offsets.dtype.element_ty
    lanes = tl.arange(0, WIDTH)[None, :]
    piece = tl.cast(tl.program_id(0) + 1, INDEX)
    tile, atom = BEGINS(offsets, tl.cast(tiles, INDEX), tl.cast(atoms, INDEX), piece, tl.cast(size, INDEX))
    if tl.load(opened + piece) > tile:
        if atom > tl.load(offsets + tile):
            first, high = piece * 0, piece - 1  # the first piece that ends in the tile
            while first < high:
                middle = (first + high) // 2
                before = tl.load(opened + middle) < tile
                first = tl.where(before, middle + 1, first)
                high = tl.where(before, high, middle)
            sums = tl.zeros((1, WIDTH), dtype=SUM)
            for start in range(first, piece, BLOCK):
                part = start + tl.arange(0, BLOCK)[:, None]
                place = tl.cast(part, tl.int64) * WIDTH + lanes
                sums += tl.sum(tl.load(heads + place, mask=part < piece, other=0), axis=0, keep_dims=True)
            sums += tl.load(tails + tl.cast(piece, tl.int64) * WIDTH + lanes)
            found = tile + tl.zeros((1, 1), dtype=INDEX)
            TILE(operands, found, lanes, sums, found >= 0)


def run(work: Work, matrix: CSR, schedule: str | Schedule = "merge_path", size: int | None = None) -> None:
    """Do ``work`` with every atom and tile of ``matrix``, enqueued on torch's current stream.

    schedule: a name in SCHEDULES, or a Schedule.  size: of a piece; None is the schedule's own.
    Order: sums are made in an order that the matrix, the schedule and the size give: the same bits in every run.
    Errors: ArgumentError.
    Spec: none.
    """
    chosen = SCHEDULES.get(schedule) if isinstance(schedule, str) else schedule
    if not isinstance(chosen, Schedule):
        refuse(ArgumentError, "run", "schedule", repr(schedule), f"a Schedule or one of {', '.join(SCHEDULES)}")
    size = chosen.size if size is None else size
    if not 1 <= size <= LARGEST_PIECE:
        refuse(ArgumentError, "run", "size", str(size), f"1 to {LARGEST_PIECE}")
    if matrix.device.type == "cpu" and not interpreter.active():
        refuse(
            ArgumentError, "run", "matrix", "a matrix in CPU memory", "one in GPU memory, since kernels are compiled"
        )
    if matrix.rows:
        _launch(work, matrix, chosen, size)


def _launch(work: Work, matrix: CSR, schedule: Schedule, size: int) -> None:
    tiles, atoms = matrix.rows, matrix.atoms
    pieces = schedule.pieces(tiles, atoms, size)
    width = triton.next_power_of_2(work.width)
    block, lanes = blocking(tiles, atoms, size, schedule.flat, width)
    room = pieces if schedule.splits else 0
    heads, tails = torch.empty((2, room, width), dtype=work.dtype, device=matrix.device)
    opened = torch.empty(room, dtype=matrix.offsets.dtype, device=matrix.device)
    queue = torch.zeros(int(schedule.queued), dtype=torch.int32, device=matrix.device)
    programs = min(pieces, _resident(matrix.device)) if schedule.queued else pieces
    kinds = {"TILE": work.tile, "SUM": _SUMS[work.dtype], "BEGINS": schedule.begins, "WIDTH": width}
    execute[(programs,)](
        work.operands, matrix.offsets, queue, heads, tails, opened, tiles, atoms, pieces, size,
        ATOM=work.atom, TAKE=schedule.take, FLAT=schedule.flat, SPLITS=schedule.splits, BLOCK=block, LANES=lanes, **kinds,
    )  # fmt: skip
    if schedule.splits and pieces > 1:
        finish_split_tiles[(pieces - 1,)](
            work.operands, matrix.offsets, heads, tails, opened, tiles, atoms, size, BLOCK=block, **kinds
        )


def blocking(tiles: int, atoms: int, size: int, flat: bool, width: int) -> tuple[int, int]:
    """Return (BLOCK, LANES): the atoms at a time, and 1; or the tiles at a time and the atoms of each, by their mean."""
    if flat:
        return min(max(_ELEMENTS // width, 16), _ATOMS), 1
    lanes = min(triton.next_power_of_2(-(-atoms // tiles) or 1), 64)
    return max(min(_ELEMENTS // (lanes * width), triton.next_power_of_2(size)), 1), lanes


def _resident(device: torch.device) -> int:
    """How many programs run at once."""
    if interpreter.active():
        return _INTERPRETED_PROGRAMS
    return int(_WAVES * torch.cuda.get_device_properties(device).multi_processor_count)
