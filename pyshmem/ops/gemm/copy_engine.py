"""The library's product in chunks; the copy engine moves each chunk on side streams while the next one is multiplied."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pyshmem.ops.copies import Chunks, beginner, order_copies, peers_of, put
from pyshmem.ops.gemm.exchanges import Sum, sender
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.scaling import NONE, gathered_scales, of_rows
from pyshmem.ops.gemm.steps import Steps, multiply, multiply_each, rows_of, scales_of_pes, workspace_of
from pyshmem.ops.protocol import words_of
from pyshmem.ops.streams import Side, await_mark
from pyshmem.ops.workspace import Workspace

# the tiles that a large GPU makes in a wave, and their rows and columns in the library's kernels for large products
TILES, TALL, WIDE = 132, 128, 256
STEP = 128  # rows
MANY = 6  # waves, from which on chunks have two, but for the last two chunks
PARTS = 2  # chunks of a PE's rows at most, where parts are added up
FEW = 3  # waves, up to which the rows of each of several peers are two chunks; of four, halves took 4 % longer on four H200s
DEEP = 4096  # K on a PE from which the library's product adds a part without a loss
# with as many columns on a PE, the rows of the last peer are one chunk, too: with one peer, because the PE's own take
# longer than their copies; with several, because half of them leave much of the GPU idle. Measured on two and four H200s
AHEAD = 3000, 1500


def equal_parts(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Cut rows into ``count`` equal chunks, at multiples of STEP."""
    cuts = [first, *(first + (last - first) * i // count // STEP * STEP for i in range(1, count)), last]
    return list(itertools.pairwise(cuts))


def wave_of(columns: int) -> int:
    """Return the rows of a wave. A chunk of some rows more takes a second wave, in which most of the GPU is idle."""
    return max(TILES // max(-(-columns // WIDE), 1), 1) * TALL


def waves_in(rows: int, columns: int) -> int:
    """Return how many waves a product takes, if the last one has up to STEP rows more."""
    return max(-(-(rows - STEP) // wave_of(columns)), 1)


def cut(first: int, last: int, columns: int, waves: tuple[int, ...]) -> list[tuple[int, int]]:
    """Cut rows into chunks of so many waves each; the last one has the rows that are left."""
    cuts = [first, *(first + wave_of(columns) * end for end in itertools.accumulate(waves[:-1])), last]
    return list(itertools.pairwise(cuts))


def gathered_chunks(first: int, last: int, columns: int, n_pes: int) -> list[tuple[int, int]]:
    """Cut rows into chunks of one or two waves. Copies begin with the first one, and the copy of the last is not hidden.

    To several peers the last copy takes longer than the library loses by chunks of half a wave, where there are two waves.
    """
    count = waves_in(last - first, columns)
    if n_pes > 2 and count <= 2 and last - first >= 8 * STEP:
        return equal_parts(first, last, 4)
    twos, odd = (2,) * ((count - 2) // 2), (1,) * (count % 2)
    return cut(first, last, columns, (*twos, *odd, 1, 1) if count >= MANY else (1,) * count)


def parts_of(first: int, last: int, columns: int, most: int, n_pes: int) -> list[tuple[int, int]]:
    """Cut rows into up to PARTS chunks, as many for each PE, where ``most`` is the largest number of rows of one.

    The tiles of one product fill the last wave of another. Of several peers, the copies of all but the last one's rows are
    behind the products of others, so that rows of many waves are one chunk.
    """
    few = n_pes <= 2 or waves_in(most, columns) <= FEW
    return equal_parts(first, last, PARTS) if few and most >= 4 * STEP else [(first, last)]


class GatherRows(Steps):
    """Each PE multiplies its rows in chunks; each chunk is put to all PEs on a stream for each of them."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.team = problem.team
        self.space = workspace_of(problem, space, words=((words_of(problem.n_pes),), torch.uint64))
        self.begin, self.gate = beginner(problem.team, self.space["words"]), Side()
        self.sides = {pe: Side() for pe in peers_of(problem.team)}
        self.sender = sender(problem, self.space["words"], problem.N)
        self.cut(problem, a, b)
        blocks = [(i - self.first, j - self.first, i) for i, j in self.chunks]
        self.multiply = multiply_each(problem, a, b, blocks, 0)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.first, last = rows_of(problem, problem.me)
        self.chunks = gathered_chunks(self.first, last, problem.N, problem.n_pes)
        i, j = self.chunks[-1]
        last_chunk = self.space["result 0"][i:j]
        self.send = self.sender.of(last_chunk, last_chunk).with_numbers(last_chunk.numel())

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        with self.gate.after():
            self.begin()  # peers may write to out
            ready = self.gate.mark()
        for (i, j), step in zip(self.chunks, self.multiply, strict=False):
            above, below, made = i - self.first, j - self.first, out[i:j]
            step(a[above:below], b, made, *of_rows(scales, above, below))
            if j < self.chunks[-1][1]:
                for pe, side in self.sides.items():
                    with side.after():
                        await_mark(ready)
                        put(self.team, made, made, pe)
        self.gate.join()
        for side in self.sides.values():
            side.join()
        order_copies()
        self.send(made, made)  # a copy by all programs begins at once, and they meet in the same kernel


class MultiplyGathered(Steps):
    """Each PE multiplies its own rows, then those of its peers as they come: first all of the next PE's, and so on."""

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        self.team, self.side = problem.team, Side()
        gathered = ((problem.M, problem.K), a.dtype)
        room = Chunks.space(problem.team, len(chunks_of(problem, problem.me, True))) | gathered_scales(problem)
        self.space = workspace_of(problem, space, **room, gathered=gathered)
        self.chunks = Chunks(problem.team, self.space["words"], self.space["flags"])
        self.cut(problem, a, b)
        column, blocks = problem.corner[1], [(i, j, i) for _, _, i, j, _ in self.blocks]
        self.multiply_own = multiply(problem, a, b, self.first, column)
        self.multiply = multiply_each(problem, self.gathered, b, blocks, column)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, team = problem, problem.team
        self.gathered = self.space["gathered"]
        self.scales = scales_of_pes(problem, self.space["scales"]) if problem.scaling != NONE else []
        self.first, self.last = rows_of(problem, team.me)
        self.chunks = self.chunks.resized(len(chunks_of(problem, team.me, True)))
        peers = peers_of(team)
        self.sent = [
            (pe, chunk, i, j, self.gathered[i:j])
            for pe in reversed(peers)  # the last one gets this PE's rows as the last of its peers'
            for chunk, (i, j) in enumerate(chunks_of(problem, team.me, pe == peers[0]))
        ]
        self.blocks = [
            (pe, chunk, i, j, self.gathered[i:j])
            for pe in peers
            for chunk, (i, j) in enumerate(chunks_of(problem, pe, pe == peers[-1]))
        ]

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        rows = a if a.is_contiguous() else a.contiguous()
        with self.side.after():
            self.chunks.begin()  # no PE reads its gathered rows of the last call any more
            for pe, chunk, i, j, target in self.sent:
                if scales and not chunk:
                    put(self.team, self.scales[self.team.me], scales[0], pe)
                put(self.team, target, rows[i - self.first : j - self.first], pe)
                self.chunks.tell(pe, chunk)
        self.multiply_own(a, b, out[self.first : self.last], *scales)
        for (pe, chunk, i, j, gathered), step in zip(self.blocks, self.multiply, strict=False):
            self.chunks.wait(pe, chunk)
            step(gathered, b, out[i:j], *self._scales_of(pe, i, j, scales))
        self.side.join()

    def _scales_of(self, pe: int, first: int, last: int, scales: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The scales of the product of rows first to last - 1, which are of ``pe``."""
        if not scales:
            return ()
        above, _ = rows_of(self.problem, pe)
        return of_rows((self.scales[pe], scales[1]), first - above, last - above)


def chunks_of(problem: Problem, pe: int, last: bool) -> list[tuple[int, int]]:
    """The rows of ``pe`` in chunks, as many on every PE. last: whether ``pe`` is the last peer, whose copy ends the call.

    The products of the others are behind the copies that follow. Of several peers, a quarter is multiplied at the end.
    """
    rows, columns, least = rows_of(problem, pe), problem.N // problem.n_pes, 4 * STEP * problem.n_pes
    if not last or least > problem.M or columns >= AHEAD[problem.n_pes > 2]:
        return [rows]
    half, rest = equal_parts(*rows, 2)
    return [half, *equal_parts(*rest, 2 if problem.n_pes > 2 else 1)]


def adds_to_slots(problem: Problem) -> bool:
    """Whether the library's product adds this PE's part to that of its peer, for gemm_reduce_scatter."""
    plain = problem.options.epilogue is None and problem.scaling == NONE
    return plain and problem.n_pes == 2 and problem.k >= DEEP


class ReduceScatter(Steps):
    """Each PE multiplies the rows of the others, then its own, in chunks; the copy engine brings each chunk to its owner.

    The owner adds the parts of a chunk to its own product; of one peer, the library's product itself does that if K is long.
    Products take turns on two streams: the tiles of the next one fill the last wave of each.
    """

    epilogue = False

    def __init__(self, problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> None:
        n, own = problem.n_pes, -(-problem.M // problem.n_pes)
        room = Chunks.space(problem.team, PARTS) | {"slots": ((n - 1, own, problem.N), problem.dtype)}
        self.space = workspace_of(problem, space, **room)
        self.slots = self.space["slots"]
        self.chunks = Chunks(problem.team, self.space["words"], self.space["flags"])
        self.parts = torch.empty(problem.M, problem.N, dtype=problem.dtype, device=a.device)
        self.adds = adds_to_slots(problem)
        self.adder, self.side, self.waiting, self.lane = Sum(problem), Side(), Side(), Side(priority=0)
        self.cut(problem, a, b)
        blocks = [(i, j, 0) for each in self.sent for _, i, j, *_ in each] + [(i, j, 0) for i, j, *_ in self.own]
        self.multiply = multiply_each(problem, a, b, blocks, 0, epilogue=False)

    def cut(self, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> None:
        self.problem, self.team, most = problem, problem.team, -(-problem.M // problem.n_pes)
        blocks = {pe: parts_of(*rows_of(problem, pe), problem.N, most, problem.n_pes) for pe in range(problem.n_pes)}
        own = blocks[problem.me]
        self.first = own[0][0]
        self.chunks = self.chunks.resized(len(own))
        self.sent = [[self._part(pe, *blocks[pe][i]) for pe in peers_of(self.team)] for i in range(len(own))]
        # chunks of this PE's rows, their parts, and the sums of these
        parts = [(i, j, self.parts[i:j]) for i, j in own]
        self.own = [(*each, None if self.adds else self._sum_of(each[0], each[2])) for each in parts]

    def _part(self, pe: int, first: int, last: int) -> tuple[Any, ...]:
        """Return rows of this PE's part, which ``pe`` owns: (pe, first, last + 1, their part, its place in a slot there)."""
        start, _ = rows_of(self.problem, pe)
        slot = self.slots[(self.problem.me - pe - 1) % self.problem.n_pes, first - start : last - start]
        return pe, first, last, self.parts[first:last], slot

    def _sum_of(self, first: int, part: torch.Tensor) -> Any:
        slots = self.slots[:, first - self.first : first - self.first + len(part)]
        return self.adder.of(slots, self.slots.shape[1], part, first)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *scales: torch.Tensor) -> None:
        products = iter(self.multiply)
        with self.side.after():
            self.chunks.begin()  # no PE reads its slots of the last call any more
            lanes = self._lanes()
        for chunk, blocks in enumerate(self.sent):
            for pe, i, j, part, slot in blocks:
                with next(lanes)():
                    next(products)(a[i:j], b, part, *of_rows(scales, i, j))
                    with self.side.after():
                        put(self.team, slot, part, pe)
                        self.chunks.tell(pe, chunk)
        for chunk, (i, j, part, add) in enumerate(self.own):
            there = slice(i - self.first, j - self.first)
            with next(lanes)():
                with self.waiting.after():  # on the other side, the copies of this PE's own parts come first
                    self._await_parts(chunk)
                if self.adds:
                    self.waiting.join()
                    torch.addmm(self.slots[0, there], a[i:j], b, out=out[there])
                    continue
                next(products)(a[i:j], b, part, *of_rows(scales, i, j))
                self.waiting.join()
                add(part, out[there])
        self.lane.join()
        self.side.join()

    def _lanes(self) -> Iterator[Callable[[], AbstractContextManager[Any]]]:
        """The streams of products in turn. The lane begins after the meeting, and the current stream's tiles come first."""
        self.lane.after()
        return itertools.cycle((nullcontext, self.lane.beside))

    def _await_parts(self, chunk: int) -> None:
        for pe in peers_of(self.team):
            self.chunks.wait(pe, chunk)


STEPS = {
    ("gemm_all_gather", "rows"): GatherRows,
    ("all_gather_gemm", "rows"): MultiplyGathered,
    ("gemm_reduce_scatter", "rows"): ReduceScatter,
}
