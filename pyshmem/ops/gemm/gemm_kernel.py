"""The kernel of a product that sends its tiles: each in slabs from the K loop of the next one, the last from registers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.device.arch import decoded
from pyshmem.device.arch.fields import encoded
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.kernels.compiled import like
from pyshmem.ops import protocol
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm.orders import STRIPS, add_part, distance_and_number, iterations_of, part_at, sum_of_parts, tile_at
from pyshmem.ops.gemm.product import Product
from pyshmem.ops.gemm.scaling import parameters, samples, scaled
from pyshmem.ops.gemm.tile import (
    Form,
    Slabs,
    load_slab,
    member,
    numbers_of,
    operands,
    product_sending,
    shape_of,
    sizes_of,
    slab_indices,
    store_on,
    store_slab,
)
from pyshmem.ops.shares import share_size, share_start, start_of

# What becomes of a tile. ALONE: stored here.  ROWS, COLUMNS: stored on all PEs, in this PE's rows or columns of c.
# SCATTER: added up on the PE that owns its rows.  REDUCE: added up there and stored on all PEs.
ALONE, ROWS, COLUMNS, SCATTER, REDUCE = (tl.constexpr(i) for i in range(5))


@triton.constexpr_function
def adds(kind: int) -> bool:
    """Whether tiles of all PEs are added up."""
    return kind >= 3


@triton.constexpr_function
def shows(kind: int) -> bool:
    """Whether results are stored on all PEs."""
    return kind in (1, 2, 4)


class Memory(NamedTuple):
    """The arrays of a plan. words: of rounds.  sums, tallies: of streamed tiles.  flags: of parts that have come.

    parts: this PE's products of rows that others own.  slots: the parts of peers, two sets in turn.
    tall: the rows of a slot, encoded. A peer has flags for so many rows. It is the same in all calls on the same memory: so
    only one peer ever writes a flag, and no call writes to the slots of the one before.
    """

    words: Any
    sums: Any
    tallies: Any
    parts: Any
    slots: Any
    flags: Any
    tall: Any


class Place(NamedTuple):
    """Where a tile is. distance: from this PE to the owner of its rows.  number: among the owner's tiles.

    row, column: of the product.  inner: the row among the owner's.  tall, wide: what lies within the product, 0 or less for
    a tile that is empty.
    """

    distance: Any
    number: Any
    row: Any
    column: Any
    inner: Any
    tall: Any
    wide: Any


class Call(NamedTuple):
    """What is the same for all tiles of a call. corner: pointer to the first element of this PE's product in the result."""

    epoch: Any
    corner: Any
    memory: Any
    shape: Any
    schedule: Any
    scale_a: Any
    scale_b: Any


