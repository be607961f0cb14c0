"""NVSHMEM by its own Python package, nvshmem4py: the calls of nvshmem.core on torch's current stream."""

from __future__ import annotations

import os
from typing import ClassVar

os.environ.setdefault("NVSHMEM_SYMMETRIC_SIZE", "2G")
os.environ.setdefault("NVSHMEM_REMOTE_TRANSPORT", "none")  # one host: it looks for no network

import nvshmem.core
import torch
from cuda.core import Device
from mpi4py import MPI

from benchmarks.peers.on_gpus import OnGpus


class Library(OnGpus):
    statements: ClassVar = {
        "put": "core.put(target, source, pe, stream)",
        "all_reduce": 'core.reduce(team, target, source, "sum", stream)',
        "fcollect": "core.fcollect(team, target, source, stream)",
        "alltoall": "core.alltoall(team, target, source, stream)",
        "broadcast": "core.broadcast(team, target, source, 0, stream)",
        "barrier": "core.barrier_all(stream)",
    }

    def __init__(self) -> None:
        comm = MPI.COMM_WORLD
        index = comm.rank % torch.cuda.device_count()
        torch.cuda.set_device(index)
        device = Device(index)
        device.set_current()
        nvshmem.core.init(device=device, mpi_comm=comm, initializer_method="emulated_mpi")
        super().__init__(comm)
        stream = device.create_stream(Handle())
        self.names = {"core": nvshmem.core, "team": nvshmem.core.Teams.TEAM_WORLD, "stream": stream}

    def facts(self) -> dict[str, str]:
        found = nvshmem.core.get_version()
        return {"NVSHMEM": found.libnvshmem_version, "nvshmem4py": found.nvshmem4py_version}

    def symmetric(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        self.live.append(nvshmem.core.tensor((count,), dtype=dtype))
        return self.live[-1].zero_()

    def forget(self) -> None:
        self.barrier()
        for array in self.live:
            nvshmem.core.free_tensor(array)
        self.live.clear()

    def close(self) -> None:
        nvshmem.core.finalize()


class Handle:
    """torch's current stream, as cuda.core takes those of other libraries."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(torch.cuda.current_stream().cuda_stream)
