"""What the compiler refuses, in the words of all refusals, at the line of the kernel that is wrong."""

import pytest
import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from compiling import assembly
from kernels import F32, I32, I64, U64
from triton.compiler.errors import CompilationError


@triton.jit
def two_pointees(ctx, dest, source):
    dev.put(ctx, dest, source, 8, 0)


@triton.jit
def float_to_integer(ctx, word):
    dev.p(ctx, word, 1.5, 0)


@triton.jit
def float_tile_to_integers(ctx, word):
    lane = tl.arange(0, 32)
    dev.store(ctx, word + lane, lane.to(tl.float32), 0)


@triton.jit
def pointer_to_number(ctx, word):
    dev.p(ctx, word, word, 0)


@triton.jit
def no_pointer(ctx, word):
    dev.p(ctx, 5, 1, 0)


@triton.jit
def wrong_signal(ctx, word, data):
    dev.put_signal(ctx, data, data, 8, word, 1, dev.SIGNAL_ADD, 0)


@triton.jit
def no_comparison(ctx, word):
    dev.wait_until(ctx, word, 6, 1)


@triton.jit
def cannot_be_waited_on(ctx, word):
    dev.wait_until(ctx, word, dev.CMP_EQ, 1)


@triton.jit
def no_operation(ctx, word, data):
    dev.put_signal(ctx, data, data, 8, word, 1, 2, 0)


@triton.jit
def bits_of_a_float(ctx, word):
    dev.atomic_or(ctx, word, 1, 0)


@triton.jit
def small_atomic(ctx, word):
    dev.atomic_add(ctx, word, 1, 0)


@triton.jit
def block_of_pointers(ctx, data):
    dev.put(ctx, data + tl.arange(0, 8), data, 8, 0)


@triton.jit
def float_count(ctx, data):
    dev.get(ctx, data, data, 1.5, 0)


@triton.jit
def float_pe(ctx, data):
    dev.store(ctx, data, 1, 0.5)


@triton.jit
def no_pe(ctx, data):
    dev.put(ctx, data, data, 8, None)


@triton.jit
def no_order(ctx, data):
    dev.atomic_add(ctx, data, 1, 0, sem="seq_cst")


@triton.jit
def no_scope(ctx, data):
    dev.atomic_compare_swap(ctx, data, 1, 2, 0, scope="world")


@triton.jit
def block_for_one(ctx, data):
    dev.p(ctx, data, tl.arange(0, 8), 0)


@triton.jit
def without_context(ctx, word):
    dev.atomic_add(word, word, 1, 0)


@triton.jit
def float_stride(ctx, data):
    dev.iput(ctx, data, data, 1.5, 1, 8, 0)


@triton.jit
def blocks_of_two_pointees(ctx, data, other):
    dev.ibget(ctx, other, data, 2, 2, 2, 8, 0)


@triton.jit
def status_of_another_type(ctx, words, status):
    dev.wait_until_all(ctx, words, 8, status, dev.CMP_EQ, 1)


@triton.jit
def indices_of_another_type(ctx, words, indices):
    dev.test_some(ctx, words, 8, indices, None, dev.CMP_EQ, 1)


@triton.jit
def one_value_for_each(ctx, words):
    dev.wait_until_any_vector(ctx, words, 8, None, dev.CMP_EQ, 1)


@triton.jit
def values_for_all(ctx, words):
    dev.test_any(ctx, words, 8, None, dev.CMP_EQ, words)


@triton.jit
def fetch_of_another_type(ctx, word, fetch):
    dev.atomic_fetch_add_nbi(ctx, fetch, word, 1, 0)


@triton.jit
def pes_of_another_type(ctx, pes):
    dev.pe_quiet(ctx, pes, 1)


