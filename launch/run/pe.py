"""Starts the program of one PE, forwards signals to it, passes its output on in whole lines, and reports how it ended.

Run by its path with ``python -I -S``, so that neither site nor pyshmem nor torch is imported: 10 ms a PE.
Arguments: optionally --label=WIDTH, which puts the PE, in that many columns, before each line; --bind=UNIT,RANK,SIZE, see
bind below; the variable of the launcher that has the PE; the program.
Files written to PYSHMEM_JOB_DIR: pe-<n> with the id of this process, renamed ended-<n> when the program has ended;
failed-<n>; phase-<n>, see Phases. Of those that tell of a failure the room is there from the start, since a disk may be full
then. FIFOs there, read by pyshmemrun: input, and output and errors, through which lines bypass the launcher, which may
split them or lose the last ones. On another host than pyshmemrun's, lines to the launcher's errors tell pyshmemrun the same:
the name of that directory, the PE, and ``on HOST``, ``phase PHASE``, ``ended`` or ``failed STATUS TEXT``.
"""

import ctypes
import fcntl
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress

DUMP = signal.SIGRTMAX  # PEs print where they are; programs do not use it
FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, DUMP)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
AGAIN = 5.0  # seconds in which a second SIGTERM is the first one, which came another way
EXCUSED = 10.0  # seconds; a PE that ends this soon after an ending signal has not failed
SILENCE = 0.1  # seconds until a line without an end is passed on; less than MPI_Abort waits, which kills this process
BEAT = 10.0  # seconds after which a PE that waits for others, or is stopped, is told of again
WAITING = ("init", "finalize", "ends")  # the phases in which a PE waits for others, see exits.tell
LEAVING = (
    "",
    "finalized",
    "leaves",
    "ends",
)  # those in which a program may end with status 0; "": it does not use pyshmem
EARLY = ", by os._exit or the like, and had not called finalize"
NO_MEMORY = ", probably for lack of memory, for which the system has killed processes since this PE started"
ROOM = 4096  # bytes
PR_SET_PDEATHSIG = 1


def prefix() -> str:
    """The prefix of a job directory's name; other hosts see it if temporary files are shared."""
    return f"pyshmemrun-{os.uname().nodename}-"


def main(arguments: list[str]) -> int:
    """Run the program to its end and return its status, 128 + n if signal n killed it."""
    label = arguments.pop(0) if arguments[0].startswith("--label=") else ""
    if arguments[0].startswith("--bind="):
        bind(*arguments.pop(0).removeprefix("--bind=").split(","))
    pe, folder, program = os.environ[arguments[0]], os.environ["PYSHMEM_JOB_DIR"], arguments[1:]
    here = os.path.isdir(folder) and os.path.basename(folder).startswith(prefix())  # pyshmemrun is on this node
    launcher = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the child's status would be lost
    inherited = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
    output = Output(folder if here else "", f"[{pe:>{label.rpartition('=')[2]}}] " if label else "")
    stdin = source(pe, os.path.join(folder, "input") if here else "")
    try:
        phases = announce(folder, pe, here)
    except OSError as error:  # the disk is full: how this PE ends could not be told
        os.write(2, f"PE {pe}: cannot write into {folder}: {error.strerror}\n".encode())
        return 1
    killed, child = killed_for_memory(), start(pe, program, inherited, stdin, output, phases)
    output.begin()
    excused = follow(child, launcher, phases)
    status = reap(child)
    phases.read()
    output.end()
    if here:
        os.rename(os.path.join(folder, f"pe-{pe}"), os.path.join(folder, f"ended-{pe}"))
    early = not status and phases.now not in LEAVING
    code = 128 - status if status < 0 else status or int(early)
    if code and time.monotonic() > excused:
        where = "" if here else f" on {os.uname().nodename}"
        why = EARLY * early or NO_MEMORY * (status == -signal.SIGKILL and killed_for_memory() > killed)
        line = f"PE {pe}{where}: {describe(status)}{why}\n"
        if here:
            record(folder, pe, code, line)  # pyshmemrun prints it after all that the launcher has to say
        else:
            tell(folder, pe, f"failed {code} {line[:-1]}")
            if status < 0:  # Hydra ends the job for a process that a signal has killed, not for its status
                os.kill(os.getpid(), signal.SIGKILL)
    elif not here:
        tell(folder, pe, "ended")
    return code


