"""Prints what the PEs on this machine write, and at the end what failed, after all that the launcher has to say."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from . import pe

NAMES = {1: "output", 2: "errors"}  # of the FIFOs in the job's directory
BANNER = re.compile(
    rb"|=+|=   (BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES|PID \d+ RUNNING AT .*|EXIT CODE: \d+"
    rb"|CLEANING UP REMAINING PROCESSES|YOU CAN IGNORE THE BELOW CLEANUP MESSAGES)"
    rb"|YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .*|This typically refers to a problem with your application\."
    rb"|Please see the FAQ page for debugging suggestions"
)  # lines of Hydra after a failure
LOST = "whose connection has ended"  # in what a PE says that fails because another one is gone


class Output:
    """Copies the lines that come through the FIFOs ``output`` and ``errors`` to this process's own.

    launcher: standard output and errors for the launcher. It passes on what PEs on other hosts write. If there are none, all
    that it writes is its own, such as Hydra's banner after a failure, and goes to the errors. A zero byte follows what
    prterun says of a failure: it is dropped. What PEs on other hosts tell pyshmemrun, see pe.tell, is noted.
    banner: Hydra's, where all that the launcher writes is its own: the last lines of a job say more, if there are any.
    unheard: those PEs that have not told that they have ended, each with its host.  phases: how far they are, see Progress.
    """

    def __init__(self, directory: Path, pes: int) -> None:
        reading, writing = os.pipe()
        saying, errors = os.pipe()
        self.launcher = (writing, errors)
        self.banner = b""
        self._writing = [writing, errors]
        self._directory = directory
        self.unheard: dict[int, str] = {}
        self.phases: dict[int, tuple[str, float]] = {}
        self.away = 0  # PEs that have started on other hosts
        sources: list[tuple[int, Callable[[], int], Callable[[bytes], bytes]]] = [
            (reading, lambda: 2 if all_here(directory, pes) else 1, self.apart(pes, bytes)),
            (saying, partial(int, 2), self.apart(pes, _Filter(directory.name, self._note))),
        ]
        for number, name in NAMES.items():
            os.mkfifo(directory / name, 0o600)
            reading = os.open(directory / name, os.O_RDONLY | os.O_NONBLOCK)
            self._writing.append(os.open(directory / name, os.O_WRONLY))  # the end comes when the last PE has closed it
            os.set_blocking(reading, True)
            sources.append((reading, partial(int, number), bytes))
        self._threads = [threading.Thread(target=_copy, args=source, daemon=True) for source in sources]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Print the rest. No process of the job is left on this machine."""
        for writing in self._writing:
            os.close(writing)
        for thread in self._threads:
            thread.join()

    def apart(self, pes: int, passed: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """Return ``passed`` without the launcher's banner, which is kept. An unfinished line waits for its end."""
        part = b""

        def own(piece: bytes) -> bytes:
            nonlocal part
            text, part = part + passed(piece), b""
            if not all_here(self._directory, pes):
                return text
            if piece:
                text, part = text[: text.rfind(b"\n") + 1], text[text.rfind(b"\n") + 1 :]
            kept = b""
            for line in text.splitlines(keepends=True):
                if BANNER.fullmatch(line.rstrip(b"\n")):
                    self.banner += line
                else:
                    kept += line
            return kept

        return own

    def _note(self, number: int, word: str, rest: str) -> None:
        """Note what PE ``number``, on another host, has told."""
        phase = rest if word == "phase" else "0 - 0"
        if word == "on":
            self.unheard[number] = rest
            self.away += 1
        elif word != "phase":
            self.unheard.pop(number, None)
            phase = f"{self.phases.get(number, (phase, 0.0))[0].split()[0]} ended 0"
        self.phases[number] = phase, time.monotonic()
        if word == "failed" and not (self._directory / f"failed-{number}").exists():
            status, _, text = rest.partition(" ")
            try:
                pe.record(str(self._directory), str(number), int(status), f"{text}\n")
            except OSError:  # the disk is full
                os.write(2, f"{text}\n".encode())


class _Filter:
    """Takes what PEs tell out of a text that comes in pieces, and the zero bytes."""

    def __init__(self, name: str, note: Callable[[int, str, str], None]) -> None:
        self._mark, self._note, self._held = name.encode(), note, b""

    def __call__(self, piece: bytes) -> bytes:
        text, passed = self._held + piece.replace(b"\0", b""), b""
        while (at := text.find(self._mark)) >= 0 and (end := text.find(b"\n", at)) >= 0:
            told = re.fullmatch(r" (\d+) (\w+) ?(.*)", text[at + len(self._mark) : end].decode(errors="replace"))
            if told:
                self._note(int(told[1]), told[2], told[3])
                passed += text[: text.rfind(b"\n", 0, at) + 1]  # without what the label has put before it
            else:
                passed += text[: end + 1]
            text = text[end + 1 :]
        keep = len(text) - (at if at >= 0 else _beginning(text, self._mark)) if piece else 0
        self._held = text[len(text) - keep :]
        return passed + text[: len(text) - keep]


def _beginning(text: bytes, mark: bytes) -> int:
    """Return where the longest end of ``text`` begins that is a beginning of ``mark``."""
    return next((at for at in range(max(0, len(text) - len(mark)), len(text)) if mark.startswith(text[at:])), len(text))


def all_here(directory: Path, pes: int) -> bool:
    """Whether the job's PEs have started, all of them on this machine."""
    started = {name.partition("-")[2] for name in os.listdir(directory) if re.fullmatch(r"(pe|ended)-\d+", name)}
    return len(started) == pes


def _copy(reading: int, sink: Callable[[], int], passed: Callable[[bytes], bytes]) -> None:
    try:
        more = True
        while more:
            piece = os.read(reading, 1 << 16)
            number, text, more = sink(), passed(piece), bool(piece)
            while text:
                text = text[os.write(number, text) :]
    except OSError:  # nobody reads it any more, or the disk is full: PEs that go on writing find out
        pass
    finally:
        os.close(reading)


class End(NamedTuple):
    """How a PE has failed."""

    lost: bool  # because another one was gone
    when: int
    pe: int
    status: int
    text: str


def failures(directory: Path) -> list[End]:
    """Return what failed, the first failure first, but before others those PEs that did not fail for the loss of another."""
    ends: dict[int, End] = {}
    for file in (*directory.glob("reported-*"), *directory.glob("failed-*")):  # the PE's own words first
        number, when = file.name.partition("-")[2], file.stat().st_mtime_ns
        # a PE may have been killed before it had written its report
        status, written, text = (file.read_text() if number.isdecimal() else "").partition("\n")
        if written:
            end = End(LOST in text, when, int(number), int(status.split()[0]), text.rstrip("\n"))
            ends[end.pe] = ends[end.pe]._replace(when=min(when, ends[end.pe].when)) if end.pe in ends else end
    return sorted(ends.values())


def told(directory: Path) -> list[str]:
    """Return the last lines of the job: what failed. PEs that failed alike share a line, after the first of them."""
    groups: dict[str, list[End]] = {}
    for end in failures(directory):
        if end.text:
            groups.setdefault(re.sub(r"^PE \d+( on [^\s:]+)?", "", end.text), []).append(end)
    return [ends[0].text + _also([end.pe for end in ends[1:]]) for ends in groups.values()]


def _also(pes: list[int]) -> str:
    """Name those that failed alike, such as " (also PEs 1 to 3; 4 PEs)"."""
    if not pes:
        return ""
    pes = sorted(pes)
    if len(pes) > 2 and pes == [*range(pes[0], pes[-1] + 1)]:
        named = f"PEs {pes[0]} to {pes[-1]}"
    elif len(pes) > 1:
        named = f"PEs {', '.join(map(str, pes[:-1]))} and {pes[-1]}"
    else:
        named = f"PE {pes[0]}"
    return f" (also {named}; {len(pes) + 1} PEs)"
