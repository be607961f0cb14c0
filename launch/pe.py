"""Start one PE's program, pass signals on to it, say how it ended.

Run by its path with ``python -I -S``, so that neither site nor pyshmem nor torch is imported: 10 ms a PE.
Arguments: the launcher's variable that holds the PE's number, then the program. Files it writes in PYSHMEM_JOB_DIR:
pe-<n> with this process's id, renamed ended-<n> when the program has ended; failed-<n>, and a link to it named
``failure`` for the first of the job.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the program to its end; its status, 128 + n when signal n killed it."""
    variable, *program = arguments
    pe = os.environ[variable]
    folder = os.environ["PYSHMEM_JOB_DIR"]
    present = os.path.isdir(folder)  # it is not on the other nodes of a job
    launcher = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, the child's status would be lost
    inherited = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
    child = start(pe, program, inherited)
    if present:
        write(os.path.join(folder, f"pe-{pe}"), str(os.getpid()))
    told = follow(child, launcher)
    status = reap(child)
    if present:
        os.rename(os.path.join(folder, f"pe-{pe}"), os.path.join(folder, f"ended-{pe}"))
    code = 128 - status if status < 0 else status
    if code and not told:  # an end that the job was told to make is no fault of this PE
        if present:
            record(folder, pe, code)
        if not os.path.exists(os.path.join(folder, f"reported-{pe}")):
            os.write(2, f"PE {pe}: {describe(status)}\n".encode())
    return code


def start(pe: str, program: list[str], mask: set[int | signal.Signals]) -> int:
    """Fork the program in a process group of its own; its process id. It is killed when this process dies."""
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl
    child = os.fork()
    if child:
        with suppress(PermissionError, ProcessLookupError):  # the child has done it and is past exec, or has ended
            os.setpgid(child, child)  # here too, since a signal for the group may come before the child runs
        return child
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # the parent died before prctl
    os.setpgid(0, 0)
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)  # Python ignores these two, and exec would hand that on
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        os.write(2, f"PE {pe}: cannot start {program[0]}: {error.strerror}\n".encode())
    os._exit(127)


def follow(child: int, launcher: int) -> bool:
    """Pass signals on until the child has ended; whether one of them told the job to end."""
    told = False
    while True:
        # The time-out serves the check of the launcher. PDEATHSIG cannot: it fires when the starting thread ends, and
        # Open MPI starts processes from threads that it ends after the start.
        received = signal.sigtimedwait((*FORWARDED, signal.SIGCHLD), 1.0)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return told
        if received and received.si_signo in FORWARDED:
            told = told or received.si_signo in ENDING
            os.killpg(child, received.si_signo)
        elif os.getppid() != launcher:
            told = True
            os.killpg(child, signal.SIGKILL)


def reap(child: int) -> int:
    """Kill what the child left in its group, then take its status: the unreaped child still holds the group's number."""
    with suppress(PermissionError):  # only processes of another user, set-uid programs, are left
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def describe(status: int) -> str:
    """How the program ended, in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:  # real-time signals have no name
        return f"killed by signal {-status}"


def record(folder: str, pe: str, code: int) -> None:
    """Note this failure; only the first of the job can take the name ``failure``."""
    own = os.path.join(folder, f"failed-{pe}")
    write(own, f"{code} {pe}")
    with suppress(FileExistsError):  # another PE failed first
        os.link(own, os.path.join(folder, "failure"))


def write(path: str, text: str) -> None:
    """Make ``path`` appear with ``text`` in it, whole."""
    file = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, text.encode())
    os.close(file)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
