"""Kernels by which the service thread executes requests of far PEs on this PE's GPU heap, see far/execute_gpu.h.

The operator and the type of an atomic are arguments of its kernel. So all kernels are compiled at init: no request waits for
a compiler, and the thread never needs Python.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pyshmem.base.far import CHUNK, OPERATORS, TYPES
from pyshmem.device.arch.gpu.atomics import before, behind
from pyshmem.device.arch.targets import between_fences, is_amd, target_of
from pyshmem.kernels.bound_kernels import bind
from pyshmem.kernels.compiled import CachedKernel
from pyshmem.kernels.host_atomics import on_bits
from pyshmem.memory.gpu.heap import gpu

FLOAT32, FLOAT64 = (tl.constexpr(TYPES.index(name)) for name in ("float32", "float64"))
_COUNT, _BLOCK = tl.constexpr(len(OPERATORS)), tl.constexpr(1024)
_WORDS = (tl.int8, tl.int16, tl.int32, tl.int64)


@triton.constexpr_function
def named(code: int) -> str:
    """Return the operator of a number."""
    return OPERATORS[code]


@triton.jit
def _on_word(OP: tl.constexpr, bits, value, cond, is_float, FLOAT: tl.constexpr, SEM: tl.constexpr):
    if OP == "add":
        if is_float:
            number = value.to(FLOAT, bitcast=True)
            added = tl.atomic_add(bits.to(tl.pointer_type(FLOAT), bitcast=True), number, sem=SEM, scope="sys")
            old = added.to(value.dtype, bitcast=True)
        else:
            old = on_bits(OP, bits, value, cond, SEM)
        return old
    else:
        return on_bits(OP, bits, value, cond, SEM)


@triton.jit
def _perform(ctx, address, operand, cond, result, operator, is_float, WORD: tl.constexpr, FLOAT: tl.constexpr):
    """Perform an atomic on a word. Only an addition depends on its type; other atomics use bits."""
    sem: tl.constexpr = between_fences(ctx.where, "acq_rel")
    if is_amd(ctx.where):
        before(ctx, "acq_rel")
    bits = address.to(tl.pointer_type(WORD))
    value = operand.to(WORD)
    old = value
    for code in tl.static_range(_COUNT):
        if operator == code:
            old = _on_word(named(code), bits, value, cond.to(WORD), is_float, FLOAT, sem)
    if is_amd(ctx.where):
        behind(ctx, "acq_rel")
    tl.store(result.to(tl.pointer_type(tl.int64)), old.to(tl.int64))


@triton.jit(do_not_specialize=["address", "operand", "cond", "result", "detail"])
def perform(ctx, address: tl.int64, operand: tl.int64, cond: tl.int64, result: tl.int64, detail: tl.int64):
    """Perform one atomic on the word at ``address``, and store the old bits at ``result``.

    ctx: a Target.  detail: operator * 16 + type.
    """
    operator, kind = detail // 16, detail % 16
    if kind % 2 == 0:  # of 4 bytes
        _perform(ctx, address, operand, cond, result, operator, kind == FLOAT32, tl.int32, tl.float32)
    else:
        _perform(ctx, address, operand, cond, result, operator, kind == FLOAT64, tl.int64, tl.float64)


@triton.jit(do_not_specialize=["target", "target_step", "source", "source_step", "item", "count"])
def move(
    target: tl.int64,
    target_step: tl.int64,
    source: tl.int64,
    source_step: tl.int64,
    item: tl.int64,
    count: tl.int64,
    WORD: tl.constexpr,
):
    """Copy ``count`` items of ``item`` words, which lie so many bytes apart. A word is stored by one store."""
    size: tl.constexpr = WORD.primitive_bitwidth // 8
    place = (tl.program_id(0) * _BLOCK + tl.arange(0, _BLOCK)).to(tl.int64)
    mask = place < item * count
    which, within = place // item, place % item * size
    words = tl.load((source + which * source_step + within).to(tl.pointer_type(WORD)), mask)
    tl.store((target + which * target_step + within).to(tl.pointer_type(WORD)), words, mask)


def plans() -> bytes:
    """Compile the kernels, and return their plans for _native.far_open_gpu, which launches each for every operation."""
    target = target_of(gpu.arch)
    every = [bind(CachedKernel(perform).find(target, 0, 0, 0, 0, 0, num_warps=1), (1,), (target,), 5).prepared]
    for word in _WORDS:
        found = CachedKernel(move).find(0, 0, 0, 0, 0, 0, word, num_warps=4)
        programs = CHUNK // (word.primitive_bitwidth // 8) // _BLOCK.value
        every.append(bind(found, (programs,), (), 6).prepared)
    return b"".join(every)
