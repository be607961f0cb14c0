"""A sparse matrix over all PEs times a vector: what to fetch is found once, and each call gets it one-sidedly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.irregular.matrix import CSR, csr
from pyshmem.irregular.schedules import Name
from pyshmem.irregular.shares import FETCHES, Balanced, Fetch, Segment, divided, largest_share
from pyshmem.irregular.works.spmv import spmv
from pyshmem.memory.arguments import is_int, require_init
from pyshmem.memory.heap import default

GAP = 16  # elements: at most a cache line of 128 bytes is fetched in vain to save a get


def plan(
    matrix: Any, cut: Balanced | Sequence[int] = "nonzeros", fetch: Fetch = "needed", schedule: Name = "auto",
    size: int | None = None, gap: int = GAP,
) -> Plan:  # fmt: skip
    """Return a plan for products of ``matrix``, square, with vectors, both divided over all PEs by rows.

    cut: "rows" or "nonzeros", balanced over the PEs; matrix is then whole, the same on all PEs. Or the rows where the
        shares begin, and the end of the last; matrix is then this PE's rows, of all columns.
    fetch: what each call gets before its product: "needed", the segments of the vector with a column of this PE's rows,
        joined over ``gap`` elements; or "whole".
    schedule, size: as in spmv.
    Order: collective over all PEs, since it allocates symmetric memory.
    Errors: ArgumentError, DtypeError, OutOfRangeError, HeapExhaustedError, NotInitializedError.
    Spec: none.
    """
    require_init("plan")
    checked = csr(matrix)
    if not isinstance(fetch, str) or fetch not in FETCHES:
        refuse(ArgumentError, "plan", "fetch", repr(fetch), " or ".join(map(repr, FETCHES)))
    if not is_int(gap) or gap < 0:
        refuse(ArgumentError, "plan", "gap", repr(gap), "a number of elements, 0 or more")
    return Plan(*divided("plan", checked, cut), fetch, schedule, size, gap)


class Plan:
    """The product of a matrix, whose rows are divided over all PEs, with vectors divided alike. Make it by ``plan``.

    starts: PE i has the rows starts[i] to before starts[i + 1], and these elements of each vector.
    segments: what each call fetches before the product, one get each.
    """

    def __init__(self, rows: CSR, starts: list[int], fetch: Fetch, schedule: Name, size: int | None, gap: int):
        """Find out what to fetch, and allocate. Collective over all PEs."""
        self.starts = starts
        self.segments: list[Segment]
        self.segments, columns = FETCHES[fetch](rows.columns, starts, shmem.my_pe(), gap)
        room = largest_share(starts) + _agree(starts, self.fetched, rows.device)
        self._local = CSR(rows.offsets, columns, rows.values, (rows.rows, room))
        self._schedule = schedule, size
        self._vectors = shmem.zeros(2, room, dtype=rows.values.dtype, device=rows.device.type)
        self._parity = 0
        self._meet = _meeting()
        self._gets = [[_get(vector, segment) for segment in self.segments] for vector in self._vectors]
        self._open = True

    @property
    def rows(self) -> int:
        """The number of this PE's rows, and of its elements of vectors."""
        return self._local.rows

    @property
    def fetched(self) -> int:
        """The elements that this PE fetches in each call before the product."""
        return sum(segment.count for segment in self.segments)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return this PE's elements of the product. ``x``: its elements of the vector, (rows,), private or symmetric.

        x is copied to symmetric memory, and may be changed on return.
        Order: collective over all PEs, with one barrier; on torch's current stream, if all GPUs are on one node. The same
            bits in every run with as many PEs.
        Errors: ArgumentError, NotInitializedError.
        Spec: none.
        """
        self._check(x)
        vector, gets = self._vectors[self._parity], self._gets[self._parity]
        # A peer may still fetch from the vector of the last call, until it enters the barrier of this one.
        self._parity ^= 1
        vector[: self.rows] = x
        self._meet()
        for target, source, pe in gets:
            shmem.get_nbi(target, source, pe)
        shmem.quiet_on_stream()
        return spmv(self._local, vector, *self._schedule)

    def _check(self, x: Any) -> None:
        require_init("plan")
        local = self._local
        if not self._open:
            refuse(ArgumentError, "plan", "plan", "one that is closed", "one that is open")
        shape = (self.rows,)
        if not isinstance(x, torch.Tensor) or (x.shape, x.dtype, x.device) != (shape, local.values.dtype, local.device):
            got = (
                f"{x.dtype} of shape {tuple(x.shape)} on {x.device}"
                if isinstance(x, torch.Tensor)
                else type(x).__name__
            )
            refuse(ArgumentError, "plan", "x", got, f"{local.values.dtype} of shape {shape} on {local.device}")

    def close(self) -> None:
        """Free the plan's symmetric memory.

        Order: collective over all PEs.
        Errors: NotInitializedError.
        Spec: none.
        """
        if self._open:
            shmem.free(self._vectors)
        self._open = False


def _agree(starts: list[int], fetched: int, device: torch.device) -> int:
    """Return the most elements that a PE fetches. Errors: ArgumentError, on all PEs, if two differ."""
    mine = torch.tensor([fetched, *starts, *(-start for start in starts)], device=device)
    most = torch.empty_like(mine)
    shmem.max_reduce(most, mine)
    if not torch.equal(most[1:], mine[1:]):
        refuse(ArgumentError, "plan", "cut", f"shares that begin at {starts[:-1]}", "the same shares on all PEs")
    return int(most[0])


def _meeting() -> Callable[[], None]:
    """Return the barrier: of streams, if all PEs are on one node, and matrices are on the default heap's GPU."""
    by_streams = default().streams and shmem.TEAM_SHARED.n_pes() == shmem.n_pes()
    return shmem.barrier_on_stream if by_streams else shmem.barrier_all


def _get(vector: torch.Tensor, segment: Segment) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The arguments of a get."""
    pe, first, place, count = segment
    return vector[place : place + count], vector[first : first + count], pe
