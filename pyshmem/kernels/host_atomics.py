"""The host's atomics on GPU heaps. One thread of this PE's GPU performs each at system scope, wherever the word lies.

So they are atomic with respect to the atomics of kernels. One binary for each operator and type serves all PEs, and another
one serves atomics after a fence: a release and an acquire would cost every atomic 1.5 us.
"""

from __future__ import annotations

import struct
from functools import cache

import torch
import triton
import triton.language as tl

from pyshmem.runtime._native import launch_prepared
from pyshmem.runtime.gpu.launch import CachedKernel, Loaded

SET, FETCH, SWAP, COMPARE_SWAP, ADD, AND, OR, XOR = (tl.constexpr(code) for code in range(8))
OPERATORS = {
    "set": SET, "fetch": FETCH, "swap": SWAP, "compare_swap": COMPARE_SWAP,
    "add": ADD, "and": AND, "or": OR, "xor": XOR,
}  # fmt: skip
# How each type's numbers become bits, and what those are in Triton. Only adding asks what the bits mean.
TYPES = {
    torch.int32: ("i", tl.int32), torch.int64: ("q", tl.int64), torch.uint32: ("I", tl.uint32),
    torch.uint64: ("Q", tl.uint64), torch.float32: ("f", tl.float32), torch.float64: ("d", tl.float64),
}  # fmt: skip
WORDS = {4: "i", 8: "q"}
ORDERS = {False: "relaxed", True: "acq_rel"}


@triton.jit(do_not_specialize=["address", "operand", "cond", "result"])
def operate(
    address: tl.int64,
    operand: tl.int64,
    cond: tl.int64,
    result: tl.int64,
    OP: tl.constexpr,
    TYPE: tl.constexpr,
    ORDER: tl.constexpr,
):
    """One atomic on the word at ``address``; what was there goes to ``result`` if that is not 0. Operands are bits."""
    word: tl.constexpr = tl.int32 if TYPE.primitive_bitwidth == 32 else tl.int64
    bits = address.to(tl.pointer_type(word))
    value = operand.to(word)
    if OP == ADD:
        number = value.to(TYPE, bitcast=True)
        old = tl.atomic_add(address.to(tl.pointer_type(TYPE)), number, sem=ORDER, scope="sys")
    elif OP == FETCH:
        # of 0: the bits stay; relaxed, it is a load
        old = tl.atomic_add(bits, tl.full([], 0, word), sem=ORDER, scope="sys")
    elif OP == COMPARE_SWAP:
        old = tl.atomic_cas(bits, cond.to(word), value, sem=ORDER, scope="sys")
    elif OP == AND:
        old = tl.atomic_and(bits, value, sem=ORDER, scope="sys")
    elif OP == OR:
        old = tl.atomic_or(bits, value, sem=ORDER, scope="sys")
    elif OP == XOR:
        old = tl.atomic_xor(bits, value, sem=ORDER, scope="sys")
    else:
        old = tl.atomic_xchg(bits, value, sem=ORDER, scope="sys")
    if result != 0:
        tl.store(result.to(tl.pointer_type(word)), old.to(word, bitcast=True))


@triton.jit(do_not_specialize=["address", "result", "count"])
def read_words(address: tl.int64, result: tl.int64, count: tl.int64, WORD: tl.constexpr):
    """Words from ``address``, each as it is in memory now, to ``result``. Adding 0 compiles to an atomic load; volatile ones
    are volatile no more in a loop, for AMD."""
    source, target = address.to(tl.pointer_type(WORD)), result.to(tl.pointer_type(WORD))
    for place in range(count):
        tl.store(target + place, tl.atomic_add(source + place, tl.full([], 0, WORD), sem="relaxed", scope="sys"))


_operate, _read_words = CachedKernel(operate), CachedKernel(read_words)
_atomics: dict[tuple[str, torch.dtype, int, bool], tuple[Loaded, bytes]] = {}  # and what _native.launch_prepared takes


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
    """Enqueue one atomic on ``stream``, a raw handle: done when that gets there, as acquire and release if ``ordered``.

    op: of OPERATORS, with or without fetch_ before it.  address: of the word, on this GPU or a peer's, as mapped here.
    operand, cond: numbers that dtype holds; 0 where op has none.  result_address: where the GPU writes the old value, in
    dtype; 0 where nobody asks.  device: the thread's.
    """
    if dtype.is_floating_point:
        operand, cond = (_as_bits(TYPES[dtype][0], number) for number in (operand, cond))
    loaded, prepared = _atomics.get((op, dtype, device, ordered)) or _compile(op, dtype, device, ordered)
    loaded.require_launched(launch_prepared(prepared, stream, address, operand, cond, result_address))


def read(address: int, nbytes: int, result_address: int, stream: int, device: int) -> None:
    """Enqueue the reading of words of 4 or 8 bytes, none of them torn, which AMD's copies do not promise.

    address, nbytes: multiples of 4; where both are of 8, words are of 8.  result_address: memory that the GPU writes.
    """
    itemsize = 4 if (address | nbytes) & 7 else 8
    loaded, prepared = _reader(itemsize, device)
    loaded.require_launched(launch_prepared(prepared, stream, address, result_address, nbytes // itemsize))


_reader_words = {4: tl.int32, 8: tl.int64}


@cache
def _reader(itemsize: int, device: int) -> tuple[Loaded, bytes]:
    loaded = _read_words.find(0, 0, 0, _reader_words[itemsize], num_warps=1)
    return loaded, loaded.prepared(1)


def _compile(op: str, dtype: torch.dtype, device: int, ordered: bool) -> tuple[Loaded, bytes]:
    operator = OPERATORS[op.removeprefix("fetch_")]
    order = ORDERS[ordered]
    loaded = _operate.find(0, 0, 0, 0, operator, TYPES[dtype][1], order, num_warps=1)
    found = _atomics[op, dtype, device, ordered] = loaded, loaded.prepared(1)
    return found


def _as_bits(format: str, number: float) -> int:
    packed = struct.pack(format, number)
    return int(struct.unpack(WORDS[len(packed)], packed)[0])
