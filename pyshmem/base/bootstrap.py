"""Connects the processes of a job without MPI, by the store of torch.distributed that torchrun or a process group has.

Comm is what init uses of mpi4py's intracommunicators, StoreComm is the same on a store, and Torch stands where mpi4py's
module MPI does. All of it serves init and failures only; data goes through the heaps. Torch's store listens on all
addresses and asks nobody who they are: what is read there may be anybody's, so it is decoded as plain values.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn, Protocol

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import rendezvous

from pyshmem.base.encoding import EncodingError, decode, encode
from pyshmem.base.errors import LaunchError, WaitTimeoutError, listed, refuse
from pyshmem.base.job import job

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # in which torchrun tells a process its place
_MPI = "a start by MPI: pyshmemrun -n N, mpiexec -n N or srun"
_FOREVER = timedelta(days=30)


class Comm(Protocol):
    """The members of mpi4py's Intracomm that pyshmem uses."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def allgather(self, sendobj: Any) -> list[Any]: ...
    def bcast(self, obj: Any) -> Any: ...
    def gather(self, sendobj: Any) -> list[Any] | None: ...
    def Barrier(self) -> None: ...
    def Free(self) -> None: ...


class StoreComm:
    """A communicator of the processes of one host, on a store of torch.distributed. Its calls are collective."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        """All members of a job arrive here before any member of the next one on this store: their count numbers the jobs."""
        arrived = store.add("pyshmem", 1)
        self._store: Any = distributed_c10d.PrefixStore(f"pyshmem/{(arrived - 1) // size}", store)
        self._round = 0
        self._holders = 0  # which Free ends
        self._others: list[int] = []  # process descriptors
        self.rank, self.size = rank, size

    def allgather(self, mine: Any) -> list[Any]:
        self._post(mine)
        every = self._read(range(self.size))
        self._store.delete_key(f"{self._round - 1}/{self.rank}")  # all have read it before they came to this round
        return every

    def bcast(self, mine: Any) -> Any:
        return self.allgather(mine)[0]

    def gather(self, mine: Any) -> list[Any] | None:
        every = self.allgather(mine)
        return None if self.rank else every

    def Barrier(self) -> None:
        """Wait for all. The first process, which may hold the store, leaves last, so that it may end after a barrier."""
        self.allgather(None)
        if self.rank:
            self._post(None)
        else:
            self._round += 1
            self._read(range(1, self.size))

    def Dup(self) -> StoreComm:
        self._holders += 1
        return self

    def Split_type(self, split_type: int, key: int) -> StoreComm:
        """Return the processes of this host, which must be all. Errors: LaunchError, on all alike."""
        host = os.uname().nodename, _read("/proc/sys/kernel/random/boot_id")
        every = self.allgather((host, os.readlink("/proc/self/ns/pid"), os.getpid()))
        hosts = len({each[0] for each in every})
        if hosts > 1:
            refuse(LaunchError, "init", "comm", f"processes on {hosts} hosts, connected by torch.distributed", _MPI)
        for _, space, pid in every:
            with suppress(OSError):  # it cannot be ended from here
                if space == every[self.rank][1] and pid != os.getpid():
                    self._others.append(os.pidfd_open(pid))
        return self.Dup()

    def Split(self, color: int, key: int) -> NoReturn:
        refuse(LaunchError, "init", "PYSHMEM_NODE_SIZE", "pretended nodes in a job without MPI", _MPI)

    def Abort(self, status: int) -> NoReturn:
        """End this process. torchrun then ends the others, unless the status is 0; without torchrun they are ended here."""
        if status == 0 or "TORCHELASTIC_RUN_ID" not in os.environ:
            for process in self._others:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGTERM)
        os._exit(status)

    def Free(self) -> None:
        self._holders -= 1
        while self._others and not self._holders:
            os.close(self._others.pop())

    def _post(self, mine: Any) -> None:
        self._round += 1
        self._store.set(f"{self._round}/{self.rank}", encode(mine))

    def _read(self, ranks: range) -> list[Any]:
        keys = [f"{self._round}/{rank}" for rank in ranks]
        try:
            self._store.wait(keys, timedelta(seconds=job.timeout) if job.timeout else _FOREVER)
        except dist.DistStoreError:
            missing = [rank for rank, key in zip(ranks, keys, strict=True) if not self._store.check([key])]
            got = f"no call from {listed(missing)} in {job.timeout:g} s"
            refuse(WaitTimeoutError, "init", "comm", got, f"the same call on all {self.size} processes")
        return [self._decoded(rank, self._store.get(key)) for rank, key in zip(ranks, keys, strict=True)]

    def _decoded(self, rank: int, data: bytes) -> Any:
        try:
            return decode(data)
        except EncodingError as error:
            wants = "a store that this job alone writes to"
            refuse(LaunchError, "init", "comm", f"what process {rank} has not written to torch's store, {error}", wants)


class Torch:
    """What init and exits use of mpi4py's module MPI, on torch.distributed. Threads need no level: there is no MPI."""

    COMM_TYPE_SHARED = 0

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.COMM_WORLD = StoreComm(store, rank, size)

    def Query_thread(self) -> int:
        return 3

    def Get_library_version(self) -> str:
        return f"no MPI but torch.distributed {torch.__version__}"

    def Is_finalized(self) -> bool:
        return False


def is_group(comm: Any) -> bool:
    return dist.is_available() and isinstance(comm, dist.ProcessGroup)


def has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Return this process's rank in torch's default process group, or -1 without one."""
    return dist.get_rank() if has_group() else -1


def ranks_of(group: Any) -> list[int]:
    """Return the ranks of a process group, or of a DeviceMesh of one dimension; none if this process is in no group."""
    group = group.get_group() if hasattr(group, "get_group") else group
    return dist.get_process_group_ranks(group) if is_group(group) else []


def group_of(ranks: list[int], backend: str | None) -> Any:
    """Return a new process group. Its members alone call this.

    Of a default group that is bound to a device, torch would split NCCL's communicator, for which NCCL waits for all
    processes of that group. Unbound, it connects the members anew, at their first collective.
    """
    world = dist.group.WORLD
    assert world is not None
    bound, world.bound_device_id = world.bound_device_id, None
    try:
        return dist.new_group(ranks, backend=backend, use_local_synchronization=True)
    finally:
        world.bound_device_id = bound


def by_group(group: Any) -> Torch:
    """Connect the processes of a process group, whatever its backend."""
    return Torch(group.get_group_store(), group.rank(), group.size())


def by_environment() -> Torch:
    """Connect the processes that torchrun has started, or those of torch's default process group if there is one.

    Errors: LaunchError.
    """
    if has_group():
        return by_group(dist.group.WORLD)
    missing = [name for name in VARIABLES if name not in os.environ]
    if missing:
        wants = f"torchrun --nproc-per-node N prog.py, which sets {', '.join(VARIABLES)}, or {_MPI}"
        refuse(LaunchError, "init", "launcher", f"torchrun's variables without {', '.join(missing)}", wants)
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=job.timeout or 300))))
    except (ValueError, RuntimeError) as error:
        at = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        refuse(LaunchError, "init", "launcher", f"no store at MASTER_ADDR:MASTER_PORT = {at}: {error}", _MPI)
    return Torch(store, rank, size)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
