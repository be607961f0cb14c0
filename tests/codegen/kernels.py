"""A kernel for every intrinsic, with the operands it is compiled for: dtypes stand for arrays, numbers for themselves."""

import pyshmem.device as dev
import torch
import triton
import triton.language as tl


@triton.jit
def call(ctx, arguments, routine: tl.constexpr):
    """Any routine: what no kernel below is needed for."""
    routine(ctx, *arguments)


def of(routine, *arguments):
    """The case of one call: kernel and operands."""
    return call, arguments, routine


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
def tile_then_set(ctx, x, signal, pe):
    dev.store(ctx, x + tl.arange(0, 1024), 1, pe)
    dev.signal_set(ctx, signal, 1, pe)


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
def strided(ctx, dest, source, n, pe):
    dev.iput(ctx, dest, source, 3, 2, n, pe)
    dev.iget(ctx, dest, source, 2, 3, n, pe)


@triton.jit
def blocks(ctx, dest, source, bsize, n, pe):
    dev.ibput(ctx, dest, source, bsize + 3, bsize, bsize, n, pe)
    dev.ibget(ctx, dest, source, bsize + 3, bsize, bsize, n, pe)


@triton.jit
def put_nbi(ctx, dest, source, n, pe):
    dev.put_nbi(ctx, dest, source, n, pe)
    dev.quiet(ctx)


@triton.jit
def get_nbi(ctx, dest, source, out, n, pe):
    dev.get_nbi(ctx, dest, source, n, pe)
    dev.quiet(ctx)
    tl.store(out, tl.load(dest + n - 1))


@triton.jit
def put_signal_nbi(ctx, dest, source, n, signal, pe, OP: tl.constexpr):
    dev.put_signal_nbi(ctx, dest, source, n, signal, 1, OP, pe)


@triton.jit
def pe_quiet(ctx, pes, n):
    dev.pe_quiet(ctx, pes, n)


@triton.jit
def translate_pe(ctx, out, pe):
    tl.store(out, dev.translate_pe(ctx, pe, ctx))


@triton.jit
def least_and_greatest(ctx, words, out, pe):
    lane = tl.arange(0, 64)
    dev.atomic_min(ctx, words + lane, 2, pe)
    dev.atomic_max(ctx, words + lane, 3, pe, mask=lane < 9)
    tl.store(out, dev.atomic_fetch_min(ctx, words, 2, pe))
    tl.store(out, dev.atomic_fetch_max(ctx, words, 3, pe))


@triton.jit
def fetches_nbi(ctx, words, out, pe):
    lane = tl.arange(0, 64)
    dev.atomic_fetch_add_nbi(ctx, out + lane, words + lane, 2, pe)
    dev.atomic_fetch_inc_nbi(ctx, out, words, pe)
    dev.atomic_swap_nbi(ctx, out + lane, words + lane, 2, pe, mask=lane < 9)
    dev.atomic_fetch_nbi(ctx, out, words, pe)
    dev.atomic_compare_swap_nbi(ctx, out, words, 2, 3, pe)


@triton.jit
def bitwise_nbi(ctx, words, out, pe):
    dev.atomic_fetch_and_nbi(ctx, out, words, 2, pe)
    dev.atomic_fetch_or_nbi(ctx, out, words, 2, pe)
    dev.atomic_fetch_xor_nbi(ctx, out, words, 2, pe)


@triton.jit
def wait_until_all(ctx, words, n, status, data, out, CMP: tl.constexpr):
    dev.wait_until_all(ctx, words, n, status, CMP, -1)
    lane = tl.arange(0, 128)
    tl.store(out + lane, tl.load(data + lane))


@triton.jit
def wait_until_any(ctx, words, n, status, data, out, CMP: tl.constexpr):
    found = dev.wait_until_any(ctx, words, n, status, CMP, -1)
    lane = tl.arange(0, 128)
    tl.store(out + lane, tl.load(data + lane) + found)


@triton.jit
def wait_until_some(ctx, words, n, indices, data, out, CMP: tl.constexpr):
    found = dev.wait_until_some(ctx, words, n, indices, None, CMP, -1)
    lane = tl.arange(0, 128)
    tl.store(out + lane, tl.load(data + lane) + found)


@triton.jit
def wait_vector(ctx, words, n, status, values, indices, out):
    dev.wait_until_all_vector(ctx, words, n, status, dev.CMP_EQ, values)
    tl.store(out, dev.wait_until_any_vector(ctx, words, n, status, dev.CMP_GE, values))
    tl.store(out, dev.wait_until_some_vector(ctx, words, n, indices, None, dev.CMP_LT, values))


@triton.jit
def test_all(ctx, words, n, status, out):
    tl.store(out, dev.test_all(ctx, words, n, status, dev.CMP_LT, 5).to(tl.int32))


@triton.jit
def test_any(ctx, words, n, status, out):
    tl.store(out, dev.test_any(ctx, words, n, status, dev.CMP_LT, 5).to(tl.int32))


@triton.jit
def test_some(ctx, words, n, indices, out):
    tl.store(out, dev.test_some(ctx, words, n, indices, None, dev.CMP_LT, 5).to(tl.int32))


@triton.jit
def test_vector(ctx, words, n, status, values, indices, out):
    tl.store(out, dev.test_all_vector(ctx, words, n, status, dev.CMP_EQ, values).to(tl.int32))
    tl.store(out, dev.test_any_vector(ctx, words, n, None, dev.CMP_NE, values).to(tl.int32))
    tl.store(out, dev.test_some_vector(ctx, words, n, indices, status, dev.CMP_GT, values).to(tl.int32))


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


@triton.jit
def put_to_all(ctx, dest, source, n):
    pe = 1
    while pe < dev.n_pes(ctx):
        dev.put(ctx, dest, source, n, pe)
        pe += 1


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
    (strided, F32, F32, 1000, 3),
    (blocks, torch.int16, torch.int16, 70, 9, 3),
    (put_nbi, F32, F32, 1000, 3),
    (get_nbi, F32, F32, F32, 1000, 3),
    (put_signal_nbi, F32, F32, 1000, U64, 3, 0),
    (pe_quiet, I32, 3),
    (translate_pe, I32, 3),
    (least_and_greatest, I32, I32, 3),
    (least_and_greatest, U64, U64, 3),
    (least_and_greatest, torch.float64, torch.float64, 3),
    (fetches_nbi, F32, F32, 3),
    (fetches_nbi, U64, U64, 3),
    (bitwise_nbi, U32, U32, 3),
    (wait_until_all, I64, 1000, I32, I64, I64, 2),
    (wait_until_any, U32, 1000, I32, I64, I64, 3),
    (wait_until_some, U64, 1000, U64, I64, I64, 1),
    (wait_vector, I32, 1000, I32, I32, U64, U64),
    (test_all, I64, 1000, I32, I32),
    (test_any, U64, 1000, I32, I32),
    (test_some, U32, 1000, U64, I32),
    (test_vector, U64, 1000, I32, U64, U64, I32),
]


def name_of(case):
    return "-".join([case[0].fn.__name__, *(str(each).removeprefix("torch.") for each in case[1:])])
