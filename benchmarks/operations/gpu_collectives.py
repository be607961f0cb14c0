"""The operations of benchmarks.gpu_collectives: pyshmem beside NCCL and torch's symmetric memory, and inside kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

import pyshmem as shmem
from benchmarks import gpu_kernels as kernels
from benchmarks.accelerator import Accelerator
from benchmarks.gpu_collectives import BARE, BOUND, ENGINE
from benchmarks.in_job import EVENTS, GRAPH, Case
from benchmarks.operations.rivals import DTYPE, NCCL, ONE_SHOT, TWO_SHOT, Step, Way
from benchmarks.operations.together import Together, differ
from benchmarks.rows import KIB, MIB

OURS, HAND = "pyshmem", "by hand"
TURNS = 500  # in a kernel
PLACES = 6
ERROR = 5e-3
Ways = dict[str, "Case | str"]
Move = tuple[str, Callable[..., object], torch.Tensor]  # statement, call, result


class Operations(Together):
    """All PEs act. Arrays hold random numbers, of a generator that each PE can seed for any other."""

    peers = (OURS, ENGINE, BARE, NCCL, ONE_SHOT, TWO_SHOT, HAND)

    def __init__(self, accelerator: Accelerator, alone: bool) -> None:
        super().__init__(accelerator, alone)
        self.begun = 3  # odd: no number that Triton compiles anew for
        self.turns = accelerator.cut(TURNS, 5)

    # -- collectives on a stream

    def _bare_launch(self, calls: int) -> Case | str:
        """The least that a call from Python can take: the driver's launch of a kernel, from C."""
        word = torch.zeros(1, dtype=torch.int32, device=self.accelerator.device)
        step = self.accelerator.bare(kernels.nothing, word, captured=False)
        if step is None:
            return "there is no GPU"

        def check() -> str:
            step()
            return "" if word.item() == 1 else "it stored nothing; "

        return Case("the driver's launch of a kernel of one store", step, check, EVENTS, calls)

    def _copies(self, nbytes: int, how: str, calls: int) -> Case | str:
        """Send as many bytes as an all_reduce does, from each PE to all others at once, by the copy engines alone."""
        count = 2 * nbytes // DTYPE.itemsize // self.n
        source = self._random(self.me, count)
        target = self._symmetric(torch.zeros((self.n, count), dtype=DTYPE, device=self.accelerator.device))
        others = [pe for pe in range(self.n) if pe != self.me]
        there = [shmem.ptr(target[self.me], pe) for pe in others]
        if not all(self.comm.allgather(all(each is not None for each in there))):
            return "not all PEs reach each other's memory"

        def step() -> None:
            for each in there:
                self.accelerator.copy(each.data_ptr(), source.data_ptr(), source.nbytes)

        def check() -> str:
            self._meet()
            step()
            self._meet()
            wrong = [pe for pe in others if not torch.equal(target[pe], self._random(pe, count))]
            return f"PE {self.me} has other elements from PEs {wrong}; " if wrong else ""

        return Case("the driver's copies to all others", step, check, how, calls)

    def reduce(self, nbytes: int, how: str) -> Ways:
        count = nbytes // DTYPE.itemsize
        source = self._symmetric(self._random(self.me, count))
        target = self._symmetric(torch.zeros_like(source))
        wanted = sum((self._random(pe, count).double() for pe in range(1, self.n)), self._random(0, count).double())
        calls = _calls(nbytes) if how == GRAPH else 200

        def ours() -> None:
            shmem.reduce_on_stream(target, source)

        def check() -> str:
            """Not a number before, the sum after, whichever PE looks; three times."""
            wrong = ""
            for _ in range(3):
                target.fill_(float("nan"))
                ours()
                wrong = wrong or self._off(target, wanted)
            return wrong

        ways: Ways = {OURS: Case("reduce_on_stream(target, source)", ours, check, how, calls)}
        if nbytes >= BOUND:
            ways[ENGINE] = self._copies(nbytes, how, calls)
        if how == EVENTS:
            ways[BARE] = self._bare_launch(calls)
        if self.rivals is None:
            return ways | dict.fromkeys((NCCL, ONE_SHOT, TWO_SHOT), self.reason)
        for name, way in self.rivals.reductions(count).items():
            ways[name] = way if isinstance(way, str) else self._rival(way, source, wanted, how, calls)
        return ways

    def _rival(self, way: Way, source: torch.Tensor, wanted: torch.Tensor, how: str, calls: int) -> Case:
        statement, step, array = way
        return Case(statement, step, lambda: self._check(step, array, source, wanted), how, calls)

    def _check(self, step: Step, array: torch.Tensor, source: torch.Tensor, wanted: torch.Tensor) -> str:
        """A rival's sum. Its array holds zeros afterwards, so that sums in place do not grow."""
        array.copy_(source)
        self._meet()
        result = step()
        wrong = self._off(result if isinstance(result, torch.Tensor) else array, wanted)
        self._meet()
        array.zero_()
        self._meet()
        return wrong

    def broadcast(self, nbytes: int, how: str) -> Ways:
        source, target, theirs = self._movement(nbytes, 1)
        theirs.copy_(source)
        return self._moves(
            ("broadcast_on_stream(target, source, 0)", lambda: shmem.broadcast_on_stream(target, source, 0), target),
            ("broadcast, in place", lambda dist: dist.broadcast(theirs, 0), theirs),
            self._random(0, source.numel()),
            how,
            source if self.me == 0 else None,
        )

    def barrier(self, nbytes: int, how: str) -> Ways:
        """The check of barriers on streams: what a put before it wrote, a copy after it reads."""
        right, word = (self.me + 1) % self.n, self._symmetric(torch.zeros(1, dtype=torch.int64))
        sent = torch.zeros(1, dtype=torch.int64, device=self.accelerator.device)

        def check() -> str:
            wrong = ""
            for turn in range(1, 21):
                shmem.put(word, sent.fill_(turn), right)
                shmem.barrier_on_stream()
                wrong = wrong or differ(word.clone(), turn)
                shmem.barrier_on_stream()
            return wrong

        return {OURS: Case("barrier_on_stream()", shmem.barrier_on_stream, check, how, _calls(0))}

    def all_gather(self, nbytes: int, how: str = EVENTS) -> Ways:
        source, target, theirs = self._movement(nbytes, self.n)
        wanted = torch.cat([self._random(pe, source.numel()) for pe in range(self.n)])
        return self._moves(
            ("fcollect_on_stream(target, source)", lambda: shmem.fcollect_on_stream(target, source), target),
            ("all_gather_into_tensor", lambda dist: dist.all_gather_into_tensor(theirs, source), theirs),
            wanted,
            how,
        )

    def all_to_all(self, nbytes: int, how: str = EVENTS) -> Ways:
        source, target, theirs = self._movement(nbytes, 1)
        wanted = torch.cat([self._random(pe, source.numel()).chunk(self.n)[self.me] for pe in range(self.n)])
        return self._moves(
            ("alltoall_on_stream(target, source)", lambda: shmem.alltoall_on_stream(target, source), target),
            ("all_to_all_single", lambda dist: dist.all_to_all_single(theirs, source), theirs),
            wanted,
            how,
        )

    def _movement(self, nbytes: int, blocks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = nbytes // DTYPE.itemsize // self.n * self.n  # whole shares, for three PEs too
        source = self._symmetric(self._random(self.me, count))
        zeros = torch.zeros(count * blocks, dtype=DTYPE, device=self.accelerator.device)
        return source, self._symmetric(zeros), zeros

    def _moves(
        self, ours: Move, theirs: Move, wanted: torch.Tensor, how: str, kept: torch.Tensor | None = None
    ) -> Ways:
        """kept: what NCCL's array holds before a call in place, where it is the root's."""

        def check(step: Step, result: torch.Tensor) -> str:
            result.fill_(float("nan"))
            if kept is not None and result is not target:
                result.copy_(kept)
            self._meet()
            step()
            self.accelerator.synchronize()
            same = torch.equal(result.view(torch.int16), wanted.view(torch.int16))
            return "" if same else f"PE {self.me} has other elements; "

        statement, step, target = ours
        calls = 3 if how == EVENTS else 20
        ways: Ways = {OURS: Case(statement, step, lambda: check(step, target), how, calls)}
        if self.rivals is None:
            return ways | {NCCL: self.reason}
        name, call, result = theirs
        dist = self.rivals.dist

        def rival() -> object:
            return call(dist)

        return ways | {NCCL: Case(name, rival, lambda: check(rival, result), how, calls)}

    # -- inside kernels that make many calls; counted is one of them

    def barriers(self, nbytes: int) -> Ways:
        """A barrier's time depends on where its words lie in the GPU's memory, by a tenth: each step they lie elsewhere.

        Each place is a team's. Its context comes by once before the first sample.
        """
        teams = [shmem.TEAM_WORLD.split_strided(0, 1, self.n) for _ in range(PLACES - 1)]
        each = [shmem.device_context(), *map(shmem.device_context, teams)]
        contexts = itertools.cycle(each)
        word = self._symmetric(torch.zeros(1, dtype=torch.int64))
        wrong = torch.zeros(1, dtype=torch.int32, device=self.accelerator.device)

        def barriers() -> None:
            kernels.barriers[(1,)](next(contexts), self.turns, num_warps=4)

        def check() -> str:
            found = ""
            for context in each:
                self._meet()
                kernels.barriers_seen[(1,)](context, word, wrong, self.turns, num_warps=4)
                self.accelerator.synchronize()
                missed = int(wrong.item())
                found += f"PE {self.me} missed a store after {missed} barriers; " if missed else ""
            return found

        hand = (
            self._barriers_by_hand() if self.accelerator.nvidia else "its kernel is written in PTX, for NVIDIA's GPUs"
        )
        return {OURS: Case("barrier_all(ctx)", barriers, check, per=self.turns, warm=PLACES), HAND: hand}

    def _barriers_by_hand(self) -> Case | str:
        stride, turns = self.accelerator.stride, self.turns
        if not stride or self.n > 32:
            return "its kernel is for up to 32 PEs with heaps at equal distances"
        rows = self._symmetric(torch.zeros((PLACES, 1040), dtype=torch.int64))
        places = itertools.cycle(rows)

        def step() -> torch.Tensor:
            place = next(places)
            number = self.begun
            kernels.barriers_by_hand[(1,)](place, stride, self.me, self.n, number, turns, num_warps=1)
            self.begun += turns
            return place

        def check() -> str:
            self._meet()
            place = step()
            self._meet()
            last = bool((place[: self.n] == self.begun - 1).all())
            return "" if last else f"PE {self.me} lacks the last number of a PE; "

        return Case("st.release; ld.acquire", step, check, per=turns, warm=PLACES)

    def reductions(self, nbytes: int, warps: int) -> Ways:
        context, count = shmem.device_context(), nbytes // DTYPE.itemsize
        out = torch.zeros(count, dtype=DTYPE, device=self.accelerator.device)

        def step() -> None:
            kernels.reductions[(1,)](context, out, self.turns, count, num_warps=warps)

        def check() -> str:
            out.zero_()
            self._meet()
            step()
            self.accelerator.synchronize()
            return "" if bool((out == 1).all()) else f"PE {self.me} has other means of ones than 1; "

        return {OURS: Case("all_reduce(ctx, tile)", step, check, per=self.turns)}

    # -- what they share

    def _random(self, pe: int, count: int) -> torch.Tensor:
        """What the source of ``pe`` holds."""
        generator = torch.Generator(self.accelerator.device).manual_seed(pe + 1)
        return torch.randn(count, device=self.accelerator.device, generator=generator).to(DTYPE)

    def _off(self, result: torch.Tensor, wanted: torch.Tensor) -> str:
        """What is wrong with a sum: far from float64's, or other bits than on other PEs."""
        self.accelerator.synchronize()
        error = ((result.double() - wanted).norm() / wanted.norm()).item()
        bits = self.comm.allgather(result.view(torch.int16).to(torch.int64).sum().item())
        wrong = "" if error < ERROR else f"PE {self.me} has a relative error of {error:.1e}; "
        return wrong + ("" if len(set(bits)) == 1 else f"PE {self.me} sees different bits on the PEs; ")


def _calls(nbytes: int) -> int:
    """Calls in a graph: GPUs start it up to some ten microseconds after each other, which is to be lost in its time.

    In a graph of 200 small calls each of NCCL's took twice as long as in one of 20.
    """
    return 40 if nbytes <= 64 * KIB else 20 if nbytes < 8 * MIB else 2
