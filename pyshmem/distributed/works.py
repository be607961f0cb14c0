"""Calls of a process group that are under way: torch's Work, and the thread and the streams that perform them in order."""

from __future__ import annotations

import atexit
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pyshmem.base.errors import ArgumentError, ShmemError, WaitTimeoutError, refuse
from pyshmem.distributed.dispatch import untraced
from pyshmem.memory.gpu.heap import raw_stream


class Work(dist.Work):
    """A call that ends later. Threads may wait for it."""

    def __init__(self, routine: str, results: list[Any]) -> None:
        super().__init__()
        self.routine = routine
        self._results = results
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._future: Any = torch.futures.Future()

    def end(self, error: BaseException | None = None) -> None:
        """Wake those who wait. error: raised in them."""
        self._error = error
        with torch.inference_mode(False):  # the callbacks of the future are the program's
            if error is None:
                self._future.set_result(self._results)
            else:
                self._future.set_exception(error)
        self._ended.set()

    @untraced
    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0
        if not self.come(seconds if seconds > 0 else None):
            wants = "its end; wait takes a time-out"
            refuse(WaitTimeoutError, self.routine, "work", f"no end in {seconds:g} s", wants)
        if self._error is not None:
            raise self._error
        return True

    def come(self, seconds: float | None) -> bool:
        """Wait at most ``seconds``, and return whether the call has ended."""
        return self._ended.wait(seconds)

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def is_success(self) -> bool:
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[Any]:
        return self._results

    def get_future(self) -> Any:
        return self._future

    def synchronize(self) -> None:
        self.wait()


class Done(Work):
    """The Work of calls whose end is the caller's, who waits for nothing: on the current stream, or in the call itself."""

    def __init__(self) -> None:
        super().__init__("", [])
        self.end()

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True


DONE = Done()


class Enqueued(dist.Work):
    """A call that is on a stream, and ends there. ``wait`` makes the current stream wait for it."""

    def __init__(self, results: list[Any], stream: torch.cuda.Stream, end: torch.cuda.Event, used: list[Any]) -> None:
        """end: of the call.  used: what it uses, of another stream's memory, and is kept until somebody waits."""
        super().__init__()
        self._results, self._stream, self._event, self._used = results, stream, end, used

    @untraced
    def wait(self, timeout: timedelta | None = None) -> bool:
        torch.cuda.current_stream(self._stream.device).wait_event(self._event)
        self._used.clear()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return bool(self._event.query())

    def is_success(self) -> bool:
        return self.is_completed()

    def exception(self) -> BaseException | None:
        return None

    def result(self) -> list[Any]:
        return self._results

    @untraced
    def get_future(self) -> Any:
        future: Any = torch.futures.Future(devices=[self._stream.device])
        with torch.cuda.stream(self._stream):
            future.set_result(self._results)
        return future


class Calls:
    """The calls of a group one by one, until one ends in the middle: the members would be in different calls then."""

    def __init__(self) -> None:
        self.ended = ""  # the call that has ended in the middle, and by what

    def perform(self, routine: str, call: Callable[[], None]) -> None:
        """Errors: those of the call; ArgumentError after one that has ended in the middle."""
        if self.ended:
            wants = "a new group, on all its processes: no result is made of two calls"
            refuse(ArgumentError, routine, "group", f"a group whose {self.ended} on this PE", wants)
        try:
            call()
        except BaseException as error:
            if isinstance(error, WaitTimeoutError) or not isinstance(error, ShmemError):  # which refuse on all members
                self.ended = f"{routine} was ended by {type(error).__name__}"
            raise


class Streams:
    """Performs calls on tensors in GPU memory, on the current stream or, if nobody waits, on one beside it.

    The calls of a group follow each other, whatever their streams. CUDA graphs capture those on the current stream.
    While all calls are on one stream nothing is recorded: an event between two kernels costs both time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._beside = torch.cuda.Stream(device)
        self._last: torch.cuda.Stream | None = None  # of the last call
        self._raw = -1
        self._several = False  # whether calls were on several streams: the event then is the end of the last call
        self._event: torch.cuda.Event | None = None
        self._kept: deque[tuple[torch.cuda.Event, list[Any]]] = deque()

    def may_go_on(self) -> bool:
        """Return whether the current stream is that of the last call, so that the next one is in order there."""
        return self._raw == raw_stream(self._device.index) and not (
            self._several and torch._C._cuda_isCurrentStreamCapturing()
        )

    def went_on(self) -> None:
        """A call has been enqueued on the stream of the last one."""
        if self._several and self._last is not None:
            self._event = self._last.record_event()

    def perform(self, call: Callable[[], None], results: list[Any], used: Sequence[torch.Tensor], at_once: bool) -> Any:
        """Enqueue ``call`` and return its Work, whose wait makes the current stream wait."""
        if at_once and self.may_go_on():
            call()
            self.went_on()
            return DONE
        captured = torch._C._cuda_isCurrentStreamCapturing()
        now = torch.cuda.current_stream(self._device)
        stream = now if at_once or captured else self._beside
        if not captured:
            self._follow(stream)
        if stream != now:
            stream.wait_stream(now)
            torch.cuda.set_stream(stream)
        try:
            call()
        finally:
            if stream != now:
                torch.cuda.set_stream(now)
        if at_once:
            if not captured:
                self.went_on()
            return DONE
        end = stream.record_event()
        if not captured:
            self._event = end
        return Enqueued(results, stream, end, self._keep(end, used if stream != now else ()))

    def _follow(self, stream: torch.cuda.Stream) -> None:
        """Let ``stream`` wait for the last call, and be that of the next one."""
        if self._last is not None and self._last != stream:
            if not self._several:
                self._event, self._several = self._last.record_event(), True
            stream.wait_event(self._event)  # type: ignore[arg-type]
        self._last, self._raw = stream, stream.cuda_stream

    def _keep(self, end: torch.cuda.Event, used: Sequence[torch.Tensor]) -> list[Any]:
        """Keep tensors until the call has ended, or the program has waited: their memory is of another stream."""
        while self._kept and (not self._kept[0][1] or self._kept[0][0].query()):
            self._kept.popleft()
        kept: list[Any] = list(used)
        if kept:
            self._kept.append((end, kept))
        return kept


class Worker:
    """Performs calls in the order in which they were given: at once in the caller, or in a thread beside the program."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Work, Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Work | None = None

    def perform(self, routine: str, call: Callable[[], None], results: list[Any], at_once: bool) -> Any:
        """Perform ``call`` and return its Work. at_once: the caller waits for it in any case."""
        if self._thread is threading.current_thread():  # in a callback of a future: it cannot wait for this thread
            return _performed(Work(routine, results), call)
        if at_once and (self._last is None or self._last.is_completed()):
            self._last = None
            call()
            return DONE
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyshmem.distributed", daemon=True)
            self._thread.start()
            atexit.register(self.close, 1.0)
        self._last = work = Work(routine, results)
        self._calls.put((work, call))
        return work

    def close(self, seconds: float | None = None) -> None:
        """End the thread, after the calls that were given, at the exit of a program within ``seconds``.

        An interpreter that ends while a thread is in torch's code, which may just drop the tensors of a call, aborts.
        """
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join(seconds)
            self._thread = None
            atexit.unregister(self.close)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            _performed(*given)
            del given  # and with it the tensors


def _performed(work: Work, call: Callable[[], None]) -> Work:
    try:
        with torch.inference_mode():  # so that tensors made in it can be written
            call()
    except BaseException as error:  # noqa: BLE001  it is raised in who waits
        work.end(error)
    else:
        work.end()
    return work
