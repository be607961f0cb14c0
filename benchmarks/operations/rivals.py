"""NCCL and torch's symmetric memory: the group of all PEs, and their ways to sum."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import pyshmem as shmem
from benchmarks.rows import MIB

NCCL, ONE_SHOT, TWO_SHOT = "NCCL", "symm. memory 1", "symm. memory 2"
DTYPE = torch.bfloat16
Step = Callable[[], Any]  # returns the result where that is not in the array
Way = tuple[str, Step, torch.Tensor]


class Rivals:
    """torch's group, for NCCL's calls and those of symmetric memory."""

    def __init__(self) -> None:
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symmetric_memory
        from mpi4py import MPI

        # with registration, NCCL 2.28.9 hangs in an all_to_all of 16 MiB in a graph on two H200s
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
        self.dist, self.symmetric_memory = dist, symmetric_memory
        device = torch.device("cuda", torch.cuda.current_device())
        self.folder = MPI.COMM_WORLD.bcast(tempfile.mkdtemp() if shmem.my_pe() == 0 else "")
        # a file, because a server in PE 0 would have to outlive the other PEs
        store = dist.FileStore(os.path.join(self.folder, "store"), shmem.n_pes())
        dist.init_process_group("nccl", store=store, rank=shmem.my_pe(), world_size=shmem.n_pes(), device_id=device)
        self.name = dist.group.WORLD.group_name

    def _mapped(self, count: int) -> torch.Tensor:
        array = self.symmetric_memory.empty(
            count, dtype=DTYPE, device=torch.device("cuda", torch.cuda.current_device())
        )
        array.zero_()
        self.symmetric_memory.rendezvous(array, group=self.dist.group.WORLD)
        return array

    def buffer(self, count: int, pe: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an int32 array of symmetric memory and that of ``pe``."""
        array = self.symmetric_memory.empty(count, dtype=torch.int32, device=f"cuda:{torch.cuda.current_device()}")
        handle = self.symmetric_memory.rendezvous(array, group=self.dist.group.WORLD)
        return array, handle.get_buffer(pe, (count,), torch.int32)

    def reductions(self, count: int) -> dict[str, Way | str]:
        """Return each peer's statement, step and array, or the first line of torch's reason why it cannot reduce here."""
        array = torch.zeros(count, dtype=DTYPE, device="cuda")
        ways: dict[str, Way | str] = {NCCL: ("dist.all_reduce(array)", lambda: self.dist.all_reduce(array), array)}
        try:
            mapped = self._mapped(count)
        except RuntimeError as error:
            reason = str(error).split("\n", 1)[0]
            return ways | {ONE_SHOT: reason, TWO_SHOT: reason}
        one, two = torch.ops.symm_mem.one_shot_all_reduce, torch.ops.symm_mem.two_shot_all_reduce_
        if count * DTYPE.itemsize <= 4 * MIB:
            ways[ONE_SHOT] = ("one_shot_all_reduce", lambda: one(mapped, "sum", self.name), mapped)
        return ways | {TWO_SHOT: ("two_shot_all_reduce_", lambda: two(mapped, "sum", self.name), mapped)}

    def clear(self) -> None:
        """Remove the files by which the group met."""
        shutil.rmtree(self.folder)
