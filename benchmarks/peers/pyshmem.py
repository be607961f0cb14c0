"""pyshmem on the CPU heap: symmetric and private arrays are torch tensors."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pyshmem as shmem
from benchmarks.peers.case import Case, Step, differ, pattern
from benchmarks.peers.openshmem import OpenShmem


class Library(OpenShmem):
    def __init__(self) -> None:
        shmem.init()
        super().__init__(shmem)

    def facts(self) -> dict[str, str]:
        from mpi4py import MPI  # after init, which chooses the library and the thread level

        return {
            "library": f"{shmem.info_get_name()} from {Path(shmem.__file__).parents[1]}",
            "arrays": "torch.Tensor",
            "versions": f"Python {platform.python_version()}, torch {torch.__version__}",
            "MPI": MPI.Get_library_version().split("\n", 1)[0].strip(" \0"),
        }

    def symmetric(self, nelems: int, dtype: str = "int64") -> torch.Tensor:
        array: torch.Tensor = shmem.zeros(nelems, dtype=getattr(torch, dtype))
        self.live.append(array)
        return array

    def private(self, nelems: int) -> torch.Tensor:
        return torch.zeros(nelems, dtype=torch.int64)

    def signal(self) -> torch.Tensor:
        return self.symmetric(1, "uint64")

    def values(self, array: torch.Tensor) -> np.ndarray:
        return array.numpy()

    def reachable(self, array: torch.Tensor, pe: int) -> np.ndarray:
        view: Any = shmem.ptr(array, pe)
        return (array if view is None else view).numpy()

    # -- what this machine can do without a library: the ceilings of the run

    def memory_copy(self, nbytes: int, everybody: bool) -> Case:
        """Make the case of a copy in private memory, by one PE or by all at once."""
        to, of = np.zeros(nbytes // 8, np.int64), pattern(self.me, nbytes)

        def check(step: Step) -> str:
            self._between(step)
            return differ(self.me, to, of if everybody or self.me == 0 else 0)

        return Case("copyto(to, of)", {"copyto": np.copyto, "to": to, "of": of}, check, None if everybody else (0,))