REFUSED = [
    (two_pointees, (F32, I32), "put: PE ?: source: got a pointer to int32; wants a pointer to fp32"),
    (float_to_integer, (I32,), "p: PE ?: value: got 1.5; wants an integer, for a pointer to int32"),
    (float_tile_to_integers, (I64,), "store: PE ?: value: got a block of fp32; wants an integer, for a pointer to int64"),
    (pointer_to_number, (F32,), "p: PE ?: value: got a pointer to fp32; wants a number, for a pointer to fp32"),
    (no_pointer, (F32,), "p: PE ?: dest: got 5; wants a pointer to symmetric memory"),
    (wrong_signal, (I64, F32), "put_signal: PE ?: sig_addr: got a pointer to int64; wants a pointer to uint64"),
    (no_comparison, (I64,), "wait_until: PE ?: cmp: got 6; wants one of dev.CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE"),
    (cannot_be_waited_on, (F32,), "wait_until: PE ?: ivar: got a pointer to fp32; wants one to int32, int64, uint32 or uint64"),
    (no_operation, (U64, F32), "put_signal: PE ?: sig_op: got 2; wants one of dev.SIGNAL_SET, SIGNAL_ADD"),
    (bits_of_a_float, (F32,), "atomic_or: PE ?: pointers: got a pointer to fp32; wants a pointer to an integer of 4 or 8 bytes"),
    (small_atomic, (torch.int16,), "atomic_add: PE ?: pointers: got a pointer to int16; wants a pointer to an integer or float"),
    (block_of_pointers, (F32,), "put: PE ?: dest: got a block of pointers to fp32; wants one pointer"),
    (float_count, (F32,), "get: PE ?: nelems: got 1.5; wants an integer"),
    (float_pe, (F32,), "store: PE ?: pe: got 0.5; wants an integer"),
    (no_pe, (F32,), "put: PE ?: pe: got None; wants an integer"),
    (no_order, (I32,), "atomic_add: PE ?: sem: got 'seq_cst'; wants one of relaxed, acquire, release, acq_rel"),
    (no_scope, (I32,), "atomic_compare_swap: PE ?: scope: got 'world'; wants one of sys, gpu, cta"),
    (block_for_one, (I32,), "p: PE ?: value: got a block of int32; wants a scalar, for one pointer"),
    (float_stride, (F32,), "iput: PE ?: dst: got 1.5; wants an integer"),
    (blocks_of_two_pointees, (F32, I32), "ibget: PE ?: dest: got a pointer to int32; wants a pointer to fp32"),
    (status_of_another_type, (I64, I64), "wait_until_all: PE ?: status: got a pointer to int64; wants a pointer to int32"),
    (indices_of_another_type, (I64, I64), "test_some: PE ?: indices: got a pointer to int64; wants a pointer to uint64"),
    (one_value_for_each, (I64,), "wait_until_any_vector: PE ?: cmp_values: got 1; wants a pointer to int64"),
    (values_for_all, (I64,), "test_any: PE ?: value: got a pointer to int64; wants an integer, for a pointer to int64"),
    (fetch_of_another_type, (I64, I32), "atomic_fetch_add_nbi: PE ?: fetch: got a pointer to int32; wants a pointer to int64"),
    (pes_of_another_type, (I64,), "pe_quiet: PE ?: target_pes: got a pointer to int64; wants a pointer to int32"),
    (without_context, (I64,), "atomic_add: PE ?: ctx: got a pointer to int64; wants a device context, which shmem.device_context() returns"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "operands", "words"), REFUSED, ids=[each[0].fn.__name__ for each in REFUSED])
def test_the_compiler_says_what_is_wrong_and_where(kernel, operands, words):
    with pytest.raises(CompilationError) as caught:
        assembly(kernel, "nvidia", *operands)
    said, line = [], str(caught.value)
    error = caught.value
    while error is not None:
        said.append(str(error))
        error = error.__cause__
    assert f"kernel {kernel.fn.__name__}: {words}" in said[-1]
    assert "dev." in line and "def " in line  # the kernel's own line
