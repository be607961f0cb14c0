"""The schedules of attention: how keys and values reach all PEs, and how the kernel over them is compiled."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal, NamedTuple

import torch

import pyshmem as shmem
from pyshmem.base import interpreter
from pyshmem.ops.aligned import Aligned
from pyshmem.ops.attention.decode_schedules import LOG2_E, power
from pyshmem.ops.attention.gradients import Options, attend
from pyshmem.ops.attention.prefill_kernels import Form, attend_blocks
from pyshmem.ops.attention.prefill_library import Library, bytes_of, part_of
from pyshmem.ops.attention.prefill_slots import NAME, Problem, Sender, Slots
from pyshmem.ops.attention.segments import places_of, segments_of
from pyshmem.ops.machine import Machine, machine
from pyshmem.ops.streams import await_mark

Schedule = Literal["auto", "library", "copy_engine", "bulk_synchronous"]


class Tile(NamedTuple):
    """queries, tokens: of a block of products."""

    queries: int
    tokens: int
    warps: int
    stages: int


# (architecture, bytes of an element, whether heads have more than 128 elements)
TILES = {
    ("interpreter", 2, False): Tile(32, 32, 4, 1),
    ("sm_90", 2, False): Tile(128, 128, 8, 3),  # 224 KiB of shared memory
    ("nvidia", 2, False): Tile(64, 64, 4, 3),
    ("nvidia", 2, True): Tile(128, 32, 8, 3),
    ("nvidia", 4, False): Tile(64, 32, 8, 2),
    ("nvidia", 4, True): Tile(32, 32, 8, 2),
    ("amd", 2, False): Tile(128, 64, 4, 2),
    ("amd", 2, True): Tile(64, 32, 4, 1),
    ("amd", 4, False): Tile(64, 32, 4, 1),
    ("amd", 4, True): Tile(32, 32, 4, 1),
}


class Gathered:
    """Keys and values of all PEs in slots, and the kernel over them."""

    makes_results = False

    def __init__(self, problem: Problem, waits: bool) -> None:
        self._use(Slots(problem, pair=not waits))
        if problem.dtype is torch.float64:
            self.kernel: Any = _Double(problem, self.slots)
            return
        row, here = tile_of(machine(), problem), machine()
        fixed = shmem.device_context(problem.team), *(self.space[name] for name in ("words", "flags", "slots"))
        numbers, programs = self._numbers()
        self.kernel = Aligned(
            NAME, attend_blocks, programs, fixed, {"FORM": form_of(problem, here, waits)}, numbers=numbers,
            num_warps=row.warps, num_stages=row.stages,
        )  # fmt: skip

    def _use(self, slots: Slots) -> None:
        self.problem, self.slots, self.space, self.room = slots.problem, slots, slots.space, slots.room

    def _numbers(self) -> tuple[tuple[Any, ...], int]:
        """Return what a kernel gets of the length of sequences, with the scale, and its programs."""
        problem, here = self.problem, machine()
        items = problem.sequences * problem.heads * tiles_of(problem, tile_of(here, problem).queries)
        return (self.room, problem.size, items, problem.scale * LOG2_E), programs_of(here, items)

    def resized(self, problem: Problem) -> Any:
        """Return the step for sequences of another length; None if there is no room."""
        slots = None if problem.dtype is torch.float64 else self.slots.resized(problem)
        if slots is None or (slots.room ^ self.room) >> 31:  # a kernel is compiled for 32 or for 64 bits
            return None
        made = copy(self)
        made._use(slots)
        numbers, programs = made._numbers()
        made.kernel = self.kernel.with_numbers(*numbers, grid=(programs, 1, 1))
        return made

    @property
    def bytes_reread(self) -> int:
        """The bytes of this PE's memory that a kernel or copy of a call writes, here or on a peer, and a later one reads.

        Those are the keys and values that queries see, which all lie in slots.
        """
        problem = self.problem
        parts = [part_of(problem, problem.me, pe) for pe in range(problem.n_pes)]
        return sum(part.used * bytes_of(problem, part.stop) for part in parts)

    def store(self, target: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Copy this PE's keys and values to ``target``, (2, room)."""
        for place, array in zip(target, (k, v), strict=True):
            place[: array.numel()].copy_(array.view(-1))


