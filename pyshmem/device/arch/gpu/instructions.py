"""The few instructions in which NVIDIA's and AMD's GPUs differ. ctx.where says at compile time which GPU it is.

An inline instruction runs in every thread, of a scalar too. The memory models behind them: PTX ISA, "Memory Consistency
Model"; LLVM's AMDGPUUsage, "Memory Model gfx90a" and "gfx942".
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language import core

from pyshmem.device.arch.gpu.blocks import arange, in_partition, num_warps, number, zeros
from pyshmem.device.arch.targets import is_gfx90a, is_nvidia


@core.builtin
def threads(ctx: tl.tensor, _semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """How many threads a program has. A jit function would do, but in Triton 3.6 those return no constants."""
    warps = num_warps(_semantic=_semantic, _generator=_generator).value
    return tl.constexpr(warps * (32 if is_nvidia(ctx.where) else 64))


@triton.jit
def run(text: tl.constexpr):
    """Instructions without operands."""
    tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def run_amd(text: tl.constexpr):
    tl.inline_asm_elementwise(text, "=v", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def drain(ctx):
    """Let this thread's stores and loads be done before the barrier that follows.

    AMD's barrier waits for local memory only, so that another wave's release after it would not cover them.
    """
    if not is_nvidia(ctx.where):
        run_amd("s_waitcnt vmcnt(0)")


@triton.jit
def barrier(ctx):
    """All threads of the program have come here, and see what they have stored. Of one warp too: bar.warp.sync is slower."""
    tl.debug_barrier()


@triton.jit
def release(ctx):
    """This thread's earlier stores are seen by every PE before its later ones."""
    if is_nvidia(ctx.where):
        run("fence.acq_rel.sys;")
    elif is_gfx90a(ctx.where):
        run_amd("buffer_wbl2\n s_waitcnt vmcnt(0)")
    else:
        run_amd("buffer_wbl2 sc0 sc1\n s_waitcnt vmcnt(0)")


@triton.jit
def complete(ctx):
    """release, and this thread's later loads come after it too: of two PEs that write and then read, one sees the other."""
    if is_nvidia(ctx.where):
        run("fence.sc.sys;")
    else:
        release(ctx)


@triton.jit
def acquire(ctx):
    """This thread's later loads see what was written before the word that a relaxed load of it saw."""
    if is_nvidia(ctx.where):
        run("fence.acq_rel.sys;")
    elif is_gfx90a(ctx.where):
        run_amd("s_waitcnt vmcnt(0)\n buffer_invl2\n buffer_wbinvl1_vol")
    else:
        run_amd("s_waitcnt vmcnt(0)\n buffer_inv sc0 sc1")


@triton.jit
def after_poll(ctx):
    """acquire, where a poll's own load is none."""
    if not is_nvidia(ctx.where):
        acquire(ctx)


@triton.jit
def poll(ctx, pointers):
    """4 or 8-byte words as they are in memory now, from one pointer or a block. An acquire on NVIDIA.

    Not by volatile loads on AMD: Triton 3.7 makes scalar-cache loads of them, 3.9 drops that of a block, and then the loop.
    """
    if is_nvidia(ctx.where):
        if pointers.dtype.element_ty.primitive_bitwidth == 64:
            return load_by("ld.acquire.sys.global.b64 $0, [$1];", "=l,l", pointers)
        else:
            return load_by("ld.acquire.sys.global.b32 $0, [$1];", "=r,l", pointers)
    else:
        return load_amd(ctx, pointers)


@triton.jit
def load_amd(ctx, pointers):
    """Words past all caches."""
    if pointers.dtype.element_ty.primitive_bitwidth == 64:
        if is_gfx90a(ctx.where):
            return load_by("global_load_dwordx2 $0, $1, off glc\n s_waitcnt vmcnt(0)", "=&v,v", pointers)
        else:
            return load_by("global_load_dwordx2 $0, $1, off sc0 sc1\n s_waitcnt vmcnt(0)", "=&v,v", pointers)
    else:
        if is_gfx90a(ctx.where):
            return load_by("global_load_dword $0, $1, off glc\n s_waitcnt vmcnt(0)", "=&v,v", pointers)
        else:
            return load_by("global_load_dword $0, $1, off sc0 sc1\n s_waitcnt vmcnt(0)", "=&v,v", pointers)


