"""The end of a PE. A failure on one PE ends the job, because the other PEs might wait for it for ever.

Hooks report an uncaught exception. Only an exit handler of the C library sees any other end with a nonzero status, such as
sys.exit or a failing atexit function: see watch_exit in _exit.h. This handler works if pyshmem started MPI. If the
program started MPI, mpi4py finalises MPI before the handler runs, and MPI_Finalize waits for the other PEs.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

from pyshmem.runtime import _native
from pyshmem.runtime.errors import ShmemError
from pyshmem.runtime.job import job
from pyshmem.runtime.tracebacks import origin

_mpi: Any = None


def watch(mpi: Any) -> None:
    """End the job by ``mpi`` from now on, mpi4py's module or what stands for it; install the hooks, once per process."""
    global _mpi
    installed, _mpi = _mpi is not None, mpi
    if installed:
        return
    hook, thread_hook = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        hook(kind, error, trace)
        _end(kind, error)

    def thread_excepthook(caught: threading.ExceptHookArgs) -> None:
        thread_hook(caught)
        if caught.exc_type is not SystemExit:
            _end(caught.exc_type, caught.exc_value)

    sys.excepthook, threading.excepthook = excepthook, thread_excepthook


def own_mpi(mpi: Any) -> None:
    """Finalise MPI when the process ends with status 0, and abort the job when it ends with another status."""
    library = ctypes.CDLL(mpi.__file__)  # already loaded; it gives access to the libmpi that it is linked to

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    world = mpi.COMM_WORLD
    finalize, finalized, abort_job = address("MPI_Finalize"), address("MPI_Finalized"), address("MPI_Abort")
    report = _job_file("reported", world.rank)
    _native.watch_exit(finalize, finalized, abort_job, mpi._handleof(world), world.rank, report)


def abort(status: int) -> NoReturn:
    """End every PE with ``status``."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.2)  # MPICH's mpiexec loses output that it has not read before the abort
    _mpi.COMM_WORLD.Abort(status)
    os._exit(status)  # MPI_Abort does not return


def _end(kind: type[BaseException], error: BaseException | None) -> None:
    if _mpi.Is_finalized() or hasattr(sys, "ps1"):
        return  # this is an interactive session, which goes on
    pe = _mpi.COMM_WORLD.rank if job.my_pe < 0 else job.my_pe
    first = origin(error)
    who = f"PE {pe}" if job.on_one_host else f"PE {pe} on {os.uname().nodename}"
    told = str(first)
    if isinstance(first, ShmemError):
        told = told.replace(f": PE {pe}: ", ": ", 1)  # the line begins with it
    reason = f": {told}" if told else ""
    line, report = f"{who}: {type(first).__name__}{reason}", _job_file("reported", _mpi.COMM_WORLD.rank)
    if report:
        # pyshmemrun prints it last, after the launcher's words
        with (
            suppress(FileExistsError),
            open(report, "x") as file,
        ):
            print(line, file=file)
    if _mpi.COMM_WORLD.size == 1:
        return  # there are no other PEs to end
    if not report:
        print(line, file=sys.stderr)
    abort(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _job_file(kind: str, pe: int) -> str:
    folder = os.environ.get("PYSHMEM_JOB_DIR", "")
    return os.path.join(folder, f"{kind}-{pe}") if folder and os.path.isdir(folder) else ""


def note_shared_files() -> None:
    """List for pyshmemrun the files that MPI has in /dev/shm, so that it removes them if the job is killed.

    The names of MPICH's are removed here: every process of the node has mapped them by now, and nobody would remove them on
    another node than pyshmemrun's. MPICH 5.0.2 finalises without them.
    """
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split(None, 5)[5].strip() for line in maps if " /dev/shm/" in line})
    for path in paths:
        if path.startswith("/dev/shm/mpich_shm_"):
            with suppress(FileNotFoundError):  # another PE of the node was faster
                os.unlink(path)
    note = _job_file("shm", _mpi.COMM_WORLD.rank)
    if note:
        with open(note, "a") as file:
            file.writelines(path + "\n" for path in paths)
