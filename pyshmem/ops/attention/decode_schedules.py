"""The schedules of flash_decode: how its kernels are compiled, and which memory they use."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal, NamedTuple

import torch
import triton

import pyshmem as shmem
from pyshmem.base import interpreter
from pyshmem.device.arch.fields import encoded_each
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.kernels.occupancy import taken
from pyshmem.ops.agreement import require_no_capture
from pyshmem.ops.aligned import ByPlaces
from pyshmem.ops.attention import decode_kernels as kernels
from pyshmem.ops.attention.decode_kernels import Exchange, Form, Parts, Shape
from pyshmem.ops.machine import device, machine
from pyshmem.ops.workspace import Wanted, Workspace

NAME = "flash_decode"
LOG2_E = 1.4426950408889634
WARPS, MERGING_WARPS = 4, 8
RESIDENT = 2  # programs that a multiprocessor runs at once: of NVIDIA's by their shared memory, of AMD's at most
MOST_SPLITS = 64
LEAST_BLOCKS = 4  # of tokens in a split
COMPILED, INTERPRETED = (64, 3, 16), (16, 1, 2)  # as blocks_of returns
LIKE = Shape(*encoded_each(1, 1, 1))  # of kernels that are compiled for any
NARROW = 64  # elements: without pages, wider heads have half as many tokens in a block on NVIDIA's GPUs


class Attend(NamedTuple):
    """The kernel over this PE's tokens. least: of tokens in a split.  room: how many of its programs run at once."""

    kernel: Prepared
    least: int
    room: int


