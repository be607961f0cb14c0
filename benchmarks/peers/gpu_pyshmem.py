"""pyshmem on the GPU heap; without a GPU, on the CPU heap and with interpreted kernels, which only tests the harness."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import torch

import pyshmem as shmem  # before triton: it chooses the interpreter where there is no GPU
from benchmarks import sweep_kernels
from benchmarks.peers.on_gpus import BLOCK, OnGpus, programs


class Library(OnGpus):
    statements: ClassVar = {
        "put": "put(target, source, pe)",
        "all_reduce": "reduce_on_stream(target, source)",
        "fcollect": "fcollect_on_stream(target, source)",
        "alltoall": "alltoall_on_stream(target, source)",
        "broadcast": "broadcast_on_stream(target, source, 0)",
        "barrier": "barrier_on_stream()",
    }

    def __init__(self) -> None:
        shmem.init()
        from mpi4py import MPI  # after init, which chooses the library and the thread level

        super().__init__(MPI.COMM_WORLD)
        if not torch.cuda.is_available():
            self.device, self.footprint = "cpu", 0
        self.names = {text.split("(")[0]: getattr(shmem, text.split("(")[0]) for text in self.statements.values()}
        self.context = shmem.device_context()
        self.kernels = {
            "tile_store": self._store, "tile_load": self._load, "fetch_add": self._add, "ping_pong": self._ping,
        }  # fmt: skip

    def facts(self) -> dict[str, str]:
        where = Path(shmem.__file__).parents[1]
        gpu = {"GPU": torch.cuda.get_device_name()} if self.device == "cuda" else {}
        return {"library": f"{shmem.info_get_name()} from {where}", "kernels": f"Triton {version('triton')}"} | gpu

    def symmetric(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        self.live.append(shmem.zeros(count, dtype=dtype))
        return self.live[-1]

    def forget(self) -> None:
        for array in self.live:
            shmem.free(array)
        self.live.clear()

    def close(self) -> None:
        shmem.finalize()

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def turns(self, turns: int) -> int:
        """Return ``turns``; only a few in the interpreter, which is slow."""
        return turns if self.device == "cuda" else 3

    # -- kernels

    def _store(self, there: torch.Tensor, here: torch.Tensor, turns: int) -> None:
        sweep_kernels.stores[(programs(here.nbytes),)](
            self.context, there, here, here.numel(), 1, self.turns(turns), BLOCK, num_warps=8
        )

    def _load(self, there: torch.Tensor, here: torch.Tensor, turns: int) -> None:
        count = here.numel()
        sweep_kernels.loads[(programs(here.nbytes),)](
            self.context, here, there, count, 1, self.turns(turns), there.numel() // count, count, BLOCK, num_warps=8
        )

    def _add(self, word: torch.Tensor, fetched: torch.Tensor, turns: int) -> None:
        kind = sweep_kernels.FETCH_ADD
        sweep_kernels.words[(1,)](self.context, word, fetched, 1, self.turns(turns), KIND=kind, num_warps=1)

    def _ping(self, flag: torch.Tensor, begun: torch.Tensor, turns: int) -> None:
        sweep_kernels.signals[(1,)](self.context, flag.view(torch.uint64), begun, self.turns(turns), num_warps=1)
