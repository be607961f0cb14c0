"""Blocks of operands, and the K loop of a tile, in kernels. The loop can also send an earlier tile to peers.

An operand is a matrix whose rows are rows of a, or columns of b: b is read as its transpose. ALONG says whether K runs along
contiguous memory. DESCRIBED kernels load blocks by tensor descriptors (TMA), which takes addresses and pitches that are
multiples of 16 bytes; others by pointers.
"""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev


@triton.jit
def operand(
    pointer, rows, depth, pitch, BR: tl.constexpr, BK: tl.constexpr, ALONG: tl.constexpr, DESCRIBED: tl.constexpr
):
    """Return what ``block`` reads: a descriptor of the matrix, or the pointer itself."""
    if not DESCRIBED:
        return pointer
    elif ALONG:
        return tl.make_tensor_descriptor(pointer, [rows, depth], [tl.cast(pitch, tl.int64), 1], [BR, BK])
    else:
        return tl.make_tensor_descriptor(pointer, [depth, rows], [tl.cast(pitch, tl.int64), 1], [BK, BR])


@triton.jit
def block(
    matrix, row, k, rows, depth, pitch, BR: tl.constexpr, BK: tl.constexpr, ALONG: tl.constexpr, DESCRIBED: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Return the (BR, BK) block of an operand that begins at (row, k); zeros outside the matrix.

    WHOLE: rows is a multiple of BR, and depth one of BK.
    """
    if DESCRIBED:
        if ALONG:
            return matrix.load([row, k])
        else:
            return matrix.load([k, row]).T
    else:
        r, c = tl.arange(0, BR)[:, None], tl.arange(0, BK)[None, :]
        if ALONG:
            places = matrix + tl.cast(row, tl.int64) * pitch + k + r * pitch + c
        else:
            places = matrix + tl.cast(k, tl.int64) * pitch + row + c * pitch + r
        if WHOLE:
            return tl.load(places)
        else:
            return tl.load(places, mask=(row + r < rows) & (k + c < depth), other=0.0)


@triton.jit
def multiplied(left, right, tile, PRECISION: tl.constexpr):
    """Return tile + left @ right.T. PRECISION: tl.dot's, or "widened": the interpreter multiplies no bfloat16."""
    if PRECISION == "widened":
        return tl.dot(left.to(tl.float32), right.to(tl.float32).T, tile, input_precision="ieee")
    else:
        return tl.dot(left, right.T, tile, input_precision=PRECISION)


@triton.jit
def product(
    a, b, row, column, first, last, M, N, K, a_pitch, b_pitch,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the sum over the K blocks ``first`` to ``last - 1`` of the tile of a @ b at (row, column), in float32."""
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(first, last):
        left = block(a, row, i * BK, M, K, a_pitch, BM, BK, A_ALONG, DESCRIBED, WHOLE)
        right = block(b, column, i * BK, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED, WHOLE)
        tile = multiplied(left, right, tile, PRECISION)
    return tile


@triton.jit
def product_and_parcel(
    ctx, a, b, row, column, first, last, M, N, K, a_pitch, b_pitch, source, dest, height, width, pitch, to, fan, begin,
    strips, count,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr, SLAB: tl.constexpr, FAN: tl.constexpr,
    EDGES: tl.constexpr,
):  # fmt: skip
    """product, which sends a parcel meanwhile, from ``source`` to ``dest`` on ``fan`` PEs from ``to`` on.

    The parcel is ``count`` slabs of SLAB rows and BN columns. A slab is loaded after one block of K and stored before a
    later one, so that the loop never waits for it; what is left after the loop follows then.
    source, dest: pointers to the first element of a matrix, with ``pitch`` elements from row to row.
    height, width: of the matrix.  fan: 0 where there is no parcel, at most FAN.
    begin, strips: the number of the first slab, and the slabs in a row of them. A tile is a matrix of one strip.
    """
    r, c = tl.arange(0, SLAB)[:, None], tl.arange(0, BN)[None, :]
    inside = r * pitch + c
    slab = tl.zeros((SLAB, BN), dtype=source.dtype.element_ty)
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    length = last - first
    due = 0  # a slab's turn comes count + 1 times in the loop, at equal distances: a burst would fill the link and stall it
    number = 0
    for i in range(first, last):
        left = block(a, row, i * BK, M, K, a_pitch, BM, BK, A_ALONG, DESCRIBED, WHOLE)
        right = block(b, column, i * BK, N, K, b_pitch, BN, BK, B_ALONG, DESCRIBED, WHOLE)
        tile = multiplied(left, right, tile, PRECISION)
        due += count + 1
        now = (due >= length) & (fan > 0) & (number <= count)
        sent, more = now & (number > 0), now & (number < count)
        store_slab(
            ctx, dest, slab, inside, r, c, begin + number - 1, strips, height, width, pitch, to, fan, sent, SLAB, BN, FAN,
            EDGES,
        )  # fmt: skip
        slab = load_slab(
            source, slab, inside, r, c, begin + number, strips, height, width, pitch, more, SLAB, BN, EDGES
        )
        number = tl.where(due >= length, number + 1, number)
        due = tl.where(due >= length, due - length, due)
    for j in range(number, tl.where(fan > 0, count + 1, 0)):
        last_one = begin + j - 1
        store_slab(
            ctx, dest, slab, inside, r, c, last_one, strips, height, width, pitch, to, fan, j > 0, SLAB, BN, FAN, EDGES
        )
        slab = load_slab(
            source, slab, inside, r, c, begin + j, strips, height, width, pitch, j < count, SLAB, BN, EDGES
        )
    return tile


@triton.jit
def load_slab(
    source, slab, inside, r, c, number, strips, height, width, pitch, wanted, SLAB: tl.constexpr, BN: tl.constexpr,
    EDGES: tl.constexpr,
):  # fmt: skip
    """Return slab ``number`` of a matrix, or ``slab`` where it is not wanted."""
    row, column = number // strips * SLAB, number % strips * BN
    mask = wanted & (c >= 0)
    if EDGES:
        mask = mask & (row + r < height) & (column + c < width)
    return tl.load(source + tl.cast(row, tl.int64) * pitch + column + inside, mask=mask, other=slab)


@triton.jit
def store_slab(
    ctx, dest, slab, inside, r, c, number, strips, height, width, pitch, to, fan, wanted,
    SLAB: tl.constexpr, BN: tl.constexpr, FAN: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Store slab ``number`` of a matrix on the PEs to, to + 1, ..., if it is wanted."""
    row, column = number // strips * SLAB, number % strips * BN
    mask = wanted & (c >= 0)
    if EDGES:
        mask = mask & (row + r < height) & (column + c < width)
    place = dest + tl.cast(row, tl.int64) * pitch + column + inside
    for i in tl.static_range(FAN):
        dev.store(ctx, place, slab, (to + i) % dev.n_pes(ctx), mask & (i < fan))
