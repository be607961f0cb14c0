"""Setup and exit: MPI connects the processes, the heaps of the node are mapped, and a PE that fails ends the job.

Spec: OpenSHMEM 1.6, 9.1 (SHMEM_INIT, SHMEM_FINALIZE, SHMEM_GLOBAL_EXIT) and 9.2 (thread support).
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

from pyshmem.base import activity, bootstrap, environment, interpreter
from pyshmem.base.agreement import DescriptorError
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, LaunchError, ShmemError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis import exits, faults, host_timeouts
from pyshmem.host.teams import TEAM_SHARED, TEAM_WORLD
from pyshmem.kernels.compiled import hashing
from pyshmem.kernels.method_tables import open_tables
from pyshmem.memory.areas import begin, pool
from pyshmem.memory.arguments import integer_of, require_init
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.descriptors import refuse_descriptors
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import Device, default, heaps
from pyshmem.native import _native
from pyshmem.start import census, how_started, nodes, report, requirements
from pyshmem.start import gpu as opening
from pyshmem.transport.far.fabric import fabric
from pyshmem.transport.far.proxy import proxy
from pyshmem.transport.near_or_far import close_routes, complete, open_routes
from pyshmem.version import OPENSHMEM, __version__

if TYPE_CHECKING:
    import torch.distributed as dist
    from mpi4py import MPI

    from pyshmem.base.bootstrap import Comm
    from pyshmem.memory.mailbox import Mailbox

__all__ = [
    "THREAD", "finalize", "global_exit", "info_get_name", "info_get_version", "init", "init_thread",
    "query_initialized", "query_thread",
]  # fmt: skip

listeners: list[Callable[[bool], None]] = []  # called with True when a job has begun, and with False before it ends


class THREAD(IntEnum):
    """The thread levels of MPI and OpenSHMEM. A higher level allows more."""

    SINGLE = 0
    FUNNELED = 1
    SERIALIZED = 2
    MULTIPLE = 3


def init(
    comm: MPI.Intracomm | dist.ProcessGroup | None = None,
    *,
    heap_size: int | str | None = None,
    thread_level: int = THREAD.MULTIPLE,
    device: Device | None = None,
) -> None:
    """Make the processes of ``comm`` the PEs of the job, with the same numbers. Collective over comm. Only the first call
    has an effect, but calls are counted: finalize must be called as often.

    comm: an mpi4py intracommunicator, or a torch ProcessGroup of one host, then without MPI. None is MPI's world, or all
        processes of torchrun.
    heap_size: bytes of each PE's symmetric heap, or text such as "512m"; it overrides SHMEM_SYMMETRIC_SIZE.
    thread_level: requested from MPI if MPI is not initialised yet; MPI is then finalised when the process ends.
    device: "cuda" or "cpu", the default heap; it overrides PYSHMEM_HEAP. "cpu" is then the only heap. None is "cuda" if
        every PE has a GPU.
    Errors: LaunchError, ArgumentError, HeapExhaustedError, UnreachableError, on every PE alike.
    Spec: 9.1 SHMEM_INIT, 9.2 SHMEM_INIT_THREAD.
    """
    if job.inits:
        job.inits += 1
        return
    if device not in (None, "cpu", "cuda"):
        refuse(ArgumentError, "init", "device", repr(device), "'cpu', 'cuda' or None")
    exits.tell("init")
    try:
        _begin(comm, thread_level, heap_size, device)
    finally:
        exits.tell("runs")


def init_thread(
    requested: int = THREAD.MULTIPLE,
    *,
    comm: MPI.Intracomm | dist.ProcessGroup | None = None,
    heap_size: int | str | None = None,
    device: Device | None = None,
) -> THREAD:
    """Initialise as init does, request thread level ``requested`` from MPI, and return the level provided.

    requested: a member of THREAD; the level provided may be lower.
    comm, heap_size, device: as for init.
    Errors: LaunchError, ArgumentError, HeapExhaustedError, UnreachableError, on every PE alike.
    Spec: 9.2 SHMEM_INIT_THREAD.
    """
    init(comm, heap_size=heap_size, thread_level=requested, device=device)
    return query_thread()


def finalize() -> None:
    """End one init. The last call completes all communication and frees every symmetric array. Collective over TEAM_WORLD.

    MPI stays initialised; the program may finalise it before or after. Tensors in CPU memory that free has not freed keep
    their values and can be used, but they are no longer symmetric, also after a further init. Those in GPU memory cannot
    be used.
    Errors: NotInitializedError, WaitTimeoutError; OutOfRangeError for a fault that a kernel of pyshmem.ops has recorded.
    Spec: 9.1 SHMEM_FINALIZE.
    """
    require_init("finalize")
    complete()
    faults.raise_recorded()
    TEAM_WORLD.meeting.sync("finalize")
    if job.inits > 1:
        job.inits -= 1
        return
    exits.tell("finalize")
    _release()
    exits.tell("finalized")


def query_initialized() -> bool:
    """Return whether init was called more often than finalize. May be called at any time.

    Spec: 9.1 SHMEM_QUERY_INITIALIZED.
    """
    return job.inits > 0


def query_thread() -> THREAD:
    """Return the thread level that MPI provides. Errors: NotInitializedError. Spec: 9.2 SHMEM_QUERY_THREAD."""
    require_init("query_thread")
    return THREAD(job.thread_level)


def global_exit(status: int = 0) -> NoReturn:
    """End all PEs at once with exit status ``status`` modulo 256. Any one PE may call it; the call does not return.

    Errors: NotInitializedError, ArgumentError.
    Spec: 9.1 SHMEM_GLOBAL_EXIT.
    """
    require_init("global_exit")
    number = integer_of(status)
    if not isinstance(number, int):
        refuse(ArgumentError, "global_exit", "status", repr(status), "an int")
    exits.abort(number & 255)


def info_get_version() -> tuple[int, int]:
    """Return (major, minor), the version of OpenSHMEM that pyshmem implements. Spec: 9.1 SHMEM_INFO_GET_VERSION."""
    return OPENSHMEM


def info_get_name() -> str:
    """Return the name and version of the library. Spec: 9.1 SHMEM_INFO_GET_NAME."""
    return f"pyshmem {__version__}"


def _begin(comm: Any, thread_level: int, heap_size: int | str | None, device: Device | None) -> None:
    mpi, members = _connect(comm, thread_level)
    reports = _join(mpi, members, heap_size, device)
    job.thread_level = mpi.Query_thread()
    if job.generation == 1 and not isinstance(mpi, bootstrap.Torch):
        exits.note_shared_files()
    _announce(mpi)
    if reports:
        _report()
    for listener in listeners:
        listener(True)
    members.Barrier()


def _connect(comm: Any, thread_level: int) -> tuple[Any, Any]:
    """Return mpi4py's module MPI, or what stands for it, and the communicator of the job."""
    if not isinstance(thread_level, int) or not 0 <= thread_level <= 3:
        refuse(ArgumentError, "init", "thread_level", repr(thread_level), "one of shmem.THREAD")
    if bootstrap.is_group(comm) or (comm is None and how_started.is_torchs()):
        torchs = bootstrap.by_environment() if comm is None else bootstrap.by_group(comm)
        exits.watch(torchs)
        return torchs, torchs.COMM_WORLD
    mpi = _start_mpi(thread_level)
    exits.watch(mpi)
    if comm is not None and (not isinstance(comm, mpi.Intracomm) or comm == mpi.COMM_NULL):
        got = type(comm).__name__ if comm else "COMM_NULL"
        wants = "an mpi4py intracommunicator or a torch ProcessGroup of this process, or None for all processes"
        refuse(ArgumentError, "init", "comm", got, wants)
    return mpi, mpi.COMM_WORLD if comm is None else comm


