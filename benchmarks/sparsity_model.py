"""How fast a sparse layer could be: the Sparsity Roofline (Shinn et al., arXiv 2310.00496), without a kernel of that layer.

A layer multiplies its weights, (outputs, inputs), with a batch of columns. A pattern says which weights may be left out, and
so how many bytes are moved and how many operations are made; a product takes as long as the slower of both at the machine's
measured rates. Weights and columns have two bytes an element, indices four.

In that model a launch takes its time besides, but each input is loaded once and nothing waits. Kernels load an input for
each weight, or block of weights, that needs it, though not from memory; and what a row of a sparse matrix needs is found by
loads that wait for each other. A second bound counts the bytes through the cache, at its rate, and these waits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

ITEM, INDEX = 2, 4  # bytes


class Roofs(NamedTuple):
    """What the machine does in a second: bytes of memory, and of the cache that all multiprocessors share; operations of
    dense products, and of single multiply-adds.

    launch, wait: the seconds of a kernel that does nothing, and of a load from memory that waits for the one before.
    """

    memory: float
    cache: float
    dense: float
    single: float
    launch: float = 0.0
    wait: float = 0.0


class Pattern(NamedTuple):
    """Which weights may be left out. side: of square blocks that are kept or not; kept, of: so many of so many neighbours.

    Neither: any weight.
    """

    name: str
    side: int = 0
    kept: int = 0
    of: int = 0


def blocks(side: int) -> Pattern:
    return Pattern(f"blocks of {side} x {side}", side=side)


ANY, BLOCKS = Pattern("unstructured"), blocks(16)
PATTERNS = (ANY, BLOCKS, blocks(32), blocks(64))  # those for which there are kernels here
NEIGHBOURS = {
    1 - kept / of: Pattern(f"{kept}:{of}", kept=kept, of=of) for kept, of in ((2, 4), (1, 4), (1, 8), (1, 16))
}


class Work(NamedTuple):
    """Bytes that a product moves, its operations, and whether these are those of dense products.

    cached: the bytes that go through the cache, with each input as often as it is needed; 0 if that is not known.
    waits: the loads that wait for each other.
    """

    nbytes: float
    operations: float
    dense: bool = True
    cached: float = 0.0
    waits: int = 1

    def seconds(self, roofs: Roofs) -> float:
        """The roofline."""
        operations = self.operations / (roofs.dense if self.dense else roofs.single)
        return roofs.launch + max(self.nbytes / roofs.memory, operations)

    def bound(self, roofs: Roofs) -> float:
        """The roofline with the bytes through the cache and the waits."""
        return max(self.seconds(roofs), roofs.launch + self.cached / roofs.cache) + self.waits * roofs.wait


def dense_work(outputs: int, inputs: int, batch: int) -> Work:
    """Return the work of a layer with all weights."""
    return Work(ITEM * (outputs * inputs + batch * (inputs + outputs)), 2 * outputs * inputs * batch)


def sparse_work(pattern: Pattern, sparsity: float, outputs: int, inputs: int, batch: int) -> Work:
    """Return the work of a layer without the part ``sparsity`` of its weights."""
    weights = outputs * inputs * (1 - sparsity)
    moved, operations = ITEM * batch * (inputs + outputs), 2 * weights * batch
    if pattern.of:  # the place of each weight among its neighbours takes a few bits
        bits = (pattern.of - 1).bit_length()
        return Work(moved + weights * (ITEM + bits / 8), operations)
    side = pattern.side or 1
    stored = weights * ITEM + INDEX * (weights / side**2 + outputs // side + 1)
    gathered = ITEM * batch * (weights / side + outputs)  # a block loads side inputs for side outputs
    waits = 3  # for where the row begins, for its columns, for the inputs
    return Work(moved + stored, operations, bool(pattern.side), stored + gathered, waits)


def mask(weights: torch.Tensor, pattern: Pattern, sparsity: float) -> torch.Tensor:
    """Return which weights are kept: those of the greatest magnitude, by the pattern. Its blocks divide the weights."""
    rows, columns = weights.shape
    if pattern.of:
        groups = weights.abs().reshape(rows, columns // pattern.of, pattern.of)
        best = groups.topk(pattern.kept, dim=2).indices
        return torch.zeros_like(groups, dtype=torch.bool).scatter_(2, best, True).reshape(rows, columns)
    side = pattern.side or 1
    sums = weights.abs().reshape(rows // side, side, columns // side, side).sum((1, 3))
    count = round(sums.numel() * (1 - sparsity))
    kept = torch.zeros(sums.numel(), dtype=torch.bool, device=weights.device)
    kept[sums.flatten().topk(count).indices] = True
    return kept.reshape(sums.shape).repeat_interleave(side, 0).repeat_interleave(side, 1)
