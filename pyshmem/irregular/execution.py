"""Runs a work on a matrix by a schedule: the kernels that join the two."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.base import interpreter
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular import selection
from pyshmem.irregular.granularity import PROGRAMS, finishing, fitting, multiprocessors
from pyshmem.irregular.matrix import CSR, LARGEST_PART
from pyshmem.irregular.parts import Parted
from pyshmem.irregular.schedules import Name, Schedule, by_length, row_by_row, streamed
from pyshmem.irregular.values import Constants
from pyshmem.kernels.bound_kernels import Prepared, enqueue, may_be_early
from pyshmem.kernels.compiled import current_stream
from pyshmem.memory.arguments import is_int
from pyshmem.memory.heap import views
from pyshmem.native._native import kernel_key

SCHEDULES: dict[str, Schedule] = {
    "by_length": by_length.SCHEDULE,
    "streamed": streamed.SCHEDULE,
    "row_by_row": row_by_row.SCHEDULE,
}
AUTO = "auto"
SUMS = {torch.float32: tl.float32, torch.float64: tl.float64, torch.int32: tl.int32, torch.int64: tl.int64}


class Work(NamedTuple):
    """What is done with a matrix: each atom gives a value, and each tile gets the sum of its atoms' values once.

    atom: a jit function (operands, atoms, lanes, mask) that returns the values of ``atoms``, an array of indices whose
        axis for lanes has length 1, or, of 128 sums or more, perhaps one index. lanes numbers a tile's sums along that axis.
        Atoms exist where mask is set; values of those that are other tiles' are ignored. Or a function (operands, atoms,
        lanes, mask, near): near has some of other tiles, and is alike for those that are loaded at once; mask has none of
        other tiles, or a few where tiles are streamed.
    tile: a jit function (operands, tiles, lanes, sums, mask) that takes the sums of ``tiles`` where mask is set.
    operands: a NamedTuple of tensors and numbers, which both functions get; no field is named ``type`` or ``values``.
    width: the sums of a tile; lanes counts up to the next power of 2.  dtype: theirs: float32, float64, int32 or int64.
    """

    atom: Any
    tile: Any
    operands: tuple[Any, ...]
    width: int = 1
    dtype: torch.dtype = torch.float32


class Splits(NamedTuple):
    """Tiles that are split, and the first and the last part of each."""

    tiles: Any
    opening: Any
    closing: Any


class Partial(NamedTuple):
    """The sums of parts: of all but the last of each tile, and of the last. They lie in one array."""

    heads: Any
    tails: Any


@triton.jit(do_not_specialize=["count"])
def finish_split_tiles(
    splits, partial, count, operands,
    work: tl.constexpr, EARLY: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Finish ``count`` split tiles: add the sums of their parts in a fixed order, LANES of each of ROWS tiles at once."""
    WIDTH: tl.constexpr = work.WIDTH
    lanes = tl.arange(0, WIDTH)[None, :]
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    live = number < count
    first = tl.load(splits.opening + number, mask=live, other=0)
    last = tl.load(splits.closing + number, mask=live, other=0)
    tile = tl.load(splits.tiles + number, mask=live, other=0)
    if EARLY:
        gpu.follow()
    sums = tl.zeros((ROWS, LANES, WIDTH), dtype=work.SUM)
    for step in range(0, tl.max(last - first), LANES):
        part = first[:, :, None] + step + tl.arange(0, LANES)[None, :, None]
        place = part.to(tl.int64) * WIDTH + lanes[None, :, :]
        sums += tl.load(partial.heads + place, mask=part < last[:, :, None], other=0)
    tail = tl.load(partial.tails + last.to(tl.int64) * WIDTH + lanes, mask=live, other=0)
    work.TILE(operands, tile, lanes, tl.sum(sums, axis=1) + tail, live)


class Launches(NamedTuple):
    """How a work of a width and a type is launched. finishing: the grid, ROWS and LANES of finish_split_tiles.

    prepared: its kernels, by the stream, the work's functions and the kind of its operands.
    """

    parted: Parted
    width: int
    early: bool
    warps: int
    finishing: tuple[int, int, int]
    prepared: dict[Any, list[Prepared]]


