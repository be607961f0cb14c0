"""pyshmem between two nodes: PE 0 acts on PE 1, which sleeps, computes or waits meanwhile."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

import pyshmem as shmem
from benchmarks.peers.case import FLOOD, Case, Step, differ
from benchmarks.peers.openshmem import OLD
from benchmarks.peers.pyshmem import Library as OneNode

NAP = 0.005
STATEMENTS = {
    "put": "put(target, source, pe); quiet()",
    "flood": f"for _ in range({FLOOD}): put(target, source, pe)\nquiet()",
}


class Library(OneNode):
    def __init__(self) -> None:
        super().__init__()
        self.done, self.turn = shmem.zeros(1, dtype=torch.int64), 0
        self.states = {"asleep": self._sleep, "in Python": self._compute, "in a wait": self._wait}

    def far(self, nbytes: int, operation: str, state: str) -> Case:
        """Return the case of an operation under a state of its target."""
        if operation in STATEMENTS:
            case = self._put(nbytes, STATEMENTS[operation])
        elif operation == "p":
            case = self._word("p(word, 5, pe); quiet()", 5)
        else:
            found = self.case(operation, nbytes)
            assert found
            case = found
        return case._replace(ceiling="", meanwhile=self.states[state], release=self._release)

    def reachable(self, array: Any, pe: int) -> np.ndarray:
        """There is no faster way to measure beside: return this PE's array."""
        return self.values(array)

    def idle(self, nbytes: int) -> Case:
        """The processor time of a second of sleep, after PEs have used their connections."""
        word = self.symmetric(1)
        right, left = (self.me + 1) % self.n_pes, (self.me - 1) % self.n_pes

        def check(step: Step) -> str:
            self._between(lambda: shmem.p(word, OLD + self.me, right))
            return differ(self.me, self.values(word), OLD + left)

        names = {"sleep": time.sleep}
        return Case("sleep(1)", names, check, None, timer=time.process_time)

    # -- what the target does

    def _sleep(self) -> None:
        self.turn += 1
        seen = self.values(self.done)
        while seen[0] < self.turn:
            time.sleep(NAP)

    def _compute(self) -> None:
        self.turn += 1
        seen = self.values(self.done)
        while seen[0] < self.turn:
            pass

    def _wait(self) -> None:
        self.turn += 1
        shmem.wait_until(self.done, shmem.CMP.GE, self.turn)

    def _release(self) -> None:
        self.turn += 1
        shmem.p(self.done, self.turn, self.peer)
        shmem.quiet()
