"""Operations on a PE of another node, which sleeps, computes in Python or waits in a call meanwhile, for any library."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.peers.case import FLOOD, Case, Step, differ, pattern
from benchmarks.peers.openshmem import OLD, OpenShmem

NAP = 0.005
STRIDE = 2  # of strided rows, in elements
STATEMENTS = {
    "put": "put(target, source, pe); quiet()",
    "flood": f"for _ in range({FLOOD}): put(target, source, pe)\nquiet()",
}


class FarStates(OpenShmem):
    def begin(self) -> None:
        """Make what the states need. Collective, at the end of __init__."""
        self.done, self.turn = self.symmetric(1), 0
        self.live.clear()  # it lives as long as the job
        self.states = {"asleep": self._sleep, "in Python": self._compute, "in a wait": self._wait}

    def far(self, nbytes: int, operation: str, state: str) -> Case:
        """Return the case of an operation under a state of its target."""
        if operation in STATEMENTS:
            case = self._put(nbytes, STATEMENTS[operation])
        elif operation == "p":
            case = self._word("p(word, 5, pe); quiet()", 5)
        elif operation in ("iput", "iget"):
            case = self._strided(nbytes, operation)
        else:
            found = self.case(operation, nbytes)
            assert found
            case = found
        return case._replace(ceiling="", meanwhile=self.states[state], release=self._release)

    def reachable(self, array: Any, pe: int) -> np.ndarray:
        """There is no faster way to measure beside: return this PE's array."""
        return self.values(array)

    def _strided(self, nbytes: int, operation: str) -> Case:
        """Every second element of both sides moves. nbytes: of those that do."""
        puts = operation == "iput"
        symmetric, private = self._pair(STRIDE * nbytes)
        target, source = (symmetric, private) if puts else (private, symmetric)
        self.values(source)[:] = pattern(self.me, STRIDE * nbytes)
        self.values(target)[:] = -1
        wanted = pattern(0 if puts else 1, STRIDE * nbytes)
        wanted[1::STRIDE] = -1

        def check(step: Step) -> str:
            self._between(step)
            return differ(self.me, self.values(target), wanted if self.me == int(puts) else -1)

        statement = f"{operation}(target, source, pe, {STRIDE}, {STRIDE}, {nbytes // 8})" + "; quiet()" * puts
        return self._case(statement, check, target=target, source=source)

    def idle(self, nbytes: int) -> Case:
        """The processor time of a second of sleep, after PEs have used their connections."""
        word = self.symmetric(1)
        right, left = (self.me + 1) % self.n_pes, (self.me - 1) % self.n_pes

        def check(step: Step) -> str:
            self._between(lambda: self.shmem.p(word, OLD + self.me, right))
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
        self.shmem.wait_until(self.done, self.shmem.CMP.GE, self.turn)

    def _release(self) -> None:
        self.turn += 1
        self.shmem.p(self.done, self.turn, self.peer)
        self.shmem.quiet()
