"""Access to peers, on GPUs: by mapped memory, or for a team with PEs on other nodes by requests where an address is a place.

A context of reach DIRECT compiles to the access by mapped memory alone. Otherwise the kernel decides, since PEs are numbers
of the run. The elements of a block of atomics are then accessed one by one, near ones too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device.arch.gpu import atomics, blocks, copies, ordering, requests, signals
from pyshmem.device.arch.gpu import instructions as gpu
from pyshmem.device.arch.gpu.requests import is_place
from pyshmem.device.arch.gpu.translation import distance, is_scalar, translate
from pyshmem.device.arch.gpu.values import decoded, rounded
from pyshmem.device.arch.rules import count_of, word_of
from pyshmem.device.arch.targets import is_direct


@triton.jit
def copy_to(ctx, dest, source, nelems):
    """Copy elements from memory here to a peer's, as copies.copy does. It begins with a barrier."""
    if is_direct(ctx.reach):
        copies.copy(ctx, dest, source, nelems)
    elif is_place(dest):
        requests.put(ctx, dest, source, nelems)
    else:
        copies.copy(ctx, dest, source, nelems)


@triton.jit
def copy_from(ctx, dest, source, nelems):
    """Copy elements from a peer's memory to memory here, as copies.copy does. It begins with a barrier."""
    if is_direct(ctx.reach):
        copies.copy(ctx, dest, source, nelems)
    elif is_place(source):
        requests.get(ctx, dest, source, nelems)
    else:
        copies.copy(ctx, dest, source, nelems)


@triton.jit
def copy_blocks_to(ctx, dest, source, dst, sst, bsize, nblocks):
    """Copy blocks from memory here to a peer's, as copies.copy_blocks does."""
    if is_direct(ctx.reach):
        copies.copy_blocks(ctx, dest, source, dst, sst, bsize, nblocks)
    elif is_place(dest):
        requests.put_blocks(ctx, dest, source, dst, sst, bsize, nblocks)
    else:
        copies.copy_blocks(ctx, dest, source, dst, sst, bsize, nblocks)


@triton.jit
def copy_blocks_from(ctx, dest, source, dst, sst, bsize, nblocks):
    """Copy blocks from a peer's memory to memory here, as copies.copy_blocks does."""
    if is_direct(ctx.reach):
        copies.copy_blocks(ctx, dest, source, dst, sst, bsize, nblocks)
    elif is_place(source):
        requests.get_blocks(ctx, dest, source, dst, sst, bsize, nblocks)
    else:
        copies.copy_blocks(ctx, dest, source, dst, sst, bsize, nblocks)


@triton.jit
def load_block(ctx, start, lane, pe, count, whole: tl.constexpr):
    """Return the elements ``lane`` behind ``start`` on ``pe``: those below ``count``, or zeros. whole: all are below."""
    if is_direct(ctx.reach):
        return copies.load_block(ctx, start, lane, pe, count, whole)
    else:
        there = translate(ctx, start, pe)
        if is_place(there):
            values = requests.load_block(ctx, there, lane, count, whole)
        else:
            values = copies.load_block(ctx, start, lane, pe, count, whole)
        return values


@triton.jit
def store_block(ctx, start, lane, value, pe, count, whole: tl.constexpr):
    """Store to the elements ``lane`` behind ``start`` on ``pe``, rounded to their type. Others: as load_block."""
    if is_direct(ctx.reach):
        copies.store_block(ctx, start, lane, value, pe, count, whole)
    else:
        there = translate(ctx, start, pe)
        if is_place(there):
            requests.store_block(ctx, there, lane, rounded(value, start.dtype.element_ty), count, whole)
        else:
            copies.store_block(ctx, start, lane, value, pe, count, whole)


@triton.jit
def store_number(ctx, address, value, pe, mask):
    """Store an int64, or one of a block, to the scratch of each PE of a block, whose lanes are the PEs in their order."""
    if is_direct(ctx.reach):
        copies.store_number(ctx, address, value, pe, mask)
    else:
        values = blocks.spread(value, pe)
        places = address + distance(ctx, pe, mask)
        tl.store(places.to(tl.pointer_type(tl.int64)), values, mask=mask & ~is_place(places))
        for member in range(decoded(ctx.n_pes)):
            chosen = (pe == member) & mask & is_place(places)
            if tl.max(chosen.to(tl.int32), axis=0) != 0:
                one, place = tl.sum(tl.where(chosen, values, 0), axis=0), tl.sum(tl.where(chosen, places, 0), axis=0)
                requests.update(ctx, "set", "int64", place, one)


