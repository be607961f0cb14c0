"""The schedules of moe_dispatch and moe_combine: how their kernels are compiled, and which memory they use."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import triton

import pyshmem as shmem
from pyshmem.base import interpreter
from pyshmem.device.arch.fields import encoded_each
from pyshmem.kernels.bound_kernels import Prepared, may_be_early
from pyshmem.ops.aligned import Aligned
from pyshmem.ops.experts import kernels, words
from pyshmem.ops.experts.kernels import Division, Exchange, Form, Memory, Operands, Results, Shape
from pyshmem.ops.machine import device, machine, warps_of
from pyshmem.ops.workspace import Wanted, Workspace

NAME = "moe_dispatch"
EACH = 16  # elements of a row that a thread has
ROUTED, SUMMED = 4096, 8192  # elements of blocks that count rows
INTERPRETED_PARTS = 3
ALIKE = 512  # tokens of a PE up to which all programs send, and then do the rest
SENT, SPREAD, ADDED = 4, 3, 4  # rows that a program loads at once
MOST_LISTED = 4096  # entries of the lists of all PEs, which each program of "words" reads
MOST_BLOCKS = 16  # of those entries: a thread has one of each in registers
LEAST_THREADS = 128  # of such a program
MOST_SIZED = 1024  # numbers of tokens whose kernels are kept with the words of these


class Way(NamedTuple):
    """How a kernel divides its work, as measured on two H200s.

    sending: of 8 programs, those that do nothing but send where there are many tokens.
    most, chunks: a flag stands for at most so many tokens, and a part has at least so many flags if it has the tokens.
    """

    sending: int
    most: int
    chunks: int


THERE, BACK = Way(2, 16, 5), Way(4, 8, 8)


class Routing(NamedTuple):
    """Where the rows of a dispatch went, as kernels.Operands describes it."""

    places: torch.Tensor
    factors: torch.Tensor
    hits: torch.Tensor


def division(room: int, way: Way) -> tuple[int, Division]:
    """Return the programs of a kernel, and how they divide ``room`` tokens of each PE."""
    programs = max(min(machine().programs, room), 1)
    alike = programs < 8 or room <= ALIKE
    pushers = programs if alike else programs * way.sending // 8
    first = 0 if alike else pushers
    parts = INTERPRETED_PARTS if interpreter.active() else programs - first
    each = max(-(-room // parts), 1)
    return programs, Division(-(-room // each), each, min(way.most, max(each // way.chunks, 1)), pushers, first)


def encoded_division(work: Division) -> Division:
    """Return a division as kernels get it."""
    return Division(*encoded_each(*work))


class Fused:
    """One kernel per direction. A token crosses once to each PE, and is spread there as it arrives."""

    def __init__(self, problem: Any, faults: torch.Tensor) -> None:
        self.problem, self.faults = problem, faults
        n, room, top = problem.team.size, problem.room, problem.top
        self.programs, self.there = division(room, THERE)
        self.programs_back, self.back = division(room, BACK)
        self.pitch = max(self.there.parts, self.back.parts, self.programs)
        wanted: Wanted = {
            "flags": ((n * self.pitch,), torch.uint64),
            "tables": ((2 * n * self.there.parts, problem.local), torch.int32),
            "experts": ((2 * n * room, top), torch.int32), "weights": ((2 * n * room, top), torch.float32),
            "slots": ((2 * n * room, problem.hidden), problem.dtype),
        }  # fmt: skip
        if problem.scaled:  # sums of the way back are larger, so these have slots of their own
            wanted["bits"] = (2 * n * room, problem.hidden), problem.kind
            wanted["scales"] = (2 * n * room, problem.each), torch.float32
        self.space = Workspace(NAME, problem.team, wanted | self.more(problem))
        self.epochs = torch.zeros(self.programs, dtype=torch.int64, device=device())
        self.context = shmem.device_context(problem.team)
        self.none = torch.empty(1, dtype=torch.float32, device=device())
        self.width = power(problem.hidden)
        self.warps = warps_of(self.width // EACH)
        self._kernels: dict[tuple[str, torch.dtype], Aligned] = {}
        self._sized: dict[tuple[str, int, torch.dtype], Aligned] = {}  # the same for numbers of tokens

    def more(self, problem: Any) -> Wanted:
        """The memory that is wanted beside that of all such schedules."""
        return {}

    def dispatch(self, tokens: int, x: Any, indices: Any, weights: Any, rows: Any, *results: Any) -> None:
        """x, rows: pairs of elements and scales, None for none.  results: counts, offsets and those of the routing."""
        (x, scales), (rows, made) = x, rows
        if scales is None:
            scales = made = self.none
        self._kernel("dispatch", tokens, indices.dtype)(x, scales, indices, weights, rows, made, *results)

    def combine(self, tokens: int, *arrays: torch.Tensor) -> None:
        """arrays: rows, those of the routing, and out."""
        self._kernel("combine", tokens, arrays[0].dtype)(*arrays)

    def _kernel(self, name: str, tokens: int, kind: torch.dtype) -> Aligned:
        """The kernel for a number of tokens of this PE. kind: of indices, which each PE chooses, or of rows."""
        found = self._sized.get((name, tokens, kind))
        if found is None:
            made = self._kernels.get((name, kind))
            if made is None:
                made = self._kernels[name, kind] = getattr(self, f"_{name}_of")(tokens)
            if len(self._sized) >= MOST_SIZED:
                self._sized.clear()
            found = self._sized[name, tokens, kind] = made.with_numbers(tokens, *made.numbers[1:])
        return found

    def _dispatch_of(self, tokens: int) -> Aligned:
        problem, fixed = self.problem, (self.context, self._memory())
        numbers = (
            tokens, problem.room, self.pitch, encoded_division(self.there), Shape(problem.hidden, problem.local),
            problem.capacity, int(problem.strict),
        )  # fmt: skip
        sizes = sizes_of(problem.top, problem.local, problem.local * problem.team.size, self.there.each)
        constants = {"FORM": Form(*sizes, self.width, problem.each, SENT, SPREAD)}
        return Aligned(
            NAME, kernels.dispatch, self.programs, fixed, constants, Operands, numbers=numbers, num_warps=self.warps
        )

    def _memory(self) -> Memory:
        symmetric = (self.space[name] for name in ("flags", "tables", "experts", "weights"))
        return Memory(*symmetric, *self._slots(), self.epochs, self.faults)

    def _slots(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the memory where rows that are sent arrive, and that of their scales."""
        return (self.space["bits"], self.space["scales"]) if self.problem.scaled else (self.space["slots"], self.none)

    def _combine_of(self, tokens: int) -> Aligned:
        problem, exchange = self.problem, Exchange(self.space["flags"], self.space["slots"], self.epochs)
        numbers = tokens, problem.room, self.pitch, encoded_division(self.back), problem.hidden
        constants = {"TOP": problem.top, "W": self.width, "AT_ONCE": ADDED}
        return Aligned(
            NAME, kernels.combine, self.programs_back, (self.context, exchange), constants, Results, numbers=numbers,
            num_warps=self.warps,
        )  # fmt: skip


