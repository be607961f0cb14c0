"""What the libraries of benchmarks.gpu_libraries share: torch tensors on GPUs, cases of calls from Python and in kernels."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.peers.case import Case, Step

BLOCK, SHARE, PROGRAMS = 4096, 16384, 264  # elements of a tile; bytes of a program at least; programs at most
FOOTPRINT = 256 << 20  # bytes that loads take their parts from, more than a GPU caches
Launch = Callable[[torch.Tensor, torch.Tensor, int], object]


class OnGpus(ABC):
    """A library on this PE. PE 0 acts on PE 1; more PEs stand by, but for collectives.

    statements: operation to a call from Python, with target, source, pe and ``names`` as its variables.
    kernels: operation to the launch of a kernel, with a symmetric array, a private one and the turns.
    """

    statements: dict[str, str]
    device, footprint = "cuda", FOOTPRINT

    def __init__(self, comm: Any) -> None:
        self.comm, self.me, self.n_pes = comm, comm.rank, comm.size
        self.notes: dict[str, str] = {}
        self.names: dict[str, Any] = {}
        self.kernels: dict[str, Launch] = {}
        self.live: list[torch.Tensor] = []

    @abstractmethod
    def symmetric(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """An array of zeros that ``forget`` frees. Collective."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Versions and settings, for the reader of the table."""

    @abstractmethod
    def forget(self) -> None:
        """Free the memory of the last case. Collective."""

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""

    def barrier(self) -> None:
        self.wait()
        self.comm.Barrier()

    def wait(self) -> None:
        """Wait for this PE's GPU."""
        torch.cuda.synchronize()

    def now(self) -> float:
        self.wait()
        return time.perf_counter()

    def case(self, operation: str, nbytes: int, *parameters: Any) -> Case | None:
        if operation in self.statements:
            return self._call(operation, nbytes)
        if operation in self.kernels:
            return getattr(self, f"_{operation}")(self.kernels[operation], nbytes, *parameters)  # type: ignore[no-any-return]
        return None

    # -- calls from Python

    def _call(self, operation: str, nbytes: int) -> Case:
        """Return the case of a call. ``nbytes``: of the source."""
        count = max(nbytes // 4, 1)
        blocks = self.n_pes if operation == "fcollect" else 1
        source = self.symmetric(count, torch.float32)
        target = self.symmetric(count * blocks, torch.float32)
        source.copy_(self.pattern(self.me, count))

        def check(step: Step) -> str:
            target.zero_()
            self.barrier()
            step()
            self.barrier()
            return self._differ(target, self._wanted(operation, count))

        names = {"target": target, "source": source, "pe": 1, **self.names}
        pes = (0,) if operation == "put" else None
        return Case(self.statements[operation], names, check, pes, timer=self.now)

    def _wanted(self, operation: str, count: int) -> torch.Tensor:
        every = (self.pattern(pe, count) for pe in range(self.n_pes))
        zeros = torch.zeros(count, device=self.device)
        if operation == "put":
            return self.pattern(0, count) if self.me == 1 else zeros
        if operation == "broadcast":
            return self.pattern(0, count)
        if operation == "all_reduce":
            return sum(every, zeros)
        if operation == "alltoall":
            return torch.cat([each.chunk(self.n_pes)[self.me] for each in every])
        return torch.cat(list(every)) if operation == "fcollect" else zeros

    def pattern(self, pe: int, count: int) -> torch.Tensor:
        """Values that name the PE; float32 holds their sums exactly."""
        return (torch.arange(count, device=self.device) % 1009 + 1013 * (pe + 1)).float()

    def _differ(self, seen: torch.Tensor, wanted: torch.Tensor | int) -> str:
        wrong = seen.reshape(-1) != wanted
        return f"PE {self.me} has {int(wrong.sum())} other elements; " if bool(wrong.any()) else ""

    # -- calls in kernels: a launch makes ``turns`` of them

    def _tile_store(self, launch: Launch, nbytes: int, turns: int) -> Case:
        """PE 0 stores its private array into PE 1's symmetric one."""
        there, here = self.symmetric(nbytes // 4, torch.float32), self.pattern(self.me, nbytes // 4)
        return self._moved(partial(launch, there, here, turns), there, (1, self.pattern(0, nbytes // 4)))

    def _tile_load(self, launch: Launch, nbytes: int, turns: int) -> Case:
        """PE 0 loads parts of PE 1's symmetric array into its private one, in turn: this GPU would cache a single part."""
        count, parts = nbytes // 4, max(self.footprint // nbytes, 1)
        there = self.symmetric(count * parts, torch.float32)
        there.copy_(self.pattern(self.me, count * parts))
        here = torch.zeros(count, device=self.device)
        last = (self.turns(turns) - 1) % parts * count
        wanted = self.pattern(1, count * parts)[last : last + count]
        return self._moved(partial(launch, there, here, turns), here, (0, wanted))

    def _moved(self, launch: Step, seen: torch.Tensor, wanted: tuple[int, torch.Tensor]) -> Case:
        """wanted: the PE that has it afterwards, and what."""

        def check(step: Step) -> str:
            seen.zero_()
            self.barrier()
            step()
            self.barrier()
            return self._differ(seen, wanted[1]) if self.me == wanted[0] else ""

        return Case("launch()", {"launch": launch}, check, timer=self.now)

    def _fetch_add(self, launch: Launch, nbytes: int, turns: int) -> Case:
        """PE 0 adds 1 to PE 1's word."""
        word, fetched = self.symmetric(1, torch.int64), torch.zeros(1, dtype=torch.int64, device=self.device)

        def check(step: Step) -> str:
            word.zero_()
            self.barrier()
            step()
            self.barrier()
            count = self.turns(turns)
            return self._differ(word, count if self.me == 1 else 0) + self._differ(
                fetched, (count - 1) * (self.me == 0)
            )

        return Case("launch()", {"launch": partial(launch, word, fetched, turns)}, check, timer=self.now)

    def _ping_pong(self, launch: Launch, nbytes: int, turns: int) -> Case:
        """A number goes back and forth between PEs 0 and 1. It begins anew in each launch, behind a number of its own."""
        flag, begun = self.symmetric(1, torch.int64), torch.full((1,), 1, dtype=torch.int64, device=self.device)

        def step() -> None:
            launch(flag, begun, turns)
            begun.add_(self.turns(turns))

        def check(once: Step) -> str:
            self.barrier()
            once()
            self.barrier()
            return self._differ(flag, int(begun) - 1) if self.me < 2 else ""

        return Case("launch()", {"launch": step}, check, (0, 1), timer=self.now)

    def turns(self, turns: int) -> int:
        """Return how many turns a kernel makes."""
        return turns


def programs(nbytes: int) -> int:
    """Return the programs of a kernel that moves ``nbytes``."""
    return min(PROGRAMS, -(-nbytes // SHARE))
