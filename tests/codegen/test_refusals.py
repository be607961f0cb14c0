"""What the compiler refuses, in the words of all refusals, at the line of the kernel that is wrong."""

import pytest
import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from compiling import assembly
from kernels import F32, I32, I64, U64, call
from triton.compiler.errors import CompilationError

I16 = torch.int16


@triton.jit
def float_tile_to_integers(ctx, word):
    lane = tl.arange(0, 32)
    dev.store(ctx, word + lane, lane.to(tl.float32), 0)


@triton.jit
def block_of_pointers(ctx, data):
    dev.put(ctx, data + tl.arange(0, 8), data, 8, 0)


@triton.jit
def block_for_one(ctx, data):
    dev.p(ctx, data, tl.arange(0, 8), 0)


@triton.jit
def without_context(ctx, word):
    dev.atomic_add(word, word, 1, 0)


@triton.jit
def number_without_context(ctx, word):
    tl.store(word, dev.my_pe(None))


@triton.jit
def gather_without_context(ctx, word):
    dev.fcollect(None, word, word, 1)


@triton.jit
def swap_without_context(ctx, word):
    tl.store(word + tl.arange(0, 8), dev.all_to_all(None, tl.arange(0, 8)))


@triton.jit
def place_without_context(ctx, word):
    tl.store(word, dev.translate_pe(ctx, 0, None))


CONTEXT = "got None; expected a device context, which shmem.device_context() returns"
ONE_OF = "expected one of dev.CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE"
REFUSED = [  # a routine and its arguments
    (dev.put, (F32, I32, 8, 0), "put: PE ?: source: got a pointer to int32; expected a pointer to fp32"),
    (dev.p, (I32, 1.5, 0), "p: PE ?: value: got 1.5; expected an integer, for a pointer to int32"),
    (dev.p, (F32, F32, 0), "p: PE ?: value: got a pointer to fp32; expected a number, for a pointer to fp32"),
    (dev.p, (5, 1, 0), "p: PE ?: dest: got 5; expected a pointer to symmetric memory"),
    (dev.put_signal, (F32, F32, 8, I64, 1, dev.SIGNAL_ADD, 0),
     "put_signal: PE ?: sig_addr: got a pointer to int64; expected a pointer to uint64"),
    (dev.put_signal, (F32, F32, 8, U64, 1, 2, 0), "put_signal: PE ?: sig_op: got 2; expected one of dev.SIGNAL_SET, SIGNAL_ADD"),
    (dev.wait_until, (I64, 6, 1), f"wait_until: PE ?: cmp: got 6; {ONE_OF}"),
    (dev.wait_until, (F32, dev.CMP_EQ, 1), "wait_until: PE ?: ivar: got a pointer to fp32; expected one to int32, int64, uint32 or uint64"),
    (dev.atomic_or, (F32, 1, 0), "atomic_or: PE ?: pointers: got a pointer to fp32; expected a pointer to an integer of 4 or 8 bytes"),
    (dev.atomic_add, (I16, 1, 0), "atomic_add: PE ?: pointers: got a pointer to int16; expected a pointer to an integer or float"),
    (dev.get, (F32, F32, 1.5, 0), "get: PE ?: nelems: got 1.5; expected an integer"),
    (dev.store, (F32, 1, 0.5), "store: PE ?: pe: got 0.5; expected an integer"),
    (dev.put, (F32, F32, 8, None), "put: PE ?: pe: got None; expected an integer"),
    (dev.atomic_add, (I32, 1, 0, None, "seq_cst"), "atomic_add: PE ?: sem: got 'seq_cst'; expected one of relaxed, acquire, release, acq_rel"),
    (dev.atomic_add, (I32, 1, 0, None, "relaxed", "world"), "atomic_add: PE ?: scope: got 'world'; expected one of sys, gpu, cta"),
    (dev.iput, (F32, F32, 1.5, 1, 8, 0), "iput: PE ?: dst: got 1.5; expected an integer"),
    (dev.ibget, (I32, F32, 2, 2, 2, 8, 0), "ibget: PE ?: dest: got a pointer to int32; expected a pointer to fp32"),
    (dev.wait_until_all, (I64, 8, I64, dev.CMP_EQ, 1), "wait_until_all: PE ?: status: got a pointer to int64; expected a pointer to int32"),
    (dev.test_some, (I64, 8, I64, None, dev.CMP_EQ, 1), "test_some: PE ?: indices: got a pointer to int64; expected a pointer to uint64"),
    (dev.wait_until_any_vector, (I64, 8, None, dev.CMP_EQ, 1), "wait_until_any_vector: PE ?: cmp_values: got 1; expected a pointer to int64"),
    (dev.test_any, (I64, 8, None, dev.CMP_EQ, I64), "test_any: PE ?: value: got a pointer to int64; expected an integer, for a pointer to int64"),
    (dev.atomic_fetch_add_nbi, (I32, I64, 1, 0), "atomic_fetch_add_nbi: PE ?: fetch: got a pointer to int32; expected a pointer to int64"),
    (dev.pe_quiet, (I64, 1), "pe_quiet: PE ?: target_pes: got a pointer to int64; expected a pointer to int32"),
]  # fmt: skip
BY_KERNELS = [
    (float_tile_to_integers, I64, "store: PE ?: value: got a block of fp32; expected an integer, for a pointer to int64"),
    (block_of_pointers, F32, "put: PE ?: dest: got a block of pointers to fp32; expected one pointer"),
    (block_for_one, I32, "p: PE ?: value: got a block of int32; expected a scalar, for one pointer"),
    (without_context, I64, "atomic_add: PE ?: ctx: got a pointer to int64; expected a device context, which shmem.device_context() returns"),
    (number_without_context, I64, f"my_pe: PE ?: ctx: {CONTEXT}, as the first argument"),
    (gather_without_context, I64, f"fcollect: PE ?: ctx: {CONTEXT}, as the first argument"),
    (swap_without_context, I32, f"all_to_all: PE ?: ctx: {CONTEXT}, as the first argument"),
    (place_without_context, I64, f"translate_pe: PE ?: dest_ctx: {CONTEXT}"),
]  # fmt: skip


def said_by(kernel, *operands):
    """The compiler's message about a kernel, and what was said first."""
    with pytest.raises(CompilationError) as caught:
        assembly(kernel, "nvidia", *operands)
    first = caught.value
    while first.__cause__ is not None:
        first = first.__cause__
    return str(caught.value), str(first)


@pytest.mark.parametrize(("routine", "arguments", "words"), REFUSED, ids=[each[2].split(":")[0] for each in REFUSED])
def test_the_compiler_says_what_is_wrong(routine, arguments, words):
    given = tuple(each if isinstance(each, torch.dtype) else tl.constexpr(each) for each in arguments)
    assert f"kernel call: {words}" in said_by(call, given, routine)[1]


@pytest.mark.parametrize(("kernel", "operand", "words"), BY_KERNELS, ids=[each[0].fn.__name__ for each in BY_KERNELS])
def test_the_compiler_says_what_is_wrong_and_where(kernel, operand, words):
    where, said = said_by(kernel, operand)
    assert f"kernel {kernel.fn.__name__}: {words}" in said
    assert "dev." in where and "def " in where  # the kernel's own line
