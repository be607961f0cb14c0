"""Kernels that benchmarks.gpu times: ours through pyshmem.device, and one written by hand to compare with."""

from __future__ import annotations

import triton
import triton.language as tl

import pyshmem.device as dev


@triton.jit
def put_shares(ctx, dest, source, nelems, pe):
    """Each program puts its share of ``source`` to ``pe``."""
    share = tl.cdiv(tl.cdiv(nelems, tl.num_programs(0)), 64) * 64
    start = tl.program_id(0) * share
    dev.put(ctx, dest + start, source + start, tl.minimum(share, nelems - start), pe)


@triton.jit
def get_shares(ctx, dest, source, nelems, pe):
    """Each program gets its share of ``source`` on ``pe``."""
    share = tl.cdiv(tl.cdiv(nelems, tl.num_programs(0)), 64) * 64
    start = tl.program_id(0) * share
    dev.get(ctx, dest + start, source + start, tl.minimum(share, nelems - start), pe)


@triton.jit
def put_to_all(ctx, dest, source, nelems):
    """Programs take turns at the peers: each peer gets all of ``source``, into the sender's row of ``dest``."""
    peers = dev.n_pes(ctx) - 1
    peer = (dev.my_pe(ctx) + 1 + tl.program_id(0) % peers) % dev.n_pes(ctx)
    programs = tl.num_programs(0) // peers
    share = tl.cdiv(tl.cdiv(nelems, programs), 64) * 64
    start = (tl.program_id(0) // peers) * share
    row = dest + dev.my_pe(ctx).to(tl.int64) * nelems
    dev.put(ctx, row + start, source + start, tl.minimum(share, nelems - start), peer)


@triton.jit
def ping_pong(ctx, flag, first, rounds):
    """A signal goes back and forth between PEs 0 and 1; values go on from ``first``."""
    me = dev.my_pe(ctx)
    for turn in range(first, first + rounds):
        if me == 0:
            dev.signal_set(ctx, flag, turn, 1)
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, turn)
        else:
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, turn)
            dev.signal_set(ctx, flag, turn, 0)


@triton.jit
def wait_by_hand(flag, turn):
    """Poll as NVIDIA's memory model has it, a million times at most."""
    seen = tl.full([], -1, tl.int64)
    polls = 0
    while (seen != turn) & (polls < 1000000):
        seen = tl.inline_asm_elementwise(
            "ld.global.acquire.sys.b64 $0, [$1];", "=l,l", [flag], dtype=tl.int64, is_pure=False, pack=1
        )
        polls += 1


@triton.jit
def ping_pong_by_hand(flag, there, first, rounds, ME: tl.constexpr):
    """The same with the peer's address as an argument."""
    for turn in range(first, first + rounds):
        value = turn.to(tl.int64)
        if ME == 0:
            tl.atomic_xchg(there, value, sem="release", scope="sys")
            wait_by_hand(flag, value)
        else:
            wait_by_hand(flag, value)
            tl.atomic_xchg(there, value, sem="release", scope="sys")


@triton.jit
def nothing(pointer):
    """A kernel that costs its launch."""
    tl.store(pointer, 1)


@triton.jit
def ping_pong_payload(ctx, data, source, nelems, flag, first, rounds):
    """ping_pong with a payload in front of each signal."""
    me = dev.my_pe(ctx)
    for turn in range(first, first + rounds):
        if me == 0:
            dev.put_signal(ctx, data, source, nelems, flag, turn, dev.SIGNAL_SET, 1)
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, turn)
        else:
            dev.signal_wait_until(ctx, flag, dev.CMP_EQ, turn)
            dev.put_signal(ctx, data, source, nelems, flag, turn, dev.SIGNAL_SET, 0)


@triton.jit
def barriers(ctx, turns):
    for _ in range(turns):
        dev.barrier_all(ctx)


@triton.jit
def reductions(ctx, out, turns, COUNT: tl.constexpr):
    """Each sum is the next one's operand: nothing overlaps."""
    lane = tl.arange(0, COUNT)
    value = (lane * 0 + 1).to(tl.bfloat16)
    for _ in range(turns):
        value = (dev.all_reduce(ctx, value, "sum") / dev.n_pes(ctx)).to(tl.bfloat16)
    tl.store(out + lane, value)
