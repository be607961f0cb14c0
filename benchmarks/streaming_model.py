"""A model of the time that a product takes under a tile order, where there is no GPU to measure it.

A program makes its whole tiles one after the other, then its part of the streamed iterations. A part of a tile costs a store
of its sum; the program with a tile's last iteration loads the others' sums. The slowest program ends the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from pyshmem.ops.gemm.configurations import Configuration
from pyshmem.ops.gemm.tuning.population import Shape, distinct, tiles_of


class Model(NamedTuple):
    """Seconds of: one K block of a tile, beginning and storing a tile, storing or loading a partial sum, a launch."""

    row: Configuration
    programs: int
    block: float
    tile: float
    sums: float
    launch: float

    def __call__(self, shape: Shape, dtype: torch.dtype, policies: Iterable[str]) -> dict[str, float]:
        """Return the seconds of a product under each policy."""
        tiles, depth = tiles_of(shape, self.row), -(-shape[2] // self.row.BK)
        whole = distinct(shape, self.row, self.programs)
        return {policy: self.seconds(tiles, whole[policy], depth) for policy in policies}

    def seconds(self, tiles: int, whole: int, depth: int) -> float:
        program = np.arange(self.programs)
        made = np.maximum(-(-(whole - program) // self.programs), 0)
        time = made * (depth * self.block + self.tile)
        iterations = (tiles - whole) * depth
        if iterations:
            sharing = min(self.programs, max(tiles - whole, iterations // self.row.least))
            cuts = np.arange(sharing + 1) * iterations // sharing
            start, end = cuts[:-1], cuts[1:]
            first, last = start // depth, (end - 1) // depth
            # whether the first tile is cut before, the last one after
            begun, ended = (
                start % depth > 0,
                end % depth > 0,
            )
            parts = np.where(first == last, begun | ended, begun.astype(int) + ended)
            closes = begun & (end >= (first + 1) * depth)  # the end of a tile that others began
            opener = np.searchsorted(cuts, first * depth, side="right") - 1
            loads = np.where(closes, np.arange(sharing) - opener, 0)
            streamed = (end - start) * self.block + (last - first + 1) * self.tile + (parts + loads) * self.sums
            time[:sharing] = time[:sharing] + streamed
        return float(time.max() + self.launch)


# The order of magnitude of an H200: 132 programs, 800 TFLOP/s of bfloat16, sums at twice the rate of its memory.
HOPPER = Model(Configuration(128, 256, 64, 8, 4), 132, block=0.69e-6, tile=1e-6, sums=1.8e-6, launch=3e-6)
