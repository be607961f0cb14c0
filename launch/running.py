"""The running jobs of this machine, by the pages of pyshmem.base.activity that their PEs have open."""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from pyshmem.base.activity import NAME, PAGE, Counts, counts, description, watch

_LINK = f"/memfd:{NAME} "


class Unfound(Exception):
    """There is no such job; the text says why."""


class Running(NamedTuple):
    """A PE on this machine. told: what it says of itself."""

    page: mmap.mmap
    told: dict[str, Any]

    @property
    def pe(self) -> int:
        return int(self.told["pe"])

    @property
    def pid(self) -> int:
        return int(self.told["pid"])

    def counts(self) -> Counts:
        return counts(self.page)

    def watch(self, watched: bool) -> None:
        watch(self.page, watched)

    def state(self) -> str:
        """ "running", "ended" after finalize, or "gone": it ended without."""
        if self.counts().ended:
            return "ended"
        return "running" if status(self.pid)[0] not in ("", "Z", "X") else "gone"


class Job(NamedTuple):
    """The PEs of a job on this machine, by their numbers. name: the process of PE 0 on its host."""

    name: int
    host: str
    n_pes: int
    pes: list[Running]

    def program(self) -> str:
        """The program's name, such as "heat.py"."""
        with suppress(OSError):
            with open(f"/proc/{self.pes[0].pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            names = [word for word in words[1:] if word and not word.startswith("-")]
            runs_python = os.path.basename(words[0]).startswith("python")
            return os.path.basename(names[0] if runs_python and names else words[0])
        return "?"


def status(pid: int) -> tuple[str, int]:
    """(the state of a process, its parent); ("", 0) if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
        return state, int(parent)
    except OSError:
        return "", 0


def jobs() -> list[Job]:
    """The jobs that run here and that this user may look at, the oldest first."""
    found: dict[tuple[int, str, int], list[Running]] = defaultdict(list)
    for name in os.listdir("/proc"):
        for each in _pages(int(name)) if name.isdecimal() else ():
            found[each.told["job"], each.told["host"], each.told["n_pes"]].append(each)
    return [Job(*key, sorted(pes, key=lambda each: each.pe)) for key, pes in sorted(found.items())]


def _pages(pid: int) -> Iterator[Running]:
    folder = f"/proc/{pid}/fd"
    try:
        files = os.listdir(folder)
    except OSError:
        return  # another user's, or ended by now
    known = set()  # a process that looks at its own page has it several times
    for path in (f"{folder}/{file}" for file in files):
        with suppress(OSError, ValueError):  # closed by now; or the PE is about to begin
            if os.readlink(path).startswith(_LINK) and (inode := os.stat(path).st_ino) not in known:
                known.add(inode)
                page = _mapped(path)
                told = description(page)
                if told["pid"] == pid and not counts(page).ended:  # processes that it has forked have the page too
                    yield Running(page, told)


def _mapped(path: str) -> mmap.mmap:
    """Map a page. Errors: OSError; ValueError if it is none: root may look at a process that offers it another file."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not os.readlink(f"/proc/self/fd/{file}").startswith(_LINK):
            raise ValueError("another file by now")
        return mmap.mmap(file, PAGE)
    finally:
        os.close(file)


def find(wanted: int) -> Job:
    """The job with this process: its name, the process of a PE, or of what has started it. Errors: Unfound."""
    every = jobs()
    for job in every:
        if job.name == wanted or wanted in {each.pid for each in job.pes}:
            return job
    above = [job for job in every if wanted in {pid for each in job.pes for pid in _above(each.pid)}]
    if len(above) == 1:
        return above[0]
    if above:
        raise Unfound(
            f"process {wanted} has started several jobs; expected one of {', '.join(str(each.name) for each in above)}"
        )
    raise Unfound(_why_not(wanted))


def _above(pid: int) -> Iterator[int]:
    """The processes that have started this one, but for those that start everything."""
    while (pid := status(pid)[1]) > 1:
        yield pid


def _why_not(wanted: int) -> str:
    try:
        owner = os.stat(f"/proc/{wanted}").st_uid
    except OSError:
        return f"got {wanted}, which is no process of this machine; `pyshmem top` lists the jobs that run here"
    if os.getuid() not in (0, owner):
        return f"process {wanted} is of user {owner}; a job can be watched by its own user, or by root"
    return f"process {wanted} is of no job that runs here; `pyshmem top` lists them"
