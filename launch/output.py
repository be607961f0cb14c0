"""Prints what the PEs on this machine write, and at the end what failed, after all that the launcher has to say."""

from __future__ import annotations

import os
import threading
from pathlib import Path

NAMES = {1: "output", 2: "errors"}  # of the FIFOs in the job's directory


class Output:
    """Copies the lines that come through the FIFOs ``output`` and ``errors`` to this process's own."""

    def __init__(self, directory: Path) -> None:
        self._threads = []
        self._writing = []
        for number, name in NAMES.items():
            os.mkfifo(directory / name, 0o600)
            reading = os.open(directory / name, os.O_RDONLY | os.O_NONBLOCK)
            self._writing.append(os.open(directory / name, os.O_WRONLY))  # the end comes when the last PE has closed it
            os.set_blocking(reading, True)
            self._threads.append(threading.Thread(target=_copy, args=(reading, number), daemon=True))
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Print the rest. No process of the job is left on this machine."""
        for writing in self._writing:
            os.close(writing)
        for thread in self._threads:
            thread.join()


def _copy(reading: int, number: int) -> None:
    try:
        while text := os.read(reading, 1 << 16):
            while text:
                text = text[os.write(number, text) :]
    except OSError:  # nobody reads it any more, or the disk is full: PEs that go on writing find out
        pass
    finally:
        os.close(reading)


def failures(directory: Path) -> list[str]:
    """Return what failed, the first failure first: the PEs' own words, or else how they ended. Equal ends share a line."""
    told: dict[int, str] = {}
    for note in sorted(
        (*directory.glob("reported-*"), *directory.glob("failed-*")), key=lambda note: note.stat().st_mtime_ns
    ):
        kind, _, pe = note.name.partition("-")
        if pe.isdecimal():
            text = note.read_text()
            told.setdefault(int(pe), text if kind == "reported" else text.partition("\n")[2])
    return [line.rstrip("\n") for line in told.values() if line]