class Words(Fused):
    """For few tokens: lists of experts go to all PEs as words that are their own flags. The way back is that of Fused."""

    def more(self, problem: Any) -> Wanted:
        return {"words": ((4 * problem.team.size * problem.room * problem.top,), torch.int64)}

    def _dispatch_of(self, tokens: int) -> Aligned:
        problem, space = self.problem, self.space
        context = self.context._replace(piece=16 * problem.room * problem.top)
        memory = words.Memory(space["words"], space["flags"], *self._slots(), self.epochs, self.faults)
        numbers = (
            tokens, problem.room, self.pitch, Shape(problem.hidden, problem.local), problem.capacity, int(problem.strict)
        )  # fmt: skip
        sizes, early = words_of(problem.top, problem.local, problem.room, problem.hidden), may_be_early()
        constants = {"FORM": words.Form(*sizes, self.width, problem.each), "EARLY": early}
        warps = warps_of(threads_of(problem.hidden))
        return Aligned(
            NAME, words.dispatch_words, self.programs, (context, memory), constants, Operands, early, numbers,
            num_warps=warps,
        )  # fmt: skip


class BulkSynchronous:
    """All PEs get all tokens by fcollect_on_stream and sort their rows; sums return by alltoall_on_stream."""

    def __init__(self, problem: Any, faults: torch.Tensor) -> None:
        self.problem = problem
        n, room, top, hidden = problem.team.size, problem.room, problem.top, problem.hidden
        wanted: Wanted = {
            "x": ((room, hidden), problem.kind), "every x": ((n * room, hidden), problem.kind),
            "scales": ((room, problem.each), torch.float32), "every scales": ((n * room, problem.each), torch.float32),
            "experts": ((room, top), torch.int32), "every experts": ((n * room, top), torch.int32),
            "weights": ((room, top), problem.wide), "every weights": ((n * room, top), problem.wide),
            "sums": ((n, room, hidden), problem.dtype), "every sums": ((n, room, hidden), problem.dtype),
        }  # fmt: skip
        self.space = Workspace(NAME, problem.team, wanted)
        self.counted = torch.arange(max(n * room * top, problem.local) + 1, dtype=torch.int32, device=device())
        self.found = torch.tensor([0, problem.capacity, 0, problem.local * n], dtype=torch.int64, device=device())
        self.record = Prepared(kernels.record, 1, (), (self.found, faults), {}, num_warps=1)
        self.faults = faults

    def dispatch(
        self, tokens: int, x: Any, indices: Any, weights: Any, rows: Any, counts: Any, offsets: Any, *routing: Any
    ) -> None:
        (x, scales), (rows, row_scales) = x, rows
        problem, space, team = self.problem, self.space, self.problem.team
        known = (indices >= 0) & (indices < problem.local * team.size)
        space["x"][:tokens].copy_(x)
        space["experts"].fill_(-1)
        space["experts"][:tokens].copy_(torch.where(known, indices, -1))
        space["weights"][:tokens].copy_(weights)
        if scales is not None:
            space["scales"][:tokens].copy_(scales.view(tokens, -1))
        for name in ("x", "experts", "weights", *["scales"] * problem.scaled):
            shmem.fcollect_on_stream(space[f"every {name}"], space[name], team=team)
        expert = space["every experts"] - team.me * problem.local
        expert = torch.where((expert >= 0) & (expert < problem.local), expert, problem.local)
        ordered, source = torch.sort(expert.view(-1), stable=True)
        starts = torch.searchsorted(ordered, self.counted[: problem.local + 1], out_int32=True)
        first = source[: problem.capacity] // problem.top
        torch.index_select(space["every x"], 0, first, out=rows[: len(first)])
        if scales is not None:
            torch.index_select(space["every scales"], 0, first, out=row_scales.view(len(rows), -1)[: len(first)])
        torch.clamp(starts, max=problem.capacity, out=offsets)
        torch.sub(offsets[1:], offsets[:-1], out=counts)
        self._route(expert, source, *routing)
        if problem.strict:
            self.found[0] = torch.where(starts[-1] > problem.capacity, starts[-1], 0)
        if tokens:
            wrong = ((indices != -1) & ~known).any(1)
            self.found[2] = torch.where(wrong, self.counted[1 : tokens + 1], 0).max()
        self.record(self.found, self.faults)

    def _route(self, expert: Any, source: Any, places: Any, factors: Any, hits: Any) -> None:
        """expert: of each entry here, or their number for none.  source: the entry of each row."""
        problem, space = self.problem, self.space
        row = torch.empty_like(self.counted[: len(source)])
        row[source] = self.counted[: len(source)]
        row = torch.where(row < problem.capacity, row, -2).view(expert.shape)
        row = torch.where(expert < problem.local, row, -1)
        order = torch.sort(expert, dim=1, stable=True).indices
        places.copy_(row.gather(1, order))
        factors.copy_(space["every weights"].gather(1, order))
        owner = space["experts"].div(problem.local, rounding_mode="floor")
        hits.copy_((owner[:, :, None] == self.counted[: problem.team.size]).any(1))

    def combine(self, tokens: int, rows: Any, places: Any, factors: Any, hits: Any, out: Any) -> None:
        problem, space = self.problem, self.space
        total = torch.zeros(len(places), problem.hidden, dtype=problem.wide, device=device())
        for place, factor in zip(places.T, factors.T, strict=True):
            found = rows.index_select(0, place.clamp(min=0)).to(problem.wide) * factor[:, None]
            total += torch.where(place[:, None] >= 0, found, 0.0)
        space["sums"].view(total.shape).copy_(total)
        shmem.alltoall_on_stream(space["every sums"], space["sums"], team=problem.team)
        sums = torch.where(hits[:tokens].T[:, :, None] > 0, space["every sums"][:, :tokens].to(problem.wide), 0.0)
        out.copy_(sums.sum(0))


