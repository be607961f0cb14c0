"""Partitioned tensors in kernels: elements by their indices in the whole tensor, wherever they are.

shmem.partitioned makes the tensor; its ``partition`` is the argument of a kernel, and holds its team's device context.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pyshmem.device import amo, arch, rma
from pyshmem.device.amo import ACQ_REL, SYS
from pyshmem.device.arch import decoded, jit
from pyshmem.device.collectives.packing import moved_as
from pyshmem.device.context import DeviceContext, my_pe, n_pes
from pyshmem.device.templates import documented

MESH, NONE = tl.constexpr(-1), tl.constexpr(-1)

AT = """{what}

part: a PartitionedTensor's partition, of any dtype; PEs count in its team.
rows, cols: integers, one or blocks that broadcast against each other; a tensor of one dimension has one column. Or rows is
    a tuple of them, one for each dimension.
mask: lanes where it is false are left out.
{operands}Order: {order}; waits, tests, fence and quiet order it.
Errors: ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for masked-in elements
    outside the tensor and NotSymmetricError for freed memory.
Spec: none.
"""
TILE = """{what}

part: a PartitionedTensor's partition, of any dtype; PEs count in its team.
row, col: integers. The tile lies in one block of the partition, so that its owner is looked up once; with ``across`` it
    may extend over several: then each element has its owner, and a tile in one block takes the short way.
{operands}
Order: {order}; waits, tests, fence and quiet order it.
Errors: ArgumentError for operands of a wrong type. Interpreted kernels also raise OutOfRangeError for masked-in elements
    outside the tensor and NotSymmetricError for freed memory.