class Phases:
    """Passes on how far the program is. It writes a line for each phase into the pipe, see exits.tell.

    file: where the phase is written, and again every BEAT seconds while the PE waits or is stopped; None: on another host
    than pyshmemrun. The text has the number of calls of init, the phase, and the signal that has stopped the program, or 0.
    """

    def __init__(self, folder: str, pe: str, file: int | None) -> None:
        self.pipe, self.writing = os.pipe()
        os.set_blocking(self.pipe, False)
        self._folder, self._pe, self._file = folder, pe, file
        self.now = ""
        self._inits = self._stopped = 0
        self._told, self._new = 0.0, True

    def read(self) -> None:
        """Pass on what the program has told; what is known already, if it is time."""
        with suppress(BlockingIOError):  # it has told nothing
            phases = os.read(self.pipe, 4096).decode().split()
            self._inits += phases.count("init")
            self.now, self._new = phases[-1], True
        again = (self.now in WAITING or self._stopped) and time.monotonic() > self._told + BEAT
        if self._new or again:
            self._tell()

    def stopped(self, number: int) -> None:
        """Pass on that a signal has stopped the program, or with 0 that it goes on."""
        self._stopped = number
        self._tell()

    def _tell(self) -> None:
        self._told, self._new = time.monotonic(), False
        text = f"{self._inits} {self.now or '-'} {self._stopped}"
        if self._file is None:
            tell(self._folder, self._pe, f"phase {text}")
        else:
            os.pwrite(self._file, f"{text}\n".ljust(64).encode(), 0)


def announce(folder: str, pe: str, here: bool) -> Phases:
    """Tell pyshmemrun of this process, before the program runs, for which pyshmemrun may have a signal at once."""
    if not here:
        tell(folder, pe, f"on {os.uname().nodename}")
        return Phases(folder, pe, None)
    for name in (f"failing-{pe}", f"reporting-{pe}"):
        write(os.path.join(folder, name), "\0" * ROOM)
    write(os.path.join(folder, f"phase-{pe}"), "\0" * ROOM)
    phases = Phases(folder, pe, os.open(os.path.join(folder, f"phase-{pe}"), os.O_WRONLY))
    phases.read()
    write(os.path.join(folder, f"pe-{pe}"), str(os.getpid()))
    return phases


