"""The tiles of a launch over shmem.grid: each PE's programs make those that it owns."""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.partitioned import INDEX, cut_of, is_tuple, my_place, wide
from pyshmem.device.templates import documented


@documented(
    INDEX,
    (
        "Return (row, col), the first indices of the tile that this program makes: of those that this PE owns, number "
        "tl.program_id(i) along dimension i, in the order of their indices."
    ),
    operands=(
        "BM, BN: constants, the extents of a tile, which divide the blocks. Or BM is a tuple of them, for one to three "
        "dimensions, as my_tile(part, (8, 8, 16)), and so is the result.\n"
    ),
)
@jit
def my_tile(part, BM: tl.constexpr, BN: tl.constexpr = 1):
    if is_tuple(BM):
        return checked(part, firsts_of(part, BM))
    else:
        return checked(part, firsts_of(part, (BM, BN)))


@jit
def checked(part, first):
    arch.check_places(part, "my_tile", first)
    return first


@jit
def firsts_of(part, extents):
    if len(extents) == 1:
        return (first_of(part, extents, 0),)
    elif len(extents) == 2:
        return first_of(part, extents, 0), first_of(part, extents, 1)
    else:
        return first_of(part, extents, 0), first_of(part, extents, 1), first_of(part, extents, 2)


@jit
def first_of(part, extents, dim: tl.constexpr):
    """The first index along one dimension; a tensor over a mesh that lacks it has one index there."""
    number = wide(tl.program_id(dim)) * extents[dim]
    if dimensions_within(part, dim):
        block, n = cut_of(part, dim)
        block = wide(block)
        # Sums of multiples, not rests: so Triton knows what divides the index, and accesses are wide.
        return number + (number // block * (n - 1) + my_place(part, dim)) * block
    else:
        return number


@triton.constexpr_function
def dimensions_within(part: object, dim: int) -> bool:
    """Whether the partition describes a dimension; a tensor along one axis always has rows and columns."""
    return dim < (len(part[8]) if len(part) > 7 else 2)
