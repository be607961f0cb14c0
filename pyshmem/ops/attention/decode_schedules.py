"""The schedules of flash_decode: how its kernels are compiled, and which memory they use."""

from __future__ import annotations

from typing import Any, Literal

import torch
import triton

import pyshmem as shmem
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.ops.attention import decode_kernels as kernels
from pyshmem.ops.attention.decode_kernels import Exchange, Form, Operands, Parts, Shape
from pyshmem.ops.machine import device, machine
from pyshmem.ops.workspace import Wanted, Workspace
from pyshmem.runtime import interpreter
from pyshmem.runtime.gpu.occupancy import taken

NAME = "flash_decode"
LOG2_E = 1.4426950408889634
WARPS, MERGING_WARPS = 4, 8
RESIDENT = 2  # programs that a multiprocessor of NVIDIA's runs at once, with the shared memory of their stages
MOST_SPLITS = 64
LEAST_BLOCKS = 4  # of tokens in a split
COMPILED, INTERPRETED = (64, 3, 16), (16, 1, 2)  # as blocks_of returns
NARROW = 64  # elements: without pages, wider heads have half as many tokens in a block on NVIDIA's GPUs


class Local:
    """The kernel for this PE's tokens: its parts and their splits. Other PEs may have other rooms for tokens."""

    fused = False

    def __init__(self, problem: Any, space: Workspace, epochs: torch.Tensor, given: Operands) -> None:
        """space, epochs: of the plan, for all its kernels."""
        self.problem, self.space, self.epochs = problem, space, epochs
        queries, width = problem.heads // problem.kv_heads, problem.width
        block, stages, chunk = blocks_of(machine().arch, width, problem.page)
        self.groups, self.block, self.stages = problem.sequences * problem.kv_heads, block, stages
        widened = interpreter.active() and problem.dtype is not torch.float32
        self.form = Form(
            problem.kv_heads, queries, width, power(queries, 16), block, power(queries), power(width, 16), chunk,
            problem.page, "widened" if widened else "ieee",
        )  # fmt: skip
        amd = machine().arch.startswith("gfx")
        found = self.divide(given, 1 if amd else RESIDENT)
        if amd and found > 1 and self.divide(given, found) < found:  # other splits may be another kernel
            self.divide(given, 1)

    @property
    def bytes_reread(self) -> int:
        """The bytes of this PE's memory that a kernel of a call writes and a later one reads."""
        return 0

    def divide(self, given: Operands, resident: int) -> int:
        """Compile the kernel for as many splits as keep ``resident`` programs of each multiprocessor busy.

        All must run at once, because they wait for those of other PEs. Returns: how many one of AMD's GPUs can run.
        """
        problem, space, fused = self.problem, self.space, self.fused
        queries, width = self.form.Q, problem.width
        self.splits = splits_of(self.groups, problem.tokens, self.block, resident)
        size = self.groups * self.splits
        self.parts = Parts(new(torch.float32, size, queries, width), new(torch.float32, size, queries))
        words = [space[name] for name in ("flags", "slots", "slot_logs")] if fused else [new(torch.uint64, 0)] * 3
        exchange = Exchange(*words, self.epochs, space["tallies"] if fused else words[0])
        shape = Shape(problem.tokens, self.splits, self.groups, problem.scale * LOG2_E)
        fixed = (shmem.device_context(problem.team), exchange, self.parts, shape)
        constants = {"FORM": self.form, "FUSED": fused}

        def programs(compiled: Any) -> int:
            return 1 if interpreter.active() else max(min(size, slots(min(resident, fitting(compiled)))), 1)

        self.kernel = Prepared(
            kernels.attend, programs, fixed, given, constants, num_warps=WARPS, num_stages=self.stages
        )
        return fitting(self.kernel.compiled)


class Fused(Local):
    """One kernel: the last program of each group combines it over splits and PEs."""

    fused = True

    @staticmethod
    def wanted(problem: Any) -> Wanted:
        """Return the symmetric memory of a plan."""
        groups, queries = problem.sequences * problem.kv_heads, problem.heads // problem.kv_heads
        pairs = problem.team.size * groups
        return {
            "flags": ((pairs,), torch.uint64), "tallies": ((groups,), torch.uint64),
            "slots": ((2 * pairs, queries, problem.width), torch.float32),
            "slot_logs": ((2 * pairs, queries), torch.float32),
        }  # fmt: skip

    def __call__(self, *arrays: torch.Tensor) -> None:
        """arrays: the fields of Operands."""
        self.kernel(*arrays)


