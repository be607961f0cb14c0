"""The operations of benchmarks.schedules: a product by what auto chooses, and by each schedule that the operator has."""

from __future__ import annotations

import torch

from benchmarks.accelerator import Accelerator
from benchmarks.operations import ops
from benchmarks.operations.ops import OURS
from pyshmem.ops.gemm.selection import ABLE


class Operations(ops.Operations):
    """Schedules of one product, none of torch's ways."""

    peers = (OURS, *ABLE["gemm_all_gather"])

    def __init__(self, accelerator: Accelerator, few: bool) -> None:
        """few: whether bulk_synchronous alone is timed beside auto."""
        super().__init__(accelerator, True)
        self.few = few

    def choices(self, nbytes: int, operator: str, split: str, M: int, N: int, K: int, kind: str) -> ops.Ways:
        """kind: the name of a type."""
        dtype = getattr(torch, kind)
        problem = self._problem(operator, split, M, N, K, dtype=dtype)
        out = self._symmetric(torch.zeros(problem.wanted.shape, dtype=dtype, device=self.accelerator.device))
        ways: ops.Ways = {OURS: self._planned(problem, out, {})}
        for name in ("bulk_synchronous",) if self.few else ABLE[operator]:
            ways[name] = self._able(problem, out, {"schedule": name})
        return ways