@triton.jit
def load_by(text: tl.constexpr, constraints: tl.constexpr, pointers):
    return tl.inline_asm_elementwise(
        text, constraints, [pointers], dtype=pointers.dtype.element_ty, is_pure=False, pack=1
    )


@triton.jit
def load_small_amd(ctx, pointer):
    """One element of 1 or 2 bytes past all caches, in the low bits of an int32."""
    if pointer.dtype.element_ty.primitive_bitwidth == 16:
        if is_gfx90a(ctx.where):
            text: tl.constexpr = "global_load_ushort $0, $1, off glc\n s_waitcnt vmcnt(0)"
        else:
            text: tl.constexpr = "global_load_ushort $0, $1, off sc0 sc1\n s_waitcnt vmcnt(0)"
    else:
        if is_gfx90a(ctx.where):
            text: tl.constexpr = "global_load_ubyte $0, $1, off glc\n s_waitcnt vmcnt(0)"
        else:
            text: tl.constexpr = "global_load_ubyte $0, $1, off sc0 sc1\n s_waitcnt vmcnt(0)"
    return tl.inline_asm_elementwise(text, "=&v,v", [pointer], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def read(ctx, pointer):
    """One element of any type as it is in memory now."""
    if is_nvidia(ctx.where):
        return tl.load(pointer, volatile=True)
    else:
        element: tl.constexpr = pointer.dtype.element_ty
        if element.primitive_bitwidth >= 32:
            return load_amd(ctx, pointer)
        elif element.primitive_bitwidth == 16:
            return load_small_amd(ctx, pointer).to(tl.int16).to(element, bitcast=True)
        elif element == tl.int1:
            return load_small_amd(ctx, pointer) != 0
        else:
            return load_small_amd(ctx, pointer).to(tl.int8).to(element, bitcast=True)


@triton.jit
def by_one_thread(instruction: tl.constexpr, pointer, value):
    """NVIDIA: an instruction on a word of 4 or 8 bytes and a value, by the program's first thread alone."""
    if in_partition():
        by_each_thread(instruction, pointer, value, arange(num_warps() * 32) == 0)
    else:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; @p "
            + instruction
            + " [$1], $2; mov.u32 $0, 0; }",
            "=r,l,l" if value.dtype.primitive_bitwidth == 64 else "=r,l,r",
            [pointer, value],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def by_each_thread(instruction: tl.constexpr, pointers, value, mask):
    """NVIDIA: an instruction on words of 4 or 8 bytes and values, one a thread."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.u32 p, $3, 0; @p " + instruction + " [$1], $2; mov.u32 $0, 0; }",
        "=r,l,l,r" if value.dtype.primitive_bitwidth == 64 else "=r,l,r,r",
        [pointers, value, mask.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.constexpr_function
def store_of(old: bool, nbytes: int) -> str:
    """AMD: the store of so many bytes through all caches. MI300's may else keep a peer's word until a quiet."""
    name = {1: "byte", 2: "short", 4: "dword", 8: "dwordx2"}[nbytes]
    return f"global_store_{name} $1, $2, off" + ("" if old else " sc0 sc1")


@triton.constexpr_function
def adding(old: bool) -> str:
    """AMD: the addition to 8 bytes at system scope, which returns nothing."""
    return "global_atomic_add_x2 $1, $2, off" + ("" if old else " sc1")


@triton.jit
def by_each_thread_amd(instruction: tl.constexpr, pointers, value, mask):
    """by_each_thread. Triton's own stores through all caches wait for each; its atomics first sort threads by address."""
    tl.inline_asm_elementwise(
        "v_cmp_ne_u32_e64 vcc, 0, $3\n s_and_saveexec_b64 $0, vcc\n " + instruction + "\n s_mov_b64 exec, $0",
        "=&s,v,v,v,~{vcc},~{scc}",
        [pointers, value, mask.to(tl.int32)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )


@triton.jit
def by_one_thread_amd(ctx, instruction: tl.constexpr, pointer, value):
    """by_each_thread_amd on one word, by the program's first thread alone."""
    count: tl.constexpr = threads(ctx)
    pointers, values = pointer + zeros(count, tl.int32), value + zeros(count, value.dtype)
    by_each_thread_amd(instruction, pointers, values, arange(count) == 0)


@triton.jit
def store_single(ctx, pointer, value):
    """One thread stores an element, through all caches; of 4 or 8 bytes a word that others may wait for."""
    bits: tl.constexpr = value.dtype.primitive_bitwidth
    if is_nvidia(ctx.where) and bits == 64:
        by_one_thread("st.relaxed.sys.global.b64", pointer, value.to(tl.int64, bitcast=True))
    elif is_nvidia(ctx.where) and bits == 32:
        by_one_thread("st.relaxed.sys.global.b32", pointer, value.to(tl.int32, bitcast=True))
    elif is_nvidia(ctx.where):
        tl.store(pointer, value)
    else:
        word: tl.constexpr = tl.int64 if bits == 64 else tl.int32
        same: tl.constexpr = tl.int8 if bits <= 8 else tl.int16 if bits == 16 else word
        whole = (value.to(same, bitcast=True) if bits > 1 else value).to(word)
        by_one_thread_amd(ctx, store_of(is_gfx90a(ctx.where), (bits + 7) // 8), pointer, whole)


@triton.jit
def store_release(ctx, pointer, value):
    """One thread stores a 64-bit word, after all the program's earlier stores; a barrier stands before."""
    if is_nvidia(ctx.where):
        by_one_thread("st.release.sys.global.b64", pointer, value)
    else:
        release(ctx)  # by hand: Triton 3.7's own release may not wait for what it writes back
        tl.atomic_xchg(pointer, value, sem="relaxed", scope="sys")


@triton.jit
def add_release(ctx, pointer, value):
    """One thread adds to a 64-bit word, as store_release stores. Triton's own atomic has a second barrier on NVIDIA."""
    if is_nvidia(ctx.where):
        by_one_thread("red.release.sys.global.add.u64", pointer, value)
    else:
        release(ctx)
        tl.atomic_add(pointer, value, sem="relaxed", scope="sys")


@triton.jit
def store_release_each(ctx, pointers, value, mask):
    """store_release to a block of int64 pointers, one a thread."""
    if is_nvidia(ctx.where):
        by_each_thread("st.release.sys.global.b64", pointers, value, mask)
    else:
        release(ctx)
        by_each_thread_amd(store_of(is_gfx90a(ctx.where), 8), pointers, value, mask)


@triton.jit
def add_one(ctx, pointer):
    """One thread adds 1 to a 64-bit word. It orders nothing."""
    if is_nvidia(ctx.where):
        by_one_thread("red.relaxed.sys.global.add.u64", pointer, number(1, tl.int64))
    else:
        by_one_thread_amd(ctx, adding(is_gfx90a(ctx.where)), pointer, number(1, tl.int64))


@triton.jit
def store_marked(ctx, pointers, words, mark, mask):
    """Store int32 words with a mark above each, 8 bytes at a time. It orders nothing: word and mark come together."""
    if is_nvidia(ctx.where):
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b64 d; mov.b64 d, {$2, $3}; setp.ne.u32 p, $4, 0;"
            " @p st.relaxed.sys.global.b64 [$1], d; mov.u32 $0, 0; }",
            "=r,l,r,r,r",
            [pointers, words, mark, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        marked = (words.to(tl.int64) & 0xFFFFFFFF) | (mark.to(tl.int64) << 32)
        by_each_thread_amd(store_of(is_gfx90a(ctx.where), 8), pointers, marked, mask)


@triton.jit
def peek(ctx, pointer):
    """An int64 as it is in memory now. No acquire: what follows need not wait for it."""
    if is_nvidia(ctx.where):
        return load_by("ld.relaxed.sys.global.b64 $0, [$1];", "=l,l", pointer)
    else:
        return load_amd(ctx, pointer)


@triton.jit
def follow():
    """In a kernel that was launched early: wait until the kernels in front of it have ended, and see what they stored.

    Then let the one behind it begin, which waits here for this one. Before NVIDIA's Hopper, and on AMD, there is no such.
    """
    run("griddepcontrol.wait;")
    run("griddepcontrol.launch_dependents;")


@triton.jit
def nanoseconds(ctx):
    """A clock that all programs share."""
    if is_nvidia(ctx.where):
        return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    ticks = tl.inline_asm_elementwise(  # at 100 MHz
        "s_memrealtime $0\n s_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
    )
    return ticks * 10


@triton.jit
def pause(ctx):
    """Between two polls: AMD's waves share their issue slots with those that compute."""
    if not is_nvidia(ctx.where):
        run_amd("s_sleep 1")
