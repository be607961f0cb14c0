"""The schedules of reduce_scatter_rms_norm and reduce_scatter_rms_norm_all_gather."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.device.arch.fields import encoded
from pyshmem.ops.norms import kernels
from pyshmem.ops.norms.kernels import Shape
from pyshmem.ops.norms.problem import Problem
from pyshmem.ops.norms.schedules import FEW, MANY, Pull, Step, normaliser
from pyshmem.ops.shares import start_of
from pyshmem.ops.workspace import Wanted

WRITTEN = ("out", "scales")  # results that peers write, where all PEs get the normalised rows


class PushShares(Step):
    """Rows go into slots on the PEs that have them in their shares, each with a flag."""

    fan = False  # FAN of the kernel
    numbered = True

    def __init__(self, problem: Problem) -> None:
        pairs = problem.team.size * problem.largest
        wanted = problem.spaces(WRITTEN if self.fan else ())
        wanted["flags"] = ((2 * pairs,), torch.uint64)
        wanted["slots"] = ((2, pairs, problem.hidden), problem.dtype)
        super().__init__(problem, wanted, problem.largest)
        context, space = shmem.device_context(problem.team), self.space
        self.prepare(kernels.push_shares, context, space["flags"], space["slots"], space["epochs"], FAN=self.fan)


class PushAndGather(PushShares):
    """The same, and normalised rows go to all PEs, each with a flag."""

    fan = True


class PullShares(Pull):
    """The rows of the PE's share are loaded from all peers."""

    shared = True


class PullAndGather(PullShares):
    """The same, and normalised rows are stored on all PEs."""

    each, most = FEW, 2  # the addresses of all PEs take registers
    fan = True
    written = WRITTEN


class BulkShares(Step):
    """A reduce-scatter of x, then a kernel that normalises. Shares are blocks of one size, with rows that nobody reads."""

    each, most = MANY, 4
    fan = False

    def __init__(self, problem: Problem) -> None:
        self.copied = self._copies(problem)
        super().__init__(problem, self._wanted(problem, problem.largest), problem.largest)
        self.kernel = normaliser(self)
        self.cut()

    @property
    def shape(self) -> Shape:
        return super().shape._replace(tokens=encoded(self.problem.kept))

    def resized(self, problem: Problem) -> Any:
        return super().resized(problem) if self._copies(problem) == self.copied else type(self)(problem)

    def cut(self) -> None:
        super().cut()
        rows = -(-self.problem.tokens // self.problem.team.size)
        wanted, room = self._wanted(self.problem, rows), self.space.room
        self.arrays = {name: room.array(name, *each) for name, each in wanted.items()}
        blocks = [name for name in ("x", "every made", "every scales") if name in self.arrays]
        self.shares = {name: self._shares(self.arrays[name]) for name in blocks}

    def _copies(self, problem: Problem) -> bool:
        return not problem.pulled or problem.tokens % problem.team.size != 0

    def _wanted(self, problem: Problem, rows: int) -> Wanted:
        """Return the arrays for shares of ``rows``."""
        whole, share = (problem.team.size, rows, problem.hidden), (rows, problem.hidden)
        found: Wanted = {"total": (share, problem.dtype)}
        if self.copied:
            found["x"] = (whole, problem.dtype)
        if self.fan:
            bits = torch.uint8 if problem.kind.itemsize == 1 else problem.kind
            found |= {"made": (share, bits), "every made": (whole, bits)}
            found |= {"scales": (share[:1], torch.float32), "every scales": (whole[:2], torch.float32)}
        return found

    @property
    def bytes_reread(self) -> int:
        """The sums of the share; x, if it is copied; normalised rows, which are gathered and copied to the result."""
        problem = self.problem
        row, made = problem.hidden * problem.dtype.itemsize, problem.hidden * problem.kind.itemsize
        made += torch.float32.itemsize * (len(problem.results) - 2)  # the scale of a row
        return (
            problem.kept * row + self.copied * problem.tokens * row + self.fan * (problem.kept + problem.tokens) * made
        )

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, sums: torch.Tensor,
        scales: torch.Tensor,
    ) -> None:  # fmt: skip
        problem, space = self.problem, self.arrays
        source = space["x"] if self.copied else x
        if self.copied:
            for first, last, block in self.shares["x"]:
                block.copy_(x[first:last])
        shmem.reduce_scatter_on_stream(space["total"], source, team=problem.team)
        if not self.fan:
            self.kernel(space["total"], residual, weight, out, sums, scales)
            return
        self.kernel(space["total"], residual, weight, space["made"], sums, space["scales"])
        for target, name in ((out, "made"), (scales, "scales"))[: len(problem.results) - 1]:
            shmem.fcollect_on_stream(space[f"every {name}"], space[name], team=problem.team)
            for first, last, block in self.shares[f"every {name}"]:
                target[first:last].copy_(block)

    def _shares(self, blocks: torch.Tensor) -> list[tuple[int, int, torch.Tensor]]:
        """Return the shares in blocks, one for each PE, as (first, last + 1, rows); as one where they fill the blocks."""
        tokens, n = self.problem.tokens, self.problem.team.size
        if tokens % n == 0:
            return [(0, tokens, blocks.flatten(0, 1))]
        starts = [start_of(tokens, pe, n) for pe in range(n + 1)]
        return [(i, j, block[: j - i]) for (i, j), block in zip(pairwise(starts), blocks, strict=True)]


class BulkAndGather(BulkShares):
    """The same, and an all-gather of the normalised rows."""

    fan = True


SHARES = {"push": PushShares, "pull": PullShares, "bulk_synchronous": BulkShares}
GATHERED = {"push": PushAndGather, "pull": PullAndGather, "bulk_synchronous": BulkAndGather}
