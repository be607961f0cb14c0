"""The few instructions in which NVIDIA's and AMD's GPUs differ. ctx.where says at compile time which GPU it is.

An inline instruction runs in every thread, of a scalar too. The memory models behind them: PTX ISA, "Memory Consistency
Model"; LLVM's AMDGPUUsage, "Memory Model gfx90a" and "gfx942".
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language import core
from triton.language.extra.cuda import num_warps  # reads the launch's options, AMD's too

from pyshmem.device.arch.places import GFX90A, NVIDIA


@core.builtin
def threads(ctx: tl.tensor, _semantic: Any = None) -> tl.constexpr:
    """How many threads a program has. A jit function would do, but in Triton 3.6 those return no constants."""
    return tl.constexpr(num_warps(_semantic=_semantic).value * (32 if ctx.where.value == NVIDIA.value else 64))


@triton.jit
def run(text: tl.constexpr) -> None:
    """Instructions without operands."""
    tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def run_amd(text: tl.constexpr) -> None:
    tl.inline_asm_elementwise(text, "=v", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def drain(ctx: tl.tensor) -> None:
    """Let this thread's stores and loads be done before the barrier that follows.

    AMD's barrier waits for local memory only, so that another wave's release after it would not cover them.
    """
    if ctx.where != NVIDIA:
        run_amd("s_waitcnt vmcnt(0)")


@triton.jit
def release(ctx: tl.tensor) -> None:
    """This thread's earlier stores are seen by every PE before its later ones."""
    if ctx.where == NVIDIA:
        run("fence.acq_rel.sys;")
    elif ctx.where == GFX90A:
        run_amd("buffer_wbl2\n s_waitcnt vmcnt(0)")
    else:
        run_amd("buffer_wbl2 sc0 sc1\n s_waitcnt vmcnt(0)")


@triton.jit
def acquire(ctx: tl.tensor) -> None:
    """This thread's later loads see what was written before the word that a relaxed load of it saw."""
    if ctx.where == NVIDIA:
        run("fence.acq_rel.sys;")
    elif ctx.where == GFX90A:
        run_amd("s_waitcnt vmcnt(0)\n buffer_invl2\n buffer_wbinvl1_vol")
    else:
        run_amd("s_waitcnt vmcnt(0)\n buffer_inv sc0 sc1")


@triton.jit
def after_poll(ctx: tl.tensor) -> None:
    """acquire, where a poll's own load is none."""
    if ctx.where != NVIDIA:
        acquire(ctx)


@triton.jit
def poll(ctx: tl.tensor, pointer: tl.tensor) -> tl.tensor:
    """A word as it is in memory now, from one pointer. An acquire on NVIDIA."""
    if ctx.where != NVIDIA:
        return tl.load(pointer, volatile=True)
    if pointer.dtype.element_ty.primitive_bitwidth == 64:
        return tl.inline_asm_elementwise(
            "ld.acquire.sys.global.b64 $0, [$1];",
            "=l,l",
            [pointer],
            dtype=pointer.dtype.element_ty,
            is_pure=False,
            pack=1,
        )
    return tl.inline_asm_elementwise(
        "ld.acquire.sys.global.b32 $0, [$1];", "=r,l", [pointer], dtype=pointer.dtype.element_ty, is_pure=False, pack=1
    )


@triton.jit
def poll_each(ctx: tl.tensor, pointers: tl.tensor) -> tl.tensor:
    """poll of a block of int64 pointers. Not by volatile loads: AMD's compiler drops that of a block, and then the loop."""
    if ctx.where == NVIDIA:
        return poll(ctx, pointers)
    if ctx.where == GFX90A:
        text: tl.constexpr = "global_load_dwordx2 $0, $1, off glc\n s_waitcnt vmcnt(0)"
    else:
        text: tl.constexpr = "global_load_dwordx2 $0, $1, off sc0 sc1\n s_waitcnt vmcnt(0)"
    return tl.inline_asm_elementwise(text, "=&v,v", [pointers], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def store_release(ctx: tl.tensor, pointer: tl.tensor, value: tl.tensor) -> None:
    """One thread stores a 64-bit word, after all the program's earlier stores; a barrier stands before."""
    if ctx.where == NVIDIA:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; "
            "@p st.release.sys.global.b64 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,l",
            [pointer, value],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.atomic_xchg(pointer, value, sem="release", scope="sys")


@triton.jit
def add_release(ctx: tl.tensor, pointer: tl.tensor, value: tl.tensor) -> None:
    """One thread adds to a 64-bit word, as store_release stores. Triton's own atomic has a second barrier on NVIDIA."""
    if ctx.where == NVIDIA:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; "
            "@p red.release.sys.global.add.u64 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,l",
            [pointer, value],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.atomic_add(pointer, value, sem="release", scope="sys")


@triton.jit
def store_release_each(ctx: tl.tensor, pointers: tl.tensor, value: tl.tensor, mask: tl.tensor) -> None:
    """store_release to a block of int64 pointers, one a thread."""
    if ctx.where == NVIDIA:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.u32 p, $3, 0; @p st.release.sys.global.b64 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,l,r",
            [pointers, value, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        release(ctx)
        tl.store(pointers, value, mask=mask, cache_modifier=".wt")  # to memory, through all caches


@triton.jit
def peek(ctx: tl.tensor, pointer: tl.tensor) -> tl.tensor:
    """An int64 as it is in memory now. No acquire: what follows need not wait for it."""
    if ctx.where == NVIDIA:
        return tl.inline_asm_elementwise(
            "ld.relaxed.sys.global.b64 $0, [$1];", "=l,l", [pointer], dtype=tl.int64, is_pure=False, pack=1
        )
    else:
        return tl.load(pointer, volatile=True)


@triton.jit
def nanoseconds(ctx: tl.tensor) -> tl.tensor:
    """A clock that all programs share."""
    if ctx.where == NVIDIA:
        return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    ticks = tl.inline_asm_elementwise(  # at 100 MHz
        "s_memrealtime $0\n s_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
    )
    return ticks * 10


@triton.jit
def pause(ctx: tl.tensor) -> None:
    """Between two polls: AMD's waves share their issue slots with those that compute."""
    if ctx.where != NVIDIA:
        run_amd("s_sleep 1")
