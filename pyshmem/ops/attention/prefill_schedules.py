"""The schedules of attention: how keys and values reach all PEs, and how the kernel over them is compiled."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch

import pyshmem as shmem
from pyshmem.host.teams import Team
from pyshmem.ops.aligned import Aligned
from pyshmem.ops.attention.decode_schedules import LOG2_E, power
from pyshmem.ops.attention.gradients import Options, attend
from pyshmem.ops.attention.prefill_kernels import Form, attend_blocks
from pyshmem.ops.attention.segments import places_of, segments_of, tokens_at
from pyshmem.ops.copies import Chunks, peers_of, put
from pyshmem.ops.machine import Machine, machine
from pyshmem.ops.streams import Side, await_mark
from pyshmem.ops.workspace import Workspace
from pyshmem.runtime import interpreter

NAME = "attention"
ALIGNED = 64  # elements, so that kernels load 16 bytes at once
Schedule = Literal["auto", "copy_engine", "bulk_synchronous"]


class Problem(NamedTuple):
    """What a plan is made for. size: the tokens of a sequence on all PEs.  width: the elements of a head."""

    team: Team
    sequences: int
    size: int
    heads: int
    kv_heads: int
    width: int
    dtype: torch.dtype
    scale: float
    causal: bool
    segments: int

    @property
    def n_pes(self) -> int:
        return self.team.size

    @property
    def me(self) -> int:
        return self.team.me


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

    def __init__(self, problem: Problem, waits: bool) -> None:
        self.problem, team = problem, problem.team
        most = max(tokens_at(problem.size, pe, team.size, problem.segments) for pe in range(team.size))
        count = problem.sequences * most * problem.kv_heads * problem.width
        self.room = -(-count // ALIGNED) * ALIGNED
        pair = {} if waits else {"mine": ((2, self.room), problem.dtype)}
        slots = {"slots": ((team.size, 2, self.room), problem.dtype)}
        self.space = Workspace(NAME, team, Chunks.space(team, 1) | slots | pair)
        self.slots, here = self.space["slots"], machine()
        if problem.dtype is torch.float64:
            self.kernel: Any = _Double(problem, self.slots)
            return
        row = tile_of(here, problem)
        items = problem.sequences * problem.heads * tiles_of(problem, row.queries)
        fixed = (
            shmem.device_context(team), *(self.space[name] for name in ("words", "flags", "slots")), self.room,
            problem.size, items, problem.scale * LOG2_E,
        )  # fmt: skip
        self.kernel = Aligned(
            NAME, attend_blocks, programs_of(here, items), fixed, {"FORM": form_of(problem, here, waits)},
            num_warps=row.warps, num_stages=row.stages,
        )  # fmt: skip

    def store(self, target: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Copy this PE's keys and values to ``target``, (2, room)."""
        for place, array in zip(target, (k, v), strict=True):
            place[: array.numel()].copy_(array.view(-1))


class _Double:
    """The kernel of float64, by torch."""

    def __init__(self, problem: Problem, slots: torch.Tensor) -> None:
        sizes = problem.size, problem.n_pes, problem.segments
        self.problem, self.tokens = problem, [len(each) for each in places_of(*sizes)]
        self.order = torch.argsort(torch.cat(places_of(*sizes))).to(slots.device)
        self.slots, self.options = slots, Options(problem.size, problem.segments, problem.causal, problem.scale)

    def __call__(self, q: torch.Tensor, out: torch.Tensor) -> None:
        k, v = (self._whole(which) for which in range(2))
        out.copy_(attend(q, k, v, self.problem.me, self.problem.n_pes, self.options))

    def _whole(self, which: int) -> torch.Tensor:
        """Return the keys (0) or values (1) of the sequence."""
        batch, heads, width = self.problem.sequences, self.problem.kv_heads, self.problem.width
        parts = [
            slots[which, : batch * tokens * heads * width].view(batch, tokens, heads, width)
            for slots, tokens in zip(self.slots, self.tokens, strict=True)
        ]
        return torch.cat(parts, 1).index_select(1, self.order)


class CopyEngine(Gathered):
    """The copy engine puts keys and values into a slot on each PE, with a flag behind, while the kernel reads others.

    The kernel begins when all PEs have reached the call, so that nothing that brings keys has to wait for its programs.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, True)
        self.chunks = Chunks(problem.team, self.space["words"], self.space["flags"])
        self.peers, self.side = peers_of(problem.team), Side()

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        team = self.problem.team
        with self.side.after():
            self.chunks.begin()  # no PE reads its slots of the last call any more
            ready = self.side.mark()
            for pe in reversed(self.peers):  # each PE reads those of the next one first
                for slot, array in zip(self.slots[team.me], (k, v), strict=True):
                    put(team, slot[: array.numel()], array.view(-1), pe)
                self.chunks.tell(pe, 0)
        self.store(self.slots[team.me], k, v)
        await_mark(ready)
        if out.numel():
            self.kernel(q, out)
        if self.peers:
            self.chunks.wait(self.peers[-1], 0)
        self.side.join()


class BulkSynchronous(Gathered):
    """fcollect_on_stream of keys and values, then the kernel."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, False)

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        self.store(self.space["mine"], k, v)
        shmem.fcollect_on_stream(self.slots, self.space["mine"], team=self.problem.team)
        if out.numel():
            self.kernel(q, out)


SCHEDULES = {"copy_engine": CopyEngine, "bulk_synchronous": BulkSynchronous}


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