@triton.jit
def read(ctx, pointer):
    """Load one element of any type as it is in memory now."""
    if is_direct(ctx.reach):
        return gpu.read(ctx, pointer)
    else:
        if is_place(pointer):  # noqa: SIM108  Triton compiles no conditional expression of a number of the run
            value = requests.read(ctx, pointer)
        else:
            value = gpu.read(ctx, pointer)
        return value


@triton.jit
def store_single(ctx, pointer, value):
    """Store an element by a single store."""
    if is_direct(ctx.reach):
        gpu.store_single(ctx, pointer, value)
    elif is_place(pointer):
        requests.write(ctx, pointer, value)
    else:
        gpu.store_single(ctx, pointer, value)


# ---- atomics ----


@triton.jit
def atomic(ctx, op: tl.constexpr, pointers, value, mask, sem: tl.constexpr, scope: tl.constexpr):
    """Perform an atomic on one element or a block of them, and return what they were."""
    if is_direct(ctx.reach):
        return atomics.atomic(ctx, op, pointers, value, mask, sem, scope)
    else:
        return one_by_one(ctx, op, pointers, value, value, mask, sem, scope)


@triton.jit
def compare_swap(ctx, pointers, expected, wanted, sem: tl.constexpr, scope: tl.constexpr):
    """Perform a compare-and-swap of integers, as ``atomic`` does."""
    if is_direct(ctx.reach):
        return atomics.compare_swap(ctx, pointers, expected, wanted, sem, scope)
    else:
        return one_by_one(ctx, "compare_swap", pointers, wanted, expected, None, sem, scope)


@triton.jit
def one_by_one(ctx, op: tl.constexpr, pointers, value, cond, mask, sem: tl.constexpr, scope: tl.constexpr):
    """Perform an atomic on each element by itself, near or far. Returns what they were."""
    element: tl.constexpr = pointers.dtype.element_ty
    values, conds = in_bits(blocks.spread(value, pointers)), in_bits(blocks.spread(cond, pointers))
    lanes = blocks.lanes(mask, pointers)
    if is_scalar(pointers):
        found = blocks.number(0, word_of(element))
        if lanes:
            found = atomic_one(ctx, op, pointers, values, conds, sem, scope)
        return found.to(element, bitcast=True)
    else:
        count: tl.constexpr = count_of(pointers)
        lane = tl.reshape(tl.arange(0, count), pointers.shape)
        found = values * 0
        for at in range(count):
            here = lanes & (lane == at)
            if whole_sum(here.to(tl.int32)) != 0:
                place = whole_sum(tl.where(here, pointers.to(tl.int64), 0)).to(tl.pointer_type(element))
                own, must = whole_sum(tl.where(here, values, 0)), whole_sum(tl.where(here, conds, 0))
                found = tl.where(here, atomic_one(ctx, op, place, own, must, sem, scope), found)
        return found.to(element, bitcast=True)


@triton.jit
def atomic_one(ctx, op: tl.constexpr, pointer, bits, cond, sem: tl.constexpr, scope: tl.constexpr):
    """Perform an atomic on one element. Values are bits, as integers of the element's size."""
    if is_place(pointer):
        found = requests.atomic(ctx, op, pointer, bits, cond)
    elif op == "compare_swap":
        found = in_bits(atomics.compare_swap(ctx, pointer, cond, bits, sem, scope))
    else:
        value = bits.to(pointer.dtype.element_ty, bitcast=True)
        found = in_bits(atomics.atomic(ctx, op, pointer, value, None, sem, scope))
    return found


@triton.jit
def whole_sum(block):
    return tl.sum(tl.reshape(block, [count_of(block)]), axis=0)


@triton.jit
def in_bits(value):
    return value.to(word_of(value.dtype), bitcast=True)


# ---- order ----


@triton.jit
def set_signal(ctx, pointer, value):
    """Set a uint64, as a release of what all threads have stored. It begins with a barrier."""
    if is_direct(ctx.reach):
        signals.set_signal(ctx, pointer, value)
    elif is_place(pointer):
        requests.update(ctx, "set", "uint64", pointer, value)
    else:
        signals.set_signal(ctx, pointer, value)


@triton.jit
def add_signal(ctx, pointer, value):
    """Add to a uint64, as set_signal sets it."""
    if is_direct(ctx.reach):
        signals.add_signal(ctx, pointer, value)
    elif is_place(pointer):
        requests.update(ctx, "add", "uint64", pointer, value)
    else:
        signals.add_signal(ctx, pointer, value)


@triton.jit
def quiet(ctx):
    """Complete what the program has stored, and every request. fence needs none: requests to one PE stay in order."""
    ordering.quiet(ctx)
    if not is_direct(ctx.reach):
        requests.flush(ctx)
