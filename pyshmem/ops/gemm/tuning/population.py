"""Shapes of products to tune for, and which policies make a difference for a shape."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pyshmem.ops.gemm.configurations import Configuration
from pyshmem.ops.gemm.orders.streamed import POLICIES, STREAM_K, whole_tiles

Shape = tuple[int, int, int]  # m, n, k of one PE's product
LEAST, MOST, STEP = 128, 8192, 64


def population(count: int, seed: int = 0) -> list[Shape]:
    """Return ``count`` different shapes: m, n and k between 128 and 8192, uniform in their logarithms, multiples of 64.

    The limits are those of the population of Stream-K (arXiv 2301.03598).
    """
    draw = random.Random(seed)
    found: dict[Shape, None] = {}
    while len(found) < count:
        m, n, k = (round(LEAST * (MOST / LEAST) ** draw.random() / STEP) * STEP for _ in range(3))
        found[m, n, k] = None
    return list(found)


def tiles_of(shape: Shape, row: Configuration) -> int:
    """Return the number of tiles of a product."""
    return -(-shape[0] // row.BM) * -(-shape[1] // row.BN)


def distinct(shape: Shape, row: Configuration, programs: int) -> Mapping[str, int]:
    """Return the policies of Stream-K++ that differ for a shape, with their whole tiles. Of equal ones the first stays."""
    tiles = tiles_of(shape, row)
    found: dict[int, str] = {}
    for policy in STREAM_K:
        found.setdefault(whole_tiles(tiles, programs, POLICIES[policy], row.cuts(shape[2])), policy)
    return {policy: whole for whole, policy in found.items()}
