"""Tile sizes of our kernels by GPU and type. A new GPU is a row."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Configuration(NamedTuple):
    """BM, BN, BK: the elements of a tile and of a step of its K loop.  group: rows of tiles in a band.

    least: streamed tiles are cut into parts of so many steps or more.  kpack: on gfx942, the operands' elements of so many
    matrix instructions lie together in LDS: 2 reads 16 bytes at once, and takes 6 to 12 registers less.
    """

    BM: int
    BN: int
    BK: int
    warps: int
    stages: int
    group: int = 8
    least: int = 16
    kpack: int = 1

    @property
    def compiled(self) -> dict[str, int]:
        """What the compiler is told."""
        found = {"num_warps": self.warps, "num_stages": self.stages}
        return found if self.kpack == 1 else {**found, "kpack": self.kpack}

    def cuts(self, k: int) -> bool:
        """Whether the tiles of a product over ``k`` are deep enough to be cut."""
        return k > (2 * self.least - 1) * self.BK


# (architecture, bytes of an element)
_ROWS = {
    ("interpreter", 1): Configuration(32, 32, 32, 4, 1, 2, least=1),
    ("nvidia", 1): Configuration(128, 128, 128, 8, 4),  # its sums take twice the registers, see tile.multiplied
    ("gfx942", 1): Configuration(128, 128, 128, 4, 2),
    ("gfx950", 1): Configuration(128, 128, 128, 4, 2),
    ("interpreter", 2): Configuration(32, 32, 32, 4, 1, 2, least=1),
    ("interpreter", 4): Configuration(32, 32, 32, 4, 1, 2, least=1),
    ("nvidia", 2): Configuration(128, 256, 64, 8, 4),
    ("nvidia", 4): Configuration(128, 128, 32, 8, 3),
    ("gfx90a", 2): Configuration(128, 128, 32, 4, 2),
    ("gfx90a", 4): Configuration(64, 64, 32, 4, 2),
    ("gfx942", 2): Configuration(128, 128, 64, 4, 2, kpack=2),  # larger tiles spill; fewer warps may use 512 registers
    ("gfx942", 4): Configuration(128, 128, 32, 8, 2),
    ("gfx950", 2): Configuration(128, 128, 64, 4, 2),
    ("gfx950", 4): Configuration(128, 128, 32, 8, 2),
}


def configuration(
    arch: str, dtype: torch.dtype, tile: tuple[int, int, int] | None, fast: bool = False
) -> Configuration:
    """Return the row for a type. tile: BM, BN, BK instead of the row's, of which any part may then be streamed.

    fast: whether sums take half of the registers.
    """
    row = _ROWS[arch, dtype.itemsize]
    if fast and arch == "nvidia":
        row = row._replace(BN=2 * row.BN)
    return row if tile is None else row._replace(BM=tile[0], BN=tile[1], BK=tile[2], least=1, kpack=1)
