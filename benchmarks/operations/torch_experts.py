"""torch's ways to bring tokens to experts and back, over NCCL: a row for each expert of each token crosses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], torch.Tensor]


class Rows:
    """The rows of this PE's tokens in the order of experts, and how many of them go to and come from each PE."""

    def __init__(self, dist: Any, x: torch.Tensor, listed: torch.Tensor, weights: torch.Tensor, local: int) -> None:
        self.dist, self.x, self.listed, self.weights, self.local = dist, x, listed, weights, local
        self.n, self.top = dist.get_world_size(), listed.shape[1]
        self.order = torch.sort(listed.view(-1), stable=True).indices
        self.source, self.inverse = self.order // self.top, torch.argsort(self.order)
        self.sent, self.received = self.counts()
        self.arrived = torch.empty(sum(self.received), x.shape[1], dtype=x.dtype, device=x.device)
        self.returned = torch.empty(len(self.order), x.shape[1], dtype=x.dtype, device=x.device)
        self.add = torch.compile(weighted, dynamic=False)

    def counts(self) -> tuple[list[int], list[int]]:
        """Exchange the numbers of rows. The host waits for them."""
        sent = torch.bincount(self.listed.view(-1) // self.local, minlength=self.n)
        received = torch.empty_like(sent)
        self.dist.all_to_all_single(received, sent)
        return sent.tolist(), received.tolist()

    def dispatch(self) -> torch.Tensor:
        """The rows of each PE in turn, in the order of experts."""
        self.dist.all_to_all_single(self.arrived, self.x.index_select(0, self.source), self.received, self.sent)
        return self.arrived

    def dispatch_and_count(self) -> torch.Tensor:
        order = torch.sort(self.listed.view(-1), stable=True).indices
        sent, received = self.counts()
        arrived = self.arrived.new_empty(sum(received), self.x.shape[1])
        self.dist.all_to_all_single(arrived, self.x.index_select(0, order // self.top), received, sent)
        return arrived

    def combine(self) -> torch.Tensor:
        self.dist.all_to_all_single(self.returned, self.arrived, self.sent, self.received)
        return self.add(self.returned, self.inverse, self.weights)  # type: ignore[no-any-return]


def weighted(rows: torch.Tensor, inverse: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of the rows of each token."""
    found = rows[inverse].view(*weights.shape, -1).float()
    return (found * weights[:, :, None]).sum(1).to(rows.dtype)
