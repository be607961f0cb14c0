"""Runs a work on a matrix by a schedule: the kernels that join the two."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.base import interpreter
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular import selection, streams
from pyshmem.irregular.cuts import Cut
from pyshmem.irregular.granularity import SEGMENTS, WIDE, blocking, finishing, fitting, multiprocessors
from pyshmem.irregular.matrix import CSR, LARGEST_SEGMENT
from pyshmem.irregular.parts import Parted
from pyshmem.irregular.schedules import Name, Schedule, by_length, nonzero_split, program_mapped, row_by_row, streamed
from pyshmem.irregular.segmented_sums import (
    Atoms,
    Partial,
    Rows,
    finish_empty_tiles,
    in_sequence,
    side_by_side,
    side_by_side_in_segment,
    within_tile,
)
from pyshmem.irregular.sequences import Sequences
from pyshmem.irregular.sorted_groups import Sorted
from pyshmem.irregular.values import Constants
from pyshmem.kernels.bound_kernels import Prepared, enqueue, may_be_early
from pyshmem.kernels.compiled import current_stream
from pyshmem.memory.arguments import is_int
from pyshmem.memory.heap import views
from pyshmem.native._native import kernel_key

SCHEDULES: dict[str, Schedule] = {
    "program_mapped": program_mapped.SCHEDULE,
    "nonzero_split": nonzero_split.SCHEDULE,
    "by_length": by_length.SCHEDULE,
    "streamed": streamed.SCHEDULE,
    "row_by_row": row_by_row.SCHEDULE,
}
ORDERED: dict[str, Any] = {"length": Sorted, "stream": streams.streamed, "place": Sequences}
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


class Segments(NamedTuple):
    """begins: where each segment begins, an atom if FLAT, else a tile.  numbers: how many tiles with atoms precede it."""

    begins: Any
    numbers: Any


class Splits(NamedTuple):
    """Tiles that are split, and the segments in which each begins and ends."""

    tiles: Any
    opening: Any
    closing: Any


class Method(NamedTuple):
    """What a kernel knows of a schedule. FLAT, SPLITS: as in Schedule.

    EARLY: the kernel begins before its predecessor ends, and lets its successor do so.
    BLOCK, ROWS: atoms at a time, and 1; or atoms of each tile at a time, and tiles.
    """

    FLAT: bool
    SPLITS: bool
    EARLY: bool
    BLOCK: int
    ROWS: int


@triton.jit
def split_tiles(operands, rows, segment, atoms, partial, work: tl.constexpr, method: tl.constexpr):
    """Go through a segment that may begin and end within tiles."""
    WIDTH: tl.constexpr = work.WIDTH
    place = tl.cast(segment, tl.int64) * WIDTH
    if WIDTH >= WIDE:
        if atoms.after > atoms.first:
            mine = Partial(partial.heads + place, partial.tails + place)
            side_by_side_in_segment(
                operands, rows, atoms, tl.maximum(atoms.first - 1, 0), mine, work, True, method.ROWS, method.BLOCK
            )
        else:  # no tile begins in the segment
            tail, head = within_tile(operands, rows, atoms, work, method.ROWS * method.BLOCK)
            places = place + tl.arange(0, WIDTH)[:, None]
            tl.store(partial.heads + places, head)
            tl.store(partial.tails + places, tail)
    else:
        if atoms.after == atoms.first:
            tail, head = within_tile(operands, rows, atoms, work, method.BLOCK)
        else:
            tail, head = in_sequence(operands, rows, atoms, work, method.BLOCK)
        places = place + tl.arange(0, WIDTH)[:, None]
        tl.store(partial.heads + places, head)
        tl.store(partial.tails + places, tail)


@triton.jit
def whole_tiles(operands, rows, atoms, partial, work: tl.constexpr, method: tl.constexpr):
    """Go through a segment of whole tiles."""
    WIDTH: tl.constexpr = work.WIDTH
    if WIDTH >= WIDE:
        side_by_side_in_segment(operands, rows, atoms, atoms.first, partial, work, False, method.ROWS, method.BLOCK)
    else:
        in_sequence(operands, rows, atoms, work, method.BLOCK)


@triton.jit(do_not_specialize=["count", "vacant", "stored"])
def execute(rows, segments, partial, count, vacant, stored, operands, work: tl.constexpr, method: tl.constexpr):
    """Go through one of ``count`` segments of a matrix. If it begins or ends within a tile, store the partial sums.

    vacant: the tiles without atoms, which are shared out evenly if FLAT.  stored: the number of atoms.
    """
    segment = tl.program_id(0)
    begin, end = tl.load(segments.begins + segment), tl.load(segments.begins + segment + 1)
    if method.FLAT:
        first, after = tl.load(segments.numbers + segment), tl.load(segments.numbers + segment + 1)
    if method.EARLY:  # where segments lie never changes; the preceding kernel may write everything else
        gpu.follow()
    if method.FLAT:
        atoms = Atoms(begin, end, stored, first, after)
        if method.SPLITS:
            split_tiles(operands, rows, segment, atoms, partial, work, method)
        else:
            whole_tiles(operands, rows, atoms, partial, work, method)
        if vacant > 0:  # divisions cost as much as many atoms
            every = tl.cast(vacant, tl.int64)
            least, most = segment * every // count, (segment + 1) * every // count
            finish_empty_tiles(operands, rows.empty, least, most, work, method.ROWS * method.BLOCK)
    else:
        side_by_side(operands, rows.offsets, begin, end, work, method.ROWS, method.BLOCK)


@triton.jit(do_not_specialize=["count"])
def finish_split_tiles(
    splits, partial, count, operands,
    work: tl.constexpr, EARLY: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Finish ``count`` split tiles: add their partial sums in a fixed order, LANES of each of ROWS tiles at once."""
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
        segment = first[:, :, None] + step + tl.arange(0, LANES)[None, :, None]
        place = segment.to(tl.int64) * WIDTH + lanes[None, :, :]
        sums += tl.load(partial.heads + place, mask=segment < last[:, :, None], other=0)
    tail = tl.load(partial.tails + last.to(tl.int64) * WIDTH + lanes, mask=live, other=0)
    work.TILE(operands, tile, lanes, tl.sum(sums, axis=1) + tail, live)


