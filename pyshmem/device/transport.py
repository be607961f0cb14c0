"""The one way to a peer in kernels. Every chapter reaches other PEs through these functions, and through nothing else.

ctx.reach says, at compile time, what the team needs. DIRECT: all memory of all members is mapped here, so a peer's element
is this PE's address at a distance, and loads, stores and atomics do the rest. FAR: some members are on other nodes. Kernels
reach these by requests, in calls that do not take or return pointers or tiles; such calls refuse a FAR context by name.

Pointers and addresses are this PE's; pe counts in ctx's team. Callers have checked both. No function here is a barrier of
the program's threads, except those that say so.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit


@jit
def ptr(ctx, pointers, pe):
    """Pointers to the same elements on ``pe``, a scalar or a block that broadcasts against them."""
    arch.check_reach("ptr", ctx.reach)
    return arch.translate(ctx, pointers, pe)


# ---- bulk: by all threads of the program ----


@jit
def put(ctx, dest, source, nelems, pe):
    """Copy ``source[:nelems]`` to ``dest`` on ``pe``. It begins with a barrier: other threads may have written source."""
    arch.check_reach("put", ctx.reach)
    arch.copy_to(ctx, arch.translate(ctx, dest, pe), source, nelems)


@jit
def get(ctx, dest, source, nelems, pe):
    """Copy ``source[:nelems]`` on ``pe`` to ``dest`` here. It begins with a barrier."""
    arch.check_reach("get", ctx.reach)
    arch.copy_from(ctx, dest, arch.translate(ctx, source, pe), nelems)


@jit
def put_blocks(ctx, dest, source, dst, sst, bsize, nblocks, pe):
    """put of nblocks blocks of bsize elements, whose starts are dst and sst elements apart."""
    arch.check_reach("put_blocks", ctx.reach)
    arch.copy_blocks_to(ctx, arch.translate(ctx, dest, pe), source, dst, sst, bsize, nblocks)


@jit
def get_blocks(ctx, dest, source, dst, sst, bsize, nblocks, pe):
    """get of nblocks blocks of bsize elements, whose starts are dst and sst elements apart."""
    arch.check_reach("get_blocks", ctx.reach)
    arch.copy_blocks_from(ctx, dest, arch.translate(ctx, source, pe), dst, sst, bsize, nblocks)


# ---- elements: of one pointer or a block of them ----


@jit
def load(ctx, pointers, pe, mask, other):
    arch.check_reach("load", ctx.reach)
    return tl.load(arch.translate(ctx, pointers, pe), mask=mask, other=other)


@jit
def store(ctx, routine: tl.constexpr, pointers, value, pe, mask):
    """Store ``value``, which becomes the pointee's type. Errors: those of arch.fit, in the name of ``routine``."""
    arch.check_reach("store", ctx.reach)
    there = arch.translate(ctx, pointers, pe)
    tl.store(there, arch.fit(routine, "value", value, there), mask=mask)


@jit
def load_block(ctx, start, lane, pe, count, whole: tl.constexpr):
    """The elements ``lane`` behind ``start`` on ``pe``, a scalar: those below ``count``, or zeros.

    whole: all are below, and 16 bytes are one access.
    """
    arch.check_reach("load_block", ctx.reach)
    return arch.load_block(ctx, start, lane, pe, count, whole)


@jit
def store_block(ctx, start, lane, value, pe, count, whole: tl.constexpr):
    """Store to the elements ``lane`` behind ``start`` on ``pe``, a scalar, rounded to their type. Others: as load_block."""
    arch.check_reach("store_block", ctx.reach)
    arch.store_block(ctx, start, lane, value, pe, count, whole)


@jit
def read(ctx, pointer, pe):
    """One element as it is in memory now."""
    arch.check_reach("read", ctx.reach)
    return arch.read(ctx, arch.translate(ctx, pointer, pe))


@jit
def write(ctx, pointer, value, pe):
    """One element, by a single store of one thread."""
    arch.check_reach("write", ctx.reach)
    arch.store_single(ctx, arch.translate(ctx, pointer, pe), value)


@jit
def atomic(
    ctx, routine: tl.constexpr, op: tl.constexpr, pointers, value, pe, mask, sem: tl.constexpr, scope: tl.constexpr
):
    """Apply an operator; what was there. Errors: as in store."""
    arch.check_reach("atomic", ctx.reach)
    there = arch.translate(ctx, pointers, pe)
    fitting = arch.fit(routine, "value", value, there)
    if op == "swap":
        words = as_words(there)
        swapped = arch.atomic(ctx, op, words, in_bits(fitting, words), mask, sem, scope)
        return swapped.to(there.dtype.element_ty, bitcast=True)
    else:
        return arch.atomic(ctx, op, there, fitting, mask, sem, scope)


