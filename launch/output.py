"""Prints what the PEs on this machine write, and at the end what failed, after all that the launcher has to say."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

NAMES = {1: "output", 2: "errors"}  # of the FIFOs in the job's directory
OVERDUE = "overdue"  # the file there with the line that ends a job whose time limit has passed


class Output:
    """Copies the lines that come through the FIFOs ``output`` and ``errors`` to this process's own.

    launcher: standard output and errors for the launcher. It passes on what PEs on other hosts write. If there are none, all
    that it writes is its own, such as Hydra's banner after a failure, and goes to the errors. A zero byte follows what
    prterun says of a failure: it is dropped.
    """

    def __init__(self, directory: Path, pes: int) -> None:
        reading, writing = os.pipe()
        saying, errors = os.pipe()
        self.launcher = (writing, errors)
        self._writing = [writing, errors]
        sources: list[tuple[int, Callable[[], int], bytes]] = [
            (reading, lambda: 2 if all_here(directory, pes) else 1, b""),
            (saying, partial(int, 2), b"\0"),
        ]
        for number, name in NAMES.items():
            os.mkfifo(directory / name, 0o600)
            reading = os.open(directory / name, os.O_RDONLY | os.O_NONBLOCK)
            self._writing.append(os.open(directory / name, os.O_WRONLY))  # the end comes when the last PE has closed it
            os.set_blocking(reading, True)
            sources.append((reading, partial(int, number), b""))
        self._threads = [threading.Thread(target=_copy, args=source, daemon=True) for source in sources]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Print the rest. No process of the job is left on this machine."""
        for writing in self._writing:
            os.close(writing)
        for thread in self._threads:
            thread.join()


def all_here(directory: Path, pes: int) -> bool:
    """Whether the job's PEs have started, all of them on this machine."""
    started = {name.partition("-")[2] for name in os.listdir(directory) if re.fullmatch(r"(pe|ended)-\d+", name)}
    return len(started) == pes


def _copy(reading: int, sink: Callable[[], int], dropped: bytes) -> None:
    try:
        while text := os.read(reading, 1 << 16):
            number = sink()
            text = text.replace(dropped, b"") if dropped else text
            while text:
                text = text[os.write(number, text) :]
    except OSError:  # nobody reads it any more, or the disk is full: PEs that go on writing find out
        pass
    finally:
        os.close(reading)


def failures(directory: Path) -> list[str]:
    """Return what failed, the first failure first: the PEs' own words, or else how they ended. Equal ends share a line."""
    told: dict[int, str] = {}
    for file in sorted(
        (*directory.glob("reported-*"), *directory.glob("failed-*")), key=lambda file: file.stat().st_mtime_ns
    ):
        kind, _, pe = file.name.partition("-")
        if pe.isdecimal():
            text = file.read_text()
            told.setdefault(int(pe), text if kind == "reported" else text.partition("\n")[2])
    late = directory / OVERDUE
    return [line.rstrip("\n") for line in (*told.values(), late.read_text() if late.exists() else "") if line]
