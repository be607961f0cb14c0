"""Tiles as what collectives send: a block of one dimension, or one with a row for each member; and back.

In Gluon a tile keeps its layout: reshaping and permuting move no element, and the blocks made here follow the tile's.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.arch.rules import count_of
from pyshmem.device.collectives.packing import combined_as, moved_as


@jit
def bits_to_move(values):
    """Return the values in the type in which they are sent."""
    if values.dtype.is_int1():
        return values.to(tl.int8)
    else:
        return values.to(moved_as(values.dtype), bitcast=True)


@jit
def from_bits(moved, element: tl.constexpr):
    """Return what was sent in the type of the tile: the inverse of bits_to_move."""
    if element.is_int1():
        return moved != 0
    else:
        return moved.to(element, bitcast=True)


@jit
def rounded_bits(total, element: tl.constexpr):
    """Return a result of combine, rounded to the element, in the type in which it is sent."""
    return arch.rounded(total, combined_as(element)).to(moved_as(element), bitcast=True)


@jit
def flatten(tile):
    """Return the result of bits_to_move as a block of one dimension."""
    values = bits_to_move(tile)
    if is_block(tile):
        return tl.reshape(values, [count_of(tile)])
    else:
        return arch.blank([1], values.dtype, tile) + values


@jit
def shaped(flat, tile):
    """Return ``flat`` in the shape, dtype and layout of ``tile``."""
    if is_block(tile):
        return arch.laid_out(from_bits(tl.reshape(flat, tile.shape), tile.dtype), tile)
    else:
        return from_bits(alone(flat), tile.dtype)


@jit
def alone(flat):
    """Return the element of a block of one. Triton's max widens small dtypes."""
    return tl.max(flat, axis=0).to(flat.dtype)


@jit
def in_rows(values, axis: tl.constexpr, members: tl.constexpr):
    """Return ``values`` with a row for each of the ``members`` pieces into which dimension ``axis`` is cut."""
    if before(values, axis) > 1:
        values = tl.permute(tl.reshape(values, cut_shape(values, axis, members)), (1, 0, 2))
    return tl.reshape(values, [members, count_of(values) // members])


@jit
def joined(rows, like, axis: tl.constexpr):
    """Return ``rows`` in the shape and layout of ``like``: the inverse of in_rows."""
    if before(like, axis) > 1:
        rows = tl.permute(tl.reshape(rows, rows_shape(like, axis, rows)), (1, 0, 2))
    return arch.laid_out(tl.reshape(rows, like.shape), like)


@triton.constexpr_function
def is_block(tile: tl.tensor) -> bool:
    return tile.type.is_block()


@triton.constexpr_function
def has_one_dimension(tile: tl.tensor) -> bool:
    return len(tile.shape) == 1


@triton.constexpr_function
def bytes_of(flat: tl.tensor) -> int:
    return int(flat.shape[0]) * flat.dtype.primitive_bitwidth // 8


@triton.constexpr_function
def extents(tile: tl.tensor) -> list[int]:
    return [int(extent) for extent in tile.shape] if tile.type.is_block() else []


@triton.constexpr_function
def before(tile: tl.tensor, axis: int) -> int:
    """Return the product of the extents before dimension ``axis``."""
    return math.prod(int(extent) for extent in tile.shape[:axis])


@triton.constexpr_function
def cut_shape(tile: tl.tensor, axis: int, members: int) -> list[int]:
    """Return the shape with what is before ``axis``, the pieces, and what a piece has from ``axis`` on."""
    shape = [int(extent) for extent in tile.shape]
    return [math.prod(shape[:axis]), members, math.prod(shape[axis:]) // members]


@triton.constexpr_function
def rows_shape(tile: tl.tensor, axis: int, rows: tl.tensor) -> list[int]:
    """Return cut_shape in the order of in_rows."""
    shape, members = [int(extent) for extent in tile.shape], int(rows.shape[0])
    return [members, math.prod(shape[:axis]), math.prod(shape[axis:]) // members]


@triton.constexpr_function
def gathered_shape(tile: tl.tensor, axis: int | None, members: int) -> list[int]:
    """Return the shape of all members' tiles: joined along ``axis``, or along a new first dimension."""
    shape = [int(extent) for extent in tile.shape] if tile.type.is_block() else []
    if axis is None:
        return [members, *shape]
    return [extent * members if place == axis else extent for place, extent in enumerate(shape)]


@triton.constexpr_function
def piece_shape(tile: tl.tensor, axis: int | None, members: int) -> list[int]:
    """Return the shape of one of the pieces of dimension ``axis``, or of a row."""
    shape = [int(extent) for extent in tile.shape]
    if axis is None:
        return shape[1:]
    return [extent // members if place == axis else extent for place, extent in enumerate(shape)]
