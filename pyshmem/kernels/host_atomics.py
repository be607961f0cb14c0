"""Host atomics on GPU heaps. One thread of this PE's GPU performs each atomic at system scope, on local or remote memory.

They are therefore atomic with respect to the atomics of kernels. Each operator and type has one binary for all PEs, and
another one for atomics after a fence, because release and acquire order would add 1.5 us to every atomic.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl

from pyshmem.base import far
from pyshmem.device.arch.gpu import atomics
from pyshmem.device.arch.gpu.atomics import before, behind
from pyshmem.device.arch.targets import between_fences, is_amd, target_of
from pyshmem.kernels.bound_kernels import bind
from pyshmem.kernels.compiled import CachedKernel, Loaded
from pyshmem.memory.gpu.heap import gpu
from pyshmem.native._native import launch_prepared

# For each type, the format of its bits and its Triton type. Only an addition depends on the type; other atomics use bits.
TYPES = {getattr(torch, name): (np.dtype(name).char, getattr(tl, name)) for name in far.TYPES}
WORDS = {4: "i", 8: "q"}
ORDERS = {False: "relaxed", True: "acq_rel"}


@triton.jit
def on_bits(OP: tl.constexpr, bits, value, cond, SEM: tl.constexpr):
    """Perform an operator that depends on the bits of a word alone, at system scope. Returns: what was there."""
    if OP == "fetch":
        # adding 0 keeps the value; with relaxed order it is a load
        return tl.atomic_add(bits, tl.full([], 0, value.dtype), sem=SEM, scope="sys")
    elif OP == "compare_swap":
        return tl.atomic_cas(bits, cond, value, sem=SEM, scope="sys")
    elif OP == "set":
        return atomics.operate("swap", bits, value, None, SEM, "sys")
    else:
        return atomics.operate(OP, bits, value, None, SEM, "sys")


@triton.jit(do_not_specialize=["address", "operand", "cond", "result"])
def operate(
    ctx,
    address: tl.int64,
    operand: tl.int64,
    cond: tl.int64,
    result: tl.int64,
    OP: tl.constexpr,
    TYPE: tl.constexpr,
    ORDER: tl.constexpr,
):
    """Perform one atomic on the word at ``address``, and store the old value at ``result`` if not 0. Operands are bits.

    ctx: a Target.
    """
    sem: tl.constexpr = between_fences(ctx.where, ORDER)
    if is_amd(ctx.where):
        before(ctx, ORDER)
    word: tl.constexpr = tl.int32 if TYPE.primitive_bitwidth == 32 else tl.int64
    bits = address.to(tl.pointer_type(word))
    value = operand.to(word)
    if OP == "add":
        number = value.to(TYPE, bitcast=True)
        old = tl.atomic_add(address.to(tl.pointer_type(TYPE)), number, sem=sem, scope="sys")
    else:
        old = on_bits(OP, bits, value, cond.to(word), sem)
    if is_amd(ctx.where):
        behind(ctx, ORDER)
    if result != 0:
        tl.store(result.to(tl.pointer_type(word)), old.to(word, bitcast=True))


@triton.jit(do_not_specialize=["address", "result", "count"])
def read_words(address: tl.int64, result: tl.int64, count: tl.int64, WORD: tl.constexpr):
    """Copy words from ``address`` to ``result`` by atomic loads, to which an addition of 0 compiles.

    Volatile loads are no alternative: for AMD they are not volatile in a loop.
    """
    source, target = address.to(tl.pointer_type(WORD)), result.to(tl.pointer_type(WORD))
    for place in range(count):
        tl.store(target + place, tl.atomic_add(source + place, tl.full([], 0, WORD), sem="relaxed", scope="sys"))


_cached = cache(CachedKernel)  # made at the first use: the interpreter has none
# with the plans of _native.launch_prepared
_atomics: dict[tuple[str, torch.dtype, int, bool], tuple[Loaded, bytes]] = {}


def apply(
    op: str,
    dtype: torch.dtype,
    address: int,
    operand: float,
    cond: float,
    result_address: int,
    stream: int,
    device: int,
    ordered: bool,
) -> None:
    """Enqueue one atomic on ``stream``, a raw handle, with acquire and release order if ``ordered``.

    op: a name in base.far.OPERATORS.
    address: the address of the word, in the memory of this GPU or a mapped one.
    operand, cond: numbers that dtype can hold; 0 if op does not use them.
    result_address: the address to which the GPU writes the old value, in dtype; 0 for none.
    device: the current device of the thread.
    """
    if dtype.is_floating_point:
        operand, cond = (_as_bits(TYPES[dtype][0], number) for number in (operand, cond))
    loaded, prepared = _atomics.get((op, dtype, device, ordered)) or _compile(op, dtype, device, ordered)
    loaded.require_launched(launch_prepared(prepared, stream, address, operand, cond, result_address))


def read(address: int, nbytes: int, result_address: int, stream: int, device: int) -> None:
    """Enqueue a read of words of 4 or 8 bytes without tearing, which AMD's copies do not guarantee.

    address, nbytes: multiples of 4; if both are multiples of 8, words have 8 bytes.
    result_address: memory that the GPU writes.
    """
    itemsize = 4 if (address | nbytes) & 7 else 8
    loaded, prepared = _reader(itemsize, device)
    loaded.require_launched(launch_prepared(prepared, stream, address, result_address, nbytes // itemsize))


_reader_words = {4: tl.int32, 8: tl.int64}


@cache
def _reader(itemsize: int, device: int) -> tuple[Loaded, bytes]:
    loaded = _cached(read_words).find(0, 0, 0, _reader_words[itemsize], num_warps=1)
    return loaded, bind(loaded, (1,), (), 3).prepared


def _compile(op: str, dtype: torch.dtype, device: int, ordered: bool) -> tuple[Loaded, bytes]:
    order, target = ORDERS[ordered], target_of(gpu.arch)
    loaded = _cached(operate).find(target, 0, 0, 0, 0, op, TYPES[dtype][1], order, num_warps=1)
    found = _atomics[op, dtype, device, ordered] = loaded, bind(loaded, (1,), (target,), 4).prepared
    return found


def _as_bits(format: str, number: float) -> int:
    packed = struct.pack(format, number)
    return int(struct.unpack(WORDS[len(packed)], packed)[0])
