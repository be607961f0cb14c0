"""What a GPU did while the host made a call: the spans of its kernels and copies, from torch's profiler."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Span = tuple[str, int, float, float]  # name, stream, start and end in microseconds from the first start
_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")


def spans_of(step: Callable[[], object], calls: int = 4) -> list[Span]:
    """Make calls and return the last one's spans on this PE's GPU, in order of their starts.

    The first call in a profile waits for PEs whose profilers begin later.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        return last_of(spans_in(json.loads(path.read_text())), calls)


def last_of(spans: list[Span], calls: int) -> list[Span]:
    """Return the spans of the last of ``calls`` equal calls, none of which begins before its predecessor has ended."""
    last = spans[len(spans) - len(spans) // calls :]
    first = last[0][2] if last else 0.0
    return [(name, stream, start - first, end - first) for name, stream, start, end in last]


def spans_in(trace: dict[str, Any]) -> list[Span]:
    """Return the spans of a trace in Chrome's format, whose times are microseconds."""
    events = [each for each in trace["traceEvents"] if each.get("ph") == "X" and each.get("cat") in _KINDS]
    events.sort(key=lambda each: float(each["ts"]))
    first = float(events[0]["ts"]) if events else 0.0
    return [
        (each["name"], int(each["tid"]), float(each["ts"]) - first, float(each["ts"]) + float(each["dur"]) - first)
        for each in events
    ]
