"""Forwards the job's standard input to PE 0 through a FIFO, bypassing the launcher.

The launchers can forward only a few lines: Hydra 5.0.2 ends the job when PE 0 falls 64 KiB behind, and with Open MPI 5.0.11
PE 0 never sees the end of the input.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

PATIENCE = 10.0  # seconds; if PE 0 has not started on this machine by then, it is assumed to be on another


class Input:
    """waits_for() returns the files to wait for; when 0 is readable, move() forwards the next piece."""

    def __init__(self, directory: Path) -> None:
        self._notes = [directory / "pe-0", directory / "ended-0"]  # PE 0 has opened the FIFO before it writes these
        self._fifo = directory / "input"
        self._since = time.monotonic()
        self._sink: int | None = None
        os.mkfifo(self._fifo, 0o600)
        # also for reading, so that writing does not fail if PE 0 has ended
        self._writing = os.open(self._fifo, os.O_RDWR)
        self._ended = sys.stdin is None
        if self._ended:
            os.close(self._writing)

    def waits_for(self, launcher: IO[bytes]) -> tuple[list[int], list[int]]:
        """The files to wait for, readable and writable: standard input, once PE 0 or the ``launcher`` has room for it."""
        if not self._ended and self._sink is None:
            self._choose_sink(launcher)
        if self._ended or self._sink is None or (os.isatty(0) and not _in_foreground()):
            return [], []
        return ([0], []) if select.select([], [self._sink], [], 0)[1] else ([], [self._sink])

    def move(self, launcher: IO[bytes]) -> None:
        """Forward as much as a writable pipe accepts without blocking."""
        text = os.read(0, select.PIPE_BUF)
        if text and self._sink is not None:
            with suppress(BrokenPipeError):  # the launcher has ended
                os.write(self._sink, text)
            return
        self._ended = True
        os.close(self._writing)
        if self._sink != self._writing:
            launcher.close()

    def _choose_sink(self, launcher: IO[bytes]) -> None:
        if any(note.exists() for note in self._notes):
            self._sink = self._writing  # the launcher's input stays open: Hydra reports an error if both end together
        elif time.monotonic() - self._since > PATIENCE:
            self._fifo.unlink()  # if PE 0 still starts here, it uses the launcher's input
            self._sink = launcher.fileno()


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # a terminal without job control: every process may read it
