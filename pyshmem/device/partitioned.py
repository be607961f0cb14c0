"""Partitioned tensors in kernels: elements by their indices in the whole tensor, wherever they are.

shmem.partitioned makes the tensor; its ``partition`` is the argument of a kernel, and holds its team's device context.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl

from pyshmem.device import amo, arch, rma
from pyshmem.device.amo import ACQ_REL, SYS
from pyshmem.device.arch import jit
from pyshmem.device.collectives.packing import moved_as
from pyshmem.device.context import DeviceContext, n_pes
from pyshmem.device.templates import documented

AT = """{what}

part: a PartitionedTensor's partition, of any dtype; PEs count in its team.
rows, cols: integers, one or blocks that broadcast against each other; a tensor of one dimension has one column.
mask: lanes where it is false are left out.
{operands}Order: {order}; waits, tests, fence and quiet order it.
Errors: ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for masked-in elements
    outside the tensor and NotSymmetricError for freed memory.
Spec: none.
"""
TILE = """{what}

part: a PartitionedTensor's partition, of any dtype; PEs count in its team.
row, col: integers. The tile lies in one block of the partition, so that its owner is looked up once.
{operands}
Order: {order}; waits, tests, fence and quiet order it.
Errors: ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for masked-in elements
    outside the tensor and NotSymmetricError for freed memory.
Spec: none.
"""
INDEX = """{what}

part: a PartitionedTensor's partition, of any dtype; PEs count in its team.
{operands}
Order: it reads no memory.
Errors: ArgumentError for operands of a wrong type; OutOfRangeError in interpreted kernels.
Spec: none.
"""


class Partition(NamedTuple):
    """A partitioned tensor as one kernel argument. The same binary serves all PEs: only ctx and data differ between them."""

    ctx: DeviceContext  # of the team it is cut over
    data: torch.Tensor  # this PE's part; the same address on every PE of the team, counted from its heap's start
    rows: int  # of the whole tensor
    cols: int
    block: int  # how many rows or columns in a row one PE has
    pitch: int  # elements from one row of a part to the next
    dim: tl.constexpr  # 0: rows are cut, 1: columns


@documented(
    AT,
    what=("Load the elements at ``rows``, ``cols`` of the whole tensor, a block of them, from their owners."),
    operands="other: the value of lanes left out.\n",
    order="plain loads",
)
@jit
def load_at(part, rows, cols=0, mask=None, other=None):
    arch.check_places(part, "load_at", rows, cols, mask)
    pointers, pe = place(part, rows, cols)
    return rma.load_for(part.ctx, "load_at", pointers, pe, mask, other)


@documented(
    AT,
    what="Store ``value`` to the elements at ``rows``, ``cols`` of the whole tensor.",
    operands="value: a number or a block, of a type that the elements hold.\n",
    order="plain stores",
)
@jit
def store_at(part, rows, cols, value, mask=None):
    arch.check_places(part, "store_at", rows, cols, mask)
    pointers, pe = place(part, rows, cols)
    rma.store_for(part.ctx, "store_at", pointers, value, pe, mask)


@documented(
    AT,
    what=("Add ``value`` to the elements at ``rows``, ``cols`` of the whole tensor. locate serves other atomics."),
    operands=(
        "value: a number or a block, of a type that the elements, of 4 or 8 bytes, hold.  sem, "
        "scope: those of atomic_add.\n"
    ),
    order="atomic with respect to every AMO",
)
@jit
def atomic_add_at(part, rows, cols, value, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    arch.check_places(part, "atomic_add_at", rows, cols, mask)
    pointers, pe = place(part, rows, cols)
    amo.modify(part.ctx, "atomic_add_at", "add", pointers, value, pe, mask, sem, scope)


@documented(
    TILE,
    what="Load the block of ``BM`` by ``BN`` elements from ``row``, ``col`` on; 0 outside the tensor.",
    operands="BM, BN: constants, powers of two.",
    order="plain loads",
)
@jit
def load_tile(part, row, col, BM: tl.constexpr, BN: tl.constexpr):
    arch.check_tile_place(part, "load_tile", row, col, BM, BN)
    pointers, pe = place_of_tile(part, row, col, BM, BN)
    element: tl.constexpr = part.data.dtype.element_ty
    moved = pointers.to(tl.pointer_type(moved_as(element)), bitcast=True)
    found = rma.load_for(part.ctx, "load_tile", moved, pe, inside(part, row, col, BM, BN), 0)
    return found.to(element, bitcast=True)


@documented(
    TILE,
    what=("Store the block ``value`` to the elements from ``row``, ``col`` on; nothing outside the tensor."),
    operands="value: a block of two dimensions, of a type that the elements hold.",
    order="plain stores",
)
@jit
def store_tile(part, row, col, value):
    arch.check_plane("store_tile", value)
    BM: tl.constexpr = value.shape[0]
    BN: tl.constexpr = value.shape[1]
    arch.check_tile_place(part, "store_tile", row, col, BM, BN)
    pointers, pe = place_of_tile(part, row, col, BM, BN)
    rma.store_for(part.ctx, "store_tile", pointers, value, pe, inside(part, row, col, BM, BN))


@documented(
    AT,
    what=("Return (pointers, pe) of the elements, for any other call: atomic_or(part.ctx, pointers, 1, pe)."),
    operands="",
    order="it accesses nothing by itself",
)
@jit
def locate(part, rows, cols=0, mask=None):
    arch.check_places(part, "locate", rows, cols, mask)
    return place(part, rows, cols)


@documented(
    INDEX,
    what="Return the PE that owns row ``index`` of the whole tensor, or column, whichever is cut.",
    operands="index: one integer or a block.  mask: lanes where it is false are not checked.",
)
@jit
def owner(part, index, mask=None):
    arch.check_index(part, "owner", index, mask)
    pe, _ = cut(part, index)
    return pe


@documented(
    INDEX,
    what="Return the number of row ``index`` of the whole tensor, or column, among those of its owner.",
    operands="index: one integer or a block.  mask: lanes where it is false are not checked.",
)
@jit
def local_index(part, index, mask=None):
    arch.check_index(part, "local_index", index, mask)
    _, number = cut(part, index)
    return number


@documented(
    INDEX,
    what="Return the row, or column, of the whole tensor that is ``number`` among those of ``pe``.",
    operands="number, pe: integers, one each or blocks.  mask: lanes where it is false are not checked.",
)
@jit
def global_index(part, number, pe, mask=None):
    arch.check_number(part, "global_index", number, pe, mask)
    block = wide(part.block)
    return number // block * (block * n_pes(part.ctx)) + pe * block + number % block


@documented(INDEX, what="Return how many rows, or columns, ``pe`` has.", operands="pe: one integer or a block.")
@jit
def n_local(part, pe):
    arch.check_member(part, "n_local", pe)
    block = wide(part.block)
    extent = wide(part.rows) if part.dim == 0 else wide(part.cols)
    step = block * n_pes(part.ctx)
    return extent // step * block + tl.minimum(tl.maximum(extent % step - pe * block, 0), block)


@jit
def cut(part, index):
    """Return (owner, number there). Any index gives some PE of the team: masked-out lanes may look it up in the table."""
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
