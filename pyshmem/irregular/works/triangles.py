"""The triangles of a graph: for each edge, the neighbours that its two ends have in common.

Only elements below the diagonal count, so each triangle is counted once, at the edge of its two last vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.host.teams import TEAM_WORLD, require_one_node
from pyshmem.irregular.execution import Work, run
from pyshmem.irregular.matrix import CSR, csr
from pyshmem.irregular.schedules import Name
from pyshmem.irregular.shares import Balanced, divided, largest_share
from pyshmem.memory.arguments import require_init


class Operands(NamedTuple):
    """rows: of each edge.  offsets, columns: symmetric; a column is a PE, and in the low ``bits`` the place in its share.

    depth: of a search in a row.
    bits: the last field, since Triton 3.6 forgets the constants of a tuple in a tuple if no constant follows.
    """

    ctx: Any
    rows: torch.Tensor
    offsets: torch.Tensor
    columns: torch.Tensor
    counts: torch.Tensor
    depth: int
    bits: Any


@triton.jit
def common(operands, atoms, lanes, mask, near):
    """How many neighbours the ends of an edge have in common: those of one end are looked for in the row of the other."""
    first = tl.load(operands.offsets + tl.load(operands.rows + atoms, mask=mask, other=0), mask=mask, other=0)
    column = tl.load(operands.columns + atoms, mask=mask, other=0)
    pe = (column >> operands.bits).to(tl.int32)
    row = operands.offsets + column - (column >> operands.bits << operands.bits)
    begin = dev.load(operands.ctx, row, pe, mask=mask, other=0)
    length = dev.load(operands.ctx, row + 1, pe, mask=mask, other=0) - begin
    found = tl.zeros(atoms.shape, dtype=tl.int32)
    for step in range(tl.max(length)):
        live = mask & (step < length)
        wanted = dev.load(operands.ctx, operands.columns + begin + step, pe, mask=live, other=0)
        low, high = first, atoms.to(first.dtype)  # what comes after this edge in its row is greater
        for _ in range(operands.depth):
            middle = (low + high) // 2
            open_ = live & (low < high)
            before = open_ & (tl.load(operands.columns + middle, mask=open_, other=0) < wanted)
            high = tl.where(open_ & (before == 0), middle, high)
            low = tl.where(before, middle + 1, low)
        inside = live & (low < atoms)
        found += (inside & (tl.load(operands.columns + low, mask=inside, other=0) == wanted)).to(tl.int32)
    return found


@triton.jit
def store(operands, tiles, lanes, sums, mask):
    """Store the triangles of rows."""
    tl.store(operands.counts + tiles + lanes, sums, mask=mask)


def triangle_count(
    graph: Any, cut: Balanced | Sequence[int] = "nonzeros", schedule: Name = "auto", size: int | None = None
) -> int:
    """Return the number of triangles of ``graph`` on all PEs: a square matrix with an element for each edge.

    Elements on and above the diagonal, duplicates and values are ignored, so a symmetric matrix and its lower triangle
    are one graph. The kernel loads edges of other PEs' vertices from their memory, so all PEs must be on one node.
    cut: as in plan: "rows" or "nonzeros", with the same graph on all PEs, or the starts of all shares, with own rows.
    schedule: "auto", or a name in SCHEDULES.  size: rows of more elements are split; None is the schedule's own.
    Order: collective over all PEs. Waits for torch's current stream.
    Errors: ArgumentError, DtypeError, OutOfRangeError, HeapExhaustedError, UnreachableError, NotInitializedError.
    Spec: none.
    """
    require_init("triangle_count")
    require_one_node("triangle_count", TEAM_WORLD, wants="a job on one node")
    rows, starts = divided("triangle_count", csr(graph), cut)
    below, row_of = _below_diagonal(rows, starts[shmem.my_pe()])
    bits = max(largest_share(starts) - 1, 1).bit_length()
    columns = _numbered(below.columns, starts, bits)
    longest = int(below.offsets.diff().max()) if below.rows else 0
    device = rows.device
    shared = [_symmetric_copy(each) for each in (below.offsets, columns)]
    shmem.barrier_all()
    counts = torch.zeros(below.rows, dtype=torch.int64, device=device)
    ctx = shmem.device_context(device=device.type)
    operands = Operands(ctx, row_of, *shared, counts, longest.bit_length(), tl.constexpr(bits))
    run(Work(common, store, operands, dtype=torch.int64), below, schedule, size)
    total = shmem.full(1, int(counts.sum()), dtype=torch.int64, device=device.type)
    shmem.sum_reduce(total, total)  # all PEs have counted when it returns
    triangles = int(total[0])
    for each in (*shared, total):
        shmem.free(each)
    return triangles


def _below_diagonal(rows: CSR, first: int) -> tuple[CSR, torch.Tensor]:
    """Return what a share of rows, from row ``first`` on, has below the diagonal, sorted; and the row of each element."""
    numbers = torch.repeat_interleave(torch.arange(rows.rows, device=rows.device), rows.offsets.diff().long())
    below = rows.columns < numbers + first
    width = max(rows.shape[1], 1)
    keys = torch.unique(numbers[below] * width + rows.columns[below])
    row_of = (keys // width).to(rows.offsets.dtype)
    lengths = torch.bincount(row_of, minlength=rows.rows)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(rows.offsets.dtype)
    columns = (keys % width).to(rows.columns.dtype)
    return CSR(offsets, columns, torch.ones(len(keys), device=rows.device), rows.shape), row_of


def _numbered(columns: torch.Tensor, starts: list[int], bits: int) -> torch.Tensor:
    """Return the number of each column: its PE, and in the low ``bits`` the place in that PE's share."""
    bounds = torch.tensor(starts, device=columns.device)
    pes = torch.searchsorted(bounds, columns.long(), right=True) - 1
    fits = (len(starts) - 1) << bits < 1 << 31
    return ((pes << bits) + columns - bounds[pes]).to(columns.dtype if fits else torch.int64)


def _symmetric_copy(array: torch.Tensor) -> torch.Tensor:
    """Return a symmetric array that begins with this one. Collective over all PEs."""
    lengths = shmem.full(1, array.numel(), dtype=torch.int64)
    shmem.max_reduce(lengths, lengths)
    copy = shmem.zeros(int(lengths[0]) + 1, dtype=array.dtype, device=array.device.type)
    shmem.free(lengths)
    copy[: array.numel()] = array
    return copy