def run(work: Work, matrix: CSR, schedule: Name = AUTO, size: int | None = None) -> None:
    """Do ``work`` with every atom and tile of ``matrix``, enqueued on torch's current stream.

    schedule: "auto" for one that suits the matrix, or a name in SCHEDULES.  size: tiles of more atoms are split; None is the
        schedule's own, less for a small matrix.
    Order: the matrix, the schedule and the size determine the order of sums: every run gives the same bits. The first
        run of a matrix with a schedule and a size waits for the stream.
    Errors: ArgumentError.
    Spec: none.
    """
    key = (schedule, size, work.width, work.dtype)
    try:
        known = matrix.kept.get(key)
    except TypeError:
        known = None  # an argument that cannot be in a key, which is refused
    if known is None:
        chosen, size = _checked(matrix, schedule, size, work.width)
        if not matrix.rows:
            return
        known = matrix.kept[key] = _planned(work, matrix, chosen, size)
    _launch(known, work, matrix)


def _checked(matrix: CSR, schedule: Name, size: int | None, width: int) -> tuple[Schedule, int]:
    if matrix.device.type == "cpu" and not interpreter.active():
        refuse(
            ArgumentError, "run", "matrix", "a matrix in CPU memory", "one in GPU memory, since kernels are compiled"
        )
    name: Any = selection.schedule_for(matrix, width) if schedule == AUTO else schedule
    if not isinstance(name, str) or name not in SCHEDULES:
        refuse(ArgumentError, "run", "schedule", repr(schedule), f"one of {AUTO}, {', '.join(SCHEDULES)}")
    chosen = SCHEDULES[name]
    if size is None:
        wanted = PROGRAMS * multiprocessors(matrix.device)
        size = fitting(chosen, matrix.rows, matrix.atoms, wanted, width, matrix.longest)
    if not is_int(size) or not 1 <= size <= LARGEST_PART:
        refuse(ArgumentError, "run", "size", repr(size), f"an int, 1 to {LARGEST_PART}")
    return chosen, size


def _planned(work: Work, matrix: CSR, schedule: Schedule, size: int) -> Launches:
    width = triton.next_power_of_2(work.width)
    parted = matrix.kept.get((schedule, size, width))
    if parted is None:
        parted = schedule.parted(matrix, size, width)
        if matrix.offsets.is_cuda:  # later products may be on other streams
            torch.cuda.current_stream(matrix.device).synchronize()
        matrix.kept[schedule, size, width] = parted
    rows, lanes = finishing(parted.spread, width * work.dtype.itemsize)
    ending = -(-parted.splits // rows), rows, lanes
    return Launches(parted, width, may_be_early(), schedule.warps, ending, {})


def _launch(known: Launches, work: Work, matrix: CSR) -> None:
    device, operands = matrix.device, work.operands
    stream = int(current_stream(device.index or 0)) if device.type == "cuda" else 0
    kind = stream, id(work.atom), id(work.tile)
    key = kernel_key(views, kind, (False,) * len(operands), operands)  # equal where Triton compiles one kernel
    kernels = known.prepared.get(key)
    if kernels is None:
        kernels = known.prepared[key] = _prepared(known, work, matrix, stream)
    enqueue("run", kernels, stream, operands)


def constants_of(work: Work, width: int) -> Constants:
    """Return what kernels know of a work, of ``width`` sums with those that are only there for a power of 2."""
    return Constants(work.atom, work.tile, SUMS[work.dtype], width, len(work.atom.arg_names) == 5)


def _prepared(known: Launches, work: Work, matrix: CSR, stream: int) -> list[Prepared]:
    """Return the kernels of a work: that of all programs, and that of tiles that are split, if there are any."""
    parted, early, operands = known.parted, known.early, (work.operands,)
    of_work = {"work": constants_of(work, known.width)}
    parts = parted.storage(known.width, work.dtype, stream)
    fixed: tuple[Any, ...] = parted.items, parted.programs, parts
    constants = of_work | parted.constants | {"EARLY": early}
    kernels = [Prepared(parted.kernel, parted.segments, fixed, operands, constants, early, num_warps=known.warps)]
    if parted.spread:
        programs, rows, lanes = known.finishing
        fixed = Splits(parted.closed, parted.opening, parted.closing), Partial(parts, parts), parted.splits
        constants = of_work | {"EARLY": early, "ROWS": rows, "LANES": lanes}
        kernels.append(Prepared(finish_split_tiles, programs, fixed, operands, constants, early))
    return kernels
