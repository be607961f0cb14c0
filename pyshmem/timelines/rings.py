"""The events of the GPU, of compiled kernels and of copies: read after the kernels, and made like those of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import pyshmem.device as dev
from pyshmem.base import layout
from pyshmem.base.environment import read
from pyshmem.base.kernel_timeouts import ROUTINES
from pyshmem.device.arch.rules import code_of
from pyshmem.diagnosis.event_ring import ring
from pyshmem.kernels.clock import compared
from pyshmem.memory.gpu.heap import gpu
from pyshmem.timelines.events import FAR, SPAN
from pyshmem.timelines.streams import Copies


class Taken(NamedTuple):
    """data: event_t of all of them.  lost: how many more there were.  error: of the times, in nanoseconds; None: unknown."""

    data: bytes
    lost: int
    error: int | None


Clock = tuple[int, int, "int | None"]  # as pyshmem.kernels.clock.compared gives it
ROW = np.dtype(layout.fields("event_t"))
TEXT = "place", "value", "before"  # where a span has its name


class Rings:
    """The recording of this PE's compiled kernels, and of its copies on streams."""

    def __init__(self) -> None:
        self._began: Clock | None = None
        self._copies: Copies

    def open(self) -> None:
        """Record from now on, if there is a GPU heap."""
        if gpu.size and self._began is None:
            gpu.enter()
            ring.open(read("PYSHMEM_TRACE_EVENTS"), f"cuda:{gpu.index}")
            self._began = compared(gpu.arch)
            self._copies = Copies(gpu, read("PYSHMEM_TRACE_EVENTS"))
            self._copies.open()

    def drain(self, number_of: Callable[[str], int]) -> Taken | None:
        """Record no more. Returns: what was recorded; None without a GPU heap. number_of: gives the number of a name."""
        if self._began is None:
            return None
        torch.cuda.synchronize()
        copies, lost_copies, inexact = self._copies.drain(number_of("copy"))
        data, lost = ring.close()
        first, self._began = self._began, None
        last = compared(gpu.arch)
        rows = settled(np.frombuffer(data, ROW), first, last, number_of)
        errors = [each[2] for each in (first, last) if each[2] is not None]
        error = max(*errors, inexact) if len(errors) == 2 else None
        return Taken(rows.tobytes() + copies, lost + lost_copies, error)


def settled(rows: Any, first: Clock, last: Clock, number_of: Callable[[str], int]) -> Any:
    """The events of a ring as those of the host are. first, last: the clocks before and after them."""
    rows = rows[rows["end"] != 0].copy()  # a kernel that failed has left others
    for each in ("begin", "end"):
        rows[each] = host_times(rows[each], first, last)
    rows["flags"] |= np.where(np.isin(rows["pe"], list(gpu.far_deltas)), FAR, 0).astype("u1")
    spans = rows["op"] == SPAN
    known = *dev.__all__, *ROUTINES  # type: ignore[attr-defined]  # collectives on streams are not in dev
    names = {code_of(name): f"dev.{name}" for name in known}
    for code in np.unique(rows["name"][~spans]):
        rows["name"][(rows["name"] == code) & ~spans] = number_of(names.get(int(code), f"dev call {code}"))
    texts = np.stack([rows[each][spans].astype("i8") for each in TEXT], axis=1)
    for text in np.unique(texts, axis=0):
        same = np.flatnonzero(spans)[(texts == text).all(axis=1)]
        rows["name"][same] = number_of(text.tobytes().rstrip(b"\0").decode(errors="replace"))
    for each in TEXT:
        rows[each][spans] = 0
    return rows


def host_times(times: Any, first: Clock, last: Clock) -> Any:
    """Times of the GPU on the host's clock: between two comparisons of the clocks, in proportion."""
    share = np.clip((times - first[0]) / max(1, last[0] - first[0]), 0, 1)
    return times + first[1] + np.rint((last[1] - first[1]) * share).astype(np.int64)
