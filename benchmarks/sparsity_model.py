"""How fast a sparse layer could be: the Sparsity Roofline (Shinn et al., arXiv 2310.00496), without a kernel of that layer.

A layer multiplies its weights, (outputs, inputs), with a batch of columns. A pattern says which weights may be left out, and
so how many bytes are moved and how many operations are made; a product takes as long as the slower of both at the machine's
measured rates. Weights and columns have two bytes an element, indices four.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

ITEM, INDEX = 2, 4  # bytes


class Roofs(NamedTuple):
    """What the machine does in a second: bytes of memory; operations of dense products, and of single multiply-adds."""

    memory: float
    dense: float
    single: float


class Pattern(NamedTuple):
    """Which weights may be left out. side: of square blocks that are kept or not; kept, of: so many of so many neighbours.

    Neither: any weight.
    """

    name: str
    side: int = 0
    kept: int = 0
    of: int = 0


ANY, BLOCKS = Pattern("unstructured"), Pattern("blocks of 16 x 16", side=16)
NEIGHBOURS = {
    1 - kept / of: Pattern(f"{kept}:{of}", kept=kept, of=of) for kept, of in ((2, 4), (1, 4), (1, 8), (1, 16))
}


class Work(NamedTuple):
    """Bytes that a product moves, its operations, and whether these are those of dense products."""

    nbytes: float
    operations: float
    dense: bool = True

    def seconds(self, roofs: Roofs) -> float:
        return max(self.nbytes / roofs.memory, self.operations / (roofs.dense if self.dense else roofs.single))


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
    if pattern.side:
        blocks = weights / pattern.side**2
        return Work(moved + weights * ITEM + INDEX * (blocks + outputs // pattern.side + 1), operations)
    return Work(moved + weights * (ITEM + INDEX) + INDEX * (outputs + 1), operations, dense=False)


def mask(weights: torch.Tensor, pattern: Pattern, sparsity: float) -> torch.Tensor:
    """Return which weights are kept: those of the greatest magnitude, by the pattern. Its blocks divide the weights."""
    rows, columns = weights.shape
    if pattern.of:
        groups = weights.abs().reshape(rows, columns // pattern.of, pattern.of)
        best = groups.topk(pattern.kept, dim=2).indices
        return torch.zeros_like(groups, dtype=torch.bool).scatter_(2, best, True).reshape(rows, columns)
    side = pattern.side or 1
    blocks = weights.abs().reshape(rows // side, side, columns // side, side).sum((1, 3))
    count = round(blocks.numel() * (1 - sparsity))
    kept = torch.zeros(blocks.numel(), dtype=torch.bool, device=weights.device)
    kept[blocks.flatten().topk(count).indices] = True
    return kept.reshape(blocks.shape).repeat_interleave(side, 0).repeat_interleave(side, 1)
