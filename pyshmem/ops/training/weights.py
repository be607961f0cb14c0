"""Whether all PEs still have the same weights: a number for each parameter, compared once in a while."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import Team
from pyshmem.memory.heap import default
from pyshmem.ops.training.buckets import NAME, Named

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Weights:
    """The sum of the bits of each parameter's elements, as integers; and the smallest and largest of all PEs."""

    def __init__(
        self, team: Team, parameters: Sequence[Named], every: int, here: torch.Tensor, bounds: tuple[torch.Tensor, ...]
    ) -> None:
        """every: backwards between two comparisons, 0 for none.  here, bounds: symmetric memory for the numbers."""
        self.team, self.parameters, self.every, self.here, self.bounds = team, parameters, every, here, bounds
        self.done = 0

    def check(self) -> None:
        """Compare, if it is time to, on the current stream; the host waits then. Collective. Errors: ArgumentError, on all.

        A graph that is being captured compares nothing: the host cannot read there.
        """
        if not self.every or (default().streams and torch.cuda.is_current_stream_capturing()):
            return
        self.done += 1
        if self.done % self.every:
            return
        self.here.copy_(torch.stack([_number(each) for _, each in self.parameters]))
        for bound, op in zip(self.bounds, ("min", "max"), strict=True):
            shmem.reduce_on_stream(bound, self.here, op, team=self.team)
        unlike = (self.bounds[0] != self.bounds[1]).nonzero().flatten().tolist()
        if unlike:
            more = f", as {len(unlike) - 1} others have" if len(unlike) > 1 else ""
            wants = "the same on all: PEs whose optimizers, or what else changes weights, do the same"
            name = self.parameters[unlike[0]][0]
            refuse(ArgumentError, NAME, f"model, {name}", f"weights that differ between PEs{more}", wants)


def _number(parameter: torch.Tensor) -> torch.Tensor:
    """Return the sum of a parameter's elements as integers of their bits, modulo 2 to the 64."""
    flat = parameter.detach().contiguous().view(-1)
    return flat.view(BITS[flat.itemsize]).sum(dtype=torch.int64)
