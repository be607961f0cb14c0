"""The memory of plans: symmetric arrays that peers write.

Symmetric memory is allocated by all PEs of the job together. A plan of a team of all PEs does so itself. A smaller team
takes it from the reserve, which the program has allocated before: its members agree on a place that is free on all
of them, and two teams without a common PE may have the same place.
"""

from __future__ import annotations

import math
from itertools import accumulate, chain
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import Team
from pyshmem.memory.allocator import lowest_gap
from pyshmem.ops.machine import device

_LINE = 256


Wanted = dict[str, tuple[tuple[int, ...], torch.dtype]]  # shape and type of each array by its name


class Reserve:
    """Memory for plans of teams that do not include all PEs."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.generation = -1
        self.taken: list[tuple[int, int]] = []

    def open(self, nbytes: int) -> None:
        if self.generation == job.generation and self.memory is not None:
            refuse(
                ArgumentError, "reserve", "nbytes", f"{nbytes} after {self.memory.numel()}", "one call for each init"
            )
        self.memory = shmem.zeros(nbytes, dtype=torch.uint8)
        self.generation, self.taken = job.generation, []

    @property
    def room(self) -> int:
        return 0 if self.memory is None or self.generation != job.generation else self.memory.numel()

    def take(self, routine: str, team: Team, nbytes: int) -> torch.Tensor:
        """Collective over the team. Errors: HeapExhaustedError, on all members."""
        taken = _intervals(routine, team, self.taken if self.room else [])
        start = lowest_gap(chain.from_iterable(taken), nbytes, self.room)
        if start is None:
            wants = f"ops.reserve(nbytes) on all PEs before: this plan needs {nbytes} bytes in a row"
            refuse(HeapExhaustedError, routine, "team", f"a reserve of {self.room} bytes", wants)
        self.taken.append((start, start + nbytes))
        assert self.memory is not None
        return self.memory[start : start + nbytes]

    def give_back(self, memory: torch.Tensor) -> None:
        if self.room and self.memory is not None:
            start = memory.data_ptr() - self.memory.data_ptr()
            self.taken = [each for each in self.taken if each[0] != start]


_reserve = Reserve()


def reserve(nbytes: int) -> None:
    """Allocate ``nbytes`` of symmetric memory for plans of teams that do not include all PEs.

    Order: collective over all PEs, once after each init. Plans of teams of all PEs need no reserve.
    Errors: HeapExhaustedError, ArgumentError for a second call, NotInitializedError.
    Spec: none.
    """
    _reserve.open(nbytes)


def reserve_bytes() -> int:
    """Return the size of the reserve in bytes; 0 if there is none.

    Errors: none.
    Spec: none.
    """
    return _reserve.room


class Room:
    """Symmetric memory of a plan, or of several whose calls differ in lengths alone: the largest one made it.

    parity: of the next call that takes one of two results in turn.  holders: the plans that have it.
    """

    def __init__(self, routine: str, team: Team, sizes: dict[str, int]) -> None:
        """Allocate ``sizes`` bytes for arrays by name. Collective over the team."""
        self.team, self.sizes = team, sizes
        self.of_all = team.size == job.n_pes  # whether all PEs of the job allocate and free it together
        self.holders, self.parity = 0, 0
        ends = list(accumulate(-(-size // _LINE) * _LINE for size in sizes.values()))
        self.starts = dict(zip(sizes, [0, *ends], strict=False))
        total = ends[-1] if ends else 0
        self.memory: Any = None
        self._typed: dict[torch.dtype, torch.Tensor] = {}  # the memory as elements of a type
        if total:
            self.memory = shmem.align(_LINE, total) if self.of_all else _reserve.take(routine, team, total)
            self.memory = self.memory.view(torch.uint8)
            self.memory.zero_()
        shmem.quiet()
        team.sync()

    def array(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return the first elements of an array of the room, in this shape and type."""
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype, device=device())
        typed = self._typed.get(dtype)
        if typed is None:
            typed = self._typed[dtype] = self.memory.view(dtype)
        first = self.starts[name] // dtype.itemsize
        return typed[first : first + count].view(shape)

    def has(self, sizes: dict[str, int]) -> bool:
        """Whether arrays of these sizes have room."""
        return all(size <= self.sizes.get(name, -1) for name, size in sizes.items())

    def leave(self) -> None:
        """One plan less. The last one frees the memory, collectively over the team, over all PEs if it has all."""
        self.holders -= 1
        if self.holders or self.memory is None:
            return
        if self.of_all:
            shmem.free(self.memory)
        else:
            shmem.quiet()
            if self.team:
                self.team.sync()
            _reserve.give_back(self.memory)
        self.memory, self._typed = None, {}


