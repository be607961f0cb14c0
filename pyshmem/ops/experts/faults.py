"""The record of what kernels of moe_dispatch find wrong: numbers of no expert, and more rows than a capacity."""

from __future__ import annotations

import torch

from pyshmem.base.errors import OutOfRangeError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis.faults import checks
from pyshmem.ops.machine import device

ROWS, CAPACITY, TOKEN, EXPERTS = range(4)
# ROWS: those that an exceeded CAPACITY would have had to hold, 0 for none.  TOKEN: one more than the number of a token that
# lists something else than the EXPERTS, 0 for none.


class Faults:
    """One record of this PE, in memory that kernels and the host share: the host reads it without a wait."""

    def __init__(self) -> None:
        self._words: torch.Tensor | None = None
        self._generation = -1

    def words(self) -> torch.Tensor:
        if self._words is None or self._generation != job.generation:
            self._words = torch.zeros(4, dtype=torch.int64, device="cpu", pin_memory=device().type == "cuda")
            self._generation = job.generation
        return self._words

    def raise_recorded(self) -> None:
        """Errors: OutOfRangeError for a fault of an earlier call on this PE. It is raised once."""
        if self._words is None or self._generation != job.generation:
            return
        rows, capacity, token, experts = self._words.tolist()
        if rows or token:
            self._words.zero_()
        if token:
            got = f"something else for token {token - 1}"
            refuse(OutOfRangeError, "moe_dispatch", "indices", got, f"experts 0 to {experts - 1}, or -1 for none")
        if rows:
            wants = f"at most the {capacity} of capacity=, or overflow='drop'"
            refuse(OutOfRangeError, "moe_dispatch", "capacity", f"{rows} rows for the experts of this PE", wants)


faults = Faults()
checks.append(faults.raise_recorded)
