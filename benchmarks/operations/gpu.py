"""The operations of benchmarks.gpu: pyshmem beside the driver's calls and kernels written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import pyshmem as shmem
from benchmarks import gpu_kernels as kernels
from benchmarks.accelerator import Accelerator
from benchmarks.in_job import ISSUE, ITSELF, Case
from benchmarks.operations.together import differ

OURS, ENGINE, HAND, MEMCPY = "pyshmem", "copy engine", "by hand", "memcpyAsync"
NO_GPU = "there is no GPU"
Ways = dict[str, "Case | str"]


class Operations:
    """PE 0 acts on the PE to its right, or all PEs do at once."""

    peers = (OURS, ENGINE, HAND, MEMCPY)
    facts: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, accelerator: Accelerator, alone: bool) -> None:
        self.accelerator = accelerator
        self.me, self.n = shmem.my_pe(), shmem.n_pes()
        self.peer, self.left = (self.me + 1) % self.n, (self.me - 1) % self.n
        self.context = shmem.device_context()
        self.word, self.flag = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
        self.one = torch.full((1,), self.me + 1, dtype=torch.int64, device=accelerator.device)
        self.turn = 3  # odd and not 1, always: no number that Triton compiles anew for
        self.memcpy = _memcpy_of_cupy()

    def release(self) -> None:
        """Keep the words: all rows use them."""

    def close(self, status: int) -> None:
        shmem.finalize()

    # -- latency

    def ping_pong(self, nbytes: int, rounds: int) -> Ways:
        """A step is ``rounds`` turns there and back in one kernel; counted are ways."""
        turns = self.accelerator.cut(rounds, 20)

        def ours() -> None:
            kernels.ping_pong[(1,)](self.context, self.flag, self.turn, turns, num_warps=1)
            self.turn += turns

        words = self.flag.view(torch.int64)
        there = shmem.ptr(self.flag, 1 - self.me).view(torch.int64) if self.me < 2 else words

        def by_hand() -> None:
            kernels.ping_pong_by_hand[(1,)](words, there, self.turn, turns, ME=self.me, num_warps=1)
            self.turn += turns

        def case(statement: str, step: Callable[[], object]) -> Case:
            return Case(statement, step, lambda: self._check_ping_pong(step), per=2 * turns, pes=(0, 1), lead=1)

        hand = case("release and acquire on the peer's address", by_hand)
        reason = "" if self.accelerator.nvidia else "its loads are written in PTX, for NVIDIA's GPUs"
        return {OURS: case("signal_set; signal_wait_until", ours), HAND: reason or hand}

    def _check_ping_pong(self, step: Callable[[], object]) -> str:
        self._meet()
        if self.me < 2:
            step()
        self._meet()
        return differ(self.flag.view(torch.int64), self.turn - 1) if self.me < 2 else ""

    # -- calls of the host

    def host_put_word(self, nbytes: int) -> Ways:
        there, word, stream = shmem.ptr(self.word, self.peer).data_ptr(), self.one.data_ptr(), self.accelerator.stream()

        def case(statement: str, step: Callable[[], object]) -> Case:
            return _issue(statement, step, lambda: self._word(step, None, self.left + 1))

        memcpy = self.memcpy
        copy = self.accelerator.copy
        return {
            OURS: case("put(word, one, pe)", lambda: shmem.put(self.word, self.one, self.peer)),
            MEMCPY: case("CuPy's memcpyAsync", lambda: memcpy(there, word, 8, stream))
            if memcpy
            else "there is no CuPy",
            ENGINE: case("the driver's copy", lambda: copy(there, word, 8, stream)),
        }

    def host_p(self, nbytes: int) -> Ways:
        return self._on_word("p(word, 1, pe)", lambda: shmem.p(self.word, 1, self.peer), after=1)

    def host_g(self, nbytes: int) -> Ways:
        return self._on_word("g(word, pe)", lambda: shmem.g(self.word, self.peer), after=0, found=0)

    def host_fetch_add(self, nbytes: int) -> Ways:
        step = "atomic_fetch_add(word, 1, pe)"
        return self._on_word(step, lambda: shmem.atomic_fetch_add(self.word, 1, self.peer), after=1, found=0)

    def host_add(self, nbytes: int) -> Ways:
        return self._on_word("atomic_add(word, 1, pe)", lambda: shmem.atomic_add(self.word, 1, self.peer), after=1)

    def host_test(self, nbytes: int) -> Ways:
        return self._on_word('test(word, ">=", 0)', lambda: shmem.test(self.word, ">=", 0), after=0, found=True)

    def host_barrier(self, nbytes: int) -> Ways:
        def check() -> str:
            wrong = ""
            for turn in range(1, 51):
                shmem.p(self.word, turn, self.peer)
                shmem.barrier_all()
                wrong = wrong or differ(self.word, turn)
                shmem.barrier_all()
            return wrong

        return {OURS: _issue("barrier_all()", shmem.barrier_all, check)}

    def opening(self, nbytes: int) -> Ways:
        """Of a heap beside the one in use."""
        reopening = self.accelerator.reopening
        check = lambda: "" if reopening() > 0 else "it took no time; "  # noqa: E731
        return {OURS: NO_GPU if self.accelerator.interpreted else Case("GpuHeap.open", reopening, check, ITSELF)}

    # -- what they share

    def _on_word(self, statement: str, step: Callable[[], object], after: int, found: object = None) -> Ways:
        return {OURS: _issue(statement, step, lambda: self._word(step, found, after))}

    def _word(self, step: Callable[[], object], found: object, after: int) -> str:
        """One step of all PEs on words of 0 gives ``found``, where it fetches, and leaves ``after``."""
        self.word.zero_()
        self._meet()
        seen = step()
        fetched_wrong = found is not None and seen != found
        wrong = f"PE {self.me} fetched {seen}, not {found}; " if fetched_wrong else ""
        self._meet()
        return wrong + differ(self.word, after)

    def _meet(self) -> None:
        self.accelerator.synchronize()
        shmem.barrier_all()


def _issue(statement: str, step: Callable[[], object], check: Callable[[], str]) -> Case:
    return Case(statement, step, check, ISSUE, calls=100, lead=1)


def _memcpy_of_cupy() -> Callable[[int, int, int, int], None] | None:
    try:
        import cupy
    except ImportError:
        return None
    runtime = cupy.cuda.runtime
    return lambda dest, source, nbytes, stream: runtime.memcpyAsync(dest, source, nbytes, 4, stream)