def _start_mpi(thread_level: int) -> Any:
    how_started.refuse_torchrun()
    how_started.tell_c_programs()
    how_started.match_library()
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        # so that the thread level can be requested, and pyshmem.diagnosis.exits finalizes MPI
        mpi4py.rc.initialize = False
    from mpi4py import MPI

    how_started.refuse_foreign_library(MPI.Get_library_version())
    if MPI.Is_finalized():
        refuse(LaunchError, "init", "MPI", "finalised", "MPI still up: it cannot be started twice in a process")
    if not MPI.Is_initialized():
        how_started.refuse_full_shared_memory()
        how_started.choose_network(MPI.Get_library_version())
        MPI.Init_thread(thread_level)
        exits.own_mpi(MPI)
    how_started.refuse_split_job(MPI.COMM_WORLD.size)
    how_started.note_single_pe(MPI.COMM_WORLD.size)
    return MPI


def _join(mpi: Any, comm: Any, heap_size: int | str | None, device: Device | None) -> bool:
    """Set up job, heaps and teams, or raise the same error on every PE and change nothing. Return what _meet does."""
    job.comm = comm.Dup()
    job.my_pe, job.n_pes = comm.rank, comm.size
    try:
        reports = _meet(mpi, comm, heap_size, device)
        open_routes()
    except ShmemError:
        _close_heaps()
        _forget()
        raise
    TEAM_WORLD._enter(0, 1, job.n_pes, job.my_pe, area_index=0)
    first, stride, size = nodes.shared_team()
    TEAM_SHARED._enter(first, stride, size, (job.my_pe - first) // stride, area_index=1)
    for team in (TEAM_WORLD, TEAM_SHARED):
        begin(team.area_index)
    job.generation += 1
    job.inits = 1
    _count()
    host_timeouts.listen(environment.read("PYSHMEM_DUMP"), mpi.COMM_WORLD.rank)
    exits.name_pe(mpi.COMM_WORLD.rank)
    return reports


def _count() -> None:
    """Count in this PE's page, for `pyshmem top`."""
    host, pid = job.first
    told = {"job": pid, "host": host, "pe": job.my_pe, "n_pes": job.n_pes, "pid": os.getpid()}
    with suppress(OSError):  # a process without a descriptor left is not shown
        activity.own.open(told, host_timeouts.where)
    for heap in heaps.values():
        heap.note_use()


def _meet(mpi: Any, comm: Any, heap_size: int | str | None, device: Device | None) -> bool:
    """Find out which PEs there are and what is asked of them, and open the heaps. Return whether PE 0 is to report."""
    job.node_comm = host = comm.Split_type(mpi.COMM_TYPE_SHARED, comm.rank)
    answers, mailbox = census.take(mpi.COMM_WORLD.rank, comm, host, heap_size, device)
    try:
        nodes.find(comm, answers)
        job.first = answers[0].host, answers[0].place.pid
        _open_heaps(comm, answers, mailbox)
        return answers[0].report
    finally:
        mailbox.close()


def _open_heaps(comm: Comm, answers: list[census.Answer], mailbox: Mailbox) -> None:
    job.device = opening.decide([(answer.wish, answer.why_no_gpu) for answer in answers])
    job.scratch = census.one_size("PYSHMEM_SCRATCH", [answer.scratch for answer in answers])
    job.staging = census.one_size("PYSHMEM_STAGING", [answer.staging for answer in answers])
    census.one_size("static data", [answer.statics for answer in answers])
    size = census.heap_bytes(answers)
    driver = opening.find(comm) if job.device == "cuda" else None
    job.set_spins()
    node = job.node_comm
    assert node is not None
    try:
        cpu.open(comm, node, job.node_pes, size, (mailbox, [answers[pe].place for pe in job.node_pes]))
    except DescriptorError as error:
        refuse_descriptors(error)
    except OSError as error:
        got = f"{size} bytes a PE, and from the system: {error}"
        refuse(HeapExhaustedError, "init", "heap_size", got, "less, by heap_size or SHMEM_SYMMETRIC_SIZE")
    if driver is not None:
        if not interpreter.active():
            hashing()  # beside the opening of the heap, and what the program does before its first kernel
        opening.open_heap(driver, comm, node, answers[0].heap_size)
        open_tables(comm)


def _announce(mpi: Any) -> None:
    if job.my_pe:
        return
    for name, ours in environment.misspelt():
        print(f"pyshmem: nothing reads {name}; did you mean {ours}?", file=sys.stderr, flush=True)
    if environment.read("SHMEM_VERSION"):
        print(f"{info_get_name()}, OpenSHMEM {OPENSHMEM[0]}.{OPENSHMEM[1]}", flush=True)
    if environment.read("SHMEM_INFO"):
        size = default().size - (job.statics if default() is cpu else 0)
        settled = {"SHMEM_SYMMETRIC_SIZE": str(size), "PYSHMEM_HEAP": job.device}
        if cpu.far_deltas:
            settled |= {"PYSHMEM_FAR": fabric.name, "PYSHMEM_AMO": fabric.requests}
        if gpu.size:
            settled |= {"PYSHMEM_DEVICE": str(gpu.index), "PYSHMEM_PEER_MAP": gpu.choice.way}
        library = " ".join(mpi.Get_library_version().split("\n")[0].split(",")[0].split()).strip("\0")
        print(f"{info_get_name()}, {requirements.versions()}, {library}", flush=True)
        nodes = len(set(job.nodes))
        print(f"{job.n_pes} PEs on {nodes} node{'s' * (nodes > 1)}, threads: {query_thread().name}", flush=True)
        print(environment.listing(settled), flush=True)
        why = f"{gpu.choice.way}: {gpu.choice.why}" if gpu.size else f"none, since {job.why_no_gpu}"
        print(f"Heap in GPU memory: {why}", flush=True)
        if cpu.far_deltas:
            gpus = f"; GPU memory {fabric.gpu}" if fabric.gpu else ""
            print(f"Data to other nodes: {fabric.name}: {fabric.why}{gpus}", flush=True)


def _report() -> None:
    """Print where the PEs are."""
    assert job.comm is not None
    rows = job.comm.gather(report.row())
    if rows:
        print(f"{report.table(rows)}\n", end="", flush=True)  # by one write: other PEs go on and print


def _release() -> None:
    for listener in listeners:
        listener(False)
    activity.own.close()
    _list_leaks()
    if fabric.requests == "fabric" and not exits.is_mpi_over():
        assert job.comm is not None
        job.comm.Barrier()  # a provider drops the last messages of a PE that closes its endpoints before they have left
    _close_heaps()
    TEAM_WORLD._leave()
    TEAM_SHARED._leave()
    pool.close()
    _forget()


def _close_heaps() -> None:
    close_routes()
    heaps.pop("cuda", None)
    gpu.close()
    cpu.close()


def _list_leaks() -> None:
    for heap in heaps.values() if job.debug else ():
        for start, end in heap.allocator.live():
            if heap is cpu and job.statics and cpu.base + start == cpu.statics:
                continue
            where = f"heap offset {start} on {heap.device}, from {heap.sites.get(start, '?')}"
            sys.stderr.write(f"PE {job.my_pe}: never freed: {end - start} bytes at {where}\n")


def _forget() -> None:
    for comm in () if exits.is_mpi_over() else (job.node_comm, job.comm):
        if comm is not None:
            comm.Free()
    job.clear()


def _at_exit() -> None:
    """Handle a program that ends without finalize: the operating system frees the memory. No collective step is possible,
    because the other PEs may be anywhere; MPI_Finalize waits for them, see pyshmem.diagnosis.exits."""
    if job.inits and os.getpid() == _pid:
        host_timeouts.leave()
        _native.far_leave()
        _list_leaks()
        proxy.stop(default())
    if os.getpid() == _pid:
        exits.tell("leaves")


_pid = os.getpid()
atexit.register(_at_exit)
