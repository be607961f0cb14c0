"""Start and end: MPI brings the processes together, the node's heaps are mapped, and a PE that dies takes the job along.

Spec: OpenSHMEM 1.6, 9.1 (SHMEM_INIT, SHMEM_FINALIZE, SHMEM_GLOBAL_EXIT) and 9.2 (thread support).
"""

from __future__ import annotations

import atexit
import os
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

from pyshmem.host import environment, exits, launcher
from pyshmem.host.errors import (
    ArgumentError,
    HeapExhaustedError,
    LaunchError,
    NotInitializedError,
    ShmemError,
    UnreachableError,
    refuse,
)
from pyshmem.host.heap import cpu
from pyshmem.host.job import job
from pyshmem.host.ordering import synchronise
from pyshmem.host.teams import TEAM_SHARED, TEAM_WORLD
from pyshmem.version import OPENSHMEM, __version__

if TYPE_CHECKING:
    from mpi4py import MPI


class THREAD(IntEnum):
    """Thread levels, MPI's and the spec's: a higher one allows more."""

    SINGLE = 0
    FUNNELED = 1
    SERIALIZED = 2
    MULTIPLE = 3


def init(
    comm: MPI.Intracomm | None = None,
    *,
    heap_size: int | str | None = None,
    thread_level: int = THREAD.MULTIPLE,
    device: str | None = None,
) -> None:
    """Make the processes of ``comm`` (all of MPI's world) the PEs of the job, numbered as in it. Collective over it.

    heap_size: bytes of each PE's symmetric heap, or text such as "512m"; before SHMEM_SYMMETRIC_SIZE.
    Counted: a further call only counts, and as many calls of finalize are needed. MPI may run already; if not, it is
    started here with thread_level and finalised when the process ends.
    Errors: LaunchError, ArgumentError, HeapExhaustedError, UnreachableError, on every PE alike.
    Spec: 9.1 SHMEM_INIT, 9.2 SHMEM_INIT_THREAD.
    """
    if job.inits:
        job.inits += 1
        return
    if device not in (None, "cpu"):
        refuse(ArgumentError, "init", "device", repr(device), "'cpu'")
    mpi = _start_mpi(thread_level)
    if comm is not None and (not isinstance(comm, mpi.Intracomm) or comm == mpi.COMM_NULL):
        got = type(comm).__name__ if comm else "COMM_NULL"
        refuse(ArgumentError, "init", "comm", got, "an mpi4py intracommunicator, or None for MPI's world")
    _join(mpi, mpi.COMM_WORLD if comm is None else comm, heap_size)
    job.thread_level = mpi.Query_thread()
    exits.watch(mpi)
    _announce()


def init_thread(requested: int = THREAD.MULTIPLE, **options: Any) -> THREAD:
    """init with a thread level; the one provided, which may be lower, is returned. Spec: 9.2 SHMEM_INIT_THREAD."""
    init(thread_level=requested, **options)
    return query_thread()


def finalize() -> None:
    """End one init. The last one completes all communication, frees every symmetric array and leaves MPI up. Collective.

    Tensors on the heap stay readable as memory, but are symmetric no longer: after a further init they are refused.
    Errors: NotInitializedError. Spec: 9.1 SHMEM_FINALIZE.
    """
    if not job.inits:
        refuse(NotInitializedError, "finalize", "state", "no init to end", "a matching init before it")
    synchronise("finalize", TEAM_WORLD)
    if job.inits > 1:
        job.inits -= 1
        return
    _release()


def query_initialized() -> bool:
    """Whether init was called more often than finalize. Legal at any time. Spec: 9.1 SHMEM_QUERY_INITIALIZED."""
    return job.inits > 0


def query_thread() -> THREAD:
    """The thread level provided by MPI. Errors: NotInitializedError. Spec: 9.2 SHMEM_QUERY_THREAD."""
    if not job.inits:
        refuse(NotInitializedError, "query_thread", "state", "no init yet", "init before it")
    return THREAD(job.thread_level)


def global_exit(status: int = 0) -> NoReturn:
    """End all PEs at once with ``status``; any one PE may call it, and it does not return. Spec: 9.1 SHMEM_GLOBAL_EXIT."""
    if not job.inits:
        refuse(NotInitializedError, "global_exit", "state", "no init yet", "init before it")
    if not isinstance(status, int):
        refuse(ArgumentError, "global_exit", "status", repr(status), "an int")
    exits.abort(status)


def info_get_version() -> tuple[int, int]:
    """(major, minor) of the OpenSHMEM specification that is followed. Spec: 9.1 SHMEM_INFO_GET_VERSION."""
    return OPENSHMEM


def info_get_name() -> str:
    """The library's name and version. Spec: 9.1 SHMEM_INFO_GET_NAME."""
    return f"pyshmem {__version__}"


