"""Starts the program of one PE, forwards signals to it, and reports how it ended.

Run by its path with ``python -I -S``, so that neither site nor pyshmem nor torch is imported: 10 ms a PE.
Arguments: the launcher's variable with the PE's number, then the program. Files written to PYSHMEM_JOB_DIR: pe-<n> with the
id of this process, renamed ended-<n> when the program has ended; failed-<n>, and for the first failure of the job a link to
it named ``failure``.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
EXCUSED = 10.0  # seconds; a PE that ends this soon after an ending signal has not failed
PR_SET_PDEATHSIG = 1


def prefix() -> str:
    """The prefix of a job directory's name; other hosts see it if temporary files are shared."""
    return f"pyshmemrun-{os.uname().nodename}-"


def main(arguments: list[str]) -> int:
    """Run the program to its end and return its status, 128 + n if signal n killed it."""
    variable, *program = arguments
    pe = os.environ[variable]
    folder = os.environ["PYSHMEM_JOB_DIR"]
    here = os.path.isdir(folder) and os.path.basename(folder).startswith(prefix())  # pyshmemrun is on this node
    launcher = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the child's status would be lost
    inherited = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
    child = start(pe, program, inherited, source(pe, os.path.join(folder, "input") if here else ""))
    if here:
        write(os.path.join(folder, f"pe-{pe}"), str(os.getpid()))
    excused = follow(child, launcher)
    status = reap(child)
    if here:
        os.rename(os.path.join(folder, f"pe-{pe}"), os.path.join(folder, f"ended-{pe}"))
    code = 128 - status if status < 0 else status
    if code and time.monotonic() > excused:
        if here:
            record(folder, pe, code)
        if not os.path.exists(os.path.join(folder, f"reported-{pe}")):
            os.write(2, f"PE {pe}: {describe(status)}\n".encode())
    return code


def source(pe: str, fifo: str) -> int:
    """The program's standard input: empty, but for PE 0 the FIFO of pyshmemrun or, on other nodes, the launcher's input."""
    if pe != "0":
        return os.open(os.devnull, os.O_RDONLY)  # Hydra passes a pipe that never ends, srun may pass a copy
    if not os.path.exists(fifo):
        return 0
    file = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # so that open does not wait for a writer
    os.set_blocking(file, True)
    return file


def start(pe: str, program: list[str], mask: set[int | signal.Signals], stdin: int) -> int:
    """Fork the program in its own process group and return its process id. It is killed when this process dies."""
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl
    child = os.fork()
    if child:
        with suppress(
            PermissionError, ProcessLookupError
        ):  # the child has already done it and called exec, or has ended
            os.setpgid(child, child)  # here too, because a signal for the group may arrive before the child runs
        if stdin:
            os.close(stdin)
        return child
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # the parent died before prctl
    os.setpgid(0, 0)
    os.dup2(stdin, 0)
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)  # Python ignores these two, and exec would preserve that
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        os.write(2, f"PE {pe}: cannot start {program[0]}: {error.strerror}\n".encode())
    os._exit(127)


def follow(child: int, launcher: int) -> float:
    """Forward signals until the child has ended; return the time until which an end is excused because of a signal."""
    excused = 0.0
    while True:
        # The time-out is for the check of the launcher. PDEATHSIG cannot replace it: it fires when the starting thread ends,
        # and Open MPI starts more than 32 processes from threads that end after the start.
        received = signal.sigtimedwait((*FORWARDED, signal.SIGCHLD), 1.0)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return excused
        if received and received.si_signo in FORWARDED:
            if received.si_signo in ENDING:
                excused = time.monotonic() + EXCUSED
            os.killpg(child, received.si_signo)
        elif os.getppid() != launcher:
            excused = time.monotonic() + EXCUSED
            os.killpg(child, signal.SIGKILL)


def reap(child: int) -> int:
    """Kill the processes that the child left in its group, then reap it; the unreaped child still holds the group's id."""
    with suppress(PermissionError):  # only set-uid programs of another user are left
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def describe(status: int) -> str:
    """Describe how the program ended."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:  # real-time signals have no name
        return f"killed by signal {-status}"


def record(folder: str, pe: str, code: int) -> None:
    """Record this failure; only the first of the job gets the name ``failure``."""
    own = os.path.join(folder, f"failed-{pe}")
    write(own, f"{code} {pe}")
    with suppress(FileExistsError):  # another PE failed first
        os.link(own, os.path.join(folder, "failure"))


def write(path: str, text: str) -> None:
    """Create ``path`` with ``text`` atomically."""
    file = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, text.encode())
    os.close(file)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