@triton.jit
def multiply_and_send(
    ctx, memory, shape, encoded, a, b, c, scale_a, scale_b, KIND: tl.constexpr, FORM: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Multiply a (M, K) by b (K, N) and send the tiles as KIND says. encoded: the schedule."""
    schedule, shape = numbers_of(encoded), sizes_of(shape)
    SLABS: tl.constexpr = FORM.BM // FORM.SLAB
    programs = tl.num_programs(0)
    program = renumbered(tl.program_id(0), programs, FORM.CHIPLETS)
    epoch = tl.cast(1, tl.uint64) if KIND == ALONE else protocol.enter(ctx, memory.words)
    if shows(KIND):
        if tl.program_id(0) == programs - 1:  # it has the fewest tiles
            protocol.arrive(ctx, memory.words, epoch)
    corner = c
    if (KIND == ROWS) | (KIND == COLUMNS):
        corner = c + tl.cast(schedule.above, tl.int64) * shape.pitch + schedule.before * FORM.VECTOR
    call = Call(epoch, corner, memory, shape, schedule, scale_a, scale_b)
    ops = operands(a, b, shape, FORM)
    depth = tl.cdiv(shape.K, FORM.BK)
    met = 0  # whether all peers have let this program write to their results
    source, dest, flag, to, fan, height, width = corner, corner, 0, 0, 0, 0, 0
    for index in range(program, schedule.whole, programs):
        place = place_of(ctx, index, shape, KIND, FORM)
        slabs = Slabs(source, dest, height, width, shape.pitch, to, fan, 0, SLABS)
        tile = product_sending(ctx, ops, place.row, place.column, 0, depth, slabs, FORM, FORM.EDGES)
        set_flag(ctx, call, flag, to, KIND)
        met = meet(ctx, call, place, met, KIND, FORM)
        last = (not FORM.STREAMED) & (index + programs >= schedule.whole)
        source, dest, to, fan = store_result(ctx, tile, call, place, last, FORM.BM, KIND, FORM, EPILOGUE)
        height, width = place.tall, place.wide
        flag = flag_of(ctx, place, call, KIND, FORM)
        if last:
            set_flag(ctx, call, flag, to, KIND)
        tl.debug_barrier()  # other threads load the slabs
    if FORM.STREAMED:
        slabs = Slabs(source, dest, height, width, shape.pitch, to, fan, 0, SLABS)
        stream_tiles(ctx, call, ops, program, met, slabs, flag, KIND, FORM, EPILOGUE)
    if KIND != ALONE:
        protocol.leave(ctx, memory.words, epoch, programs, shows(KIND))


@triton.jit
def stream_tiles(
    ctx, call, ops, program, met, slabs, flag, KIND: tl.constexpr, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """Make the tiles from ``whole`` on: programs share their K iterations. ``slabs`` are those of the last whole tile."""
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    schedule, depth = call.schedule, tl.cdiv(call.shape.K, FORM.BK)
    fan, to = slabs.fan, slabs.to
    for group in range(schedule.whole, schedule.tiles, schedule.crowd):
        iterations = iterations_of(program, group, schedule, depth, call.memory.sums, BM * BN)
        start = iterations.start
        while start < iterations.end:
            streamed, first, stop = part_at(start, iterations)
            place = place_of(ctx, group + streamed, call.shape, KIND, FORM)
            sending = Slabs(slabs.source, slabs.dest, slabs.height, slabs.width, slabs.pitch, to, fan, 0, slabs.count)
            tile = product_sending(ctx, ops, place.row, place.column, first, stop, sending, FORM, FORM.EDGES)
            set_flag(ctx, call, flag, to, KIND)
            flag, fan = 0, 0
            tally = call.memory.tallies + (group - schedule.whole + streamed)
            if add_part(ctx, tile, iterations, tally, program, streamed, BM, BN):
                met = meet(ctx, call, place, met, KIND, FORM)
                for down in range(0, BM, BM // STRIPS):
                    strip = sum_of_parts(iterations, streamed, down, BM, BN)
                    below = lower(place, down)
                    _, _, to, _ = store_result(ctx, strip, call, below, True, BM // STRIPS, KIND, FORM, EPILOGUE)
                set_flag(ctx, call, flag_of(ctx, place, call, KIND, FORM), to, KIND)
            start += stop - first
    if fan > 0:  # a program without a streamed part
        remaining = Slabs(slabs.source, slabs.dest, slabs.height, slabs.width, slabs.pitch, to, fan, 0, slabs.count)
        send_slabs(ctx, remaining, FORM)
        set_flag(ctx, call, flag, to, KIND)


@triton.jit
def send_slabs(ctx, slabs, FORM: tl.constexpr):
    """Send slabs with no product beside them."""
    BN: tl.constexpr = FORM.BN
    SLAB: tl.constexpr = FORM.SLAB
    r, c = slab_indices(SLAB, BN, False)
    inside = r * slabs.pitch + c
    none = tl.zeros((SLAB, BN), dtype=slabs.source.dtype.element_ty)
    for i in range(FORM.BM // SLAB):
        slab = load_slab(slabs, none, inside, r, c, i * SLAB, True, FORM.EDGES)
        store_slab(ctx, slabs, slab, inside, r, c, i * SLAB, True, FORM.FAN, FORM.EDGES, True)


@triton.jit
def place_of(ctx, index, shape, KIND: tl.constexpr, FORM: tl.constexpr):
    """Return the place of a tile."""
    BM: tl.constexpr = FORM.BM
    BN: tl.constexpr = FORM.BN
    M, N, columns = shape.M, shape.N, tl.cdiv(shape.N, BN)
    if adds(KIND):
        n = dev.n_pes(ctx)
        high = tl.cdiv(tl.cdiv(M, n), BM)
        distance, number = distance_and_number(index, high * columns, n, tl.num_programs(0))
        owner = (dev.my_pe(ctx) + distance) % n
        i, j = tile_at(number, high, columns, FORM.GROUP)
        row = share_start(M, owner, n) + i * BM
        return Place(distance, number, row, j * BN, i * BM, share_size(M, owner, n) - i * BM, N - j * BN)
    else:
        i, j = tile_at(index, tl.cdiv(M, BM), columns, FORM.GROUP)
        return Place(0, index, i * BM, j * BN, i * BM, M - i * BM, N - j * BN)


@triton.jit
def lower(place, down):
    """Return the place of a strip of a tile, ``down`` rows below its first."""
    return Place(
        place.distance, place.number, place.row + down, place.column, place.inner + down, place.tall - down, place.wide
    )


@triton.jit
def flags_each(call, FORM: tl.constexpr):
    """Return the number of flags of a peer."""
    return tl.cdiv(decoded(call.memory.tall), FORM.BM) * tl.cdiv(call.shape.N, FORM.BN)


@triton.jit
def flag_of(ctx, place, call, KIND: tl.constexpr, FORM: tl.constexpr):
    """Return the index of the flag of a peer's tile, which its owner waits for; 0 for an own tile, which has none."""
    if adds(KIND):
        mine = 1 + (dev.n_pes(ctx) - 1 - place.distance) * flags_each(call, FORM) + place.number
        return tl.where(place.distance > 0, mine, 0)
    else:
        return 0


@triton.jit
def set_flag(ctx, call, flag, to, KIND: tl.constexpr):
    """Tell the owner of a part that it has come, if ``flag`` is one."""
    if adds(KIND):
        if flag > 0:
            dev.signal_set(ctx, call.memory.flags + flag, call.epoch, to)


@triton.jit
def meet(ctx, call, place, met, KIND: tl.constexpr, FORM: tl.constexpr):
    """Wait for what an own tile needs: the parts of peers, and, once, their leave to write. Return whether that is done."""
    if adds(KIND):
        n = dev.n_pes(ctx)
        for i in range(tl.where(place.distance == 0, n - 1, 0)):
            flag = call.memory.flags + 1 + i * flags_each(call, FORM) + place.number
            dev.signal_wait_until(ctx, flag, dev.CMP_GE, call.epoch)
    if shows(KIND):
        if (met == 0) & (place.distance == 0):
            protocol.await_arrivals(ctx, call.memory.words, call.epoch)
            met = 1
    return met


@triton.jit
def store_result(
    ctx, tile, call, place, last, HIGH: tl.constexpr, KIND: tl.constexpr, FORM: tl.constexpr, EPILOGUE: tl.constexpr
):
    """Store HIGH rows of a finished tile here, and, if it is the last, on its other PEs too.

    Return (source, dest, to, fan) of its slabs; fan is 0 if it has been sent.
    """
    FAN: tl.constexpr = FORM.FAN
    n, me, pitch = dev.n_pes(ctx), dev.my_pe(ctx), call.shape.pitch
    tall, wide = place.tall, place.wide
    tile = scaled(tile, call.scale_a, call.scale_b, place.row, place.column, tall, wide, HIGH, FORM.BN, FORM.EACH)
    r, c = tl.arange(0, HIGH)[:, None], tl.arange(0, FORM.BN)[None, :]
    inside = r * pitch + c
    mask = (r < tall) & (c < wide) if FORM.EDGES else (r >= 0) & (c >= 0)
    to, fan = me + 1, 0
    first = call.corner + tl.cast(place.row, tl.int64) * pitch + place.column
    source, dest = first, first
    if KIND == SCATTER:
        source = call.corner + tl.cast(place.inner, tl.int64) * pitch + place.column
    if shows(KIND):
        fan = FAN
    if adds(KIND):
        space = tl.cast(decoded(call.memory.tall), tl.int64) * pitch  # of a slot
        parity = tl.cast(call.epoch % 2, tl.int64) * (n - 1)
        within = tl.cast(place.inner, tl.int64) * pitch + place.column
        if place.distance == 0:
            for i in range(n - 1):
                slot = call.memory.slots + (parity + i) * space + within + inside
                tile += tl.load(slot, mask=mask, other=0.0).to(tl.float32)
        else:
            source = call.memory.parts + tl.cast(place.row, tl.int64) * pitch + place.column
            dest = call.memory.slots + (parity + n - 1 - place.distance) * space + within
            to, fan = me + place.distance, 1
    if EPILOGUE is not None:
        if place.distance == 0:
            above, before = call.schedule.above, call.schedule.before * FORM.VECTOR
            tile = EPILOGUE(tile, above + place.row + r, before + place.column + c)
    out = tile.to(call.corner.dtype.element_ty)
    tl.store(source + inside, out, mask=mask)
    if FAN > 0:
        if last:
            store_on(ctx, dest + inside, out, to, fan, mask, FAN)
            fan = 0
    return source, dest, member(ctx, to), fan


class Multiply:
    """The kernel with its memory, for products of any number of rows that this holds. ``of`` returns it for one of them."""

    def __init__(
        self, product: Product, kind: int, places: tuple[torch.Tensor, ...], operands: tuple[torch.Tensor, ...],
        tall: int = 0,
    ) -> None:  # fmt: skip
        """places: the plan's words, tallies, parts, slots and flags.  operands: arrays like a, b and c.

        tall: as in Memory.
        """
        problem, (a, _, c) = product.problem, operands
        words, tallies, *others = places
        self._pitch, self._groups, peers = max(c.stride(0), 1), product.groups, problem.n_pes - 1
        self._fan = {ALONE.value: 0, SCATTER.value: min(1, peers)}.get(kind, peers)
        memory = Memory(words, product.sums(a.device), tallies, *others, encoded(tall))
        fixed, arrays = (shmem.device_context(problem.team), memory), like((*operands, *samples(problem.scaling, a)))

        def compiled(form: Form, numbers: tuple[Any, ...]) -> Prepared:
            constants = {"KIND": kind, "FORM": form, "EPILOGUE": problem.options.epilogue}
            return Prepared(
                multiply_and_send, product.programs, (*fixed, *numbers), arrays, parameters(problem.scaling) | constants,
                **product.row.compiled,
            )  # fmt: skip

        self._compiled = compiled
        self._kernels: dict[Form, Prepared] = {}

    def holds(self, product: Product) -> bool:
        """Whether there is memory for the sums of the tiles that a product streams."""
        return product.groups <= self._groups

    def of(self, product: Product, corner: tuple[int, int]) -> Prepared:
        """Return the kernel for a product, to be called with a, b, c and the scales.

        corner: the rows above and the columns before the product in c.
        """
        problem = product.problem
        form = product.form(self._fan, corner[1])
        if product.adding and not _aligned_rows(product):
            form = form._replace(DESCRIBED=False)
        shape = shape_of(product.m, problem.n, problem.k, product.a.pitch, problem.b.pitch, self._pitch)
        numbers = shape, product.schedule(corner[0], corner[1] // form.VECTOR)
        kernel = self._kernels.get(form)
        if kernel is None:
            kernel = self._kernels[form] = self._compiled(form, numbers)
        return kernel.with_numbers(*numbers)


def _aligned_rows(product: Product) -> bool:
    """Whether tiles begin where tensor descriptors may load: along contiguous memory at multiples of 16 bytes.

    The tiles of a PE begin at the first row of its share. An H200 ends a kernel that loads elsewhere: "illegal instruction".
    """
    n_pes, item = product.problem.n_pes, product.a.dtype.itemsize
    return product.a.along or all(start_of(product.m, pe, n_pes) * item % 16 == 0 for pe in range(n_pes))


def alone(
    product: Product, a: torch.Tensor, b: torch.Tensor, row: int, column: int, tallies: torch.Tensor | None = None
) -> Prepared:
    """Compile the product without communication. row, column: as in steps.multiply.

    tallies: symmetric words, one for each streamed tile.
    """
    dtype = product.problem.dtype
    words, none = (torch.empty(0, dtype=each, device=a.device) for each in (torch.uint64, dtype))
    places = (words, words if tallies is None else tallies, none, none, words)
    result = a.new_empty(product.m, product.problem.n, dtype=dtype)
    return Multiply(product, ALONE.value, places, (a, b, result)).of(product, (row, column))
