"""How a parameter is divided among the PEs of a team."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.torch.team_names import handle_of, team_of


class Cut(NamedTuple):
    """A dimension that is divided. parts: equal pieces of it, such as queries, keys and values, each divided by itself."""

    dim: int = 0
    parts: int = 1

    def take(self, whole: torch.Tensor, me: int, n: int) -> torch.Tensor:
        """Return the share of PE ``me`` of n, a copy."""
        pieces = [each.chunk(n, self.dim)[me] for each in whole.chunk(self.parts, self.dim)]
        return torch.cat(pieces, self.dim)

    def join(self, shares: list[torch.Tensor]) -> torch.Tensor:
        """Return the whole of the shares of all PEs."""
        pieces = [each.chunk(self.parts, self.dim) for each in shares]
        return torch.cat([piece[part] for part in range(self.parts) for piece in pieces], self.dim)


def place_in(routine: str, team: str) -> tuple[int, int]:
    """Return this PE's number in the team of a name, and how many PEs it has. Errors: ArgumentError."""
    found = team_of(routine, handle_of(team, routine))
    return found.me, found.size


def share(routine: str, argument: str, size: int, team: str, parts: int = 1) -> int:
    """Return this PE's share of ``size``. Errors: ArgumentError if it is no multiple of the PEs times ``parts``."""
    _, n = place_in(routine, team)
    if size % (n * parts):
        refuse(ArgumentError, routine, argument, str(size), f"a multiple of {n * parts}, for {n} PEs")
    return size // n
