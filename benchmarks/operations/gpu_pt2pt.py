"""The operations of benchmarks.gpu_pt2pt: pyshmem beside the copy engine and torch's symmetric memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import torch

import pyshmem as shmem
from benchmarks import gpu_kernels, sweep_kernels
from benchmarks.accelerator import Accelerator
from benchmarks.in_job import EVENTS, GRAPH, ISSUE, Case
from benchmarks.operations.together import Together, differ
from benchmarks.rows import KIB, MIB

OURS, ENGINE, TORCH, BARE, LAUNCH = "pyshmem", "copy engine", "symm. memory", "bare launch", "kernel[grid]"
BLOCK = 4096  # elements of a tile
FOOTPRINT = 512 * MIB  # bytes that reads go over, more than the caches of a GPU hold
LINES = 4 * KIB  # bytes between the parts of small reads, more than a cache fetches at once
PROGRAMS = 264
SHARE = 16 * KIB  # bytes of a program, where there are fewer than PROGRAMS
TURNS = 1001  # of calls on words: odd, so that Triton compiles nothing anew
TILE = 1024  # words of a tile of atomics
# number, whether it counts
KINDS = {"P": (0, True), "G": (1, False), "FETCH_ADD": (2, True), "COMPARE_SWAP": (3, True)}
ONE, BOTH = (0,), (0, 1)
Ways = dict[str, "Case | str"]
Step = Callable[[], object]


class Move(NamedTuple):
    """``source`` on ``sender`` comes to ``target`` here when all PEs have made a step. PEs of ``pes`` are timed.

    first: the first element that comes, where the source is larger than the target.
    """

    target: torch.Tensor
    source: torch.Tensor
    sender: int
    pes: Collection[int] = ONE
    first: int = 0


class Operations(Together):
    """PE 0 acts on the PE to its right, or two PEs act on each other. Arrays hold a pattern that names its PE."""

    peers = (OURS, ENGINE, TORCH, BARE, LAUNCH)

    def __init__(self, accelerator: Accelerator, alone: bool) -> None:
        super().__init__(accelerator, alone)
        self.right, self.left = (self.me + 1) % self.n, (self.me - 1) % self.n
        self.other = self.me ^ 1 if self.me ^ 1 < self.n else self.me
        self.context = shmem.device_context()
        self.cell = shmem.zeros(1, dtype=torch.int64)
        self.seen = torch.zeros(1, dtype=torch.int64, device=accelerator.device)
        self.turns = accelerator.cut(TURNS, 5)

    # -- bytes, by the host

    def host_put(self, nbytes: int) -> Ways:
        target, source = self._arrays(nbytes)
        there = shmem.ptr(target, self.right)

        def put() -> None:
            shmem.put(target, source, self.right)
            shmem.quiet()

        def engine() -> None:
            self._copy(there, source)
            self._wait()

        move = Move(target, source, self.left)
        ways = self._host("put(target, source, pe); quiet()", put, engine, move)
        return ways | {TORCH: self._by_torch(move) if self.rivals else self.reason}

    def host_get(self, nbytes: int) -> Ways:
        source, target = self._arrays(nbytes)
        there = shmem.ptr(source, self.right)

        def get() -> None:
            shmem.get(target, source, self.right)
            self._wait()

        def engine() -> None:
            self._copy(target, there)
            self._wait()

        return self._host("get(target, source, pe)", get, engine, Move(target, source, self.right))

    def _host(self, statement: str, ours: Step, engine: Step, move: Move) -> Ways:
        calls = _calls(move.source.nbytes)
        steps = {OURS: (statement, ours), ENGINE: ("the driver's copy, synchronize", engine)}
        return {
            name: Case(text, step, partial(self._check, step, move), ISSUE, calls, pes=ONE, lead=2)
            for name, (text, step) in steps.items()
        }

    def _by_torch(self, move: Move) -> Case:
        assert self.rivals is not None
        mapped, there = self.rivals.buffer(move.source.numel(), self.right)

        def put() -> None:
            there.copy_(move.source)
            self._wait()

        check = partial(self._check, put, move._replace(target=mapped))
        calls = _calls(move.source.nbytes)
        return Case("get_buffer(pe).copy_(source), synchronize", put, check, ISSUE, calls, pes=ONE, lead=2)

    def host_put_both(self, nbytes: int) -> Ways:
        target, source = self._arrays(nbytes)
        return self._streamed(
            "put(target, source, pe)",
            lambda: shmem.put(target, source, self.other),
            Move(target, source, self.other, BOTH),
            self.other,
        )

    def pair(self, nbytes: int, origin: int, dest: int) -> Ways:
        """PE ``origin`` puts to ``dest``; in the check all PEs do, as far to the right."""
        target, source = self._arrays(nbytes)
        far = dest - origin
        pe, sender = (self.me + far) % self.n, (self.me - far) % self.n
        if not all(self.comm.allgather(shmem.ptr(target, pe) is not None)):
            return {OURS: f"not all PEs reach the memory of the PE {far} to the right"}
        move = Move(target, source, sender, (origin,))
        return self._streamed("put(target, source, pe)", lambda: shmem.put(target, source, pe), move, pe)

    def _streamed(self, statement: str, ours: Step, move: Move, pe: int) -> Ways:
        """Calls of the host whose copies the GPU's events time."""
        there = shmem.ptr(move.target, pe)
        steps = {OURS: (statement, ours), ENGINE: ("the driver's copy", lambda: self._copy(there, move.source))}
        return {
            name: Case(text, step, partial(self._check, step, move), EVENTS, 5, pes=move.pes, lead=1)
            for name, (text, step) in steps.items()
        }

    # -- bytes, in kernels

    def kernel_put(self, nbytes: int, quiet: bool) -> Ways:
        target, source = self._arrays(nbytes)
        step = self._kernel(sweep_kernels.puts, nbytes, (target, source, self.right), 1 if quiet else 0, QUIET=quiet)
        statement = "put(ctx, target, source, n, pe)" + ("; quiet(ctx)" if quiet else "")
        return self._in_kernel(statement, step, Move(target, source, self.left), shmem.ptr(target, self.right), source)

    def kernel_put_both(self, nbytes: int) -> Ways:
        target, source = self._arrays(nbytes)
        step = self._kernel(sweep_kernels.puts, nbytes, (target, source, self.other), QUIET=False)
        move = Move(target, source, self.other, BOTH)
        return self._in_kernel("put(ctx, target, source, n, pe)", step, move, shmem.ptr(target, self.other), source)

    def tile_store(self, nbytes: int) -> Ways:
        target, source = self._arrays(nbytes)
        step = self._kernel(sweep_kernels.stores, nbytes, (target, source, self.right), BLOCK=BLOCK)
        move = Move(target, source, self.left)
        return self._in_kernel("store(ctx, at, tile, pe)", step, move, shmem.ptr(target, self.right), source)

    def kernel_get(self, nbytes: int) -> Ways:
        return self._read(sweep_kernels.gets, nbytes, "get(ctx, target, source, n, pe)")

    def tile_load(self, nbytes: int) -> Ways:
        return self._read(sweep_kernels.loads, nbytes, "load(ctx, at, pe)", BLOCK=BLOCK)

    def _read(self, kernel: Any, nbytes: int, statement: str, **constants: Any) -> Ways:
        """Each turn reads another part of FOOTPRINT: the second read of one would come from a cache of this GPU."""
        footprint = max(self.accelerator.cut(FOOTPRINT, MIB), nbytes)
        stride = max(nbytes, LINES)
        parts = footprint // stride
        source, _ = self._arrays(footprint)
        target = torch.zeros(nbytes // 4, dtype=torch.int32, device=self.accelerator.device)
        step = self._kernel(kernel, nbytes, (target, source, self.right), parts=parts, stride=stride // 4, **constants)
        last = (self._many(nbytes) - 1) % parts * stride // 4
        move = Move(target, source, self.right, first=last)
        return self._in_kernel(statement, step, move, target, shmem.ptr(source, self.right))

    def _kernel(self, kernel: Any, nbytes: int, operands: tuple[Any, ...], programs: int = 0, **constants: Any) -> Step:
        """A launch of many calls, by ``programs`` or else by as many as the size has shares for."""
        target, source, pe = operands
        programs = self.accelerator.cut(programs or min(PROGRAMS, -(-nbytes // SHARE)), 4)
        turns = self._many(nbytes)
        return lambda: kernel[(programs,)](
            self.context, target, source, nbytes // 4, pe, turns, num_warps=8, **constants
        )

    def _in_kernel(self, statement: str, ours: Step, move: Move, to: torch.Tensor, of: torch.Tensor) -> Ways:
        nbytes = move.target.nbytes
        check, engine = partial(self._check, ours, move), partial(self._copy, to, of)
        move = move._replace(first=0)  # the engine copies the first part
        return {
            OURS: Case(statement, ours, check, per=self._many(nbytes), pes=move.pes, lead=1),
            ENGINE: Case(
                ENGINE, engine, partial(self._check, engine, move), EVENTS, _calls(nbytes), pes=move.pes, lead=1
            ),
        }

    def _many(self, nbytes: int) -> int:
        """Calls of a launch: so many that the launch, during which the GPU idles, takes less than a hundredth of them.

        Odd, so that Triton compiles nothing anew.
        """
        return self.accelerator.cut(1001 if nbytes <= 64 * KIB else 201 if nbytes <= 4 * MIB else 11, 3)

    def ping_pong(self, nbytes: int) -> Ways:
        """A step is many turns there and back; counted are ways."""
        target, source = self._arrays(nbytes)
        self.live.append(flag := shmem.zeros(1, dtype=torch.uint64))
        turns, first = self._many(nbytes), [3]

        def step() -> None:
            gpu_kernels.ping_pong_payload[(1,)](
                self.context, target, source, nbytes // 4, flag, first[0], turns, num_warps=8
            )
            first[0] += 2 * turns  # odd as before

        def check() -> str:
            self._fill(target, source)
            if self.me < 2:
                step()
            self._meet()
            return differ(target, self._pattern(1 - self.me, nbytes)) if self.me < 2 else ""

        return {OURS: Case("put_signal; signal_wait_until", step, check, per=2 * turns, pes=BOTH, lead=1)}

    # -- words, by the host and in kernels

    def p(self, nbytes: int) -> Ways:
        return self._by_host("p(word, 1, pe)", lambda: shmem.p(self.cell, 1, self.right), None)

    def g(self, nbytes: int) -> Ways:
        return self._by_host("g(word, pe)", lambda: shmem.g(self.cell, self.right), 1)

    def atomic_fetch_add(self, nbytes: int) -> Ways:
        step = "atomic_fetch_add(word, 0, pe)"
        return self._by_host(step, lambda: shmem.atomic_fetch_add(self.cell, 0, self.right), 1)

    def _by_host(self, statement: str, step: Step, found: int | None) -> Ways:
        """A call on the word of the PE to the right, which is 1 afterwards, and before where the call gives ``found``."""

        def check() -> str:
            self.cell.fill_(found or 0)
            self._meet()
            wrong = "" if step() == found else f"PE {self.me} fetched another number than {found}; "
            self._meet()
            return wrong + differ(self.cell, 1)

        return {OURS: Case(statement, step, check, ISSUE, 100, pes=ONE, lead=1)}

    def word(self, nbytes: int, kind: str) -> Ways:
        number, counts = KINDS[kind]

        def step() -> None:
            sweep_kernels.words[(1,)](
                self.context, self.cell, self.seen, self.right, self.turns, KIND=number, num_warps=1
            )

        def check() -> str:
            self.cell.zero_()
            self._meet()
            step()
            self._meet()
            wrong = differ(self.cell, self.turns if counts else 0)
            fetched = self.turns - 1 if kind in ("FETCH_ADD", "COMPARE_SWAP") else 0
            return wrong + differ(self.seen, fetched)

        return {OURS: Case(f"{kind.lower()}(ctx, word, pe)", step, check, per=self.turns, pes=ONE, lead=1)}

    def word_puts(self, nbytes: int, programs: int) -> Ways:
        return self._rows_of_words(sweep_kernels.word_puts, self.accelerator.cut(programs, 4), 1)

    def tile_adds(self, nbytes: int, programs: int) -> Ways:
        return self._rows_of_words(sweep_kernels.tile_adds, self.accelerator.cut(programs, 2), TILE, COUNT=TILE)

    def _rows_of_words(self, kernel: Any, programs: int, count: int, **constants: Any) -> Ways:
        """``programs`` make calls on ``count`` words of their own each, which then hold the number of calls."""
        self.live.append(row := shmem.zeros(programs * count, dtype=torch.int64))
        turns = self.accelerator.cut(TURNS, 3)

        def step() -> None:
            kernel[(programs,)](self.context, row, self.right, turns, num_warps=4, **constants)

        def check() -> str:
            row.zero_()
            self._meet()
            step()
            self._meet()
            return differ(row, turns)

        return {OURS: Case(kernel.__name__, step, check, per=turns * programs * count, pes=ONE, lead=1)}

    # -- ceilings of the run

    def empty(self, nbytes: int, how: str) -> Ways:
        """Three launchers of one kernel: the library's, the driver's with parameters made ahead, and Triton's."""
        word = torch.zeros(1, dtype=torch.int32, device=self.accelerator.device)
        quick = self.accelerator.cached(gpu_kernels.nothing)

        def check(step: Step) -> str:
            word.zero_()
            step()
            self.accelerator.synchronize()
            return differ(word, 1)

        bare = self.accelerator.bare(gpu_kernels.nothing, word, how == GRAPH)
        steps: dict[str, Step | None] = {
            OURS: lambda: quick((1,), word, num_warps=1),
            BARE: bare,
            LAUNCH: lambda: gpu_kernels.nothing[(1,)](word, num_warps=1),
        }
        return {
            name: Case("an empty kernel", step, partial(check, step), how, 20) if step else "there is no GPU"
            for name, step in steps.items()
        }

    def local_copy(self, nbytes: int) -> Ways:
        source = self._pattern(self.me, nbytes)
        target = torch.zeros_like(source)

        def step() -> object:
            return target.copy_(source)

        def check() -> str:
            step()
            return differ(target, source)

        return {OURS: Case("target.copy_(source)", step, check, calls=5, pes=None, lead=1)}

    def local_read(self, nbytes: int) -> Ways:
        """Programs read all of it and keep an exclusive or."""
        source, block, programs = self._pattern(self.me, nbytes), 1024, self.accelerator.cut(1024, 2)
        found = torch.zeros(programs * block, dtype=torch.int32, device=self.accelerator.device)

        def step() -> None:
            gpu_kernels.read_all[(programs,)](source, found, source.numel(), BLOCK=block)

        def check() -> str:
            step()
            wanted = torch.zeros_like(found)
            for part in source.view(-1, found.numel()):
                wanted ^= part
            return differ(found, wanted)

        return {OURS: Case("tl.load of blocks", step, check, calls=5, pes=None, lead=1)}

    # -- what they share

    def _arrays(self, nbytes: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A symmetric array and one in private memory."""
        symmetric = shmem.zeros(nbytes // 4, dtype=torch.int32)
        self.live.append(symmetric)
        return symmetric, torch.zeros(nbytes // 4, dtype=torch.int32, device=self.accelerator.device)

    def _pattern(self, pe: int, nbytes: int) -> torch.Tensor:
        return torch.arange(nbytes // 4, dtype=torch.int32, device=self.accelerator.device) + 7919 * (pe + 1)

    def _wait(self) -> None:
        """Wait for the current stream, as quiet does: to wait for the whole GPU takes longer."""
        if not self.accelerator.interpreted:
            torch.cuda.current_stream().synchronize()

    def _copy(self, to: torch.Tensor, of: torch.Tensor) -> None:
        self.accelerator.copy(to.data_ptr(), of.data_ptr(), min(to.nbytes, of.nbytes))

    def _fill(self, target: torch.Tensor, source: torch.Tensor) -> None:
        source.copy_(self._pattern(self.me, source.nbytes))
        target.fill_(-1)
        self._meet()

    def _check(self, step: Step, move: Move) -> str:
        self._fill(move.target, move.source)
        step()
        self._meet()
        sent = self._pattern(move.sender, move.source.nbytes)
        return differ(move.target, sent[move.first : move.first + move.target.numel()])


def _calls(nbytes: int) -> int:
    return 100 if nbytes <= 64 * KIB else 20 if nbytes <= 4 * MIB else 10
