"""The job's directory, and the files that a killed job leaves in /dev/shm and the temporary directory."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from glob import escape, iglob
from pathlib import Path

from .launchers import LAUNCHERS, SEGMENTS
from .pe import prefix

SHARED = Path("/dev/shm")


class JobDirectory:
    """PYSHMEM_JOB_DIR of one job: private, locked while this process lives, removed with the job's leftover files.

    The lock shows a later pyshmemrun which directories belong to a process that was killed.
    """

    def __init__(self) -> None:
        lock = None
        while lock is None or not os.fstat(lock).st_nlink:  # removed by a remove_stale before the lock
            self.path = Path(tempfile.mkdtemp(prefix=prefix()))
            with suppress(FileNotFoundError):
                lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(lock, fcntl.LOCK_EX)
        self._lock = lock
        (self.path / "started").touch()

    def remove(self) -> None:
        """Call this when no process of the job is left on this machine."""
        _clean(self.path)
        os.close(self._lock)


def remove_stale() -> None:
    """Remove the files of pyshmemrun processes that were killed."""
    for path in iglob(f"{escape(tempfile.gettempdir())}/{escape(prefix())}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # another user's, or already removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_uid == os.getuid() and os.fstat(lock).st_nlink:
                _clean(Path(path))
        except BlockingIOError:
            pass  # its job is running
        finally:
            os.close(lock)


def _clean(folder: Path) -> None:
    started = folder / "started"
    if started.exists():
        since = started.stat().st_mtime
        for note in folder.glob("shm-*"):
            for line in note.read_text().splitlines():
                _remove_shared(line, since)
        if (folder / "launcher").exists():
            name, pid = (folder / "launcher").read_text().split()
            _remove_unused(set(_leftovers(name, pid, since)))
    shutil.rmtree(folder)


def _ours(entry: os.stat_result, since: float) -> bool:
    """Whether this user made or changed it since the job began: the program may map data that is older."""
    return entry.st_uid == os.getuid() and entry.st_ctime >= since


def _remove_shared(path: str, since: float) -> None:
    """Remove one file that a PE noted: a regular file below /dev/shm, reached through no symbolic link."""
    names = Path(path).parts[len(SHARED.parts) :]
    if not names or Path(path).parts[: len(SHARED.parts)] != SHARED.parts or ".." in names:
        return
    folder = os.open(SHARED, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        entry = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(entry.st_mode) and _ours(entry, since):
            os.unlink(names[-1], dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the PE removed it itself; or a link, which is not followed
    finally:
        os.close(folder)


def _leftovers(name: str, pid: str, since: float) -> Iterator[str]:
    """What the launcher and MPI may have left: the names that they use, where they came into being since the job began."""
    temporary = escape(tempfile.gettempdir())
    own = [pattern.format(tmp=temporary, pid=pid) for row in LAUNCHERS if row.name == name for pattern in row.leftovers]
    for path in (path for pattern in (*SEGMENTS, *own) for path in iglob(pattern)):
        with suppress(FileNotFoundError):  # another job's, and gone by now
            if _ours(os.lstat(path), since):
                yield path


def _remove_unused(paths: set[str]) -> None:
    """Remove those of ``paths`` that no process has open or maps: others may be of jobs of this user that still run.

    A process that makes a file for its job maps it before it closes it, so what is open is looked at first. Hydra's file of
    the machine's topology is never mapped; a PE that does not find it looks at the machine itself (seen).
    """
    for file in iglob("/proc/[0-9]*/fd/*") if paths else ():
        with suppress(OSError):  # closed by now, or another user's
            opened = os.readlink(file)
            paths = {path for path in paths if opened != path and not opened.startswith(path + os.sep)}
    for maps in iglob("/proc/[0-9]*/maps") if paths else ():
        with suppress(OSError):  # ended by now, or another user's
            text = Path(maps).read_text()
            paths = {path for path in paths if path not in text}
    for path in paths:
        with suppress(FileNotFoundError):  # another job's, and gone by now
            if os.path.isdir(path):
                shutil.rmtree(path)
                with suppress(OSError):  # Open MPI's directory for all jobs of this user: not empty while others run
                    os.rmdir(os.path.dirname(path))
            else:
                os.unlink(path)
