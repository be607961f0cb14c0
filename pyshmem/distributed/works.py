"""Calls of a process group that are under way: torch's Work, and the thread and the streams that perform them in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from pyshmem.runtime.errors import WaitTimeoutError, refuse


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
        if error is None:
            self._future.set_result(self._results)
        else:
            self._future.set_exception(error)
        self._ended.set()

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


def ended(results: list[Any]) -> Any:
    """Return the Work of a call that has ended."""
    future: Any = torch.futures.Future()
    future.set_result(results)
    return _create_work_from_future(future)


class Streams:
    """Performs calls on tensors in GPU memory, on the current stream or, if nobody waits, on one beside it.

    The calls of a group follow each other, whatever their streams. CUDA graphs capture those on the current stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._beside = torch.cuda.Stream(device)
        self._last: tuple[torch.cuda.Stream, torch.cuda.Event] | None = None

    def perform(self, call: Callable[[], None], results: list[Any], used: Sequence[torch.Tensor], at_once: bool) -> Any:
        """Enqueue ``call`` and return its Work, whose wait makes the current stream wait."""
        now = torch.cuda.current_stream(self._device)
        captured = torch.cuda.is_current_stream_capturing()
        stream = now if at_once or captured else self._beside
        if self._last is not None and self._last[0] != stream and not captured:
            stream.wait_event(self._last[1])
        if stream != now:
            stream.wait_stream(now)
        future: Any = torch.futures.Future(devices=[self._device])
        with torch.cuda.stream(stream):
            call()
            future.set_result(results)
            if not captured:
                self._last = stream, stream.record_event()
        for each in used if stream != now else ():
            if each.is_cuda:
                each.record_stream(stream)
        return _create_work_from_future(future)


class Worker:
    """Performs calls in the order in which they were given: at once in the caller, or in a thread beside the program."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Work, Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Work | None = None

    def perform(self, routine: str, call: Callable[[], None], results: list[Any], at_once: bool) -> Any:
        """Perform ``call`` and return its Work. at_once: the caller waits for it in any case."""
        if at_once and (self._last is None or self._last.is_completed()):
            self._last = None
            call()
            return ended(results)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyshmem.distributed", daemon=True)
            self._thread.start()
        self._last = work = Work(routine, results)
        self._calls.put((work, call))
        return work

    def close(self) -> None:
        """End the thread, after the calls that were given."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        with torch.inference_mode():  # so that tensors made in it can be written
            while (given := self._calls.get()) is not None:
                work, call = given
                try:
                    call()
                except BaseException as error:  # noqa: BLE001  it is raised in who waits
                    work.end(error)
                else:
                    work.end()
                del given, work, call  # and with them the tensors
