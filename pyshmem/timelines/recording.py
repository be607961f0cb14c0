"""Records what this PE calls, into files beside the timeline. With PYSHMEM_TRACE from init on, else within shmem.trace."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyshmem.base import interpreter
from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis import ranges
from pyshmem.diagnosis.event_ring import EVENT_BYTES
from pyshmem.host.init import listeners
from pyshmem.memory.arguments import require_init
from pyshmem.memory.heap import views
from pyshmem.native import _native
from pyshmem.timelines import calls
from pyshmem.timelines.clocks import compared
from pyshmem.timelines.events import limited
from pyshmem.timelines.merging import finish, parts_of

if TYPE_CHECKING:
    from pyshmem.timelines.rings import Rings


_NOTES = 1 << 16  # bytes of a file of notes, which have space when the disk is full


class Recorder:
    """The recording of this process, of which there is one at a time."""

    def __init__(self) -> None:
        self.path: Path | None = None  # of the timeline, while it is recorded
        self._names: dict[str, int] = {}
        self._notes = -1
        self._process = 0  # those that it forks write no timeline
        self._undo: Callable[[], None] = lambda: None  # ends the recording of interpreted kernels
        self._rings: Rings | None = None  # of compiled kernels
        self._plans = 0  # that were noted
        self._torch: Any = None  # the mode that records torch's operators

    def number(self, name: str) -> int:
        """The number of a name in events."""
        if name not in self._names:
            self._names[name] = len(self._names) + 1
            self._note(name=(self._names[name], name))
        return self._names[name]

    def recorded(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return calls.record(label, call, self.number(label))

    def noted(self, perform: Callable[..., Any]) -> Callable[..., Any]:
        """Return a plan's method, noted in the event of the call under way; of plans within each other the innermost one."""

        @wraps(perform)
        def within(plan: Any, *arguments: Any) -> Any:
            before = self._plans
            found = perform(plan, *arguments)
            if self._plans == before:
                self._plans += 1
                name = plan.title
                number = self._names.get(name) or self.number(name)
                _native.note_plan(number, plan.rereads(*arguments))
            return found

        return within

    def _note(self, **note: Any) -> None:
        if self._notes >= 0:
            try:
                os.write(self._notes, json.dumps(note).encode() + b"\n")
            except OSError:  # the disk is full: what comes now has no name
                os.close(self._notes)
                self._notes = -1

    def start(self, path: Path) -> None:
        """Record into ``path`` from now on. Collective over all PEs."""
        comm = job.comm
        assert comm is not None
        folder = parts_of(path)
        if job.host_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)  # of a job that was killed
        comm.Barrier()
        own = folder / f"pe-{job.my_pe}"
        try:
            folder.mkdir(exist_ok=True)
            self._notes = os.open(own.with_suffix(".notes"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.posix_fallocate(self._notes, 0, _NOTES)
            calls, requests = (str(own.with_suffix(each)) for each in (".events", ".requests"))
            _native.open_events(calls, requests, read("PYSHMEM_TRACE_EVENTS"), views)
        except OSError as error:
            refuse(ArgumentError, "trace", "path", f"{path}: {error}", "a file in a folder with space to write it")
        self._note(pe=job.my_pe, n_pes=job.n_pes, host=os.uname().nodename, pid=os.getpid())
        for name, number in self._names.items():
            self._note(name=(number, name))
        self.path, self._process = path, os.getpid()
        if interpreter.active():
            from pyshmem.timelines import kernels  # imports triton

            self._undo = kernels.install(self.number)
        else:
            from pyshmem.timelines.rings import Rings

            self._rings = Rings()
            self._rings.open()
        self.compare_clocks()
        if read("PYSHMEM_TRACE_TORCH"):
            from pyshmem.timelines.torch_calls import Watch

            self._torch = Watch(self.number)
            self._torch.__enter__()

    def compare_clocks(self) -> None:
        """Collective over all PEs."""
        if self.path is not None:
            self._note(clock=compared(job.comm, job.hosts))

    def listen(self, begins: bool) -> None:
        """Take part in init and finalize while a timeline is recorded. Collective over all PEs."""
        self.compare_clocks()
        if self._rings and begins:
            self._rings.open()
        elif self._rings:
            self._take_kernels(self._rings)

    def _take_kernels(self, rings: Rings) -> None:
        """Write the events of compiled kernels, which have ended, beside those of the host."""
        assert self.path is not None
        found = rings.drain(self.number)
        if found is not None:
            because = [limited(read("PYSHMEM_TRACE_EVENTS"))] if found.lost else []
            lost, error = appended(parts_of(self.path) / f"pe-{job.my_pe}.kernels", found.data)
            self._note(kernels=(found.lost + lost, found.error, because + error))

    def stop(self) -> None:
        """Record no more. The last PE that comes here writes the timeline."""
        if self._torch is not None:
            self._torch.__exit__(None, None, None)
            self._torch = None
        if self._rings and self._process == os.getpid():
            self._take_kernels(self._rings)
            self._rings = None
        path, self.path = self.path, None
        if path is not None and self._process == os.getpid():
            self._undo()
            _native.close_events()
            self._note(end=time.monotonic_ns())
            if self._notes >= 0:
                os.ftruncate(self._notes, os.lseek(self._notes, 0, os.SEEK_CUR))
                os.close(self._notes)
            self._notes = -1
            for line in finish(path):
                print(f"pyshmem: trace: {line}", file=sys.stderr, flush=True)


def appended(path: Path, data: bytes) -> tuple[int, list[str]]:
    """Append events to a file, as many as there is space for. Return how many were lost, and why."""
    left = memoryview(data)
    try:
        with path.open("ab", buffering=0) as file:
            first = file.tell()
            try:
                while left:
                    left = left[file.write(left) :]
            finally:
                file.truncate(first + (len(data) - len(left)) // EVENT_BYTES * EVENT_BYTES)
    except OSError as error:
        return -(-len(left) // EVENT_BYTES), [f"{path.name}: {error.strerror}"]
    return 0, []


recorder = Recorder()


def install() -> None:
    """Record all of the program if PYSHMEM_TRACE is set: calls become recorded ones as pyshmem is imported."""
    asked = read("PYSHMEM_TRACE")
    if not asked:
        return
    ranges.record, ranges.note = recorder.recorded, recorder.noted
    path = Path(os.path.abspath(asked))

    def listen(begins: bool) -> None:
        if begins and recorder.path is None:
            recorder.start(path)
        else:
            recorder.listen(begins)

    listeners.append(listen)
    atexit.register(recorder.stop)


def trace(path: str | os.PathLike[str]) -> AbstractContextManager[None]:
    """Record the calls of all PEs in the block of ``with``, and write them as a timeline. Collective over all PEs.

    path: a file whose name ends with .json, the same on all PEs, for ui.perfetto.dev, chrome://tracing and `pyshmem taxes`.
        It is there when the block has ended.
    Errors: NotInitializedError; ArgumentError for another name, a folder that cannot be written, or a second timeline.
    """
    require_init("trace")
    file = Path(os.path.abspath(path))
    if file.suffix != ".json":
        refuse(ArgumentError, "trace", "path", repr(str(path)), "a name that ends with .json")
    if recorder.path is not None:
        refuse(
            ArgumentError, "trace", "path", f"{str(path)!r} while {recorder.path} is recorded", "one timeline at a time"
        )
    return _recording(file)


@contextmanager
def _recording(file: Path) -> Iterator[None]:
    comm, generation = job.comm, job.generation
    undo = ranges.replace(recorder.recorded, recorder.noted)
    try:
        recorder.start(file)
        yield
        recorder.compare_clocks()
    finally:
        undo()
        recorder.stop()
    if comm is not None and job.inits and job.generation == generation:
        comm.Barrier()
