"""Requests of kernels on GPUs to far PEs. A kernel writes them into a ring, and the proxy sends them: see far/proxy.h.

All threads of the program make a request together. ``place`` is the address of memory on a far PE, or a pointer that holds
one. The data of a put lie in the slot when the request is written, so its source is free at once; a get copies them from
there. Every wait has the limit of ctx. After it, or if a request fails, the record is filled and the kernel goes on.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base import comparisons, far
from pyshmem.device.arch.gpu import blocks, copies
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.ordering import join
from pyshmem.device.arch.gpu.waits import wait_until
from pyshmem.device.arch.rules import bytes_of, count_of

SHIFT, SLOTS, PIECE, HEAD = (tl.constexpr(each) for each in (far.SHIFT, far.SLOTS, far.PIECE, far.SLOT_HEAD))
READY, DONE, FREE = tl.constexpr(far.READY), tl.constexpr(far.DONE), tl.constexpr(far.FREE)
PUT, GET, PUT_STRIDED, GET_STRIDED = (tl.constexpr(op) for op in (far.PUT, far.GET, far.PUT_STRIDED, far.GET_STRIDED))
BATCH = tl.constexpr(8)  # pieces of a get that travel at once: a quarter of the ring, half of what the proxy asks for
UPDATE, FETCH, FLUSH = tl.constexpr(far.UPDATE), tl.constexpr(far.FETCH), tl.constexpr(far.FLUSH)


@triton.jit
def is_place(address):
    """Return whether an address, or each of a block, is on a far PE. No address of a GPU has bits above SHIFT."""
    return (address.to(tl.int64) >> SHIFT) != 0


# ---- the ring ----


@triton.jit
def begin(ctx):
    """Take the next slot, and wait until its last request has ended. Returns: (address of the slot, ticket)."""
    ticket = take(ctx, 1)
    slot = slot_of(ctx, ticket)
    await_word(ctx, slot, FREE, ticket + 1 - SLOTS)
    return slot, ticket


@triton.jit
def take(ctx, count):
    """Take the next tickets, and return the first. Their slots may still be in use.

    A program that waits for a slot has no ticket behind that slot's, so programs never wait for each other in a circle.
    """
    return tl.atomic_add(ctx.ring.to(tl.pointer_type(tl.int64)), count, sem="relaxed", scope="gpu")


@triton.jit
def slot_of(ctx, ticket):
    """Return the address of a ticket's slot."""
    ring = tl.load(ctx.ring.to(tl.pointer_type(tl.int64)) + 1)
    return tl.multiple_of(ring + (ticket % SLOTS) * (HEAD + PIECE), 128)


@triton.jit
def word(slot, number: tl.constexpr):
    """Return the address of a word of a slot."""
    return slot.to(tl.pointer_type(tl.int64)) + number


@triton.jit
def data_of(slot, like):
    """Return the address of the slot's data, as a pointer to the elements of ``like``."""
    return tl.multiple_of((slot + HEAD).to(tl.pointer_type(like.dtype.element_ty)), 16)


@triton.jit
def await_word(ctx, slot, place: tl.constexpr, number):
    """Wait until a word of the slot has reached ``number``, as an acquire by all threads."""
    wait_until(ctx, "request", word(slot, place), comparisons.GE, number)
    gpu.after_poll(ctx)
    gpu.barrier(ctx)


@triton.jit
def post(ctx, slot, ticket, op: tl.constexpr, place, nbytes, detail=0, value=0, cond=0):
    """Write a request, after the data that all threads have stored to the slot, and after their earlier stores."""
    tl.store(word(slot, far.OP), op)
    tl.store(word(slot, far.PLACE), place)
    tl.store(word(slot, far.NBYTES), nbytes)
    tl.store(word(slot, far.DETAIL), detail)
    tl.store(word(slot, far.VALUE), value)
    tl.store(word(slot, far.COND), cond)
    tell(ctx, slot, READY, ticket + 1)


@triton.jit
def tell(ctx, slot, place: tl.constexpr, number):
    """Set a word of the slot, after the loads and stores of all threads."""
    join(ctx)
    count: tl.constexpr = gpu.threads(ctx)
    pointers, numbers = word(slot, place) + blocks.zeros(count, tl.int32), number + blocks.zeros(count, tl.int64)
    gpu.store_release_each(ctx, pointers, numbers, blocks.arange(count) == 0)


@triton.jit
def flush(ctx):
    """Wait until every request of this process so far is complete on all PEs."""
    slot, ticket = begin(ctx)
    post(ctx, slot, ticket, FLUSH, 0, 0)
    await_word(ctx, slot, FREE, ticket + 1)


