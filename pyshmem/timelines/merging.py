"""Makes one file of what the PEs have left beside it. The last PE to end does, or pyshmemrun after a job that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

SUFFIX = ".parts"


def parts_of(path: Path) -> Path:
    """The folder in which the PEs write."""
    return path.with_name(path.name + SUFFIX)


def finish(path: Path, whole: bool = True) -> list[str]:
    """Write ``path`` if every PE has ended, and remove the parts. Return what it lacks, a line for each reason.

    whole: False writes what there is. If the disk is full, the file is cut after an event, and the parts stay.
    """
    from pyshmem.timelines.chrome import write  # not imported by jobs without a timeline
    from pyshmem.timelines.events import Part

    folder = parts_of(path)
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return []  # another PE has written it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        parts = [Part(each) for each in sorted(folder.glob("pe-*.notes"))]
        ended = sum(each.ended for each in parts)
        if not parts or (whole and ended < parts[0].n_pes):
            return []
        found = [f"{path}: PE {each.pe} has lost its last {each.lost} events: {', '.join(each.because)}"
                 for each in parts if each.lost]  # fmt: skip
        try:
            missing = write(path, parts)
        except OSError as error:
            missing = f"{error.strerror}: it has none"
        if missing:
            return [*found, f"{path}: {missing}; all are in {folder}"]
        shutil.rmtree(folder, ignore_errors=True)
        return found
    finally:
        os.close(lock)