class Local:
    """The kernel over this PE's tokens, and memory for all numbers of sequences of a plan.

    Neither sequences nor tokens, pages or the width of a table are a part of what is compiled, or have memory of their own.
    """

    fused = False

    def __init__(self, problem: Any) -> None:
        self.problem, self.queries = problem, problem.heads // problem.kv_heads
        self.groups = problem.room * problem.kv_heads
        # plans for more or fewer sequences have it, too: whatever counts calls there is of one group
        self.space = Workspace(NAME, problem.team, self.wanted(), (type(self).__name__, *problem[2:]))
        self.most = most_parts(problem.room, problem.kv_heads)
        self.parts = Parts(
            new(torch.float32, self.most, self.queries, problem.width), new(torch.float32, self.most, self.queries)
        )
        self._kernels = cache(lambda page: ByPlaces(partial(self._prepare, page)))

    def wanted(self) -> Wanted:
        """Return the symmetric memory of a plan."""
        raise NotImplementedError

    def form(self, page: int | None) -> Form:
        """Return what kernels are compiled for. page: its tokens; None: there are no pages."""
        problem, (block, _, chunk) = self.problem, blocks_of(machine().arch, self.problem.width, page)
        widened = interpreter.active() and problem.dtype is not torch.float32
        return Form(
            problem.kv_heads, self.queries, problem.width, power(self.queries, 16), block, power(self.queries),
            power(problem.width, 16), chunk, page, "widened" if widened else "ieee", self.fused,
        )  # fmt: skip

    def _prepare(self, page: int | None, *arrays: torch.Tensor) -> Attend:
        """Compile the kernel for arrays like these, which follow its shape."""
        require_no_capture(NAME)
        form, stages = self.form(page), blocks_of(machine().arch, self.problem.width, page)[1]
        none = new(torch.uint64, 0)
        exchange = Exchange(*(self.space[name] if self.fused else none for name in Exchange._fields))
        fixed = shmem.device_context(self.problem.team), exchange, self.parts, self.problem.scale * LOG2_E

        def programs(compiled: Any) -> int:  # all run at once, because they wait for those of other PEs
            return 1 if interpreter.active() else max(min(self.most, slots(fitting(compiled))), 1)

        kernel = Prepared(
            kernels.attend, programs, (*fixed, LIKE), arrays, {"FORM": form}, num_warps=WARPS, num_stages=stages
        )
        least = form.BT if interpreter.active() else LEAST_BLOCKS * form.BT
        return Attend(kernel, least, slots(fitting(kernel.compiled)))

    def step(self, sequences: int, tokens: int, page: int | None, arrays: tuple[torch.Tensor, ...]) -> Launches:
        """Return the launches for so many sequences and tokens of each. arrays: like those of calls, in attend's order."""
        attend, groups = self._kernels(page).of(*arrays), sequences * self.problem.kv_heads
        splits = splits_of(groups, min(MOST_SPLITS, tokens // attend.least), attend.room)
        return self.launches(attend.kernel, Shape(*encoded_each(tokens, splits, groups)), groups, splits, arrays[-1])

    def launches(self, kernel: Prepared, shape: Shape, groups: int, splits: int, out: torch.Tensor) -> Launches:
        raise NotImplementedError


class Fused(Local):
    """One kernel: the last program of each group combines it over splits and PEs."""

    fused = True

    def wanted(self) -> Wanted:
        n, groups, queries = self.problem.team.size, self.groups, self.queries
        return {
            "flags": ((groups, n), torch.uint64), "tallies": ((groups,), torch.uint64), "epochs": ((groups,), torch.int64),
            "slots": ((groups, 2, n, queries, self.problem.width), torch.float32),
            "slot_logs": ((groups, 2, n, queries), torch.float32),
        }  # fmt: skip

    def launches(self, kernel: Prepared, shape: Shape, groups: int, splits: int, out: torch.Tensor) -> Launches:
        return Launches(kernel.with_numbers(shape), 0)


class BulkSynchronous(Local):
    """Four launches: parts of the splits, their sum, its exchange by fcollect_on_stream, and the sum over PEs."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        constants, programs = {"FORM": self.form(None)}, max(self.groups, 1)
        mine, every = self.space["mine"], self.space["all"]
        self._merge_splits = Prepared(
            kernels.merge_splits, programs, (self.parts, mine, LIKE), (), constants, num_warps=MERGING_WARPS
        )
        self._merge_pes = ByPlaces(
            lambda out: Prepared(
                kernels.merge_pes,
                programs,
                (every, problem.team.size, LIKE),
                (out,),
                constants,
                num_warps=MERGING_WARPS,
            )
        )

    def wanted(self) -> Wanted:
        size = self.groups * self.queries * (self.problem.width + 1)  # values, then logs
        return {"mine": ((size,), torch.float32), "all": ((self.problem.team.size * size,), torch.float32)}

    def launches(self, kernel: Prepared, shape: Shape, groups: int, splits: int, out: torch.Tensor) -> Launches:
        team, each = self.problem.team, self.queries * (self.problem.width + 1)
        mine, every = self.space["mine"][: groups * each], self.space["all"][: team.size * groups * each]
        attend, merge_splits = kernel.with_numbers(shape), self._merge_splits.with_numbers(shape)
        merge_pes = self._merge_pes.of(out).with_numbers(shape)

        def perform(*arrays: torch.Tensor) -> None:
            attend(*arrays)
            merge_splits()
            shmem.fcollect_on_stream(every, mine, team=team)
            merge_pes(arrays[-1])

        return Launches(perform, (splits + 1 + team.size) * mine.nbytes)


class Launches(NamedTuple):
    """The launches of calls with the same numbers, with the arrays that attend takes.

    bytes_reread: those of this PE's memory that a kernel of a call writes and a later one reads.
    """

    perform: Any
    bytes_reread: int


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


def splits_of(groups: int, most: int, room: int) -> int:
    """Return the splits of a sequence: the fewest that keep the multiprocessors busy for nine tenths of the time.

    most: there are no more, and at least one; if these cannot, they keep them as busy as they can.  room: the programs that
    run at once.
    """
    best, its_waves, waves = 0, 1, -(-groups // room)
    while groups:
        fewest, largest = -(-9 * room * waves // (10 * groups)), min(room * waves // groups, most)
        if fewest <= largest:
            return fewest
        if largest * its_waves > best * waves:  # these keep more of the programs of their waves busy
            best, its_waves = largest, waves
        if largest == most:
            break
        waves += 1
    return max(best, 1)


def most_parts(sequences: int, kv_heads: int) -> int:
    """Return the most parts of so many sequences, or of fewer down to half of them, however many tokens they have."""
    rooms = [slots(resident) for resident in range(1, RESIDENT + 1)]
    every = [kv_heads * each for each in range(sequences // 2 + 1, sequences + 1)]
    return max((groups * splits_of(groups, MOST_SPLITS, room) for groups in every for room in rooms), default=0)


def fitting(compiled: Any) -> int:
    """Return how many programs of the kernel run at once on a multiprocessor. One that records events takes more of it."""
    return min(max(taken(compiled).programs, 1), RESIDENT) if machine().arch.startswith("gfx") else RESIDENT


def slots(resident: int) -> int:
    """Return the programs that run at once. The interpreter runs one, but splits as for a few."""
    return 5 if interpreter.active() else resident * machine().programs


def power(size: int, least: int = 1) -> int:
    return max(int(triton.next_power_of_2(max(size, 1))), least)


def new(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device())
