"""The instructions in which NVIDIA's and AMD's GPUs differ. ctx.where identifies the GPU at compile time.

An inline instruction runs in every thread, of a scalar too. The memory models behind them: PTX ISA, "Memory Consistency
Model"; LLVM's AMDGPUUsage, "Memory Model gfx90a" and "gfx942".
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language import core

from pyshmem.device.arch.gpu.blocks import arange, in_partition, num_warps, number, zeros
from pyshmem.device.arch.targets import is_gfx90a, is_nvidia, nanoseconds_of_tick


@core.builtin
def threads(ctx: tl.tensor, _semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Return the number of threads of a program. It is a builtin because jit functions of Triton 3.6 return no constants."""
    warps = num_warps(_semantic=_semantic, _generator=_generator).value
    return tl.constexpr(warps * (32 if is_nvidia(ctx.where) else 64))


@triton.jit
def run(text: tl.constexpr):
    """Execute instructions without operands."""
    tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def run_amd(text: tl.constexpr):
    tl.inline_asm_elementwise(text, "=v", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def drain(ctx):
    """Complete this thread's loads and stores before the barrier that follows.

    AMD's barrier waits for local memory only, so that another wave's release after it would not cover them.
    """
    if not is_nvidia(ctx.where):
        run_amd("s_waitcnt vmcnt(0)")


@triton.jit
def barrier(ctx):
    """Wait for all threads of the program and make their stores visible to each other; bar.warp.sync is slower."""
    tl.debug_barrier()


@triton.jit
def release(ctx):
    """Order this thread's earlier stores before its later ones, for every PE."""
    if is_nvidia(ctx.where):
        run("fence.acq_rel.sys;")
    elif is_gfx90a(ctx.where):
        run_amd("buffer_wbl2\n s_waitcnt vmcnt(0)")
    else:
        run_amd("buffer_wbl2 sc0 sc1\n s_waitcnt vmcnt(0)")


@triton.jit
def complete(ctx):
    """Release, and order later loads too: if two PEs store and then load, at least one sees the other's store."""
    if is_nvidia(ctx.where):
        run("fence.sc.sys;")
    else:
        release(ctx)


@triton.jit
def acquire(ctx):
    """Order this thread's later loads after an earlier relaxed load, as an acquire."""
    if is_nvidia(ctx.where):
        run("fence.acq_rel.sys;")
    elif is_gfx90a(ctx.where):
        run_amd("s_waitcnt vmcnt(0)\n buffer_invl2\n buffer_wbinvl1_vol")
    else:
        run_amd("s_waitcnt vmcnt(0)\n buffer_inv sc0 sc1")


@triton.jit
def after_poll(ctx):
    """Execute an acquire if poll's loads do not acquire."""
    if not is_nvidia(ctx.where):
        acquire(ctx)


@triton.jit
def poll(ctx, pointers):
    """Load words of 4 or 8 bytes from memory, by one pointer or a block. On NVIDIA the load is an acquire.

    On AMD it is not a volatile load: Triton 3.7 compiles it to a load from the scalar cache, and Triton 3.9 removes that of
    a block, and then the loop.
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
    """Load words, bypassing all caches."""
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
    """Load an element of 1 or 2 bytes into the low bits of an int32, bypassing all caches."""
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
    """Load one element of any type from memory."""
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
    """NVIDIA: execute an instruction on a word of 4 or 8 bytes and a value, in the program's first thread only."""
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
    """NVIDIA: execute an instruction on words of 4 or 8 bytes and values, one per thread."""
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
    """AMD: return the store of ``nbytes`` through all caches. Without it, an MI300 may keep a peer's word until a quiet."""
    name = {1: "byte", 2: "short", 4: "dword", 8: "dwordx2"}[nbytes]
    return f"global_store_{name} $1, $2, off" + ("" if old else " sc0 sc1")


@triton.constexpr_function
def adding(old: bool) -> str:
    """AMD: return the atomic addition to 8 bytes at system scope without a result."""
    return "global_atomic_add_x2 $1, $2, off" + ("" if old else " sc1")


@triton.jit
def by_each_thread_amd(instruction: tl.constexpr, pointers, value, mask):
    """Do what by_each_thread does. Triton's own stores through all caches wait for each; its atomics group threads first."""
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
    """Execute an instruction on one word and a value, in the program's first thread only."""
    count: tl.constexpr = threads(ctx)
    pointers, values = pointer + zeros(count, tl.int32), value + zeros(count, value.dtype)
    by_each_thread_amd(instruction, pointers, values, arange(count) == 0)


@triton.jit
def store_single(ctx, pointer, value):
    """Store an element in one thread, through all caches. Others may wait for an element of 4 or 8 bytes."""
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
    """Store a 64-bit word in one thread, after all earlier stores of the program. The caller executes a barrier first."""
    if is_nvidia(ctx.where):
        by_one_thread("st.release.sys.global.b64", pointer, value)
    else:
        release(ctx)  # by hand: Triton 3.7's own release may not wait for what it writes back
        tl.atomic_xchg(pointer, value, sem="relaxed", scope="sys")


@triton.jit
def add_release(ctx, pointer, value):
    """Add to a 64-bit word in one thread, as a release. Triton's own atomic has a second barrier on NVIDIA."""
    if is_nvidia(ctx.where):
        by_one_thread("red.release.sys.global.add.u64", pointer, value)
    else:
        release(ctx)
        tl.atomic_add(pointer, value, sem="relaxed", scope="sys")


@triton.jit
def store_release_each(ctx, pointers, value, mask):
    """Do what store_release does, for a block of int64 pointers, one per thread."""
    if is_nvidia(ctx.where):
        by_each_thread("st.release.sys.global.b64", pointers, value, mask)
    else:
        release(ctx)
        by_each_thread_amd(store_of(is_gfx90a(ctx.where), 8), pointers, value, mask)


@triton.jit
def add_one(ctx, pointer):
    """Add 1 to a 64-bit word in one thread, relaxed."""
    if is_nvidia(ctx.where):
        by_one_thread("red.relaxed.sys.global.add.u64", pointer, number(1, tl.int64))
    else:
        by_one_thread_amd(ctx, adding(is_gfx90a(ctx.where)), pointer, number(1, tl.int64))


@triton.jit
def store_marked(ctx, pointers, words, mark, mask):
    """Store int32 words, each with a mark in the upper half of 8 bytes, relaxed. A word and its mark arrive together."""
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
    """Load an int64 from memory, relaxed, so that later accesses need not wait for it."""
    if is_nvidia(ctx.where):
        return load_by("ld.relaxed.sys.global.b64 $0, [$1];", "=l,l", pointer)
    else:
        return load_amd(ctx, pointer)


@triton.jit
def follow():
    """In a kernel launched early (programmatic dependent launch), wait until its predecessors have ended.

    Their stores are visible afterwards, and the next kernel may begin; it waits here for this one. Only NVIDIA's GPUs since
    Hopper have such launches.
    """
    run("griddepcontrol.wait;")
    run("griddepcontrol.launch_dependents;")


@triton.jit
def nanoseconds(ctx):
    """Read a clock that all programs share."""
    if is_nvidia(ctx.where):
        return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    ticks = tl.inline_asm_elementwise(
        "s_memrealtime $0\n s_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
    )
    return ticks * nanoseconds_of_tick(ctx.where)


@triton.jit
def multiprocessor(ctx):
    """Return the multiprocessor's number; on AMD those of XCC, shader engine, array and compute unit as one."""
    if is_nvidia(ctx.where):
        return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    unit = tl.inline_asm_elementwise(
        "s_getreg_b32 $0, hwreg(HW_REG_HW_ID, 8, 8)", "=s", [], dtype=tl.int32, is_pure=False, pack=1
    )
    if is_gfx90a(ctx.where):
        return unit
    return unit | (
        tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID, 0, 4)", "=s", [], dtype=tl.int32, is_pure=False, pack=1
        )
        << 8
    )


@triton.jit
def pause(ctx, polls):
    """Pause between two polls. polls: those that the wait has executed since it last read the clock.

    AMD: always, because polling waves share issue slots with computing ones.
    NVIDIA: after 64 polls, about 20 us, because many polling programs slow down what other PEs store here, up to twentyfold.
        The loops of spinning pause alike.
    """
    if is_nvidia(ctx.where):
        text: tl.constexpr = "{ .reg .pred p; setp.ge.s32 p, $1, 64; @p nanosleep.u32 1000; mov.b32 $0, 0; }"
        tl.inline_asm_elementwise(text, "=r,r", [polls], dtype=tl.int32, is_pure=False, pack=1)
    else:
        run_amd("s_sleep 1")