_rooms: dict[tuple[Any, ...], list[Room]] = {}  # those that plans share, by what these have in common


def _room(routine: str, team: Team, sizes: dict[str, int], kind: tuple[Any, ...]) -> Room:
    """Return a room that has these sizes. Only the first one is as small as asked for: lengths that change grow."""
    key = (*kind, routine, team.meeting.wires, team.size, job.generation)
    if key not in _rooms:
        for old, rooms in list(_rooms.items()):
            if old[-1] != job.generation or not any(each.holders for each in rooms):
                del _rooms[old]
    rooms = _rooms[key] = [each for each in _rooms.get(key, ()) if each.holders]
    for room in rooms:
        if room.has(sizes):
            return room
    if rooms:
        sizes = {name: room_for(size) for name, size in sizes.items()}
    rooms.append(Room(routine, team, sizes))
    return rooms[-1]


def room_for(count: int) -> int:
    """Return the least power of two from ``count`` on; 0 for none. Plans that differ in lengths share what is so large."""
    return 1 << (count - 1).bit_length() if count else 0


def sizes_of(wanted: Wanted) -> dict[str, int]:
    """Return the bytes of arrays by name."""
    return {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in wanted.items()}


class Workspace:
    """Arrays in symmetric memory, for ``routine`` on ``team``. They are zeros at first, where they are not shared."""

    def __init__(self, routine: str, team: Team, wanted: Wanted, kind: tuple[Any, ...] = ()) -> None:
        """kind: what plans that share memory have in common, whose calls may follow each other; (): none shares it.

        Collective over the team, unless another plan has made room for it.
        """
        sizes = sizes_of(wanted)
        self.room = _room(routine, team, sizes, kind) if kind else Room(routine, team, sizes)
        self.room.holders += 1
        self.closed, self.of_all, self._wanted = False, self.room.of_all, wanted
        self._arrays: dict[str, torch.Tensor] = {}

    def holds(self, wanted: Wanted) -> bool:
        """Whether its memory is large enough for these arrays."""
        return not self.closed and self.room.has(sizes_of(wanted))

    def lent(self, wanted: Wanted) -> Workspace:
        """Return arrays in the same memory, which they keep, with other shapes for ``wanted``; they are not larger."""
        found = object.__new__(Workspace)
        found.room, found.closed, found.of_all = self.room, False, self.of_all
        found._wanted, found._arrays = (self._wanted | wanted, {}) if wanted else (self._wanted, self._arrays)
        found.room.holders += 1
        return found

    def __getitem__(self, name: str) -> torch.Tensor:
        found = self._arrays.get(name)
        if found is None:
            found = self._arrays[name] = self.room.array(name, *self._wanted[name])
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._wanted

    def get(self, name: str) -> torch.Tensor | None:
        """Return an array, or None if there is none of this name."""
        return self[name] if name in self._wanted else None

    def close(self) -> None:
        """Let go of the memory, which the last plan frees. Collective over the team, over all PEs if it has all."""
        if not self.closed:
            self.closed = True
            self.room.leave()


def _intervals(routine: str, team: Team, mine: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The places taken on each member, 15 at a time, which a note can hold."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(team.size)]
    turn = 0
    while True:
        part = mine[15 * turn : 15 * turn + 15]
        numbers = [len(mine), *(end for pair in part for end in pair)]
        note = b"".join(number.to_bytes(8, "little") for number in numbers).ljust(256, b"\0")
        notes = team.meeting.share(routine, note)
        counts = []
        for pe, note in enumerate(notes):
            words = [int.from_bytes(note[i : i + 8], "little") for i in range(0, 248, 8)]
            counts.append(words[0])
            held = min(max(words[0] - 15 * turn, 0), 15)
            found[pe] += [(words[1 + 2 * i], words[2 + 2 * i]) for i in range(held)]
        turn += 1
        if max(counts) <= 15 * turn:
            return found