class BulkSynchronous(Local):
    """Four launches: parts of the splits, their sum, its exchange by fcollect_on_stream, and the sum over PEs."""

    @staticmethod
    def wanted(problem: Any) -> Wanted:
        """Return the symmetric memory of a plan."""
        size = problem.sequences * problem.heads * (problem.width + 1)  # values, then logs
        return {"mine": ((size,), torch.float32), "all": ((problem.team.size * size,), torch.float32)}

    def __init__(self, problem: Any, space: Workspace, epochs: torch.Tensor, given: Operands) -> None:
        super().__init__(problem, space, epochs, given)
        groups, queries = problem.sequences * problem.kv_heads, problem.heads // problem.kv_heads
        parts, n = groups * queries, problem.team.size
        size = parts * (problem.width + 1)
        mine, every, cut = self.space["mine"], self.space["all"], parts * problem.width
        spare = new(torch.float32, groups * queries)
        self.mine, self.every = (*self.parts, mine[:cut], mine[cut:]), (every, every[cut:], given.out, spare)
        each = queries * problem.width
        self.splits_merged = self.merge(
            self.splits, (each, queries, each * self.splits, queries * self.splits), self.mine
        )
        self.pes_merged = self.merge(n, (size, size, each, queries), self.every)

    @property
    def bytes_reread(self) -> int:
        """Parts of splits, their sums, and those of all PEs."""
        return sum(each.nbytes for each in (*self.parts, self.space["mine"], self.space["all"]))

    def merge(self, count: int, pitches: tuple[int, ...], arrays: tuple[torch.Tensor, ...]) -> Prepared:
        fixed, constants = (count, *pitches), {"FORM": self.form}
        return Prepared(kernels.merge_parts, max(self.groups, 1), fixed, arrays, constants, num_warps=MERGING_WARPS)

    def __call__(self, *arrays: torch.Tensor) -> None:
        self.kernel(*arrays)
        self.splits_merged(*self.mine)
        shmem.fcollect_on_stream(self.space["all"], self.space["mine"], team=self.problem.team)
        every, logs, _, spare = self.every
        self.pes_merged(every, logs, arrays[-1], spare)


Schedule = Literal["auto", "fused", "bulk_synchronous"]
SCHEDULES = {"fused": Fused, "bulk_synchronous": BulkSynchronous}


def blocks_of(arch: str, width: int, page: int | None) -> tuple[int, int, int]:
    """Return the tokens of a block, the stages of its loop, and the parts that are combined at once."""
    if arch == "interpreter":
        return INTERPRETED
    block, stages, chunk = COMPILED
    if arch.startswith("gfx"):
        return block, min(stages, 2), chunk
    return (block // 2 if width > NARROW and page is None else block), stages, chunk


def splits_of(groups: int, tokens: int, block: int, resident: int) -> int:
    """Return the splits of a sequence: the fewest that keep the multiprocessors busy for nine tenths of the time.

    resident: the programs of each.
    """
    most = max(min(MOST_SPLITS, tokens // (block if interpreter.active() else LEAST_BLOCKS * block)), 1)
    room = slots(resident)

    def used(splits: int) -> float:
        items = groups * splits
        return items / (-(-items // room) * room)

    able = range(1, most + 1)
    return next((splits for splits in able if used(splits) >= 0.9), max(able, key=used)) if groups else 1


def fitting(compiled: Any) -> int:
    """Return how many programs of the kernel run at once on a multiprocessor. One that records events takes more of it."""
    return taken(compiled).programs if machine().arch.startswith("gfx") else RESIDENT


def slots(resident: int) -> int:
    """Return the programs that run at once. The interpreter runs one, but splits as for a few."""
    return 5 if interpreter.active() else resident * machine().programs


def power(size: int, least: int = 1) -> int:
    return max(int(triton.next_power_of_2(max(size, 1))), least)


def new(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device())
