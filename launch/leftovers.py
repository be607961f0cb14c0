"""The job's directory, and what a killed job leaves in /dev/shm and the temporary directory."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from glob import glob, iglob
from pathlib import Path

from .launchers import LAUNCHERS

SHARED = "/dev/shm"


class JobDirectory:
    """A private directory, PYSHMEM_JOB_DIR of the job, that remove() removes together with what the job left elsewhere.

    Locked as long as this process lives: one that a killed pyshmemrun left behind is known by its free lock.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_prefix()))
        self._lock = _lock(self.path)

    def note_launcher(self, name: str, pid: int) -> None:
        """What remove() must know, here or in the next pyshmemrun; the file's time is the job's start."""
        (self.path / "launcher").write_text(f"{name} {pid}")

    def remove(self) -> None:
        """To be called when no process of the job is left on this machine."""
        _clean(self.path)
        if self._lock is not None:
            os.close(self._lock)


def remove_stale() -> None:
    """Remove what was left by a pyshmemrun that was killed, and so could not."""
    for path in iglob(f"{tempfile.gettempdir()}/{_prefix()}*"):
        if os.lstat(path).st_uid == os.getuid() and (lock := _lock(Path(path))) is not None:
            _clean(Path(path))
            os.close(lock)
