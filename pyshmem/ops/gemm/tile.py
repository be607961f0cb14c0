"""The K loop of a tile, in kernels: loads of operands, products, and the slabs of an earlier tile that it sends meanwhile.

An operand is a matrix whose rows are rows of a, or columns of b: b is read as its transpose. A_ALONG and B_ALONG say whether
K runs along contiguous memory. DESCRIBED kernels load blocks by tensor descriptors (TMA), which takes addresses and pitches
that are multiples of 16 bytes; others by pointers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import transport
from pyshmem.device.arch import decoded
from pyshmem.device.arch.fields import encoded
from pyshmem.device.arch.targets import is_amd


class Form(NamedTuple):
    """How a kernel of a product is compiled, as one constexpr argument.

    BM, BN, BK: the elements of a tile and of a step of its K loop.  GROUP: the rows of tiles in a band.
    A_ALONG, B_ALONG, DESCRIBED: see above.  PRECISION: of ``multiplied``.
    WHOLE: sizes are multiples of BM, BN and BK.  EDGES: tiles reach beyond the product.
    SLAB: the rows of a slab.  CUT: slabs of gathered rows reach beyond the rows of a PE.
    FAN: the most PEs that a tile is sent to.  CHIPLETS: the parts of the GPU with an L2 cache of their own.
    STREAMED: programs share the last tiles.  VECTOR: the elements in the unit of ``Schedule.before``.
    EACH: each row of a and column of b has a scale; otherwise each operand, if there are scales.
    CLAMPED: beyond an operand's last row its elements are loaded again, see ``block``.
    """

    BM: int
    BN: int
    BK: int
    A_ALONG: bool
    B_ALONG: bool
    DESCRIBED: bool
    WHOLE: bool
    EDGES: bool
    PRECISION: str
    GROUP: int = 1
    CHIPLETS: int = 1
    SLAB: int = 0
    CUT: bool = False
    FAN: int = 0
    STREAMED: bool = False
    VECTOR: int = 1
    EACH: bool = False
    CLAMPED: bool = False


class Shape(NamedTuple):
    """The sizes of a product (M, K) @ (K, N), and the elements from line to line of a, b and the result.

    Kernels get M encoded: it is the length that changes from call to call, and one kernel serves all.
    """

    M: Any
    N: Any
    K: Any
    a_pitch: Any
    b_pitch: Any
    pitch: Any


def shape_of(M: int, *others: int) -> Shape:
    """Return a shape as kernels get it. others: the fields after M."""
    return Shape(encoded(M), *others)


@triton.jit
def sizes_of(shape):
    """Return a shape with M decoded."""
    return Shape(decoded(shape.M), shape.N, shape.K, shape.a_pitch, shape.b_pitch, shape.pitch)


class Schedule(NamedTuple):
    """Which tiles of a product a kernel makes, and where the product lies. Kernels get encoded numbers: one serves all.

    above, before: the rows and the columns of the result in front of the product; before in units of VECTOR elements, so
        that the compiler knows that addresses are multiples of them.
    whole: the number of tiles made whole. The others, of ``tiles``, are streamed in groups of ``crowd``, in parts of
        ``least`` steps of K or more.
    """

    above: Any
    before: Any
    whole: Any
    tiles: Any
    crowd: Any
    least: Any


@triton.jit
def numbers_of(schedule):
    """Return a schedule with its numbers decoded."""
    return Schedule(
        decoded(schedule.above), decoded(schedule.before), decoded(schedule.whole), decoded(schedule.tiles),
        decoded(schedule.crowd), decoded(schedule.least),
    )  # fmt: skip


class Operands(NamedTuple):
    """What the K loop reads: a (M, K) and b (K, N) as ``operand`` returns them, their sizes and pitches."""

    a: Any
    b: Any
    M: Any
    N: Any
    K: Any
    a_pitch: Any
    b_pitch: Any


class Slabs(NamedTuple):
    """Slabs of a tile that a K loop sends, from ``source`` to ``dest`` on ``fan`` PEs from ``to`` on; fan 0: none.

    source, dest: pointers to the first element of the tile, with ``pitch`` elements from row to row.
    height, width: of the tile.  first, count: the number of the first slab, and how many there are.
    """

    source: Any
    dest: Any
    height: Any
    width: Any
    pitch: Any
    to: Any
    fan: Any
    first: Any
    count: Any


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
def operands(a, b, shape, FORM: tl.constexpr):
    """Return the operands of a product a (M, K) @ b (K, N)."""
    left = operand(a, shape.M, shape.K, shape.a_pitch, FORM.BM, FORM.BK, FORM.A_ALONG, FORM.DESCRIBED)
    right = operand(b, shape.N, shape.K, shape.b_pitch, FORM.BN, FORM.BK, FORM.B_ALONG, FORM.DESCRIBED)
    return Operands(left, right, shape.M, shape.N, shape.K, shape.a_pitch, shape.b_pitch)


@triton.jit
def block(
    matrix, row, k, rows, depth, pitch, BR: tl.constexpr, BK: tl.constexpr, ALONG: tl.constexpr, DESCRIBED: tl.constexpr,
    WHOLE: tl.constexpr, CLAMPED: tl.constexpr,
):  # fmt: skip
    """Return the (BR, BK) block of an operand that begins at (row, k); zeros outside the matrix.

    WHOLE: rows is a multiple of BR, and depth one of BK.
    CLAMPED: rows outside the matrix may hold anything, as what is made of them is stored nowhere. They repeat the last
        row then: masks of rows take scalar registers in the K loop, of which AMD's GPUs have 102.
    """
    if DESCRIBED:
        if ALONG:
            return matrix.load([row, k])
        else:
            return matrix.load([k, row]).T
    else:
        r, c = tl.arange(0, BR)[:, None], tl.arange(0, BK)[None, :]
        # elsewhere neighbours in memory would be of one address
        repeated: tl.constexpr = CLAMPED and ALONG and not WHOLE
        if repeated:
            row = tl.minimum(row, tl.maximum(rows - 1, 0))  # a tile may begin behind the matrix
            r = tl.minimum(r, tl.maximum(rows - 1 - row, 0))
        if ALONG:
            places = matrix + tl.cast(row, tl.int64) * pitch + k + r * pitch + c
        else:
            places = matrix + tl.cast(k, tl.int64) * pitch + row + c * pitch + r
        if WHOLE:
            return tl.load(places)
        elif repeated:
            here = (k + c < tl.where(rows > 0, depth, 0)) & (r >= 0)
            return tl.load(places, mask=here, other=0.0)  # check: ignore, rows of the next PE are read, and not stored
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
def step(ops, row, column, i, tile, A_ALONG: tl.constexpr, FORM: tl.constexpr):
    """Return ``tile`` plus the products of step ``i`` of the K loop."""
    PRECISION: tl.constexpr = FORM.PRECISION  # Triton 3.6 passes no text on that is not a constant by itself
    k = i * FORM.BK
    left = block(
        ops.a, row, k, ops.M, ops.K, ops.a_pitch, FORM.BM, FORM.BK, A_ALONG, FORM.DESCRIBED, FORM.WHOLE, FORM.CLAMPED
    )
    right = block(
        ops.b, column, k, ops.N, ops.K, ops.b_pitch, FORM.BN, FORM.BK, FORM.B_ALONG, FORM.DESCRIBED, FORM.WHOLE,
        FORM.CLAMPED,
    )  # fmt: skip
    return multiplied(left, right, tile, PRECISION)


@triton.jit
def product(ctx, ops, row, column, first, last, A_ALONG: tl.constexpr, FORM: tl.constexpr):
    """Return the sum over the steps ``first`` to ``last - 1`` of the tile of a @ b at (row, column), in float32."""
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    span = dev.trace_begin(ctx, "tile")
    for i in range(first, last):
        tile = step(ops, row, column, i, tile, A_ALONG, FORM)
    dev.trace_end(ctx, span)
    return tile


@triton.jit
def product_sending(
    ctx, ops, row, column, first, last, slabs, FORM: tl.constexpr, EDGES: tl.constexpr, FLAT: tl.constexpr = False
):
    """product, which sends ``slabs`` meanwhile.

    A slab is loaded after one step of K and stored before a later one, so that the loop never waits for it; what remains
    after the loop follows then.
    EDGES: whether slabs reach beyond the tile.  FLAT: the slabs are contiguous memory, which is a tile of one column:
    ``height`` elements, width and pitch 1.
    """
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    SLAB: tl.constexpr = FORM.SLAB
    r, c = slab_indices(SLAB, BN, FLAT)
    STEP: tl.constexpr = SLAB * BN if FLAT else SLAB
    WIDE: tl.constexpr = tl.int64 if FLAT else tl.int32
    fan, count, inside = slabs.fan, slabs.count, r * slabs.pitch + c
    slab = tl.zeros((SLAB, BN), dtype=slabs.source.dtype.element_ty)
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    length = last - first
    due = 0  # a slab is due count + 1 times in the loop, at equal distances: a burst would fill the link and stall it
    number = 0
    span = dev.trace_begin(ctx, "tile")
    for i in range(first, last):
        tile = step(ops, row, column, i, tile, FORM.A_ALONG, FORM)
        due += count + 1
        now = (due >= length) & (fan > 0) & (number <= count)
        sent, more = now & (number > 0), now & (number < count)
        down = tl.cast(slabs.first + number, WIDE) * STEP
        store_slab(ctx, slabs, slab, inside, r, c, down - STEP, sent, FORM.FAN, EDGES)
        slab = load_slab(slabs, slab, inside, r, c, down, more, EDGES)
        number = tl.where(due >= length, number + 1, number)
        due = tl.where(due >= length, due - length, due)
    dev.trace_end(ctx, span)
    for j in range(number, tl.where(fan > 0, count + 1, 0)):
        down = tl.cast(slabs.first + j, WIDE) * STEP
        store_slab(ctx, slabs, slab, inside, r, c, down - STEP, j > 0, FORM.FAN, EDGES, True)
        slab = load_slab(slabs, slab, inside, r, c, down, j < count, EDGES)
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
def load_slab(slabs, slab, inside, r, c, down, wanted, EDGES: tl.constexpr):
    """Return the slab at row ``down`` of a tile, or ``slab`` where it is not wanted."""
    mask = wanted & (inside >= 0)
    if EDGES:
        mask = mask & (down + r < slabs.height) & (c < slabs.width)
    return tl.load(slabs.source + tl.cast(down, tl.int64) * slabs.pitch + inside, mask=mask, other=slab)


@triton.jit
def store_slab(
    ctx, slabs, slab, inside, r, c, down, wanted, FAN: tl.constexpr, EDGES: tl.constexpr, AFTER: tl.constexpr = False
):
    """Store the slab at row ``down`` of a tile on the PEs to, to + 1, ..., if it is wanted. AFTER: after the K loop."""
    mask = wanted & (inside >= 0)
    if EDGES:
        mask = mask & (down + r < slabs.height) & (c < slabs.width)
    place = slabs.dest + tl.cast(down, tl.int64) * slabs.pitch + inside
    if AFTER:
        store_on(ctx, place, slab, slabs.to, slabs.fan, mask, FAN)
    else:
        for i in tl.static_range(FAN):  # a loop would keep loads of this one from running ahead
            # most steps store nothing, so that a timeline has the tile in place of each of these
            transport.store(ctx, "store", place, slab, member(ctx, slabs.to + i), mask & (i < slabs.fan))


@triton.jit
def store_on(ctx, places, values, to, fan, mask, FAN: tl.constexpr):
    """Store a block on the ``fan`` PEs to, to + 1, ..., FAN at most."""
    if is_amd(ctx.where):  # a loop: the addresses of seven peers at once are more than the scalar registers hold
        for i in range(fan):
            dev.store(ctx, places, values, member(ctx, to + i), mask)
    else:
        for i in tl.static_range(FAN):
            dev.store(ctx, places, values, member(ctx, to + i), mask & (i < fan))


@triton.jit
def member(ctx, pe):
    """Return the PE of ``pe``, which is less than twice the team's size: numbers behind the last one begin at 0 again."""
    n = dev.n_pes(ctx)
    if is_amd(ctx.where):  # a remainder keeps three numbers of its divisor in scalar registers
        return tl.where(pe < n, pe, pe - n)
    else:
        return pe % n
