"""Results that calls return in turn: one lives until the next call but one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pyshmem.ops.machine import device
from pyshmem.ops.workspace import room_for


class InTurn:
    """The two results of a plan that calls take in turn: one lives until the next call but one."""

    def __init__(self, make: Callable[[int], Any], room: Any = None) -> None:
        """make: returns the result of a parity.  room: where they are already, with other plans' results; None: nowhere."""
        self._made: dict[int, Any] = {}
        self._make, self._counts, self.parity = make, room or self, 0

    def take(self) -> Any:
        """Return the result of this call."""
        counts = self._counts
        counts.parity ^= 1
        found = self._made.get(counts.parity)
        if found is None:  # without a room both are made, before a graph is captured
            for parity in range(2) if counts is self else (counts.parity,):
                self._made[parity] = self._make(parity)
            found = self._made[counts.parity]
        return found

    def clear(self) -> None:
        """Let go of both, as at first."""
        self._made = {}


class InTurnBySize:
    """Private arrays of two parities, of which plans for other numbers of rows have parts: the largest one made them.

    parity: of the next call that takes a result.
    """

    def __init__(self) -> None:
        self.parity = 0
        self._made: dict[tuple[str, torch.dtype], list[torch.Tensor]] = {}

    def of(self, name: str, parity: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return the array of this name and parity. Those of both parities are made at once, before a graph is captured.

        Only the first plan makes them as small as it needs them: lengths that change grow.
        """
        count = math.prod(shape)
        made = self._made.get((name, dtype))
        if made is None or len(made[0]) < count:
            most = room_for(count) if made else count
            made = [torch.empty(most, dtype=dtype, device=device()) for _ in range(2)]
            self._made[name, dtype] = made
        return made[parity][:count].view(shape)
