"""Which parameters have a gradient on some PE: those that have none on any keep None, so that no optimizer moves them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import pyshmem as shmem
from pyshmem.host.teams import Team
from pyshmem.memory.heap import default
from pyshmem.ops.training.buckets import Bucket


class Used:
    """A number for each parameter, in the order of buckets: 1 if it has a gradient on this PE; and the most of all PEs."""

    def __init__(self, team: Team, here: torch.Tensor, anywhere: torch.Tensor) -> None:
        """here, anywhere: symmetric memory for the numbers."""
        self.team, self.here, self.anywhere = team, here.fill_(1), anywhere
        self.written = [1] * here.numel()  # what ``here`` has; most steps change nothing of it

    def exchange(self, buckets: Sequence[Bucket]) -> None:
        """Tell all PEs of the team which parameters have gradients here. Collective, on the current stream."""
        place = 0
        for bucket in buckets:
            for at in range(len(bucket.parameters)):
                number = int(at not in bucket.absent)
                if self.written[place] != number:
                    self.written[place] = number
                    self.here[place].fill_(number)  # graphs capture fills, but no copies from the host
                place += 1
        shmem.reduce_on_stream(self.anywhere, self.here, "max", team=self.team)

    def settle(self, buckets: Sequence[Bucket]) -> None:
        """Let parameters without a gradient on any PE have none. The host waits for the numbers only if some lack one here.

        In a graph that is being captured they keep zeros: the host cannot read there.
        """
        if all(self.written) or (default().streams and torch.cuda.is_current_stream_capturing()):
            return
        used, place = self.anywhere.tolist(), 0
        for bucket in buckets:
            bucket.forget(used[place:])
            place += len(bucket.parameters)
