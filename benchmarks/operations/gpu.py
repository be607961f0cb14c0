"""The operations of benchmarks.gpu: pyshmem beside the copy engine, the driver's calls and kernels written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import pyshmem as shmem
from benchmarks import gpu_kernels as kernels
from benchmarks.accelerator import Accelerator
from benchmarks.in_job import ISSUE, ITSELF, Case
from benchmarks.operations.together import differ

OURS, ENGINE, HAND, MEMCPY, LAUNCH = "pyshmem", "copy engine", "by hand", "memcpyAsync", "kernel[grid]"
NO_GPU = "there is no GPU"
Ways = dict[str, "Case | str"]


class Operations:
    """PE 0 acts on the PE to its right, or all PEs do at once. Arrays hold a pattern that names its PE."""

    peers = (OURS, ENGINE, HAND, MEMCPY, LAUNCH)
    facts: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, accelerator: Accelerator, alone: bool) -> None:
        self.accelerator = accelerator
        self.me, self.n = shmem.my_pe(), shmem.n_pes()
        self.peer, self.left = (self.me + 1) % self.n, (self.me - 1) % self.n
        self.context = shmem.device_context()
        self.word, self.flag = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
        self.one = torch.full((1,), self.me + 1, dtype=torch.int64, device=accelerator.device)
        self.turn = 3  # odd and not 1, always: no number that Triton compiles anew for
        self.held = 0
        self.memcpy = _memcpy_of_cupy()

    def release(self) -> None:
        """The two large arrays stay, for the next row uses them too."""

    def close(self, status: int) -> None:
        shmem.finalize()

    # -- copies

    def host_put(self, nbytes: int) -> Ways:
        self._hold(nbytes)
        return self._puts("put(target, source, pe)", lambda: shmem.put(self.target, self.source, self.peer))

    def put_by_kernel(self, nbytes: int, programs: int, everybody: bool = False) -> Ways:
        self._hold(nbytes)
        kernel, count = self.accelerator.cached(kernels.put_shares), nbytes // 4
        grid = (self.accelerator.cut(programs, 32),)
        return self._puts(
            "each program puts its share",
            lambda: kernel(grid, self.context, self.target, self.source, count, self.peer, num_warps=8),
            everybody,
        )

    def get_by_kernel(self, nbytes: int, programs: int, everybody: bool = False) -> Ways:
        self._hold(nbytes)
        kernel, count = self.accelerator.cached(kernels.get_shares), nbytes // 4
        grid = (self.accelerator.cut(programs, 32),)
        steps: dict[str, Callable[[], object]] = {
            OURS: lambda: kernel(grid, self.context, self.source, self.target, count, self.peer, num_warps=8),
            ENGINE: lambda: self.accelerator.copy(self.source.data_ptr(), self.there.data_ptr(), nbytes),
        }
        return {
            name: _copy("each program gets its share" if name == OURS else ENGINE, step, self._check_get, everybody)
            for name, step in steps.items()
        }

    def put_to_all(self, nbytes: int) -> Ways:
        """Every PE sends a part of its source to every other at once."""
        self._hold(nbytes)
        each = nbytes // 4 // self.n
        peers = [pe % self.n for pe in range(self.me + 1, self.me + self.n)]
        inbox, source = self.target[: each * self.n].view(self.n, each), self.source[:each]
        programs = self.accelerator.cut(132 // len(peers) * 2, 4) * len(peers)
        kernel = self.accelerator.cached(kernels.put_to_all)

        def check(step: Callable[[], object]) -> str:
            source.copy_(self._pattern(self.me)[:each])
            inbox.fill_(-1)
            self._meet()
            step()
            self._meet()
            return "".join(differ(inbox[pe], self._pattern(pe)[:each]) for pe in peers)

        def ours() -> object:
            return kernel((programs,), self.context, inbox, source, each, num_warps=8)

        engines = self._engines([shmem.ptr(inbox, pe)[self.me] for pe in peers], source)
        return {
            OURS: _copy("programs take turns at the peers", ours, check, True),
            ENGINE: _copy("a copy and a stream for each peer", engines, check, True),
        }

    def _engines(self, places: list[torch.Tensor], source: torch.Tensor) -> Callable[[], None]:
        """A copy to each of the places, all at once."""
        if self.accelerator.interpreted:
            return lambda: [place.copy_(source) for place in places].clear()
        current, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in places]

        def engines() -> None:
            for stream, place in zip(streams, places, strict=True):
                stream.wait_stream(current)
                self.accelerator.copy(place.data_ptr(), source.data_ptr(), source.nbytes, stream.cuda_stream)
                current.wait_stream(stream)

        return engines

    def _puts(self, statement: str, ours: Callable[[], object], everybody: bool = False) -> Ways:
        def engine() -> None:
            self.accelerator.copy(self.there.data_ptr(), self.source.data_ptr(), self.source.nbytes)

        return {
            OURS: _copy(statement, ours, self._check_put, everybody),
            ENGINE: _copy(ENGINE, engine, self._check_put, everybody),
        }

    def _check_put(self, step: Callable[[], object]) -> str:
        self.source.copy_(self._pattern(self.me))
        self.target.fill_(-1)
        self._meet()
        step()
        self._meet()
        return differ(self.target, self._pattern(self.left))

    def _check_get(self, step: Callable[[], object]) -> str:
        self.target.copy_(self._pattern(self.me))
        self.source.fill_(-1)
        self._meet()
        step()
        self._meet()
        return differ(self.source, self._pattern(self.peer))

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

    def launch(self, nbytes: int) -> Ways:
        small = torch.zeros(16, dtype=torch.int32, device=self.accelerator.device)
        quick = self.accelerator.cached(kernels.nothing)

        def check(step: Callable[[], object]) -> str:
            small.zero_()
            step()
            self.accelerator.synchronize()
            return differ(small[:1], 1)

        steps: dict[str, Callable[[], object]] = {
            OURS: lambda: quick((1,), small, num_warps=1),
            LAUNCH: lambda: kernels.nothing[(1,)](small, num_warps=1),
        }
        return {name: _issue("an empty kernel", step, lambda step=step: check(step)) for name, step in steps.items()}

    def opening(self, nbytes: int) -> Ways:
        """Of a heap beside the one in use."""
        reopening = self.accelerator.reopening
        check = lambda: "" if reopening() > 0 else "it took no time; "  # noqa: E731
        return {OURS: NO_GPU if self.accelerator.interpreted else Case("GpuHeap.open", reopening, check, ITSELF)}

    # -- what they share

    def _hold(self, nbytes: int) -> None:
        """Have ``target``, symmetric, ``there``, the peer's, and ``source``, private."""
        if self.held == nbytes:
            return
        if self.held:
            shmem.free(self.target)
        self.held, count = nbytes, nbytes // 4
        self.target = shmem.zeros(count, dtype=torch.int32)
        self.source = torch.zeros(count, dtype=torch.int32, device=self.accelerator.device)
        self.there = shmem.ptr(self.target, self.peer)

    def _pattern(self, pe: int) -> torch.Tensor:
        return torch.arange(self.held // 4, dtype=torch.int32, device=self.accelerator.device) + 7919 * (pe + 1)

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


def _copy(statement: str, step: Callable[[], object], check: Callable[[Any], str], everybody: bool) -> Case:
    return Case(statement, step, lambda: check(step), calls=5, pes=None if everybody else (0,), lead=1)


def _issue(statement: str, step: Callable[[], object], check: Callable[[], str]) -> Case:
    return Case(statement, step, check, ISSUE, calls=100, lead=1)


def _memcpy_of_cupy() -> Callable[[int, int, int, int], None] | None:
    try:
        import cupy
    except ImportError:
        return None
    runtime = cupy.cuda.runtime
    return lambda dest, source, nbytes, stream: runtime.memcpyAsync(dest, source, nbytes, 4, stream)
