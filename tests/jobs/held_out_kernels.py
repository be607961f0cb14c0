"""The kernels of labelled_held_out.txt: each belongs to the program of its name."""

import pyshmem  # noqa: F401, before triton
import pyshmem.device as dev
import triton
import triton.language as tl


@triton.jit
def kernel_p_without_fence_kernel(ctx, x, y, f):
    dev.p(ctx, x, 5, 1)
    dev.put_signal(ctx, y, y, 1, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_p_with_quiet_kernel(ctx, x, y, f):
    dev.p(ctx, x, 5, 1)
    dev.quiet(ctx)
    dev.put_signal(ctx, y, y, 1, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_iputs_interleave_kernel(ctx, x, own):
    dev.iput(ctx, x + tl.program_id(0), own, 2, 1, 4, 1)


@triton.jit
def kernel_iputs_meet_kernel(ctx, x, own):
    dev.iput(ctx, x + 2 * tl.program_id(0), own, 2, 1, 3, 1)


@triton.jit
def kernel_put_nbi_and_store_kernel(ctx, x, y):
    dev.put_nbi(ctx, x, y, 8, 1)
    tl.store(y + 7, 3)


@triton.jit
def kernel_put_nbi_quiet_and_store_kernel(ctx, x, y):
    dev.put_nbi(ctx, x, y, 8, 1)
    dev.quiet(ctx)
    tl.store(y + 7, 3)


@triton.jit
def kernel_barrier_between_kernel(ctx, x, z, own):
    dev.put(ctx, x, own, 8, 1 - dev.my_pe(ctx))
    dev.barrier_all(ctx)
    tl.store(z, tl.sum(tl.load(x + tl.arange(0, 8))))


@triton.jit
def kernel_sync_between_kernel(ctx, x, z, own):
    dev.put(ctx, x, own, 8, 1 - dev.my_pe(ctx))
    dev.sync_all(ctx)
    tl.store(z, tl.sum(tl.load(x + tl.arange(0, 8))))


@triton.jit
def kernel_atomic_meets_load_kernel(ctx, x):
    dev.atomic_add(ctx, x, 1, 1)


@triton.jit
def kernel_atomic_meets_atomic_kernel(ctx, x):
    dev.atomic_add(ctx, x, 1, 1)
    dev.atomic_fetch(ctx, x, 1)


@triton.jit
def one_program_puts_another_signals_kernel(ctx, x, own, f):
    if tl.program_id(0) == 0:
        dev.put(ctx, x, own, 8, 1)
    else:
        dev.signal_set(ctx, f, 1, 1)


@triton.jit
def kernel_tests_until_it_holds_kernel(ctx, x, z, f):
    while dev.test(ctx, f, dev.CMP_EQ, 1) == 0:
        pass
    tl.store(z, tl.sum(tl.load(x + tl.arange(0, 8))))


@triton.jit
def kernel_loads_of_another_pe_kernel(ctx, x, z):
    tl.store(z, tl.sum(dev.load(ctx, x + tl.arange(0, 8), 1)))
