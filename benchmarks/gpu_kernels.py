"""Kernels that suites on GPUs time: ours through pyshmem.device, and a barrier written by hand to compare with."""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev


@triton.jit
def read_all(source, found, nelems, BLOCK: tl.constexpr):
    """Read int32 numbers in blocks, and store their exclusive or, a block for each program."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int32)
    for start in range(tl.program_id(0) * BLOCK, nelems, tl.num_programs(0) * BLOCK):
        total ^= tl.load(source + start + lane, mask=start + lane < nelems, other=0)
    tl.store(found + tl.program_id(0) * BLOCK + lane, total)


@triton.jit
def nothing(pointer):
    """A kernel that costs its launch."""
    tl.store(pointer, 1)


@triton.jit
def ping_pong_payload(ctx, data, source, nelems, flag, first, rounds):
    """A payload and a signal go back and forth between PEs 0 and 1; values of the signal go on from ``first``."""
    me = dev.my_pe(ctx)
    for turn in range(first, first + rounds):
        if me == 0:
            dev.put_signal(ctx, data, source, nelems, flag, turn, dev.SIGNAL_SET, 1)
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, turn)
        else:
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, turn)
            dev.put_signal(ctx, data, source, nelems, flag, turn, dev.SIGNAL_SET, 0)


@triton.jit
def barriers_by_hand(flags, stride, me, members, first, turns):
    """Barriers of flags with a number that this kernel alone knows, and goes on from ``first``; of a warp, a PE each lane.

    flags: an int64 for each PE.  stride: bytes from a PE's flags to the next PE's.  A wait polls a million times at most.
    """
    lane = tl.arange(0, 32)
    inside = (lane < members).to(tl.int32)
    there = (flags.to(tl.int64) + (lane - me) * stride + 8 * me).to(tl.pointer_type(tl.int64))
    for turn in range(first, first + turns):
        number = tl.full([32], 0, tl.int64) + turn
        tl.debug_barrier()
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.u32 p, $3, 0; @p st.release.sys.global.b64 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,l,r", [there, number, inside], tl.int32, False, 1,
        )  # fmt: skip
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b64 seen; mov.u32 $0, 0; setp.eq.u32 p, $3, 0; @p bra DONE; AGAIN: add.u32 $0, $0, 1;"
            " ld.acquire.sys.global.b64 seen, [$1]; setp.ge.s64 p, seen, $2; @p bra DONE;"
            " setp.lt.u32 p, $0, 1000000; @p bra AGAIN; DONE: }",
            "=&r,l,l,r", [flags + lane, number, inside], tl.int32, False, 1,
        )  # fmt: skip
        tl.debug_barrier()


@triton.jit
def barriers(ctx, turns):
    for _ in range(turns):
        dev.barrier_all(ctx)


@triton.jit
def reductions(ctx, out, turns, COUNT: tl.constexpr):
    """Each sum is the next one's operand: nothing overlaps."""
    lane = tl.arange(0, COUNT)
    value = (lane * 0 + 1).to(tl.float32).to(tl.bfloat16)  # of an integer 1 Triton 3.7's interpreter makes 1e-40
    for _ in range(turns):
        value = (dev.all_reduce(ctx, value, "sum") / dev.n_pes(ctx)).to(tl.bfloat16)
    tl.store(out + lane, value)


@triton.jit
def barriers_seen(ctx, word, wrong, turns):
    """Count the barriers after which the number of the PE on the left had not arrived. Not timed."""
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    missed = 0
    for turn in range(1, turns + 1):
        dev.p(ctx, word, turn, right)
        dev.barrier_all(ctx)
        missed += (dev.g(ctx, word, dev.my_pe(ctx)) != turn).to(tl.int32)
        dev.barrier_all(ctx)
    tl.store(wrong, missed)
