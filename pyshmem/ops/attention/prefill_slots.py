"""The memory in which attention finds the keys and values of all PEs, and the copies that bring them."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import torch

from pyshmem.host.teams import Team
from pyshmem.ops.attention.segments import tokens_at
from pyshmem.ops.copies import Chunks, peers_of, put
from pyshmem.ops.streams import Side
from pyshmem.ops.workspace import Wanted, Workspace

NAME = "attention"
ALIGNED = 64  # elements, so that kernels load 16 bytes at once


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

    def tokens(self, pe: int) -> int:
        """Return the tokens of a sequence that ``pe`` has."""
        return tokens_at(self.size, pe, self.n_pes, self.segments)


class Slots:
    """Memory for ``room`` elements of keys and as many of values from each PE of the team: ``arrays``, (n_pes, 2, room)."""

    def __init__(self, problem: Problem, pair: bool = False, back: bool = False) -> None:
        """pair: a part of the memory, "mine", (2, room), is what this PE sends.

        back: another part, "gradients", like ``arrays``, is for gradients that peers send of this PE's keys and values, with
            flags of their own.
        """
        self.problem, self._pair, self._back = problem, pair, back
        kind = pair, back, problem.sequences, problem.kv_heads, problem.width, problem.dtype
        self.space = Workspace(NAME, problem.team, self._wanted(problem), kind)
        self.arrays = self.space["slots"]

    def _wanted(self, problem: Problem) -> Wanted:
        """Set the room, and return what the workspace must have."""
        n = problem.n_pes
        count = problem.sequences * max(map(problem.tokens, range(n))) * problem.kv_heads * problem.width
        self.room = -(-count // ALIGNED) * ALIGNED
        wanted: Wanted = Chunks.space(problem.team, 1 + self._back) | {"slots": ((n, 2, self.room), problem.dtype)}
        if self._pair:
            wanted["mine"] = (2, self.room), problem.dtype
        if self._back:
            wanted["gradients"] = (n, 2, self.room), problem.dtype
        return wanted

    def resized(self, problem: Problem) -> Slots | None:
        """Return the same for sequences of another length; None if there is no room."""
        made = copy(self)
        made.problem, wanted = problem, made._wanted(problem)
        if not self.space.holds(wanted):
            return None
        made.space = self.space.lent(wanted)
        made.arrays = made.space["slots"]
        return made

    def of(self, pe: int) -> list[torch.Tensor]:
        """Return the keys and the values of a PE, (batch, its tokens, kv_heads, dim)."""
        shape = self.problem.sequences, self.problem.tokens(pe), self.problem.kv_heads, self.problem.width
        count = torch.Size(shape).numel()
        return [each[:count].view(shape) for each in self.arrays[pe]]


class Sender:
    """The copy engine puts this PE's keys and values into its slot on each PE, with a flag behind, on a side stream."""

    def __init__(self, slots: Slots) -> None:
        self.slots, self.team = slots, slots.problem.team
        self.chunks = Chunks(self.team, slots.space["words"], slots.space["flags"])
        self.peers, self.side = peers_of(self.team), Side()

    def resized(self, slots: Slots) -> Sender:
        """Return the same for slots in the same memory."""
        made = copy(self)
        made.slots = slots
        return made

    def send(self, k: torch.Tensor, v: torch.Tensor) -> Any:
        """Begin a call. Return a mark of the time when all PEs have reached it."""
        with self.side.after():
            self.chunks.begin()  # no PE reads its slots of the last call any more
            ready = self.side.mark()
            for pe in reversed(self.peers):  # each PE reads those of the next one first
                for slot, array in zip(self.slots.arrays[self.team.me], (k, v), strict=True):
                    put(self.team, slot[: array.numel()], array.view(-1), pe)
                self.chunks.tell(pe, 0)
        return ready

    def wait(self, pe: int, needed: bool) -> None:
        """Let the current stream wait for the keys and values of a peer. The last peer's end the call, needed or not."""
        if needed or pe == self.peers[-1]:
            self.chunks.wait(pe, 0)


class Exchange(Sender):
    """The same, and gradients come back, into the slots for them, with a flag of their own."""

    def wait(self, pe: int, needed: bool) -> None:
        """Do what Sender.wait does, but never end the call: wait_back does."""
        if needed:
            self.chunks.wait(pe, 0)

    def send_back(self, pe: int, gradients: tuple[torch.Tensor, ...]) -> None:
        """Put gradients of the keys and values of a peer, or none, behind the current stream's present work."""
        with self.side.after():
            for slot, array in zip(self.slots.space["gradients"][self.team.me], gradients, strict=False):
                put(self.team, slot[: array.numel()], array.view(-1), pe)
            self.chunks.tell(pe, 1)

    def wait_back(self, pe: int, needed: bool) -> None:
        """Let the current stream wait for the gradients that a peer sends. The last peer's end the call, needed or not."""
        if needed or pe == self.peers[-1]:
            self.chunks.wait(pe, 1)