class _Double:
    """The kernel of float64, by torch."""

    def __init__(self, problem: Problem, slots: Slots) -> None:
        self.problem, self.slots = problem, slots
        n = problem.n_pes
        places = torch.cat([places_of(problem.size, pe, n, problem.segments) for pe in range(n)])
        self.order = torch.argsort(places).to(slots.arrays.device)
        self.options = Options(problem.size, problem.segments, problem.causal, problem.scale)

    def __call__(self, q: torch.Tensor, out: torch.Tensor) -> None:
        parts = zip(*map(self.slots.of, range(self.problem.n_pes)), strict=True)
        k, v = (torch.cat(each, 1).index_select(1, self.order) for each in parts)
        out.copy_(attend(q, k, v, self.problem.me, self.problem.n_pes, self.options))


class CopyEngine(Gathered):
    """The copy engine brings keys and values while the kernel reads others.

    The kernel begins when all PEs have reached the call, so that nothing that brings keys has to wait for its programs. This
    PE's own keys are stored no earlier either: sequences of other lengths share the memory, and peers may still put keys of
    the call before, which this PE's queries do not see, to where its own are now.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, True)
        self.sender = Sender(self.slots)

    def resized(self, problem: Problem) -> Any:
        made = super().resized(problem)
        if made is not None:
            made.sender = self.sender.resized(made.slots)
        return made

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        ready = self.sender.send(k, v)
        await_mark(ready)
        self.store(self.slots.arrays[self.problem.me], k, v)
        if out.numel():
            self.kernel(q, out)
        for pe in self.sender.peers:
            self.sender.wait(pe, needed=False)
        self.sender.side.join()
        return out


class BulkSynchronous(Gathered):
    """fcollect_on_stream of keys and values, then the kernel."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, False)

    @property
    def bytes_reread(self) -> int:
        """Those of this PE are copied twice."""
        return super().bytes_reread + bytes_of(self.problem, self.problem.tokens(self.problem.me))

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        self.store(self.space["mine"], k, v)
        shmem.fcollect_on_stream(self.slots.arrays, self.space["mine"], team=self.problem.team)
        if out.numel():
            self.kernel(q, out)
        return out


SCHEDULES = {"library": Library, "copy_engine": CopyEngine, "bulk_synchronous": BulkSynchronous}


def tile_of(here: Machine, problem: Problem) -> Tile:
    if interpreter.active():
        return TILES["interpreter", 2, False]
    vendor = "amd" if here.arch.startswith("gfx") else here.arch
    size, wide = problem.dtype.itemsize, problem.width > 128
    if vendor == "nvidia" and torch.cuda.get_device_capability() == (9, 0):
        return TILES.get(("sm_90", size, wide), TILES[vendor, size, wide])
    return TILES[vendor, size, wide]


def tiles_of(problem: Problem, queries: int) -> int:
    """Return the tiles of a head's queries here: a tile is of one segment."""
    segments = segments_of(problem.size, problem.me, problem.n_pes, problem.segments)
    return sum(-(-(last - first) // queries) for first, last in segments)


def programs_of(here: Machine, items: int) -> int:
    """Return the programs of the kernel.

    AMD's flags are set by kernels: there programs leave a multiprocessor of each chiplet free, or flags could never come.
    """
    if not here.arch.startswith("gfx"):
        return max(items, 1)
    return max(min(items, (here.programs - 1) // here.chiplets * here.chiplets), 1)


def form_of(problem: Problem, here: Machine, waits: bool) -> Form:
    """Return what the kernel is compiled for."""
    row = tile_of(here, problem)
    widened = interpreter.active() and problem.dtype is not torch.float32
    return Form(
        problem.heads, problem.kv_heads, problem.width, power(problem.width, 16), row.queries, row.tokens,
        problem.segments, problem.causal, waits, here.chiplets, "widened" if widened else "ieee",
    )  # fmt: skip
