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
    """Return tile + left @ right.T. PRECISION: tl.dot's, or one of these.

    "widened": the interpreter multiplies no bfloat16 and no 8-bit floats.
    "promoted": the matrix units of NVIDIA's sm_90 add products of 8-bit floats with fewer bits than float32 has. The sum
        of one step in K is made there, and added in float32.
    """
    if PRECISION == "widened":
        return tl.dot(left.to(tl.float32), right.to(tl.float32).T, tile, input_precision="ieee")
    elif PRECISION == "promoted":
        return tl.dot(left, right.T, tile, max_num_imprecise_acc=left.shape[1])
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
    count,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_ALONG: tl.constexpr, B_ALONG: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr, SLAB: tl.constexpr, FAN: tl.constexpr,
    EDGES: tl.constexpr, FLAT: tl.constexpr = False,
):  # fmt: skip
    """product, which sends a parcel meanwhile, from ``source`` to ``dest`` on ``fan`` PEs from ``to`` on.

    The parcel is ``count`` slabs of SLAB x BN elements. A slab is loaded after one block of K and stored before a later
    one, so that the loop never waits for it; what is left after the loop follows then.
    source, dest: pointers to the first element of a tile, with ``pitch`` elements from row to row.
    height, width: of the tile.  fan: 0 where there is no parcel, at most FAN.  begin: the number of the first slab.
    FLAT: the parcel is contiguous memory, which is a tile of one column: ``height`` elements, width and pitch 1.
    """
    r, c = slab_indices(SLAB, BN, FLAT)
    STEP: tl.constexpr = SLAB * BN if FLAT else SLAB
    WIDE: tl.constexpr = tl.int64 if FLAT else tl.int32
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
        down = tl.cast(begin + number, WIDE) * STEP
        store_slab(ctx, dest, slab, inside, r, c, down - STEP, height, width, pitch, to, fan, sent, FAN, EDGES)
        slab = load_slab(source, slab, inside, r, c, down, height, width, pitch, more, EDGES)
        number = tl.where(due >= length, number + 1, number)
        due = tl.where(due >= length, due - length, due)
    for j in range(number, tl.where(fan > 0, count + 1, 0)):
        down = tl.cast(begin + j, WIDE) * STEP
        store_slab(ctx, dest, slab, inside, r, c, down - STEP, height, width, pitch, to, fan, j > 0, FAN, EDGES)
        slab = load_slab(source, slab, inside, r, c, down, height, width, pitch, j < count, EDGES)
    return tile


@triton.jit
def slab_indices(SLAB: tl.constexpr, BN: tl.constexpr, FLAT: tl.constexpr):
    """Return the rows and columns of a slab's elements within it."""
    r, c = tl.arange(0, SLAB)[:, None], tl.arange(0, BN)[None, :]
    if FLAT:
        return r * BN + c, c * 0
    else:
        return r, c


@triton.jit
def load_slab(source, slab, inside, r, c, down, height, width, pitch, wanted, EDGES: tl.constexpr):
    """Return the slab at row ``down`` of a tile, or ``slab`` where it is not wanted."""
    mask = wanted & (inside >= 0)
    if EDGES:
        mask = mask & (down + r < height) & (c < width)
    return tl.load(source + tl.cast(down, tl.int64) * pitch + inside, mask=mask, other=slab)


@triton.jit
def store_slab(
    ctx, dest, slab, inside, r, c, down, height, width, pitch, to, fan, wanted,
    FAN: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Store the slab at row ``down`` of a tile on the PEs to, to + 1, ..., if it is wanted."""
    mask = wanted & (inside >= 0)
    if EDGES:
        mask = mask & (down + r < height) & (c < width)
    place = dest + tl.cast(down, tl.int64) * pitch + inside
    for i in tl.static_range(FAN):
        dev.store(ctx, place, slab, (to + i) % dev.n_pes(ctx), mask & (i < fan))
