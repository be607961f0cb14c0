"""Compares the clock of the GPU that device calls read with the host's: time.monotonic_ns."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import torch
import triton

from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.targets import target_of

_ROUNDS = 64  # of which the fastest counts
_PATIENCE = 1 << 16  # polls of a word in the host's memory, each of about a microsecond
_SECOND = 10**9


@triton.jit
def answer(target, words, rounds, patience):
    """Write the time to words[i] once words[0] is i, for i from 1 to rounds; give up after so many polls."""
    for i in range(1, rounds + 1):
        polls = 0
        while (gpu.peek(target, words) < i) & (polls < patience):
            polls += 1
        if polls < patience:
            gpu.store_single(target, words + i, gpu.nanoseconds(target))


def compared(arch: str) -> tuple[int, int, int | None]:
    """Return (the GPU's time, what to add to it for the host's time, the most that this is wrong; None if unknown), in ns.

    It waits for the work on the current stream. The GPU answers while the host waits for each answer.
    """
    words = torch.zeros(_ROUNDS + 1, dtype=torch.int64, pin_memory=True)
    view: Any = words.numpy()
    torch.cuda.synchronize()
    answer[(1,)](target_of(arch), words, _ROUNDS, _PATIENCE, num_warps=1)
    found, start = [], monotonic_ns()
    for i in range(1, _ROUNDS + 1):
        before = monotonic_ns()
        view[0] = i
        while not view[i] and monotonic_ns() - start < 2 * _SECOND:
            pass
        after = monotonic_ns()
        if view[i]:
            found.append(((after - before) // 2 + 1, int(view[i]), (before + after) // 2))
    torch.cuda.synchronize()
    if not found:
        return 0, monotonic_ns(), None
    error, there, here = min(found)
    return there, here - there, error
