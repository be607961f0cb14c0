"""A kernel for every intrinsic, with the operands it is compiled for: dtypes stand for arrays, numbers for themselves."""

import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def put(ctx, dest, source, n, pe):
    dev.put(ctx, dest, source, n, pe)


@triton.jit
def get(ctx, dest, source, n, pe):
    dev.get(ctx, dest, source, n, pe)


@triton.jit
def p_and_g(ctx, word, pe):
    dev.p(ctx, word, dev.g(ctx, word + 1, pe) + 1, pe)


@triton.jit
def tiles(ctx, x, y, n, pe, BLOCK: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dev.store(ctx, y + lane, dev.load(ctx, x + lane, pe), pe)


@triton.jit
def tile_of_pes(ctx, x, y, pes, n):
    lane = tl.arange(0, 256)
    tl.store(dev.ptr(ctx, y + lane, tl.load(pes + lane)), 3, mask=lane < n)


@triton.jit
def put_signal(ctx, dest, source, n, signal, pe, OP: tl.constexpr):
    dev.put_signal(ctx, dest, source, n, signal, 1, OP, pe)


@triton.jit
def tile_then_signal(ctx, x, signal, pe):
    dev.store(ctx, x + tl.arange(0, 1024), 1, pe)
    dev.signal_add(ctx, signal, 1, pe)


@triton.jit
def signal_set(ctx, signal, pe):
    dev.signal_set(ctx, signal, 7, pe)


@triton.jit
def signal_add(ctx, signal, pe):
    dev.signal_add(ctx, signal, 7, pe)


@triton.jit
def signal_fetch(ctx, signal, out):
    tl.store(out, dev.signal_fetch(ctx, signal))


@triton.jit
def wait_then_read(ctx, signal, data, out, CMP: tl.constexpr):
    dev.signal_wait_until(ctx, signal, CMP, 12345)
    lane = tl.arange(0, 128)
    tl.store(out + lane, tl.load(data + lane))


@triton.jit
def wait_and_tell(ctx, signal, out):
    tl.store(out, dev.signal_wait_until(ctx, signal, dev.CMP_GE, 12345))


@triton.jit
def wait_until(ctx, word, CMP: tl.constexpr):
    dev.wait_until(ctx, word, CMP, -1)


@triton.jit
def test(ctx, word, out):
    tl.store(out, dev.test(ctx, word, dev.CMP_LT, 5).to(tl.int32))


@triton.jit
def fence(ctx, x, y, pe):
    lane = tl.arange(0, 1024)
    dev.store(ctx, x + lane, 1, pe)
    dev.fence(ctx)
    dev.store(ctx, y + lane, 2, pe)


@triton.jit
def quiet(ctx):
    dev.quiet(ctx)


@triton.jit
def barrier_all(ctx, x, pe):
    dev.store(ctx, x + tl.arange(0, 1024), 1, pe)
    dev.barrier_all(ctx)


@triton.jit
def sync_twice(ctx):
    dev.sync_all(ctx)
    dev.sync_all(ctx)


@triton.jit
def atomics(ctx, words, out, pe):
    lane = tl.arange(0, 64)
    dev.atomic_add(ctx, words + lane, 2, pe)
    dev.atomic_inc(ctx, words + lane, pe)
    dev.atomic_set(ctx, words + lane, 3, pe, mask=lane < 9)
    tl.store(out + lane, dev.atomic_fetch_add(ctx, words + lane, 2, pe))
    tl.store(out + lane, dev.atomic_fetch_inc(ctx, words + lane, pe))
    tl.store(out + lane, dev.atomic_swap(ctx, words + lane, 2, pe))
    tl.store(out + lane, dev.atomic_fetch(ctx, words + lane, pe))
    tl.store(out + lane, dev.atomic_compare_swap(ctx, words + lane, 2, 3, pe))


@triton.jit
def bitwise(ctx, words, out, pe):
    dev.atomic_and(ctx, words, 2, pe)
    dev.atomic_or(ctx, words, 2, pe)
    dev.atomic_xor(ctx, words, 2, pe)
    tl.store(out, dev.atomic_fetch_and(ctx, words, 2, pe))
    tl.store(out, dev.atomic_fetch_or(ctx, words, 2, pe))
    tl.store(out, dev.atomic_fetch_xor(ctx, words, 2, pe))


@triton.jit
def fetch_or(ctx, words, out, pe):
    tl.store(out, dev.atomic_fetch_or(ctx, words, 2, pe))


@triton.jit
def ring(ctx, dest, source, n, signal):
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put_signal(ctx, dest, source, n, signal, 1, dev.SIGNAL_ADD, right)
    dev.signal_wait_until(ctx, signal, dev.CMP_GE, 1)


F32, I32, U32, I64, U64 = torch.float32, torch.int32, torch.uint32, torch.int64, torch.uint64
EVERY = [
    (put, F32, F32, 1000, 3),
    (put, torch.int8, torch.int8, 1000, 3),
    (put, torch.bool, torch.bool, 1000, 3),
    (put, torch.float64, torch.float64, 1, 1),
    (get, torch.bfloat16, torch.bfloat16, 1 << 40, 3),
    (p_and_g, torch.float16, 3),
    (p_and_g, U64, 3),
    (tiles, F32, F32, 1000, 3, 1024),
    (tile_of_pes, I32, I32, I32, 100),
    (put_signal, F32, F32, 1000, U64, 3, 0),
    (put_signal, F32, F32, 1000, U64, 3, 1),
    (tile_then_signal, F32, U64, 3),
    (signal_set, U64, 3),
    (signal_add, U64, 3),
    (signal_fetch, U64, U64),
    *[(wait_then_read, U64, F32, F32, cmp) for cmp in (0, 3, 5)],
    (wait_and_tell, U64, U64),
    *[(wait_until, dtype, cmp) for dtype, cmp in ((I32, 1), (U32, 2), (I64, 4), (U64, 5))],
    (test, I32, I32),
    (test, U64, I32),
    (fence, F32, F32, 3),
    (quiet,),
    (barrier_all, F32, 3),
    (sync_twice,),
    (atomics, I32, I32, 3),
    (atomics, U64, U64, 3),
    (atomics, F32, F32, 3),
    (bitwise, U32, U32, 3),
    (fetch_or, I64, I64, 3),
    (ring, F32, F32, 1000, U64),
]


def name_of(case):
    return "-".join([case[0].fn.__name__, *(str(each).removeprefix("torch.") for each in case[1:])])