@jit
def compare_swap(ctx, routine: tl.constexpr, pointers, cond, value, pe, sem: tl.constexpr, scope: tl.constexpr):
    """Write ``value`` where there is ``cond``; what was there. Errors: as in store."""
    arch.check_reach("compare_swap", ctx.reach)
    there = arch.translate(ctx, pointers, pe)
    words = as_words(there)
    expected = in_bits(arch.fit(routine, "cond", cond, there), words)
    wanted = in_bits(arch.fit(routine, "value", value, there), words)
    expected, _ = tl.broadcast(expected, words)  # Triton does so for every atomic but this one
    wanted, _ = tl.broadcast(wanted, words)
    found = arch.compare_swap(ctx, words, expected, wanted, sem, scope)
    return found.to(there.dtype.element_ty, bitcast=True)


@jit
def as_words(pointers):
    """Pointers to the elements' bits, as integers: swaps and fetches move bits, and no float operation intervenes."""
    word: tl.constexpr = tl.int32 if pointers.dtype.element_ty.primitive_bitwidth == 32 else tl.int64
    return pointers.to(tl.pointer_type(word), bitcast=True)


@jit
def in_bits(value, words):
    return value.to(words.dtype.element_ty, bitcast=True)


# ---- order ----


@jit
def add_signal(ctx, sig_addr, value, pe):
    """Add to a signal, as a release of all that the program has stored. It begins with a barrier."""
    arch.check_reach("add_signal", ctx.reach)
    arch.add_signal(ctx, arch.translate(ctx, sig_addr, pe), value)


@jit
def set_signal(ctx, sig_addr, value, pe):
    """Set a signal, as a release of all that the program has stored. It begins with a barrier."""
    arch.check_reach("set_signal", ctx.reach)
    arch.set_signal(ctx, arch.translate(ctx, sig_addr, pe), value)


@jit
def fence(ctx):
    """Order what the program has sent before what it sends later, to each PE. A barrier."""
    arch.check_reach("fence", ctx.reach)
    arch.fence(ctx)


@jit
def quiet(ctx):
    """Complete what the program has sent, and order it before what it loads later. A barrier."""
    arch.check_reach("quiet", ctx.reach)
    arch.quiet(ctx)


@jit
def synchronise(ctx, routine: tl.constexpr):
    """The barrier of ctx's team, after all that this program's threads have stored."""
    arch.check_reach("synchronise", ctx.reach)
    arch.synchronise(ctx, routine)


# ---- the team's scratch: addresses are numbers here, not pointers ----


@jit
def tell_all(ctx, address, value):
    """Store ``value`` as this PE's word of the array of int64 at ``address`` on every member. A barrier stands before."""
    arch.check_reach("tell_all", ctx.reach)
    arch.tell_all(ctx, address, value)


@jit
def tell_member(ctx, address, value, pe):
    """tell_all to one member."""
    arch.check_reach("tell_member", ctx.reach)
    arch.tell_member(ctx, address, value, pe)


@jit
def store_number(ctx, address, number, pe, mask):
    """Store an int64, or one of a block, to the scratch of each PE of a block."""
    arch.check_reach("store_number", ctx.reach)
    arch.store_number(ctx, address, number, pe, mask)


@jit
def piece_on(ctx, address, pe):
    """The piece of scratch at ``address`` on ``pe``, a scalar: for store_piece and store_words, and nothing else."""
    arch.check_reach("piece_on", ctx.reach)
    return address + arch.distance(ctx, pe)


@jit
def store_piece(ctx, piece, values, places, mask):
    """Store ``values`` to their places in what piece_on gave, which begins at a multiple of 16."""
    arch.check_reach("store_piece", ctx.reach)
    tl.store(pointer_to(piece, values.dtype) + places, values, mask=mask)


@jit
def store_rows(ctx, address, rows, pe, places, mask):
    """store_piece of each row to its member in the column ``pe``; rows of members from n_pes on go nowhere."""
    arch.check_reach("store_rows", ctx.reach)
    mine = pointer_to(address, rows.dtype)
    # a product in place of a hint, which Triton fails to compile for a block of one row
    away = (arch.distance(ctx, tl.minimum(pe, arch.decoded(ctx.n_pes) - 1)) >> 4) * together(rows.dtype)
    tl.store(mine + away + places, rows, mask=mask & (pe < arch.decoded(ctx.n_pes)))


@jit
def store_words(ctx, piece, places, later, words, mark, mask):
    """Store int32 words with a mark beside each to what piece_on gave: seeing the mark means that the word has arrived.

    places: of the words, ``later`` bytes after its start; it is added last because it is known last.
    """
    arch.check_reach("store_words", ctx.reach)
    arch.store_words(ctx, piece, places, later, words, mark, mask)


@jit
def pointer_to(address, element: tl.constexpr):
    """A pointer to elements at an address that is a multiple of 16."""
    return tl.multiple_of(tl.multiple_of(address, 16).to(tl.pointer_type(element)), 16)


@triton.constexpr_function
def together(element: tl.dtype) -> int:
    """How many elements are 16 bytes, what one access moves: of parts that are whole numbers of them the compiler knows."""
    return max(128 // element.primitive_bitwidth, 1)