def bind(unit: str, rank: str, size: str) -> None:
    """Keep this PE on its share of the host's cores, or on one of them if ``unit`` is core; nowhere if there are too few.

    rank, size: the launcher's variables with the PE's number on its host, and the number of PEs there.
    """
    if rank not in os.environ or size not in os.environ:
        return
    pe, pes, cores = int(os.environ[rank]), int(os.environ[size]), processors()
    if pes <= len(cores):
        share = range(pe * len(cores) // pes, (pe + 1) * len(cores) // pes)
        chosen = cores[pe : pe + 1] if unit == "core" else [cores[each] for each in share]
        os.sched_setaffinity(0, {number for core in chosen for number in core})


def processors() -> list[list[int]]:
    """Return the cores that this process may use, each with the numbers of its hardware threads, socket by socket."""
    cores: dict[tuple[int, str], list[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        place = f"/sys/devices/system/cpu/cpu{number}/topology"
        try:
            with open(f"{place}/physical_package_id") as socket, open(f"{place}/thread_siblings_list") as siblings:
                key = int(socket.read()), siblings.read()
        except OSError:  # the system does not tell
            key = -1, str(number)
        cores.setdefault(key, []).append(number)
    return [threads for _, threads in sorted(cores.items(), key=lambda core: (core[0][0], core[1]))]


def tell(folder: str, pe: str, text: str) -> None:
    """Tell pyshmemrun, on another host, by a line that it takes out of what the launcher passes on."""
    os.write(2, f"{os.path.basename(folder)} {pe} {text}\n".encode())


class Output:
    """Passes on what the program writes, in whole lines: to pyshmemrun's FIFOs in ``folder``, or else to the launcher.

    label: begins each line. Without it, a line without an end is passed on as well if nothing follows: it may be a question.
    """

    def __init__(self, folder: str, label: str) -> None:
        self._label = label.encode()
        self.pipes = {1: os.pipe(), 2: os.pipe()}  # standard output and errors: (reading end, writing end)
        self._ended, self._end = os.pipe()  # the second is closed when the program has ended
        sinks = {1: _open_fifo(folder, "output"), 2: _open_fifo(folder, "errors")}
        self._sinks = {number: number if sink is None else sink for number, sink in sinks.items()}
        self._held = {1: b"", 2: b""}

    def begin(self) -> None:
        """Start to pass on. The program has been started."""
        for reading, writing in self.pipes.values():
            os.close(writing)
            os.set_blocking(reading, False)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Pass on the rest. A process that has left the program's group may keep the pipes open: it is not waited for."""
        os.close(self._end)
        self._thread.join()

    def _run(self) -> None:
        numbers = {reading: number for number, (reading, _) in self.pipes.items()}
        while numbers:
            patience = SILENCE if not self._label and any(self._held.values()) else None
            ready, _, _ = select.select([*numbers, self._ended], [], [], patience)
            for reading in numbers.keys() & set(ready):
                if not self._move(reading, numbers[reading]):
                    del numbers[reading]
                    os.close(reading)  # its reader is gone: the program finds out as it would without pyshmemrun
            if not ready:
                self._pass_rest()
            if self._ended in ready:
                break  # a read takes all that a pipe holds
        self._pass_rest()

    def _pass_rest(self) -> None:
        for number, rest in self._held.items():
            self._held[number] = b""
            self._write(number, rest)

    def _move(self, reading: int, number: int) -> bool:
        """Pass on the lines that have come; False at the end, or where nobody reads them any more."""
        text = os.read(reading, 1 << 16)
        lines, ended, rest = (self._held[number] + text).rpartition(b"\n")
        self._held[number] = rest
        return self._write(number, lines + ended) and bool(text)

    def _write(self, number: int, lines: bytes) -> bool:
        if self._label and lines:
            lines = b"".join(self._label + line + b"\n" for line in lines.removesuffix(b"\n").split(b"\n"))
        sink = self._sinks[number]
        if sink != number:
            fcntl.flock(sink, fcntl.LOCK_EX)  # a long line is written in pieces
        try:
            while lines:
                lines = lines[os.write(sink, lines) :]
            return True
        except BrokenPipeError:
            return False
        finally:
            if sink != number:
                fcntl.flock(sink, fcntl.LOCK_UN)


def _open_fifo(folder: str, name: str) -> int | None:
    """Open a FIFO for writing; None if nobody reads it."""
    try:
        file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK) if folder else None
    except OSError:
        return None
    if file is not None:
        os.set_blocking(file, True)
    return file


def source(pe: str, fifo: str) -> int:
    """The program's standard input: empty, but for PE 0 the FIFO of pyshmemrun or, on other nodes, the launcher's input."""
    if pe != "0":
        return os.open(os.devnull, os.O_RDONLY)  # Hydra passes a pipe that never ends, srun may pass a copy
    if not os.path.exists(fifo):
        return 0
    file = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # so that open does not wait for a writer
    os.set_blocking(file, True)
    return file


def start(
    pe: str, program: list[str], mask: set[int | signal.Signals], stdin: int, output: Output, phases: Phases
) -> int:
    """Fork the program in its own process group and return its process id. It is killed when this process dies."""
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl
    child = os.fork()
    if child:
        # the child has already done it and called exec, or has ended
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(child, child)  # here too, because a signal for the group may arrive before the child runs
        if stdin:
            os.close(stdin)
        return child
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # the parent died before prctl
    os.setpgid(0, 0)
    os.dup2(stdin, 0)
    for number, (_, writing) in output.pipes.items():
        os.dup2(writing, number)
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)  # Python ignores these two, and exec would preserve that
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # for what fails before MPI tells the PE, and the file of this process for phases; not for its children
    os.environ["PYSHMEM_JOB_PE"] = f"{pe} {os.getpid()} /proc/{parent}/fd/{phases.writing}"
    try:
        os.execvp(program[0], program)
    except OSError as error:
        os.write(2, f"PE {pe}: cannot start {program[0]}: {error.strerror}\n".encode())
    os._exit(127)


def follow(child: int, launcher: int, phases: Phases) -> float:
    """Forward signals and phases until the child has ended.

    Return the time until which an end is excused because of a signal.
    """
    excused = terminated = 0.0
    signals = open_signals((*FORWARDED, signal.SIGCHLD))
    while True:
        # The time-out is for the check of the launcher. PDEATHSIG cannot replace it: it fires when the starting thread ends,
        # and Open MPI starts more than 32 processes from threads that end after the start.
        number, sender = next_signal(signals, 1.0, phases.pipe)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return excused
        with suppress(ChildProcessError):  # it has ended by now
            while changed := os.waitid(os.P_PID, child, os.WSTOPPED | os.WCONTINUED | os.WNOHANG):
                phases.stopped(changed.si_status if changed.si_code == os.CLD_STOPPED else 0)
        phases.read()
        if number in FORWARDED:
            if number in ENDING:
                excused = time.monotonic() + EXCUSED
            again = number == signal.SIGTERM and time.monotonic() < terminated
            if number == signal.SIGTERM:
                terminated = time.monotonic() + AGAIN
            if not again and name_of(sender) != "slurmstepd":  # which signals all processes of a step
                os.killpg(child, number)
        elif os.getppid() != launcher:
            excused = time.monotonic() + EXCUSED
            os.killpg(child, signal.SIGKILL)


def open_signals(numbers: tuple[signal.Signals, ...]) -> int:
    """Return a file descriptor from which next_signal reads these signals. The caller has blocked them.

    Python's sigtimedwait will not do. If the process is stopped until the time has passed, as when a batch system suspends a
    job, it returns a signal that nobody has sent (seen with Python 3.11).
    """
    libc, mask = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(128)
    libc.sigemptyset(mask)
    for number in numbers:
        libc.sigaddset(mask, int(number))
    file: int = libc.signalfd(-1, mask, os.O_CLOEXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return file


def next_signal(signals: int, seconds: float, *others: int) -> tuple[int, int]:
    """Wait for a signal. Return its number and the process that has sent it; zeros if none has come in this time.

    others: files; if one of them is readable sooner, it ends the wait.
    """
    ready, _, _ = select.select([signals, *others], [], [], seconds)
    record = os.read(signals, 128) if signals in ready else b""  # a signalfd_siginfo
    return int.from_bytes(record[:4], sys.byteorder), int.from_bytes(record[12:16], sys.byteorder)


def name_of(process: int) -> str:
    """Return the name of a process; "" if it has ended or is in another container."""
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def reap(child: int) -> int:
    """Kill the processes that the child left in its group, then reap it; the unreaped child still holds the group's id."""
    with suppress(PermissionError):  # only set-uid programs of another user are left
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_for_memory() -> int:
    """Return how many processes this system has killed for lack of memory, of its own or of a container's."""
    with suppress(OSError), open("/proc/vmstat") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0  # it does not tell


def describe(status: int) -> str:
    """Describe how the program ended."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:  # real-time signals have no name
        return f"killed by signal {-status}"


def record(folder: str, pe: str, code: int, line: str) -> None:
    """Record this failure and the line that describes it; only the first of the job gets the name ``failure``."""
    own, room = os.path.join(folder, f"failed-{pe}"), os.path.join(folder, f"failing-{pe}")
    if os.path.exists(room):
        file = os.open(room, os.O_WRONLY)
        os.ftruncate(file, os.write(file, f"{code} {pe}\n{line}".encode()))
        os.close(file)
        os.rename(room, own)
    else:  # of a PE on another host
        write(own, f"{code} {pe}\n{line}")
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