# beyond, the kernel of "words" has more code than the instruction cache, and keeps registers in memory
MOST_PES_ON_AMD = 4
Schedule = Literal["auto", "words", "fused", "bulk_synchronous"]
SCHEDULES = {"words": Words, "fused": Fused, "bulk_synchronous": BulkSynchronous}


def schedule_of(asked: str, problem: Any) -> str:
    """Return the schedule of a plan: tiles do not reach PEs on other nodes, and the interpreter is slow."""
    if asked == "auto" and (problem.team.meeting.spans or machine().arch == "interpreter"):
        return "bulk_synchronous"
    if asked == "auto" and machine().arch.startswith("gfx") and problem.team.size > MOST_PES_ON_AMD:
        return "fused"
    if asked in ("auto", "words"):
        return "words" if has_words(problem) else "fused"
    return asked


def has_words(problem: Any) -> bool:
    """Return whether "words" can have so many tokens."""
    listed = problem.room * problem.top
    blocks = power(problem.team.size) * -(-listed // threads_of(problem.hidden))
    return problem.team.size * listed <= MOST_LISTED and blocks <= MOST_BLOCKS


def threads_of(hidden: int) -> int:
    """Return the threads of a program of "words"."""
    return max(min(power(hidden) // EACH, 1024), LEAST_THREADS)


def words_of(top: int, local: int, room: int, hidden: int) -> tuple[int, ...]:
    """Return the first fields of words.Form, which follow from numbers of experts and tokens, and from its threads."""
    width = threads_of(hidden)
    return top, power(top), power(local), width, -(-room * top // width)


def sizes_of(top: int, local: int, experts: int, each: int) -> tuple[int, ...]:
    """Return the first fields of kernels.Form, which follow from numbers of experts, and of tokens of a part."""
    listed, mine, every = power(top), power(local), power(experts)
    routed = max(min(ROUTED // (listed * max(every, listed)), 32, power(each)), 1)
    return top, listed, mine, every, routed, max(SUMMED // mine, 1)


def power(size: int) -> int:
    return int(triton.next_power_of_2(max(size, 1)))
