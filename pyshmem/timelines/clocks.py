"""Compares the clocks of the hosts of a job: all processes of one host share one, that since its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

_ROUNDS = 40  # of which the fastest counts


def compared(comm: Any, hosts: Sequence[str], now: Callable[[], int] = monotonic_ns) -> tuple[int, int, int]:
    """Return (the time here, how far this clock is ahead of PE 0's, the most that this is wrong). Collective over comm.

    One PE of each host asks PE 0 for its time; the answer is from between the question and its arrival. On PE 0's own host
    the difference is 0, and so is the error.
    """
    me = comm.rank
    first = {host: pe for pe, host in reversed(list(enumerate(hosts)))}  # the first PE of each
    found = 0, 0
    for host, pe in first.items():
        if host == hosts[0]:
            continue
        if me == 0:
            for _ in range(_ROUNDS):
                comm.recv(source=pe)
                comm.send(now(), dest=pe)
        elif me == pe:
            found = min((_asked(comm, now) for _ in range(_ROUNDS)), key=lambda each: each[1])
    every = comm.allgather(found) if len(first) > 1 else [found]
    return now(), *(every[first[hosts[me]]] if len(first) > 1 else found)


def _asked(comm: Any, now: Callable[[], int]) -> tuple[int, int]:
    before = now()
    comm.send(None, dest=0)
    there = comm.recv(source=0)
    after = now()
    return (before + after) // 2 - there, (after - before) // 2 + 1
