"""The end of a PE. A failure on one PE ends the job, because the other PEs might wait for it for ever.

Hooks report an uncaught exception. Only an exit handler of the C library sees any other end with a nonzero status, such as
sys.exit or a failing atexit function: see watch_exit in python/exits.c. This handler works if pyshmem started MPI. If the
program started MPI, mpi4py finalises MPI before the handler runs, and MPI_Finalize waits for the other PEs.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

from pyshmem.base.errors import ShmemError
from pyshmem.base.job import job
from pyshmem.diagnosis.tracebacks import origin
from pyshmem.native import _native

_mpi: Any = None
_hook: Any = None  # the last that was installed


def watch(mpi: Any) -> None:
    """End the job by ``mpi`` from now on, mpi4py's module or what stands for it."""
    global _mpi
    _mpi = mpi
    if sys.excepthook is not _hook:
        _install_hook()


def install() -> None:
    """Install the hooks, once per process."""
    _install_hook()
    thread_hook = threading.excepthook

    def thread_excepthook(caught: threading.ExceptHookArgs) -> None:
        thread_hook(caught)
        if caught.exc_type is not SystemExit:
            _end(caught.exc_type, caught.exc_value)

    threading.excepthook = thread_excepthook


def _install_hook() -> None:
    """Install the hook of exceptions above all others: torch.distributed's loses what those below it print as they end."""
    global _hook
    below = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        below(kind, error, trace)
        if _hook is excepthook:
            if isinstance(sys.stderr, io.StringIO) and sys.__stderr__:  # a hook above that prints it later
                sys.__stderr__.write(sys.stderr.getvalue())
            _end(kind, error)

    _hook = sys.excepthook = excepthook


def own_mpi(mpi: Any) -> None:
    """Finalise MPI when the process ends with status 0, and abort the job when it ends with another status."""
    library = ctypes.CDLL(mpi.__file__)  # already loaded; it gives access to the libmpi that it is linked to

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    world = mpi.COMM_WORLD
    functions = address("MPI_Finalize"), address("MPI_Finalized"), address("MPI_Abort")
    _native.watch_exit(*functions, mpi._handleof(world), _pipe())
    name_pe(world.rank)


def name_pe(rank: int) -> None:
    """Name this process, of this rank in MPI's world, for the line that says how it has ended."""
    _native.name_exit(_job_file("reported", rank), _mark(rank), _who(rank))


def tell(phase: str) -> None:
    """Tell pyshmemrun how far this PE is, so that it can say for whom the others wait. See Phases in launch/run/pe.py.

    phase: "init" and "finalize", where it waits for others; "runs" and "finalized" after them; "leaves" after the program;
        "ends" before MPI_Finalize, where it waits for others.
    """
    if pipe := _pipe():
        with suppress(OSError), open(pipe, "w") as file:  # it is not there in a container
            file.write(f"{phase}\n")


def _pipe() -> str:
    """Return the file for tell; "" in a process that pyshmemrun has not started itself."""
    _, process, pipe = f"{os.environ.get('PYSHMEM_JOB_PE', '')}  ".split(" ")[:3]
    return pipe if process == str(os.getpid()) else ""


def _who(rank: int) -> str:
    """Return the PE, with its host where that says more."""
    pe = rank if job.my_pe < 0 else job.my_pe
    return f"PE {pe}" if job.on_one_host and not _mark(rank) else f"PE {pe} on {os.uname().nodename}"


def _mark(rank: int) -> str:
    """Return how a line begins that tells pyshmemrun, on another host, of a failure; "" without it. See launch/run/pe.py."""
    folder = os.environ.get("PYSHMEM_JOB_DIR", "")
    return f"{os.path.basename(folder)} {rank} failed" if folder and not _job_file("reported", rank) else ""


def is_mpi_over() -> bool:
    """Return whether the program has finalised MPI, as it may before it finalises pyshmem."""
    return bool(_mpi.Is_finalized())


def abort(status: int) -> NoReturn:
    """End every PE with ``status``. After MPI_Finalize the launcher ends the others, once it sees the status."""
    sys.stdout.flush()
    sys.stderr.flush()
    _native.let_read()
    if not is_mpi_over():
        _mpi.COMM_WORLD.Abort(status)
    os._exit(status)  # MPI_Abort does not return


def _end(kind: type[BaseException], error: BaseException | None) -> None:
    started = _mpi is not None and not _mpi.Is_finalized()
    if hasattr(sys, "ps1") or not (started or _pipe()):
        return  # this is an interactive session, which goes on; or nobody is told
    rank, first = _mpi.COMM_WORLD.rank if started else int(os.environ["PYSHMEM_JOB_PE"].split()[0]), origin(error)
    said = str(first)
    if isinstance(first, ShmemError):
        said = re.sub(r": PE [\d?]+: ", ": ", said, count=1)  # the line begins with it
    reason = f": {said}" if said else ""
    line, report = f"{_who(rank)}: {type(first).__name__}{reason}", _job_file("reported", rank)
    status, mark = 130 if issubclass(kind, KeyboardInterrupt) else 1, _mark(rank)
    marked = f"{mark} {status} {line.partition(chr(10))[0]}" if mark else ""
    if report and not _reported(report, f"{status}\n{line}\n"):
        report = ""
    if not started or _mpi.COMM_WORLD.size == 1:
        if marked:
            sys.stderr.write(f"{marked}\n")
        return  # there are no other PEs to end, or pyshmemrun does it
    if not report:
        sys.stderr.write(f"{marked or line}\n")  # by one write: other PEs write too
    abort(status)


def _reported(report: str, text: str) -> bool:
    """Write a report, which pyshmemrun prints last, after the launcher's words. Return whether there is one.

    Its room is there, see announce in launch/run/pe.py, but for a PE that its launcher has started in another way.
    """
    folder, _, name = report.rpartition("/")
    room = f"{folder}/{name.replace('reported', 'reporting')}"
    try:
        if not os.path.exists(report):
            with open(room, "r+b" if os.path.exists(room) else "xb") as file:
                file.truncate(file.write(text.encode(errors="replace")))
            os.rename(room, report)
        return True
    except (FileNotFoundError, FileExistsError):  # another thread was faster
        return True
    except OSError:  # the disk is full
        return False


def _job_file(kind: str, pe: int) -> str:
    """Return a file for pyshmemrun in the job's directory; "" if pyshmemrun is on another host, or there is none."""
    folder = os.environ.get("PYSHMEM_JOB_DIR", "")
    here = os.path.isdir(folder) and os.path.basename(folder).startswith(f"pyshmemrun-{os.uname().nodename}-")
    return os.path.join(folder, f"{kind}-{pe}") if here else ""


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
        with suppress(OSError), open(note, "a") as file:  # on a full disk the job goes on
            file.writelines(path + "\n" for path in paths)
