"""Runs one job: forwards signals and input, ends the job when a PE has failed, leaves no process behind."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from glob import iglob
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

from .input import Input
from .launchers import Launcher
from .output import all_here, failures
from .pe import ENDING, FORWARDED, PR_SET_PDEATHSIG, describe
from .progress import Progress

PR_SET_CHILD_SUBREAPER = 36
TICK = 0.2  # seconds between two checks of the job's directory
GRACE = 2.0  # seconds that the launcher has to end the job after a PE has failed
ANSWER = 1.0  # seconds that PEs have to print where they are
PATIENCE = 2.0  # seconds between SIGTERM and SIGKILL
TIMED_OUT = 124  # as timeout(1)
# why a PE prints no dump
_UNABLE = {
    "silent": "has not called shmem.init yet, or does not use pyshmem",
    "ended": "has come to the end of its program, and waits for the others",
}


class Job:
    """``pes`` processes under ``launcher``; run() runs them."""

    def __init__(
        self,
        launcher: Launcher,
        pes: int,
        directory: Path,
        progress: Progress,
        dump_after: float | None = None,
        interactive: bool = False,
    ) -> None:
        """interactive: Ctrl-C ends a statement, however often it comes, and not the job.

        overdue: the line that says why the job was ended, if a limit of time has passed.
        """
        self.launcher = launcher
        self.pes = pes
        self.interactive = interactive
        self.directory = directory
        self.overdue = ""
        self._progress = progress
        self._dump_time = time.monotonic() + dump_after if dump_after else float("inf")
        self._dumped: dict[int, str] = {}  # what has been done about the PEs since
        self._status: int | None = None  # the launcher's, once it has ended
        self._told: Signals | None = None  # the signal that ended the job
        self._forced = False
        self._waiting: list[tuple[float, Signals]] = []  # signals to forward, with their arrival times
        self._steps: list[tuple[float, Callable[[], None]]] = []  # planned steps to end the job, with times

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], outputs: tuple[int, int], limit: float | None
    ) -> None:
        """Run the launcher, with ``outputs`` for it, to its end, or to the job's end after ``limit`` seconds."""
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of the job become children of this process
        wakeup, source = _catch_signals(), Input(self.directory)
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=outputs[0],
            stderr=outputs[1],
            env=dict(environment),
            start_new_session=True,  # Ctrl-C then reaches only this process, which forwards it once
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, self.launcher.end, 0, 0, 0),
        )
        (self.directory / "launcher").write_text(f"{self.launcher.name} {self._process.pid}")
        assert self._process.stdin  # because stdin=PIPE
        deadline = time.monotonic() + limit if limit else float("inf")
        while self._status is None:
            readable, writable = source.waits_for(self._process.stdin)
            ready, _, _ = select.select([wakeup, *readable], writable, [], TICK)
            if 0 in ready:
                source.move(self._process.stdin)
            for number in os.read(wakeup, 512) if wakeup in ready else b"":
                self._receive(number)
            self._reap()
            self._pass_signals_on()
            self._watch(deadline)

    def _receive(self, number: int) -> None:
        if number in FORWARDED:
            if number == SIGINT == self._told:  # the second Ctrl-C; further ones do not postpone the end
                if not self._forced:
                    self._forced = True
                    self._end(time.monotonic(), ask=False)
                return
            if number in ENDING and not (self.interactive and number == SIGINT):
                self._told = Signals(number)
            self._waiting.append((time.monotonic(), Signals(number)))

    def _pass_signals_on(self) -> None:
        """Forward to the PEs directly if all are on this machine, since launchers differ; otherwise through the launcher."""
        while self._waiting:
            came, number = self._waiting[0]
            if all_here(self.directory, self.pes):
                _kill(self._running().values(), number)
            elif time.monotonic() - came < 1.0:
                return  # PEs may still be starting
            elif number in self.launcher.passes:
                self._process.send_signal(number)
            elif number in ENDING:
                self._end(time.monotonic(), ask=False)
            else:
                passed = " or ".join(sorted(Signals(other).name for other in self.launcher.passes))
                _say(f"{number.name}: got PEs on other nodes; expected {passed}, which {self.launcher.name} forwards")
            self._waiting.pop(0)

    def _running(self) -> dict[int, int]:
        """The process ids of the running programs on this machine, by PE."""
        running = {}
        for file in self.directory.glob("pe-*[0-9]"):
            with suppress(FileNotFoundError):  # already ended
                running[int(file.name[3:])] = int(file.read_text())
        return running

    def _watch(self, deadline: float) -> None:
        now = time.monotonic()
        if now > self._dump_time:
            self._dump("--dump-after")
        if not self._steps:
            if (self.directory / "failure").exists() or self._aborting():
                self._end(now + GRACE)
            elif now > deadline:
                pes = sorted(self._running())
                who = f"PE{'s' * (len(pes) > 1)} {', '.join(map(str, pes))}" if pes else "no PE"
                _say(f"--timeout: the time limit has passed with {who} still running; ending the job")
                self.overdue = f"--timeout: ended the job, with {who} still running"
                self._dumped.clear()
                self._dump("--timeout")
                self._end(now + ANSWER * ("asked" in self._dumped.values()))
            else:
                self._look(now)
        while self._steps and now >= self._steps[0][0]:
            self._steps.pop(0)[1]()

    def _look(self, now: float) -> None:
        """Say for whom PEs wait that cannot say it, and end the job if they have waited too long."""
        said, over = self._progress.look()
        if over:
            self.overdue = said
            self._end(now)
        elif said:
            _say(said)

    def _aborting(self) -> bool:
        """Whether a PE has called MPI_Abort. Intel MPI then kills what would note the failure, and waits for lost hosts."""
        return self.pes > 1 and any(self.directory.glob("reported-*"))

    def _dump(self, option: str) -> None:
        """Make each PE on this machine print where it is, once, when it listens; others would die from the signal."""
        for pe, pid in sorted(self._running().items()):
            file, before = self.directory / f"dumps-{pe}", self._dumped.get(pe)
            state = file.read_text() if file.exists() else "silent"
            if before in (state, "asked"):
                continue
            self._dumped[pe] = state if state in _UNABLE else "asked"
            if state in _UNABLE:
                _say(f"{option}: PE {pe} {_UNABLE[state]}")
            else:
                _kill([pid], Signals(int(state)))

    def _end(self, start: float, ask: bool = True) -> None:
        """Plan the end of the job; each step ends what the previous one has not ended."""
        kill = start + PATIENCE if ask else start
        self._steps = [(start, lambda: _kill(self._running().values(), SIGTERM))] if ask else []
        self._steps += [
            (kill, lambda: _kill(self._running().values(), SIGKILL)),  # their programs die with them
            (kill + 2, lambda: self._process.send_signal(self.launcher.end)),
            (kill + 3, self._process.kill),
        ]

    def _reap(self) -> None:
        """Reap every child that has ended: the launcher, whose status counts, and orphans of the job."""
        while self._status is None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid == self._process.pid:
                self._status = self._process.returncode = os.waitstatus_to_exitcode(status)

    def exit_status(self) -> int:
        """Return pyshmemrun's exit status. The job has run, and all that it has told has come."""
        ends = failures(self.directory)
        asked = self._told or self.overdue
        if ends and ((self.directory / "failure").exists() or (not asked and (self._status or self._aborting()))):
            return ends[0].status
        if self.overdue:
            return TIMED_OUT
        if self._status and self._told:
            return 128 + self._told
        assert self._status is not None  # run() has waited for it
        if self._status < 0:
            _say(f"the launcher, {self.launcher.name}, was {describe(self._status)}")
            return 128 - self._status
        return self._status

    @property
    def unexplained(self) -> bool:
        """Whether the launcher has failed, and neither a PE nor a signal nor a time limit is why."""
        return bool(self._status) and not (failures(self.directory) or self.overdue or self._told)


def end_descendants() -> None:
    """Kill and reap the remaining processes of the job on this machine; orphans become children of this process."""
    limit = time.monotonic() + 5.0
    while True:
        left = [int(path.split("/")[2]) for path in iglob("/proc/[0-9]*/stat") if _parent(path) == os.getpid()]
        _kill(left, SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > limit:
            _say(f"processes {left} were killed but have not ended")
            return
        time.sleep(0.01)


def _parent(path: str) -> int:
    try:
        return int(Path(path).read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # already ended


def _catch_signals() -> int:
    """Deliver signals as bytes (their numbers) through a pipe; returns its reading end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (*FORWARDED, signal.SIGCHLD):
        # ignored under nohup: remains ignored
        if number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    return reading


def let_signals_end() -> None:
    """Let signals end this process, through its clean-up: the job has ended, and what follows may take long."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _kill(pids: Iterable[int], number: Signals) -> None:
    for pid in pids:
        # already ended; or a set-uid program, which may not be ended
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _say(text: str) -> None:
    print(f"pyshmemrun: {text}", file=sys.stderr, flush=True)