# ---- copies ----


@triton.jit
def put(ctx, place, source, nelems):
    """Copy elements to a place, in pieces."""
    size: tl.constexpr = bytes_of(source.dtype.element_ty)
    n = blocks.number(0, tl.int64) + nelems
    for first in range(0, n, PIECE // size):
        count = tl.minimum(n - first, PIECE // size)
        slot, ticket = begin(ctx)
        copies.copy(ctx, data_of(slot, source), source + first, count)
        post(ctx, slot, ticket, PUT, place.to(tl.int64) + first * size, count * size)


@triton.jit
def get(ctx, dest, place, nelems):
    """Copy elements from a place, in pieces. Every thread has its part when it returns.

    All pieces of a batch are asked for before the first is awaited, so that they travel while others are copied.
    """
    size: tl.constexpr = bytes_of(dest.dtype.element_ty)
    most: tl.constexpr = PIECE // size
    n = blocks.number(0, tl.int64) + nelems
    for start in range(0, n, BATCH * most):
        pieces = tl.minimum(tl.cdiv(n - start, most), BATCH)
        ticket = take(ctx, pieces)
        for i in range(pieces):
            first, slot = start + i * most, slot_of(ctx, ticket + i)
            await_word(ctx, slot, FREE, ticket + i + 1 - SLOTS)
            post(ctx, slot, ticket + i, GET, place.to(tl.int64) + first * size, tl.minimum(n - first, most) * size)
        for i in range(pieces):
            first, slot = start + i * most, slot_of(ctx, ticket + i)
            await_word(ctx, slot, DONE, ticket + i + 1)
            copies.copy(ctx, dest + first, data_of(slot, dest), tl.minimum(n - first, most))
            tell(ctx, slot, FREE, ticket + i + 1)


@triton.jit
def put_blocks(ctx, place, source, dst, sst, bsize, nblocks):
    """Copy nblocks blocks of bsize elements to a place. A request has as many blocks as fit into a slot."""
    size: tl.constexpr = bytes_of(source.dtype.element_ty)
    n, step = blocks.number(0, tl.int64) + nblocks, blocks.number(size, tl.int64) * dst
    if bsize * size > PIECE:
        for at in range(n):
            put(ctx, place + at * dst, source + at * sst, bsize)
    elif bsize > 0:
        most = PIECE // (bsize * size)
        for first in range(0, n, most):
            count = tl.minimum(n - first, most)
            slot, ticket = begin(ctx)
            copies.copy_blocks(ctx, data_of(slot, source), source + first * sst, bsize, sst, bsize, count)
            there = place.to(tl.int64) + first * step
            post(ctx, slot, ticket, PUT_STRIDED, there, count * bsize * size, bsize * size, step)


@triton.jit
def get_blocks(ctx, dest, place, dst, sst, bsize, nblocks):
    """Copy nblocks blocks of bsize elements from a place, as put_blocks does to one."""
    size: tl.constexpr = bytes_of(dest.dtype.element_ty)
    n, step = blocks.number(0, tl.int64) + nblocks, blocks.number(size, tl.int64) * sst
    if bsize * size > PIECE:
        for at in range(n):
            get(ctx, dest + at * dst, place + at * sst, bsize)
    elif bsize > 0:
        most = PIECE // (bsize * size)
        for first in range(0, n, most):
            count = tl.minimum(n - first, most)
            slot, ticket = begin(ctx)
            there = place.to(tl.int64) + first * step
            post(ctx, slot, ticket, GET_STRIDED, there, count * bsize * size, bsize * size, step)
            await_word(ctx, slot, DONE, ticket + 1)
            copies.copy_blocks(ctx, dest + first * dst, data_of(slot, dest), dst, bsize, bsize, count)
            tell(ctx, slot, FREE, ticket + 1)


@triton.jit
def load_block(ctx, place, lane, count, whole: tl.constexpr):
    """Return the elements ``lane`` behind a place, as copies.load_block does. A block of them fits into a slot."""
    slot, ticket = begin(ctx)
    post(ctx, slot, ticket, GET, place.to(tl.int64), inside(lane, count, whole) * bytes_of(place.dtype.element_ty))
    await_word(ctx, slot, DONE, ticket + 1)
    pointers = data_of(slot, place) + lane
    values = tl.load(pointers) if whole else tl.load(pointers, mask=lane < count, other=0)
    tell(ctx, slot, FREE, ticket + 1)
    return values


@triton.jit
def store_block(ctx, place, lane, value, count, whole: tl.constexpr):
    """Store elements, which have the place's type, to ``lane`` behind it, as copies.store_block does."""
    slot, ticket = begin(ctx)
    pointers = data_of(slot, place) + lane
    if whole:
        tl.store(pointers, value)
    else:
        tl.store(pointers, value, mask=lane < count)
    post(ctx, slot, ticket, PUT, place.to(tl.int64), inside(lane, count, whole) * bytes_of(place.dtype.element_ty))


@triton.jit
def inside(lane, count, whole: tl.constexpr):
    """Return how many of the lanes, which count from 0, are below ``count``."""
    most: tl.constexpr = count_of(lane)
    if whole:
        return blocks.number(most, tl.int64)
    else:
        return tl.minimum(blocks.number(0, tl.int64) + count, most)


@triton.jit
def read(ctx, place):
    """Return the element at a place."""
    slot, ticket = begin(ctx)
    post(ctx, slot, ticket, GET, place.to(tl.int64), bytes_of(place.dtype.element_ty))
    await_word(ctx, slot, DONE, ticket + 1)
    value = gpu.read(ctx, data_of(slot, place))
    tell(ctx, slot, FREE, ticket + 1)
    return value


@triton.jit
def write(ctx, place, value):
    """Store an element, which has the place's type, to a place."""
    slot, ticket = begin(ctx)
    gpu.store_single(ctx, data_of(slot, place), value)
    post(ctx, slot, ticket, PUT, place.to(tl.int64), bytes_of(place.dtype.element_ty))


# ---- atomics ----


@triton.jit
def update(ctx, operator: tl.constexpr, kind: tl.constexpr, place, value):
    """Perform an atomic that returns nothing on the word at a place."""
    slot, ticket = begin(ctx)
    post(ctx, slot, ticket, UPDATE, place.to(tl.int64), 0, code_of(operator, kind), value)


@triton.jit
def fetch(ctx, operator: tl.constexpr, kind: tl.constexpr, place, bits, cond):
    """Perform an atomic on the word at a place. Returns: what it was, as bits in an integer of the type of ``bits``."""
    slot, ticket = begin(ctx)
    code: tl.constexpr = code_of(operator, kind)
    post(ctx, slot, ticket, FETCH, place.to(tl.int64), 0, code, bits.to(tl.int64), cond.to(tl.int64))
    await_word(ctx, slot, DONE, ticket + 1)
    found = gpu.peek(ctx, word(slot, far.RESULT))
    tell(ctx, slot, FREE, ticket + 1)
    return found.to(bits.dtype)


@triton.jit
def atomic(ctx, op: tl.constexpr, place, bits, cond):
    """Perform an atomic of pyshmem.device.amo on the element at a place. Returns: what it was, as bits."""
    if op == "min" or op == "max":
        return order(ctx, op, place, bits)
    else:
        return fetch(ctx, op, kind_of(place.dtype.element_ty), place, bits, cond)


@triton.jit
def order(ctx, op: tl.constexpr, place, bits):
    """Perform min or max by compare-and-swap, which fails only if another PE's atomic has succeeded meanwhile."""
    element: tl.constexpr = place.dtype.element_ty
    kind: tl.constexpr = kind_of(bits.dtype)
    seen = fetch(ctx, "fetch", kind, place, bits, bits)
    before = fetch(ctx, "compare_swap", kind, place, chosen(op, element, bits, seen), seen)
    while before != seen:
        seen = before
        before = fetch(ctx, "compare_swap", kind, place, chosen(op, element, bits, seen), seen)
    return before


@triton.jit
def chosen(op: tl.constexpr, element: tl.constexpr, one, other):
    """Return the lesser or the greater of two elements, as bits. Floats are ordered by IEEE 754's totalOrder."""
    if element.is_floating():
        top: tl.constexpr = element.primitive_bitwidth - 1
        low: tl.constexpr = 2**top - 1
        less = (one ^ ((one >> top) & low)) < (other ^ ((other >> top) & low))
    else:
        less = one.to(element, bitcast=True) < other.to(element, bitcast=True)
    if op == "min":
        return tl.where(less, one, other)
    else:
        return tl.where(less, other, one)


@triton.constexpr_function
def code_of(operator: str, kind: str) -> int:
    """Return the number of an atomic on a type."""
    return far.ATOMICS[operator, kind]


@triton.constexpr_function
def kind_of(element: tl.dtype) -> str:
    """Return the name of a type of 4 or 8 bytes, as in pyshmem.base.far."""
    name = "float" if element.is_floating() else "uint" if element.is_int_unsigned() else "int"
    return f"{name}{element.primitive_bitwidth}"
