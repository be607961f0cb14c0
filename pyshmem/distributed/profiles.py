"""Calls of a process group as torch.profiler shows them: pyshmem:all_reduce, as others have gloo:all_reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import profiler

__all__ = ["profiler", "recorded"]


def recorded(routine: str, size: int, tensors: Sequence[torch.Tensor], start: Callable[[], Any], at_once: bool) -> Any:
    """Return the work of ``start``, recorded until it has returned or, for a call that goes on beside the program, ended.

    size: the number of members. Only called while a profiler runs, which ``profiler._is_profiler_enabled`` says.
    """
    record = profiler.record_function(f"pyshmem:{routine}", f"group size {size}")
    with torch.inference_mode(False):
        record.__enter__()
        try:
            work = start()
        except BaseException:
            record.__exit__(None, None, None)
            raise
        if at_once or any(each.is_cuda for each in tensors):  # the profiler sees the kernels by itself
            record.__exit__(None, None, None)
        else:
            record._call_end_callbacks_on_future(work.get_future())
    return work
