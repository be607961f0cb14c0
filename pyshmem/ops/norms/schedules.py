"""The schedules of all_reduce_rms_norm: how its kernels are compiled, and which memory they use."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import triton

import pyshmem as shmem
from pyshmem.base import interpreter
from pyshmem.device.arch.fields import encoded
from pyshmem.host.teams import Team
from pyshmem.kernels.bound_kernels import may_be_early
from pyshmem.kernels.on_stream import of_team
from pyshmem.ops import protocol
from pyshmem.ops.aligned import Aligned, are_aligned, is_aligned
from pyshmem.ops.machine import machine, warps_of
from pyshmem.ops.norms import kernels
from pyshmem.ops.norms.kernels import Rows, Shape
from pyshmem.ops.norms.problem import Problem
from pyshmem.ops.norms.words import send_words
from pyshmem.ops.plans import twin
from pyshmem.ops.workspace import Wanted, Workspace

MOST_PES = 4  # of "words": a thread has words of each PE in registers
MOST_PARTS = 4  # of a row: a thread keeps them in registers
WORDS_THREADS, INTERPRETED_THREADS = 1024, 32
INTERPRETED_SEGMENTS = 8  # of all rows, by "words"
# elements of a row that a thread has, where latency and where the rate of memory matters
FEW, MANY = 16, 32
OPERANDS = Rows._fields[:3]  # the others are results


class Step:
    """A kernel on rows, with symmetric memory ``wanted`` and as many programs as rows, up to ``most`` a multiprocessor."""

    each = FEW
    most = 2
    registers = 0  # the most of a thread on NVIDIA's GPUs, for rows of 16 bits; 0: as many as the compiler takes
    numbered = False  # whether each program numbers its calls

    def __init__(self, problem: Problem, wanted: Wanted, rows: int) -> None:
        """rows: of the room, that programs divide."""
        self.problem = problem
        self.programs = max(min(rows, self.most * machine().programs), 1)
        if self.numbered:
            wanted = wanted | {"epochs": ((self.programs,), torch.int64)}
        kind = type(self).__name__, problem.room, problem.hidden, problem.dtype, problem.kind
        self.space = Workspace(problem.routine, problem.team, wanted, (*kind, *wanted))
        self.block = triton.next_power_of_2(problem.hidden)

    @property
    def shape(self) -> Shape:
        problem = self.problem
        return Shape(encoded(problem.tokens), encoded(problem.room), problem.hidden, problem.eps)

    def resized(self, problem: Problem) -> Any:
        """Return the step of a problem with other numbers of rows in the same room."""
        made = twin(self)
        made.problem = problem
        made.cut()
        return made

    def cut(self) -> None:
        """Set what depends on the number of rows."""
        if isinstance(self.kernel, Aligned):  # torch normalises float64
            self.kernel = self.kernel.with_numbers(self.shape)

    @property
    def bytes_reread(self) -> int:
        """The bytes of this PE's memory that a kernel of a call writes and a later one reads."""
        return 0

    def prepare(self, kernel: Any, *fixed: Any, **constants: Any) -> None:
        """Use ``kernel``. fixed: before the shape.  constants: after EARLY."""
        warps, early = warps_of(self.block // self.each), may_be_early()
        fewer = self.registers and machine().arch == "nvidia" and self.problem.dtype.itemsize == 2
        few = {"maxnreg": self.registers} if fewer and self.programs > machine().programs else {}
        constants = {"BLOCK": self.block, "EARLY": early} | constants
        self.kernel = Aligned(
            self.problem.routine, kernel, self.programs, fixed, constants, Rows, early, (self.shape,), num_warps=warps,
            **few,
        )  # fmt: skip

    def __call__(self, *rows: torch.Tensor) -> None:
        """rows: the fields of Rows."""
        self.kernel(*rows)


class Words(Step):
    """Words that are their own flags go to all peers."""

    most, numbered = 1, True

    def __init__(self, problem: Problem) -> None:
        lanes = problem.hidden * problem.dtype.itemsize // 4
        width = min(triton.next_power_of_2(lanes), most_threads())
        parts = -(-lanes // width)
        room = 2 * problem.room * problem.team.size * parts * width
        cut = 1 if problem.kind.itemsize == 1 else segments_of(parts, problem.room)
        super().__init__(problem, {"slots": ((room,), torch.int64)}, problem.room * cut)
        context = shmem.device_context(problem.team)._replace(piece=8 * parts * width)
        early = may_be_early()
        context = context if interpreter.active() else of_team(context)
        constants = {"PARTS": parts, "WIDTH": width, "CUT": cut, "EARLY": early}
        fixed, warps = (context, self.space["slots"], self.space["epochs"]), warps_of(width)
        self.kernel = Aligned(
            problem.routine, send_words, self.programs, fixed, constants, Rows, early, (self.shape,), num_warps=warps
        )

    def __call__(self, *rows: torch.Tensor) -> None:
        """The kernel loads words at multiples of 16 bytes. Arrays at other addresses, of this PE alone, are copied."""
        addresses = [each.data_ptr() for each in rows]
        if are_aligned(addresses):
            self.kernel.at(addresses, rows)
            return
        copies = [each if is_aligned(each) else each.clone() for each in rows]
        self.kernel(*copies)
        for result, copy in list(zip(rows, copies, strict=True))[len(OPERANDS) :]:
            if result is not copy:
                result.copy_(copy)


class Push(Step):
    """Rows go into slots on all peers, each with a flag."""

    registers = 64  # so that two programs of 512 threads fit
    numbered = True

    def __init__(self, problem: Problem) -> None:
        pairs = problem.team.size * problem.room
        wanted: Wanted = {"flags": ((pairs,), torch.uint64), "slots": ((2, pairs, problem.hidden), problem.dtype)}
        super().__init__(problem, wanted, problem.room)
        context, space = shmem.device_context(problem.team), self.space
        self.prepare(kernels.push_rows, context, space["flags"], space["slots"], space["epochs"])


class Pull(Step):
    """Rows of x are loaded from all peers."""

    each, most = MANY, 4
    shared, fan = False, False  # SHARED and FAN of the kernel
    written: tuple[str, ...] = ()  # results that peers write

    def __init__(self, problem: Problem) -> None:
        wanted = problem.spaces(self.written)
        if not problem.pulled:
            wanted["x"] = ((problem.room, problem.hidden), problem.dtype)
        wanted["words"] = ((protocol.words_of(problem.team.size),), torch.uint64)
        super().__init__(problem, wanted, problem.largest if self.shared else problem.room)
        context = shmem.device_context(problem.team)
        stages = 2 if machine().arch == "nvidia" and problem.team.size <= 2 and not self.fan else 1
        constants = {"SHARED": self.shared, "FAN": self.fan, "STAGES": stages}
        self.prepare(kernels.pull_rows, context, self.space["words"], **constants)
        self.cut()

    def cut(self) -> None:
        super().cut()
        self.copied = None if self.problem.pulled else self.space["x"][: self.problem.tokens]

    @property
    def bytes_reread(self) -> int:
        """x, if it is copied."""
        return 0 if self.copied is None else self.copied.nbytes

    def __call__(self, x: torch.Tensor, *more: torch.Tensor) -> None:
        self.kernel(x if self.copied is None else self.copied.copy_(x), *more)


class BulkSynchronous(Step):
    """An all-reduce of x, then a kernel that normalises: two launches, and all rows go through memory between them."""

    each, most = MANY, 4

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, {"total": ((problem.room, problem.hidden), problem.dtype)}, problem.room)
        self.kernel = normaliser(self)
        self.cut()

    def cut(self) -> None:
        super().cut()
        self.total = self.space["total"][: self.problem.tokens]

    @property
    def bytes_reread(self) -> int:
        """The sum, and x, if it is copied."""
        return self.total.nbytes * (1 if self.problem.pulled else 2)

    def __call__(self, x: torch.Tensor, *more: torch.Tensor) -> None:
        total = self.total
        if not self.problem.pulled:
            total.copy_(x)
        shmem.reduce_on_stream(total, x if self.problem.pulled else total, "sum", team=self.problem.team)
        self.kernel(total, *more)


Schedule = Literal["auto", "words", "push", "pull", "bulk_synchronous"]
SCHEDULES = {"words": Words, "push": Push, "pull": Pull, "bulk_synchronous": BulkSynchronous}


def normaliser(step: Step) -> Any:
    """Return normalise_rows, of as many rows as the shape of the step says."""
    if step.problem.dtype is torch.float64:
        return partial(_normalise, step.problem.eps)
    constants, warps = {"BLOCK": step.block}, warps_of(step.block // step.each)
    routine, programs = step.problem.routine, step.programs
    return Aligned(
        routine, kernels.normalise_rows, programs, (), constants, Rows, numbers=(step.shape,), num_warps=warps
    )


def _normalise(
    eps: float, total: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, sums: torch.Tensor,
    scales: torch.Tensor,
) -> None:  # fmt: skip
    """normalise_rows of float64."""
    count = len(residual)
    torch.add(total[:count], residual, out=sums)
    torch.mul(sums * torch.rsqrt(sums.square().mean(1, keepdim=True) + eps), weight, out=out[:count])


def has_words(team: Team, x: torch.Tensor) -> bool:
    """Whether "words" can have these rows: it moves words of 4 bytes, and polls one of each PE at once."""
    row = x.shape[1] * x.itemsize
    return row % 4 == 0 and row <= 4 * MOST_PARTS * most_threads() and team.size <= MOST_PES


def segments_of(parts: int, rows: int) -> int:
    """Return into how many segments "words" cuts a row of so many parts, so that each has a program of its own."""
    most = INTERPRETED_SEGMENTS if interpreter.active() else machine().programs
    return max(cut for cut in range(1, parts + 1) if parts % cut == 0 and (cut == 1 or rows * cut <= most))


def most_threads() -> int:
    """Return the most threads of a program of "words"."""
    return INTERPRETED_THREADS if interpreter.active() else WORDS_THREADS
