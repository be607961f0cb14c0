"""Work stealing: a PE whose own rows are done takes pieces of the queues of other PEs, and stores their results there.

Each PE has a queue of its pieces. Programs take pieces of their own PE's queue by dev.atomic_fetch_add, then those of the
next PEs, whose rows they read through mapped memory. Idea: stealing by one-sided atomics, as in Scioto (Dinan, SC 2009).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.irregular.cuts import Cut
from pyshmem.irregular.execution import SUMS, require_size
from pyshmem.irregular.launching import Bound, Launch, stream_of
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.plans import Plan, meeting
from pyshmem.irregular.schedules.dynamic import SCHEDULE
from pyshmem.irregular.segments import Segment, largest_share, symmetric_copy
from pyshmem.irregular.sizing import PIECES, WAVES, alone, blocking, fitting, multiprocessors
from pyshmem.irregular.walking import in_sequence, only_tile
from pyshmem.irregular.works import sums_of, wide

STEALING = "stealing"


class Operands(NamedTuple):
    """The whole vector, with a place for the largest share of each PE."""

    x: torch.Tensor


@triton.jit
def product(arrays, atoms, lanes, mask):
    """An element of the matrix times its element of x."""
    column = tl.load(arrays[0] + atoms, mask=mask, other=0)
    return wide(tl.load(arrays[1] + atoms, mask=mask)) * wide(tl.load(arrays[2] + column, mask=mask))


@triton.jit
def element(arrays, tiles, lanes, sums, mask):
    """Store elements of y."""
    tl.store(arrays[3] + tiles + lanes, sums.to(arrays[3].dtype.element_ty), mask=mask)


@triton.jit
def multiply(
    ctx, queue, sizes, begins, numbers, marks, filled, columns, entries, y, operands,
    SUM: tl.constexpr, BLOCK: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Multiply pieces until all queues are empty, those of this PE first. All arrays are symmetric.

    queue: how many pieces have been taken.  sizes: the number of pieces, and of atoms.  Others: as in execution.execute.
    """
    n = dev.n_pes(ctx)
    for turn in range(n):
        pe = (dev.my_pe(ctx) + turn) % n
        pieces, stored = dev.load(ctx, sizes, pe), dev.load(ctx, sizes + 1, pe)
        begin_of, number_of = dev.ptr(ctx, begins, pe), dev.ptr(ctx, numbers, pe)
        marks_of, filled_of = dev.ptr(ctx, marks, pe), dev.ptr(ctx, filled, pe)
        arrays = dev.ptr(ctx, columns, pe), dev.ptr(ctx, entries, pe), operands.x, dev.ptr(ctx, y, pe)
        piece = dev.atomic_fetch_add(ctx, queue, 1, pe, sem="relaxed")
        while piece < pieces:
            begin, end = tl.load(begin_of + piece), tl.load(begin_of + piece + 1)
            number, after = tl.load(number_of + piece), tl.load(number_of + piece + 1)
            if after == number + 1:
                only_tile(arrays, marks_of, filled_of, begin, end, stored, number, product, element, SUM, ALONE, 1)
            else:
                in_sequence(arrays, marks_of, filled_of, begin, end, stored, number, product, element, SUM, BLOCK, 1)
            piece = dev.atomic_fetch_add(ctx, queue, 1, pe, sem="relaxed")


class StealingPlan(Plan):
    """A plan whose rows are multiplied by whichever PE is free. It holds a copy of the matrix in symmetric memory."""

    def __init__(self, rows: CSR, starts: list[int], size: int | None):
        """Cut the rows into pieces, and allocate. Collective over all PEs."""
        self.starts, self._local, self._open = starts, rows, True
        me, room = shmem.my_pe(), largest_share(starts)
        bounds = torch.tensor(starts, device=rows.device)
        owners = torch.searchsorted(bounds, rows.columns.long(), right=True) - 1
        fits = shmem.n_pes() * room < 1 << 31
        columns = rows.columns + owners * room - bounds[owners]  # a place that all PEs have in common
        columns = columns.to(rows.columns.dtype if fits else torch.int64)
        wanted = PIECES * multiprocessors(rows.device)
        size = fitting(SCHEDULE, rows.rows, rows.atoms, wanted) if size is None else require_size(size)
        cut = Cut(rows, SCHEDULE, size)
        sizes = rows.offsets.new_tensor([cut.pieces, rows.atoms])
        parts = sizes, cut.begins, cut.numbers, cut.marked.marks, cut.marked.filled, columns, rows.values
        self._shared = [symmetric_copy(each) for each in parts]
        kind, device = rows.values.dtype, rows.device.type
        self._queue = shmem.zeros(1, dtype=torch.int32, device=device)
        self._vector = shmem.zeros(shmem.n_pes() * room, dtype=kind, device=device)
        self._result = shmem.zeros(
            room, dtype=kind, device=device
        )  # no piece has rows without elements: they stay zeros
        self._own = self._vector[me * room : me * room + self.rows]
        counts = [end - start for start, end in pairwise(starts)]
        self.segments = [Segment(pe, 0, pe * room, count) for pe, count in enumerate(counts) if pe != me and count]
        itemsize = sums_of(kind).itemsize
        block, _ = blocking(max(rows.rows, 1), rows.atoms, SCHEDULE, size, 1, itemsize, cut.longest)
        fixed = shmem.device_context(device=device), self._queue, *self._shared, self._result
        constants = {"SUM": SUMS[sums_of(kind)], "BLOCK": block, "ALONE": alone(SCHEDULE, 1, itemsize)}
        self._launch = Launch(
            multiply, (WAVES * multiprocessors(rows.device),), fixed, constants, {"num_warps": SCHEDULE.warps}
        )
        self._bound: dict[int, Bound] = {}
        self._meet = meeting()
        shmem.barrier_all()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return this PE's elements of the product. ``x`` are its elements of the vector, (rows,), private or symmetric.

        x is copied to symmetric memory, and may be changed on return.
        Order: collective over all PEs, with two barriers; on torch's current stream, if all PEs' GPUs are on one node. The
            same bits in every run with as many PEs, whoever multiplies a row.
        Errors: ArgumentError, NotInitializedError.
        Spec: none.
        """
        self._check(x)
        self._own.copy_(x)
        self._queue.zero_()
        self._meet()
        for pe, _, place, count in self.segments:
            part = self._vector[place : place + count]
            shmem.get_nbi(part, part, pe)
        shmem.quiet_on_stream()
        self._take_pieces()
        self._meet()
        return self._result[: self.rows].clone()

    def _take_pieces(self) -> None:
        stream, operands = stream_of(self._local.device), Operands(self._vector)
        if stream not in self._bound:
            self._bound[stream] = Bound(stream, [self._launch], operands)
        self._bound[stream](operands)

    def _held(self) -> tuple[torch.Tensor, ...]:
        return *self._shared, self._queue, self._vector, self._result
