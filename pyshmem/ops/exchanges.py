"""Moves of blocks between the PEs of a team by the copy engine, and the sum of parts, as schedules of the host need them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import pyshmem as shmem
from pyshmem.host.teams import TEAM_WORLD, Team
from pyshmem.ops.launching import Prepared
from pyshmem.ops.problem import Problem
from pyshmem.ops.shares import share_of, start_of


def peers_of(team: Team) -> list[int]:
    """Return the numbers of the other members, beginning with the next one, so that not all send to the same PE."""
    return [(team.me + i) % team.size for i in range(1, team.size)]


def world_pe(team: Team, pe: int) -> int:
    return team.translate_pe(pe, TEAM_WORLD)


def put_rows(team: Team, array: torch.Tensor, first: int, last: int, pe: int) -> None:
    """Copy rows first to last - 1 of a symmetric array to the same place on ``pe`` of the team, on the current stream."""
    if last > first:
        shmem.put(array[first:last], array[first:last], world_pe(team, pe))


def put_part(problem: Problem, slots: torch.Tensor, parts: torch.Tensor, pe: int) -> None:
    """Put this PE's part of the rows of ``pe`` into its slot there, on the current stream."""
    first, last = rows_of(problem, pe)
    slot = slots[(problem.me - pe - 1) % problem.n_pes]
    if last > first and problem.N:
        shmem.put(slot[: last - first], parts[first:last], world_pe(problem.team, pe))


def rows_of(problem: Problem, pe: int) -> tuple[int, int]:
    """Return (first, last + 1) of the share of ``pe`` in the rows of the result."""
    start = start_of(problem.M, pe, problem.n_pes)
    return start, start + share_of(problem.M, pe, problem.n_pes)


@triton.jit(do_not_specialize=["count", "first"])
def add_parts(
    slots, rows, columns, pitch, space, count, first, parts, out, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Add ``count`` slots, ``space`` elements apart, to ``parts``, in float32, and store the sums to ``out``. All have ``pitch``."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    mask = (r < rows) & (c < columns)
    inside = tl.cast(r, tl.int64) * pitch + c
    total = tl.load(parts + inside, mask=mask, other=0.0).to(tl.float32)
    for i in range(count):
        total += tl.load(slots + tl.cast(i, tl.int64) * space + inside, mask=mask, other=0.0).to(tl.float32)
    if EPILOGUE is not None:
        total = EPILOGUE(total, first + r, c)
    tl.store(out + inside, total.to(out.dtype.element_ty), mask=mask)


class Sum:
    """The sum of a part and of the slots beside it, with the epilogue."""

    def __init__(self, problem: Problem, sample: torch.Tensor, slots: torch.Tensor, first: int) -> None:
        """sample: an array like the part and the result.  slots: (count, rows, N).  first: the row of the result's first."""
        rows, columns = sample.shape
        block, width = 4, min(triton.next_power_of_2(max(columns, 1)), 1024)
        grid = (max(-(-rows // block), 1), max(-(-columns // width), 1))
        constants = {"BLOCK": block, "WIDTH": width, "EPILOGUE": problem.options.epilogue}
        fixed = (slots, rows, columns, columns, slots.stride(0), slots.shape[0], first)
        self._kernel = Prepared(add_parts, grid, fixed, (sample, sample), constants, num_warps=4)

    def __call__(self, part: torch.Tensor, out: torch.Tensor) -> None:
        self._kernel(part, out)
