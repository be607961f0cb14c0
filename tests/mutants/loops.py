"""Loops of nothing but one call, or of one kernel, which prices.py times: PE 0 makes it, the other PE waits in a barrier.

Run: pyshmemrun -n 2 tests/mutants/loops.py NAME COUNT        prints the processor's seconds for COUNT turns on PE 0
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pyshmem as shmem  # before triton
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

WORDS = 512  # of each array
EVERYBODY = ("barrier_all", "sum_reduce")  # loops that all PEs run


@triton.jit
def ring(ctx, inbox, outbox, arrived, peer, turns, SIZE: tl.constexpr):
    """Each program loads and stores its part, sends it on and tells the receiver."""
    block = tl.program_id(0)
    places = block * SIZE + tl.arange(0, SIZE)
    for _turn in range(turns):
        tl.store(outbox + places, tl.load(outbox + places) + 1)
        dev.put(ctx, inbox + block * SIZE, outbox + block * SIZE, SIZE, peer)
        dev.fence(ctx)
        dev.signal_add(ctx, arrived, 1, peer)


@triton.jit
def triad(a, b, c, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(a + places, tl.load(b + places) + 2 * tl.load(c + places))


def loops() -> dict[str, Callable[[int], object]]:
    """One turn of each loop, given its number."""
    words = shmem.zeros(8, WORDS, dtype=torch.int64)
    inbox, outbox, target, signal, count = words[0], words[1], words[2], words[3, :1].view(torch.uint64), words[4, :1]
    rows = list(words[5].split(1))
    own = torch.ones(8, dtype=torch.int64)
    eight, block = inbox[:8], outbox[:8]
    ctx = shmem.device_context()

    def put_and_fence(_: int) -> None:
        shmem.put(eight, own, 1)
        shmem.fence()

    def put_and_quiet(_: int) -> None:
        shmem.put_nbi(eight, own, 1)
        shmem.quiet()

    return {
        "put": lambda _: shmem.put(eight, own, 1),
        "put and fence": put_and_fence,
        "put_nbi and quiet": put_and_quiet,
        "get": lambda _: shmem.get(own, eight, 1),
        "p": lambda turn: shmem.p(count, turn, 1),
        "p to one word after the other": lambda turn: shmem.p(rows[turn % WORDS], turn, 1),
        "g": lambda _: shmem.g(count, 1),
        "iput": lambda _: shmem.iput(inbox, own, 1, 2, 1, 8),
        "put_signal": lambda turn: shmem.put_signal(eight, own, 1, signal, turn, shmem.SIGNAL.SET),
        "atomic_fetch_add": lambda _: shmem.atomic_fetch_add(count, 1, 1),
        "atomic_add": lambda _: shmem.atomic_add(count, 1, 1),
        "atomic_set": lambda turn: shmem.atomic_set(count, turn, 1),
        "atomic_compare_swap": lambda turn: shmem.atomic_compare_swap(count, turn, turn + 1, 1),
        "signal_fetch": lambda _: shmem.signal_fetch(signal),
        "wait_until": lambda _: shmem.wait_until(count, ">=", 0),
        "test": lambda _: shmem.test(count, ">=", 0),
        "fill_": lambda turn: block.fill_(turn),
        "barrier_all": lambda _: shmem.barrier_all(),
        "sum_reduce": lambda _: shmem.sum_reduce(target, outbox),
        "kernel: ring": lambda _: ring[(8,)](ctx, inbox, outbox, signal, 1, 4, SIZE=64),
        "kernel: triad": lambda _: triad[(8,)](inbox, outbox, target, SIZE=64),
    }


def main() -> None:
    name, count = sys.argv[1], int(sys.argv[2])
    shmem.init()
    turn = loops()[name]
    for number in range(count // 100 + 1):  # what the first calls prepare
        if shmem.my_pe() == 0 or name in EVERYBODY:
            turn(number)
    shmem.barrier_all()
    begin = time.process_time()
    if shmem.my_pe() == 0 or name in EVERYBODY:
        for number in range(count):
            turn(number)
    seconds = time.process_time() - begin
    shmem.barrier_all()
    if shmem.my_pe() == 0:
        print(seconds, flush=True)


main()
