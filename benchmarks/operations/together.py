"""What the suites beside torch's group share: the group, symmetric arrays of a row, meetings, and the end of the job."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import torch

import pyshmem as shmem
from benchmarks.accelerator import Accelerator
from benchmarks.operations.rivals import Rivals


class Together:
    """Operations of all PEs. ``rivals`` is None, for the reason ``reason``, where torch's group is left out."""

    def __init__(self, accelerator: Accelerator, alone: bool) -> None:
        from mpi4py import MPI

        self.accelerator, self.comm = accelerator, MPI.COMM_WORLD
        self.me, self.n = shmem.my_pe(), shmem.n_pes()
        self.live: list[torch.Tensor] = []
        self.reason, self.rivals = "", None
        if accelerator.interpreted or alone:
            self.reason = "there is no GPU" if accelerator.interpreted else "--alone"
        elif not torch.distributed.is_nccl_available():
            self.reason = "this torch has no NCCL"
        else:
            self.rivals = Rivals()
        self.facts: dict[str, Any] = {}
        if self.rivals:
            version = ".".join(map(str, torch.cuda.nccl.version()))
            self.facts["NCCL"] = f"{version}, NCCL_GRAPH_REGISTER={os.environ['NCCL_GRAPH_REGISTER']}"

    def release(self) -> None:
        self._meet()
        for array in self.live:
            shmem.free(array)
        self.live.clear()

    def close(self, status: int) -> None:
        """Without the end of torch's group: NCCL gives none back whose calls have been in graphs.

        The process ends by C's exit, in whose handlers MPICH tells its launcher so: it kills the
        others of a PE that does not.
        """
        from mpi4py import MPI

        self.comm.Barrier()
        if self.rivals and self.me == 0:
            self.rivals.clear()
        shmem.finalize()
        if not self.rivals:
            return
        if not MPI.Is_finalized():
            MPI.Finalize()
        sys.stderr.flush()
        ctypes.CDLL(None).exit(status)

    def _symmetric(self, data: torch.Tensor) -> torch.Tensor:
        """A symmetric copy, freed when the row is over."""
        self.live.append(shmem.array(data))
        return self.live[-1]

    def _meet(self) -> None:
        self.accelerator.synchronize()
        self.comm.Barrier()


def differ(seen: torch.Tensor, wanted: torch.Tensor | int) -> str:
    """What is wrong with ``seen``, "" for nothing."""
    wrong = seen != wanted
    if not bool(wrong.any()):
        return ""
    place = int(wrong.nonzero()[0, 0])
    right = wanted if isinstance(wanted, int) else int(wanted[place])
    return f"PE {shmem.my_pe()} has {int(seen[place])}, not {right}, in place {place}; "
