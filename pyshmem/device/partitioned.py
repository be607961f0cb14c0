"""Partitioned tensors in kernels: elements by their place in the whole, wherever they are. Made by shmem.partitioned.

part: a PartitionedTensor's partition, of any dtype. It holds its team's device context, part.ctx, so that no other is
needed and none can be wrong; PEs are counted in that team.  rows, cols: integers, or blocks that broadcast against each
other; a tensor of one dimension has one column.  mask: which elements are meant.
Order: load's, store's and atomic_add's of the same kind.
Errors: a masked-in element outside the tensor, freed memory, what is no partition.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl

from pyshmem.device import amo, arch, rma
from pyshmem.device.amo import ACQ_REL, SYS
from pyshmem.device.arch import jit
from pyshmem.device.collectives.packing import bits_of
from pyshmem.device.context import DeviceContext, n_pes


class Partition(NamedTuple):
    """A partitioned tensor as one kernel argument. The same binary serves all PEs: only ctx and data differ between them."""

    ctx: DeviceContext  # of the team it is cut over
    data: torch.Tensor  # this PE's part; the same address on every PE of the team, counted from its heap's start
    rows: int  # of the whole tensor
    cols: int
    block: int  # how many rows or columns in a row one PE has
    pitch: int  # elements from one row of a part to the next
    dim: tl.constexpr  # 0: rows are cut, 1: columns


@jit
def load_at(part, rows, cols=0, mask=None, other=None):
    """The elements at ``rows``, ``cols`` of the whole, a block of them, from their owners.

    other: what masked-out ones give.
    """
    arch.check_places(part, "load_at", rows, cols, mask)
    pointers, pe = place(part, rows, cols)
    return rma.load_for(part.ctx, "load_at", pointers, pe, mask, other)


@jit
def store_at(part, rows, cols, value, mask=None):
    """Write ``value``, a number or a block, to the elements at ``rows``, ``cols`` of the whole.

    value: of a type that the elements hold.
    """
    arch.check_places(part, "store_at", rows, cols, mask)
    pointers, pe = place(part, rows, cols)
    rma.store_for(part.ctx, "store_at", pointers, value, pe, mask)


@jit
def atomic_add_at(part, rows, cols, value, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    """Add ``value``, a number or a block, to the elements at ``rows``, ``cols`` of the whole.

    value: of a type that the elements, of 4 or 8 bytes, hold.  sem, scope: as in atomic_add. Other AMOs: by locate.
    """
    arch.check_places(part, "atomic_add_at", rows, cols, mask)
    pointers, pe = place(part, rows, cols)
    amo.modify(part.ctx, "atomic_add_at", "add", pointers, value, pe, mask, sem, scope)


@jit
def load_tile(part, row, col, BM: tl.constexpr, BN: tl.constexpr):
    """The block of ``BM`` by ``BN`` elements from ``row``, ``col`` on; 0 outside the tensor.

    row, col: integers, with the whole tile in one block of the cut, so that its owner is looked up once.
    Errors: a tile of two blocks, a row or column below 0; load_at's.
    """
    arch.check_tile_place(part, "load_tile", row, col, BM, BN)
    pointers, pe = place_of_tile(part, row, col, BM, BN)
    element: tl.constexpr = part.data.dtype.element_ty
    zero = tl.cast(0, bits_of(element)).to(element, bitcast=True)  # Triton makes no float of 8 bits of a 0
    return rma.load_for(part.ctx, "load_tile", pointers, pe, inside(part, row, col, BM, BN), zero)


@jit
def store_tile(part, row, col, value):
    """Write the block ``value`` to the elements from ``row``, ``col`` on; nothing outside the tensor.

    value: of two dimensions, of a type that the elements hold.  row, col: as in load_tile.  Errors: load_tile's.
    """
    arch.check_plane("store_tile", value)
    BM: tl.constexpr = value.shape[0]
    BN: tl.constexpr = value.shape[1]
    arch.check_tile_place(part, "store_tile", row, col, BM, BN)
    pointers, pe = place_of_tile(part, row, col, BM, BN)
    rma.store_for(part.ctx, "store_tile", pointers, value, pe, inside(part, row, col, BM, BN))


@jit
def locate(part, rows, cols=0, mask=None):
    """(pointers, pe) of the elements, one or a block: what every other call takes, atomic_or(part.ctx, pointers, 1, pe)."""
    arch.check_places(part, "locate", rows, cols, mask)
    return place(part, rows, cols)


@jit
def owner(part, index):
    """The PE that has row ``index`` of the whole, or column, whichever is cut: one or a block of integers."""
    arch.check_partition(part, "owner")
    pe, _ = cut(part, index)
    return pe


@jit
def local_index(part, index):
    """Which of its owner's rows, or columns, row ``index`` of the whole is: one or a block of integers."""
    arch.check_partition(part, "local_index")
    _, number = cut(part, index)
    return number


@jit
def global_index(part, number, pe):
    """Which row, or column, of the whole is ``number`` among those of ``pe``: one or a block of integers."""
    arch.check_partition(part, "global_index")
    block = wide(part.block)
    return number // block * (block * n_pes(part.ctx)) + pe * block + number % block


@jit
def n_local(part, pe):
    """How many rows, or columns, ``pe`` has: one or a block of integers."""
    arch.check_partition(part, "n_local")
    block = wide(part.block)
    extent = wide(part.rows) if part.dim == 0 else wide(part.cols)
    step = block * n_pes(part.ctx)
    return extent // step * block + tl.minimum(tl.maximum(extent % step - pe * block, 0), block)


@jit
def cut(part, index):
    """(owner, number there). For any index some PE of the team: a masked-out one may look it up in the table."""
    i, block, n = unsigned(index), unsigned(part.block), unsigned(n_pes(part.ctx))
    turn = i // block
    rounds = turn // n
    # Differences, not rests: Triton knows what divides the rest of a block's indices, but not of one number.
    return (turn - rounds * n).to(tl.int32), (i - (turn - rounds) * block).to(tl.int64)


@jit
def place(part, rows, cols):
    """(this PE's pointers, pes)."""
    if part.dim == 0:
        pe, row = cut(part, rows)
        return part.data + (row * part.pitch + cols), pe
    else:
        pe, col = cut(part, cols)
        return part.data + (wide(rows) * part.pitch + col), pe


@jit
def place_of_tile(part, row, col, BM: tl.constexpr, BN: tl.constexpr):
    """(this PE's pointers, pe)."""
    first, pe = place(part, row, col)
    return first + (wide(tl.arange(0, BM))[:, None] * part.pitch + tl.arange(0, BN)[None, :]), pe


@jit
def inside(part, row, col, BM: tl.constexpr, BN: tl.constexpr):
    """Which elements of a tile the tensor has."""
    return (row + tl.arange(0, BM)[:, None] < part.rows) & (col + tl.arange(0, BN)[None, :] < part.cols)


@jit
def wide(number):
    return tl.cast(0, tl.int64) + number  # which may be a constant


@jit
def unsigned(number):
    """The compiler divides unsigned numbers in fewer instructions, and a rest is never negative."""
    tensor = tl.cast(0, tl.int32) + number
    if tensor.dtype.primitive_bitwidth == 64:
        return tensor.to(tl.uint64)
    else:
        return tensor.to(tl.uint32)
