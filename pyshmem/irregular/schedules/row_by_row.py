"""Row by row: neighbouring tiles, one after the other, all sums of a tile side by side in the threads of one warp.

With many sums an atom keeps a warp busy: spmm loads a row of a matrix for it. Tiles of more than ``size`` atoms are split.
Idea: GE-SpMM (Huang et al., SC 2020), with segments of about equal cost as in Merrill and Garland (SC 2016).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.irregular.matrix import CSR
from pyshmem.irregular.parts import Items, Parted
from pyshmem.irregular.schedules import Schedule
from pyshmem.irregular.values import values_of

_PART = 4  # how many times as many atoms as a program a part of a split tile has at most
_FIXED = 4  # atoms that take as long as what an item costs by itself: its places, and its sums
_LOADS = tl.constexpr(4)  # of a thread in flight; with more registers fewer programs fit
# sums of a warp, of as many atoms as have them: a thread then loads 16 bytes of float32 at once
_BESIDE = tl.constexpr(128)


@triton.jit
def execute_sequence(items, firsts, parts, operands, work: tl.constexpr, EARLY: tl.constexpr):
    """Sum the items of a program, one after the other, and finish tiles or store the sums of parts. EARLY: as by length.

    With many sums work.ATOM gets one atom, not an array of one: what that loads is loaded for each register of sums.
    """
    program = tl.program_id(0)
    first, last = tl.load(firsts + program), tl.load(firsts + program + 1)
    if EARLY:  # where items lie never changes; the preceding kernel may write everything else
        gpu.follow()
    WIDTH: tl.constexpr = work.WIDTH
    BESIDE: tl.constexpr = _BESIDE // WIDTH if WIDTH < _BESIDE else 1  # atoms
    lanes = tl.arange(0, WIDTH)[None, :]
    beside = tl.arange(0, BESIDE)[:, None]
    for item in range(first, last):
        begin, end, tile = tl.load(items.begins + item), tl.load(items.ends + item), tl.load(items.tiles + item)
        sums = tl.zeros((BESIDE, WIDTH), dtype=work.SUM)
        for place in range(begin, end, _LOADS * BESIDE):
            for number in tl.static_range(_LOADS):
                atoms = place + number if BESIDE == 1 else place + number * BESIDE + beside
                inside = atoms < end
                sums += values_of(operands, atoms, lanes, inside, inside, work)
        total = tl.sum(sums, 0, keep_dims=True)
        tl.store(parts + tl.cast(-1 - tile, tl.int64) * WIDTH + lanes, total, mask=(lanes >= 0) & (tile < 0))
        tiles = tl.maximum(tile, 0) + tl.zeros((1, 1), dtype=tile.dtype)
        work.TILE(operands, tiles, lanes, total, (lanes >= 0) & (tile >= 0))


class Sequences(Parted):
    """A matrix's tiles in their order. size: the most atoms of a part; a program has about a fourth of it.

    programs: the first item of each program, and the end of the last.
    """

    kernel, constants = execute_sequence, dict[str, Any]()

    def __init__(self, matrix: CSR, size: int, width: int):
        """Share out the tiles, on torch's current stream."""
        super().__init__(matrix, size)
        dtype = matrix.offsets.dtype
        costs = (self.items.ends - self.items.begins + _FIXED).cumsum(0)
        _, counts = torch.unique_consecutive((costs - 1) // max(size // _PART, 1), return_counts=True)
        self.programs = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
        self.segments = counts.numel()
        self.items = Items(*(each.to(dtype) for each in self.items))


def programs(tiles: int, atoms: int, size: int) -> int:
    """Return how many there are, about."""
    return (atoms + _FIXED * tiles) // max(size // _PART, 1)


SCHEDULE = Schedule(Sequences, programs, size=256, warps=1)