Spec: none.
"""
DIM = "dim: a constant; None is the dimension that is distributed, which is one then.\n"
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


class MeshPartition(NamedTuple):
    """The same of a tensor over several axes of PEs, or of more dimensions; the tuples have one entry for each dimension.

    Their numbers are encoded by mesh_field: Triton 3.6 loses the 1s of inner tuples, as constants, in branches and loops.
    """

    ctx: DeviceContext
    data: torch.Tensor
    rows: int
    cols: int
    pitch: int  # elements from one row of a part to the next
    dim: tl.constexpr  # MESH
    only: tl.constexpr  # the dimension that is cut, NONE if there are several
    copy: int  # where this PE is along the axes that cut nothing, in PEs from the first, encoded
    shape: tuple[int, ...]  # of the whole tensor; these five are encoded
    blocks: tuple[int, ...]  # how many indices in a row one PE has
    members: tuple[int, ...]  # PEs along the axis that cuts the dimension, 1 where none does
    steps: tuple[int, ...]  # from one of them to the next
    pitches: tuple[int, ...]  # elements from one index of a part to the next


@documented(
    AT,
    "Load the elements at ``rows``, ``cols`` of the whole tensor, a block of them, from their owners.",
    operands="other: the value of lanes left out.\n",
    order="plain loads",
)
@jit
def load_at(part, rows, cols=0, mask=None, other=None):
    at = as_tuple(rows, cols)
    arch.check_places(part, "load_at", at, mask)
    pointers, pe = place(part, at)
    return rma.load_for(part.ctx, "load_at", pointers, pe, mask, other)


@documented(
    AT,
    "Store ``value`` to the elements at ``rows``, ``cols`` of the whole tensor.",
    operands="value: a number or a block, of a type that the elements hold.\n",
    order="plain stores",
)
@jit
def store_at(part, rows, cols, value, mask=None):
    at = as_tuple(rows, cols)
    arch.check_places(part, "store_at", at, mask)
    pointers, pe = place(part, at)
    rma.store_for(part.ctx, "store_at", pointers, value, pe, mask)


@documented(
    AT,
    "Add ``value`` to the elements at ``rows``, ``cols`` of the whole tensor. locate serves other atomics.",
    operands=(
        "value: a number or a block, of a type that the elements, of 4 or 8 bytes, hold.  sem, "
        "scope: those of atomic_add.\n"
    ),
    order="atomic with respect to every AMO",
)
@jit
def atomic_add_at(part, rows, cols, value, mask=None, sem: tl.constexpr = ACQ_REL, scope: tl.constexpr = SYS):
    at = as_tuple(rows, cols)
    arch.check_places(part, "atomic_add_at", at, mask)
    pointers, pe = place(part, at)
    amo.modify(part.ctx, "atomic_add_at", "add", pointers, value, pe, mask, sem, scope)


@documented(
    TILE,
    "Load the block of ``BM`` by ``BN`` elements from ``row``, ``col`` on; 0 outside the tensor.",
    operands=(
        "BM, BN: constants, powers of two. Or row and col are two tuples, of the first index and the extent of each "
        "dimension, as load_tile(part, (i, j, k), (8, 8, 16)).\nacross: a constant."
    ),
    order="plain loads",
)
@jit
def load_tile(part, row, col, BM: tl.constexpr = None, BN: tl.constexpr = None, across: tl.constexpr = False):
    if is_tuple(row):
        return load_from(part, row, col, across)
    else:
        return load_from(part, (row, col), (BM, BN), across)


@jit
def load_from(part, first, extents, across: tl.constexpr):
    arch.check_tile_place(part, "load_tile", first, extents, across)
    element: tl.constexpr = part.data.dtype.element_ty
    if across:
        if in_one_block(part, first, extents):  # noqa: SIM108 - a branch of the kernel, which a conditional expression is not
            found = load_short(part, first, extents)
        else:
            found = load_apart(part, first, extents)
    else:
        found = load_short(part, first, extents)
    return found.to(element, bitcast=True)


@jit
def load_short(part, first, extents):
    pointers, pe = place_of_tile(part, first, extents)
    return load_moved(part, pointers, pe, inside(part, first, extents))


@jit
def load_apart(part, first, extents):
    pointers, pe = place(part, indices_of(first, extents))
    return load_moved(part, pointers, pe, inside(part, first, extents))


@jit
def load_moved(part, pointers, pe, mask):
    """The elements of a tile, of a type that Triton converts numbers to."""
    moved = pointers.to(tl.pointer_type(moved_as(part.data.dtype.element_ty)), bitcast=True)
    return rma.load_for(part.ctx, "load_tile", moved, pe, mask, 0)


@documented(
    TILE,
    "Store the block ``value`` to the elements from ``row``, ``col`` on; nothing outside the tensor.",
    operands=(
        "value: a block of two dimensions, of a type that the elements hold. Or row is a tuple, of the first index of each "
        "dimension, and value follows it, as store_tile(part, (i, j, k), value).\nacross: a constant."
    ),
    order="plain stores",
)
@jit
def store_tile(part, row, col, value=None, across: tl.constexpr = False):
    if is_tuple(row):
        store_from(part, row, col, across)
    else:
        store_from(part, (row, col), value, across)


@jit
def store_from(part, first, value, across: tl.constexpr):
    arch.check_value_of_tile("store_tile", value, first)
    arch.check_tile_place(part, "store_tile", first, value.shape, across)
    if across:
        if in_one_block(part, first, value.shape):
            store_short(part, first, value)
        else:
            store_apart(part, first, value)
    else:
        store_short(part, first, value)


@jit
def store_short(part, first, value):
    pointers, pe = place_of_tile(part, first, value.shape)
    rma.store_for(part.ctx, "store_tile", pointers, value, pe, inside(part, first, value.shape))


@jit
def store_apart(part, first, value):
    pointers, pe = place(part, indices_of(first, value.shape))
    rma.store_for(part.ctx, "store_tile", pointers, value, pe, inside(part, first, value.shape))


@documented(
    AT,
    "Return (pointers, pe) of the elements, for any other call: atomic_or(part.ctx, pointers, 1, pe).",
    operands="",
    order="it accesses nothing by itself",
)
@jit
def locate(part, rows, cols=0, mask=None):
    at = as_tuple(rows, cols)
    arch.check_places(part, "locate", at, mask)
    return place(part, at)


@documented(
    INDEX,
    (
        "Return where ``index`` of a dimension is along the axis of the mesh that cuts it: the PE, if all PEs are one axis."
    ),
    operands="index: one integer or a block.  mask: lanes where it is false are not checked.\n" + DIM,
)
@jit
def owner(part, index, mask=None, dim: tl.constexpr = None):
    arch.check_index(part, "owner", index, mask, dim)
    block, n = cut_of(part, dim)
    place, _ = cut(index, block, n)
    return place


@documented(
    INDEX,
    "Return the number of ``index`` of a dimension among the indices of its owner.",
    operands="index: one integer or a block.  mask: lanes where it is false are not checked.\n" + DIM,
)
@jit
def local_index(part, index, mask=None, dim: tl.constexpr = None):
    arch.check_index(part, "local_index", index, mask, dim)
    block, n = cut_of(part, dim)
    _, number = cut(index, block, n)
    return number


@documented(
    INDEX,
    "Return the index of a dimension that is ``number`` among those of the owner ``pe``.",
    operands=(
        "number, pe: integers, one each or blocks; pe is an owner, as owner returns it.  mask: lanes where it is false are "
        "not checked.\n" + DIM
    ),
)
@jit
def global_index(part, number, pe, mask=None, dim: tl.constexpr = None):
    arch.check_number(part, "global_index", number, pe, mask, dim)
    block, n = cut_of(part, dim)
    block = wide(block)
    return number // block * (block * n) + pe * block + number % block


@documented(
    INDEX,
    "Return how many indices of a dimension the owner ``pe`` has.",
    operands="pe: one integer or a block, as owner returns it.\n" + DIM,
)
@jit
def n_local(part, pe, dim: tl.constexpr = None):
    arch.check_member(part, "n_local", pe, dim)
    block, n = cut_of(part, dim)
    block = wide(block)
    extent, step = extent_of(part, dim), block * n
    return extent // step * block + tl.minimum(tl.maximum(extent % step - pe * block, 0), block)


@documented(
    INDEX,
    "Return where this PE is along the axis of the mesh that cuts a dimension: the owner of its own indices.",
    operands=DIM,
)
@jit
def my_place(part, dim: tl.constexpr = None):
    arch.check_dimension(part, "my_place", dim)
    if part.dim >= 0:
        return my_pe(part.ctx) if dim is None or dim == part.dim else my_pe(part.ctx) * 0
    else:
        number: tl.constexpr = part.only if dim is None else dim
        return my_pe(part.ctx) // plain(part.steps[number]) % plain(part.members[number])


# ---- where elements are ----


@jit
def cut(index, block, n):
    """Return (owner, number there). Any index gives some owner: masked-out lanes may look it up in the table."""
    i, block, n = unsigned(index), unsigned(block), unsigned(n)
    turn = i // block
    rounds = turn // n
    # Differences, not rests: Triton knows what divides the rest of a block's indices, but not of one number.
    return (turn - rounds * n).to(tl.int32), (i - (turn - rounds) * block).to(tl.int64)


@jit
def cut_of(part, dim: tl.constexpr):
    """(block, PEs along the axis) of a dimension; None is the one that is cut."""
    if part.dim < 0:
        number: tl.constexpr = part.only if dim is None else dim
        return unsigned(plain(part.blocks[number])), unsigned(plain(part.members[number]))
    elif dim is None or dim == part.dim:
        return unsigned(part.block), unsigned(n_pes(part.ctx))
    else:
        return unsigned(part.rows if dim == 0 else part.cols), unsigned(1)


@jit
def extent_of(part, dim: tl.constexpr):
    """The extent of a dimension; None is the one that is cut."""
    if part.dim < 0:
        number: tl.constexpr = part.only if dim is None else dim
        return wide(plain(part.shape[number]))
    elif dim is None:
        return wide(part.rows if part.dim == 0 else part.cols)
    else:
        return wide(part.rows if dim == 0 else part.cols)


@jit
def pitch_of(part, dim: tl.constexpr):
    """Elements from one index of a part to the next: of the last dimension 1, which the compiler must see."""
    if dim == len(part.shape) - 1:
        return 1
    else:
        return plain(part.pitches[dim])


@jit
def plain(field):
    """The number in a field of a mesh."""
    number = tl.cast(0, tl.int32) + field
    if number.dtype.primitive_bitwidth == 64:
        return number - 4611686018427387904
    else:
        return number - 1073741824


@jit
def place(part, at):
    """(this PE's pointers, pes) of the elements at a tuple of indices."""
    if part.dim < 0:
        offset, pe = tl.cast(0, tl.int64), decoded(part.copy)
        for dim in tl.static_range(len(part.shape)):
            there, number = cut(at[dim], plain(part.blocks[dim]), plain(part.members[dim]))
            offset += number * pitch_of(part, dim)
            pe += there * plain(part.steps[dim])
        return part.data + offset, pe
    elif part.dim == 0:
        pe, row = cut(at[0], part.block, n_pes(part.ctx))
        return part.data + (row * part.pitch + column_of(at)), pe
    else:
        pe, col = cut(at[1], part.block, n_pes(part.ctx))
        return part.data + (wide(at[0]) * part.pitch + col), pe


@jit
def place_of_tile(part, first, extents):
    """(this PE's pointers, pe) of a tile that one PE has."""
    start, pe = place(part, first)
    if part.dim < 0:
        for dim in tl.static_range(len(extents)):
            start += wide(along(extents, dim)) * pitch_of(part, dim)
        return start, pe
    elif len(extents) == 1:
        return start + wide(tl.arange(0, extents[0])) * part.pitch, pe
    else:
        BM: tl.constexpr = extents[0]
        BN: tl.constexpr = extents[1]
        return start + (wide(tl.arange(0, BM))[:, None] * part.pitch + tl.arange(0, BN)[None, :]), pe


@jit
def in_one_block(part, first, extents):
    """Whether one PE has all of a tile that the tensor has."""
    one = tl.cast(1, tl.int1)
    for dim in tl.static_range(len(extents)):
        block, n = cut_of(part, dim)
        last = tl.minimum(wide(first[dim]) + extents[dim], extent_of(part, dim)) - 1
        one = one & ((n == 1) | (unsigned(last) // block == unsigned(first[dim]) // block))
    return one


@jit
def inside(part, first, extents):
    """Which elements of a tile the tensor has."""
    if part.dim < 0 or len(extents) == 1:
        within = first[0] + along(extents, 0) < extent_of(part, 0)
        for dim in tl.static_range(1, len(extents)):
            within = within & (first[dim] + along(extents, dim) < extent_of(part, dim))
        return within
    else:
        BM: tl.constexpr = extents[0]
        BN: tl.constexpr = extents[1]
        return (first[0] + tl.arange(0, BM)[:, None] < part.rows) & (first[1] + tl.arange(0, BN)[None, :] < part.cols)


@jit
def indices_of(first, extents):
    """The indices of the elements of a tile: a tuple of blocks that broadcast against each other."""
    if len(extents) == 1:
        return (index_along(first, extents, 0),)
    elif len(extents) == 2:
        return index_along(first, extents, 0), index_along(first, extents, 1)
    elif len(extents) == 3:
        return index_along(first, extents, 0), index_along(first, extents, 1), index_along(first, extents, 2)
    else:
        row, col = index_along(first, extents, 0), index_along(first, extents, 1)
        return row, col, index_along(first, extents, 2), index_along(first, extents, 3)


@jit
def index_along(first, extents, dim: tl.constexpr):
    return first[dim] + along(extents, dim)


@jit
def along(extents, dim: tl.constexpr):
    """The numbers below extents[dim], as a block of as many dimensions that extends along this one."""
    lane = tl.arange(0, extents[dim])
    for other in tl.static_range(len(extents)):
        if other != dim:
            lane = tl.expand_dims(lane, other)
    return lane


@jit
def as_tuple(rows, cols):
    if is_tuple(rows):
        return rows
    else:
        return (rows, cols)


@jit
def column_of(at):
    if len(at) == 1:
        return 0
    else:
        return at[1]


@triton.constexpr_function
def is_tuple(value: object) -> bool:
    return isinstance(value, (tuple, tl.tuple))


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