def _start_mpi(thread_level: int) -> Any:
    if not isinstance(thread_level, int) or not 0 <= thread_level <= 3:
        refuse(ArgumentError, "init", "thread_level", repr(thread_level), "one of shmem.THREAD")
    launcher.refuse_torchrun()
    launcher.match_library()
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = (
            False  # so that the thread level can be asked for; also leaves the end to pyshmem.host.exits
        )
    from mpi4py import MPI

    launcher.refuse_foreign_library(MPI.Get_library_version())
    if MPI.Is_finalized():
        refuse(LaunchError, "init", "MPI", "finalised", "MPI still up: it cannot be started twice in a process")
    if not MPI.Is_initialized():
        MPI.Init_thread(thread_level)
        exits.own_mpi(MPI)
    launcher.refuse_split_job(MPI.COMM_WORLD.size)
    return MPI


def _join(mpi: Any, comm: Any, heap_size: int | str | None) -> None:
    """Fill job, heap and teams, or raise on every PE alike and leave all as it was."""
    job.comm = comm.Dup()
    job.my_pe, job.n_pes = comm.rank, comm.size
    node = job.node_comm = comm.Split_type(mpi.COMM_TYPE_SHARED, comm.rank)
    try:
        nodes = sum(comm.allgather(node.rank == 0))
        if nodes > 1:
            refuse(
                UnreachableError,
                "init",
                "comm",
                f"PEs on {nodes} nodes",
                "all PEs on one node: no transport between nodes yet",
            )
        job.node_pes = range(job.n_pes)
        size = _agree_on_settings(comm, heap_size)
        job.set_spins()
        try:
            cpu.open(node, job.node_pes, size)
        except OSError as error:
            refuse(
                HeapExhaustedError,
                "init",
                "heap_size",
                f"{size} bytes a PE, and from the system: {error}",
                "less, by heap_size or SHMEM_SYMMETRIC_SIZE",
            )
    except ShmemError:
        _forget()
        raise
    TEAM_WORLD.enter(0, 1, job.n_pes, job.my_pe, slot=0)
    TEAM_SHARED.enter(job.node_pes.start, job.node_pes.step, len(job.node_pes), node.rank, slot=1)
    job.generation += 1
    job.inits = 1
    comm.Barrier()


def _agree_on_settings(comm: MPI.Intracomm, heap_size: int | str | None) -> int:
    """Read argument and environment; a fault on one PE, or different heap sizes, is an error on all."""
    mine: tuple[bool, int] | ShmemError
    try:
        job.timeout = environment.read("PYSHMEM_WAIT_TIMEOUT")
        job.debug = environment.read("SHMEM_DEBUG")
        environment.read("PYSHMEM_HEAP")
        asked = heap_size is not None or environment.read("SHMEM_SYMMETRIC_SIZE") is not None
        mine = asked, environment.heap_bytes(heap_size, len(job.node_pes))
    except ShmemError as error:
        mine = error
    every = comm.allgather(mine)
    for answer in every:
        if isinstance(answer, ShmemError):
            raise mine if isinstance(mine, ShmemError) else answer
    sizes = sorted({answer[1] for answer in every})
    if not any(answer[0] for answer in every):
        return int(sizes[0])  # the default depends on free memory, which each PE reads at its own moment
    if len(sizes) > 1:
        refuse(
            ArgumentError,
            "init",
            "heap_size",
            f"{sizes[0]} to {sizes[-1]} bytes on different PEs",
            "one size on all PEs",
        )
    return int(sizes[0])


def _announce() -> None:
    if job.my_pe:
        return
    if environment.read("SHMEM_VERSION"):
        print(f"{info_get_name()}, OpenSHMEM {OPENSHMEM[0]}.{OPENSHMEM[1]}", flush=True)
    if environment.read("SHMEM_INFO"):
        settled = {"SHMEM_SYMMETRIC_SIZE": str(cpu.size)}
        print(environment.listing(settled), flush=True)


def _release() -> None:
    _list_leaks()
    cpu.close()
    TEAM_WORLD.leave()
    TEAM_SHARED.leave()
    _forget()


def _list_leaks() -> None:
    if job.debug:
        for start, end in cpu.allocator.live():
            site = cpu.sites.get(start, "?")
            print(
                f"PE {job.my_pe}: never freed: {end - start} bytes at heap offset {start}, from {site}",
                file=sys.stderr,
                flush=True,
            )


def _forget() -> None:
    for comm in (job.node_comm, job.comm):
        if comm is not None:
            comm.Free()
    job.clear()


def _at_exit() -> None:
    """A program that ends without finalize has finalised: the kernel takes the memory back. Nothing collective is done,
    the other PEs may be anywhere; MPI_Finalize waits for them, see pyshmem.host.exits."""
    if job.inits and os.getpid() == _pid:
        _list_leaks()


_pid = os.getpid()
atexit.register(_at_exit)
