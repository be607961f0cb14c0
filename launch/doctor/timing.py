"""What `pyshmem doctor` times in kernels: a signal and a barrier."""

from __future__ import annotations

import time

import torch
import triton

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.base import interpreter

from .memory_kinds import Times


@triton.jit
def signal_in_turn(ctx, word, turns, other, first):  # type: ignore[no-untyped-def]
    for turn in range(1, turns + 1):
        if first == 1:
            dev.signal_set(ctx, word, turn, other)
        dev.signal_wait_until(ctx, word, dev.CMP_GE, turn)
        if first == 0:
            dev.signal_set(ctx, word, turn, other)


@triton.jit
def meet(ctx, turns):  # type: ignore[no-untyped-def]
    for _ in range(turns):
        dev.barrier_all(ctx)


def times() -> Times:
    """Return what a signal to the neighbour and a barrier of all PEs take, the largest of all PEs' times."""
    turns = 20 if interpreter.active() else 1000
    ctx, me = shmem.device_context(), shmem.my_pe()
    words = shmem.zeros(2, dtype=torch.uint64)
    here: list[float] = []
    for step, share in (("signal", 2 * turns), ("barrier", turns)):
        for word in (words[:1], words[1:]):  # the first launch compiles
            shmem.barrier_all()
            begun = time.perf_counter()
            if step == "barrier":
                meet[(1,)](ctx, turns)
            elif me ^ 1 < shmem.n_pes():
                signal_in_turn[(1,)](ctx, word, turns, me ^ 1, int(me % 2 == 0))
            shmem.barrier_all()
            passed = (time.perf_counter() - begun) / share * 1e6
        here.append(passed)
    found, source = shmem.zeros(2, dtype=torch.float64), shmem.zeros(2, dtype=torch.float64)
    source.copy_(torch.tensor(here))
    shmem.reduce(found, source, "max")
    return dict(zip(("signal", "barrier"), found.tolist(), strict=True))