class Launches(NamedTuple):
    """How a work of a width and a type is launched. finishing: the grid, ROWS and LANES of finish_split_tiles.

    prepared: its kernels, by the stream, the work's functions and the kind of its operands.
    """

    cut: Cut | Parted
    width: int
    grid: int
    method: Method | None
    early: bool
    warps: int
    finishing: tuple[int, int, int]
    prepared: dict[Any, list[Prepared]]


def run(work: Work, matrix: CSR, schedule: Name | Schedule = AUTO, size: int | None = None) -> None:
    """Do ``work`` with every atom and tile of ``matrix``, enqueued on torch's current stream.

    schedule: "auto" for one that suits the matrix, a name in SCHEDULES, or a Schedule.  size: of a segment; None is the
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


def _checked(matrix: CSR, schedule: Name | Schedule, size: int | None, width: int) -> tuple[Schedule, int]:
    if matrix.device.type == "cpu" and not interpreter.active():
        refuse(
            ArgumentError, "run", "matrix", "a matrix in CPU memory", "one in GPU memory, since kernels are compiled"
        )
    name: Any = schedule
    if schedule == AUTO:
        name = selection.schedule_for(matrix, width)
    chosen = SCHEDULES.get(name) if isinstance(name, str) else name
    if not isinstance(chosen, Schedule):
        refuse(ArgumentError, "run", "schedule", repr(schedule), f"a Schedule or one of {AUTO}, {', '.join(SCHEDULES)}")
    if size is None:
        wanted = SEGMENTS * multiprocessors(matrix.device)
        size = fitting(chosen, matrix.rows, matrix.atoms, wanted, width, matrix.longest)
    if not is_int(size) or not 1 <= size <= LARGEST_SEGMENT:
        refuse(ArgumentError, "run", "size", repr(size), f"an int, 1 to {LARGEST_SEGMENT}")
    return chosen, size


def _planned(work: Work, matrix: CSR, schedule: Schedule, size: int) -> Launches:
    width, itemsize = triton.next_power_of_2(work.width), work.dtype.itemsize
    if schedule.order:
        return _planned_parts(matrix, schedule, size, width, itemsize)
    cut = matrix.kept.get((schedule, size))
    if cut is None:
        cut = matrix.kept[schedule, size] = Cut(matrix, schedule, size)
    block, rows = blocking(matrix.rows, matrix.atoms, schedule, size, width, itemsize)
    method = Method(schedule.flat, schedule.splits, may_be_early(), block, rows)
    ending = _finishing(cut, width * itemsize)
    return Launches(cut, width, cut.segments, method, method.EARLY, schedule.warps, ending, {})


def _planned_parts(matrix: CSR, schedule: Schedule, size: int, width: int, itemsize: int) -> Launches:
    cut = matrix.kept.get((schedule, size, width))
    if cut is None:
        cut = matrix.kept[schedule, size, width] = ORDERED[schedule.order](matrix, size, width)
    ending = _finishing(cut, width * itemsize)
    return Launches(cut, width, cut.segments, None, may_be_early(), schedule.warps, ending, {})


def _finishing(cut: Cut | Parted, nbytes: int) -> tuple[int, int, int]:
    rows, lanes = finishing(cut.spread, nbytes)
    return -(-cut.splits // rows), rows, lanes


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
    """Return the kernels of a work: that of all segments, and that of tiles that are split, if there are any."""
    cut, method, operands = known.cut, known.method, (work.operands,)
    constants: dict[str, Any] = {"work": constants_of(work, known.width)}
    if isinstance(cut, Parted):
        parts = cut.storage(known.width, work.dtype, stream)
        partial, kernel = Partial(parts, parts), cut.kernel
        fixed: tuple[Any, ...] = cut.items, cut.programs, parts
        of_kernel = cut.constants | {"EARLY": known.early}
    else:
        heads, tails = cut.storage(known.width, work.dtype, stream)
        partial, kernel = Partial(heads, tails), execute
        segments = Segments(cut.begins, cut.numbers)
        fixed = Rows(matrix.offsets, *cut.marked), segments, partial, cut.segments, cut.vacant, matrix.atoms
        of_kernel = {"method": method}
    early = known.early
    kernels = [Prepared(kernel, known.grid, fixed, operands, constants | of_kernel, early, num_warps=known.warps)]
    if cut.spread:
        programs, rows, lanes = known.finishing
        constants |= {"EARLY": early, "ROWS": rows, "LANES": lanes}
        fixed = Splits(cut.closed, cut.opening, cut.closing), partial, cut.splits
        kernels.append(Prepared(finish_split_tiles, programs, fixed, operands, constants, early))
    return kernels
