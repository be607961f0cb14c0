"""Small programs of two PEs, each with one race or none: the decorator says which. One job runs all of them.

The division into conflicts, synchronization, atomics, non-blocking calls, kernels and others follows RMARaceBench (Schwitanski
et al., 2023); the programs are our own. Each gets zeroed symmetric memory: data x and y, signals f and g, and a private array.
"""

from types import SimpleNamespace

import pyshmem as shmem  # before triton
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

PROGRAMS = {}  # by name: whether it has a race
SET, ADD = shmem.SIGNAL.SET, shmem.SIGNAL.ADD


def race(program):
    PROGRAMS[program.__name__] = program, True
    return program


def ordered(program):
    PROGRAMS[program.__name__] = program, False
    return program


# ---- conflicts: which accesses may not meet ----


@race
def put_meets_load(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    else:
        m.x.sum()


@race
def put_meets_store(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    else:
        m.x.fill_(3)


@race
def get_meets_store(me, m):
    if me == 0:
        shmem.get(m.own, m.x, 1)
    else:
        m.x.fill_(3)


@ordered
def get_meets_load(me, m):
    if me == 0:
        shmem.get(m.own, m.x, 1)
    else:
        m.x.sum()


@race
def two_puts_meet(me, m):
    shmem.put(m.x, m.own, 0)


@race
def put_meets_get(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    else:
        shmem.get(m.own, m.x, 1)


@ordered
def two_gets_meet(me, m):
    shmem.get(m.own, m.x, 0)


@ordered
def halves_of_an_array(me, m):
    shmem.put(m.x[4 * me : 4 * me + 4], m.own[:4], 0)


@race
def halves_that_share_an_element(me, m):
    shmem.put(m.x[3 * me : 3 * me + 4], m.own[:4], 0)


@ordered
def even_and_odd_elements(me, m):
    shmem.iput(m.x[me:], m.own, 0, 2, 1, 4)


@race
def strided_elements_that_meet(me, m):
    shmem.iput(m.x, m.own, 0, 2 + me, 1, 3)


@race
def p_meets_g(me, m):
    if me == 0:
        shmem.p(m.x[1], 5, 1)
    else:
        shmem.g(m.x[1], 1)


@ordered
def p_beside_g(me, m):
    if me == 0:
        shmem.p(m.x[1], 5, 1)
    else:
        shmem.g(m.x[2], 1)


@ordered
def own_memory_only(me, m):
    m.x.fill_(me)
    m.x.add_(1)
    m.y.copy_(m.x)


@race
def own_put_meets_own_load(me, m):
    shmem.put(m.x, m.own, me)
    m.x.sum()


@ordered
def own_put_is_quiet(me, m):
    shmem.put(m.x, m.own, me)
    shmem.quiet()
    m.x.sum()


@race
def two_own_puts_in_any_order(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.put(m.x, m.own, 1)


@ordered
def two_own_puts_in_the_order_of_a_fence(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.fence()
        shmem.put(m.x, m.own, 1)


# ---- synchronization: barriers, signals, flags, fences, locks ----


@ordered
def barrier_between(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    shmem.barrier_all()
    m.x.sum()


@race
def barrier_too_late(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    else:
        m.x.sum()
    shmem.barrier_all()


@race
def sync_completes_no_put(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    shmem.sync_all()
    m.x.sum()


@ordered
def quiet_and_sync(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.quiet()
    shmem.sync_all()
    m.x.sum()


@race
def fence_and_sync(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.fence()
    shmem.sync_all()
    m.x.sum()


@ordered
def sync_orders_stores(me, m):
    m.x.fill_(me)
    shmem.sync_all()
    shmem.get(m.own, m.x, 1 - me)


@ordered
def signal_with_its_data(me, m):
    if me == 0:
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
    else:
        shmem.signal_wait_until(m.f, "==", 1)
        m.x.sum()


@race
def signal_waited_for_too_late(me, m):
    if me == 0:
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
    else:
        m.x.sum()
        shmem.signal_wait_until(m.f, "==", 1)


@race
def signal_of_other_data(me, m):
    if me == 0:
        shmem.put(m.y, m.own, 1)
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
    else:
        shmem.signal_wait_until(m.f, "==", 1)
        m.y.sum()


@ordered
def fence_before_the_signal(me, m):
    if me == 0:
        shmem.put(m.y, m.own, 1)
        shmem.fence()
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
    else:
        shmem.signal_wait_until(m.f, "==", 1)
        m.y.sum()


@race
def first_of_two_signals(me, m):
    if me == 0:
        shmem.put_signal(m.x, m.own, 1, m.f, 1, ADD)
        shmem.put_signal(m.y, m.own, 1, m.f, 1, ADD)
    else:
        shmem.signal_wait_until(m.f, ">=", 1)
        m.y.sum()


@ordered
def count_of_two_signals(me, m):
    if me == 0:
        shmem.put_signal(m.x, m.own, 1, m.f, 1, ADD)
        shmem.put_signal(m.y, m.own, 1, m.f, 1, ADD)
    else:
        shmem.signal_wait_until(m.f, ">=", 2)
        m.y.sum()


@race
def flag_without_fence(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.p(m.y[0], 1, 1)
    else:
        shmem.wait_until(m.y[0], "==", 1)
        m.x.sum()


@ordered
def flag_with_quiet(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.quiet()
        shmem.p(m.y[0], 1, 1)
    else:
        shmem.wait_until(m.y[0], "==", 1)
        m.x.sum()


@race
def fence_after_the_flag(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.p(m.y[0], 1, 1)
        shmem.fence()
    else:
        shmem.wait_until(m.y[0], "==", 1)
        m.x.sum()


@race
def wait_for_another_word(me, m):
    if me == 0:
        shmem.p(m.y[1], 1, 1)
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
    else:
        shmem.wait_until(m.y[1], "==", 1)
        m.x.sum()


@ordered
def there_and_back(me, m):
    if me == 0:
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
        shmem.signal_wait_until(m.g, "==", 1)
        shmem.put(m.x, m.own, 1)
    else:
        shmem.signal_wait_until(m.f, "==", 1)
        m.x.sum()
        shmem.signal_set(m.g, 1, 0)


@race
def no_way_back(me, m):
    if me == 0:
        shmem.put_signal(m.x, m.own, 1, m.f, 1, SET)
        shmem.put(m.x, m.own, 1)
    else:
        shmem.signal_wait_until(m.f, "==", 1)
        m.x.sum()


@ordered
def lock_around_both(me, m):
    shmem.set_lock(m.lock)
    shmem.p(m.x[0], shmem.g(m.x[0], 0) + 1, 0)
    shmem.clear_lock(m.lock)


@race
def lock_around_one(me, m):
    if me == 0:
        shmem.set_lock(m.lock)
        shmem.p(m.x[0], 1, 0)
        shmem.clear_lock(m.lock)
    else:
        shmem.p(m.x[0], 2, 0)


@ordered
def broadcast_of_what_was_stored(me, m):
    m.x.fill_(me)
    shmem.broadcast(m.y, m.x, 0)
    m.y.sum()


@race
def source_of_a_reduction_put_late(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
    shmem.sum_reduce(m.y, m.x)


# ---- atomics ----


@ordered
def atomics_meet(me, m):
    shmem.atomic_add(m.x[0], 1, 0)
    shmem.atomic_fetch_add(m.x[0], 1, 1)


@race
def atomic_meets_load(me, m):
    if me == 0:
        shmem.atomic_add(m.x[0], 1, 1)
    else:
        m.x[0].item()


@race
def atomic_meets_put(me, m):
    if me == 0:
        shmem.atomic_add(m.x[0], 1, 1)
    else:
        shmem.p(m.x[0], 1, 1)


@race
def atomic_meets_get(me, m):
    if me == 0:
        shmem.atomic_inc(m.x[0], 1)
    else:
        shmem.g(m.x[0], 1)


@ordered
def atomic_fetch_meets_atomic(me, m):
    if me == 0:
        shmem.atomic_set(m.x[0], 1, 1)
    else:
        shmem.atomic_fetch(m.x[0], 1)


@ordered
def atomic_flag_behind_a_fence(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.fence()
        shmem.atomic_add(m.y[0], 1, 1)
    else:
        shmem.wait_until(m.y[0], ">=", 1)
        m.x.sum()


@race
def atomic_flag_without_fence(me, m):
    if me == 0:
        shmem.put(m.x, m.own, 1)
        shmem.atomic_add(m.y[0], 1, 1)
    else:
        shmem.wait_until(m.y[0], ">=", 1)
        m.x.sum()


# ---- non-blocking calls ----


@race
def source_of_put_nbi_changed(me, m):
    shmem.put_nbi(m.x, m.own, 1 - me)
    m.own.fill_(4)


@ordered
def source_of_put_nbi_changed_after_quiet(me, m):
    shmem.put_nbi(m.x, m.own, 1 - me)
    shmem.quiet()
    m.own.fill_(4)


@race
def source_of_put_nbi_changed_after_fence(me, m):
    shmem.put_nbi(m.x, m.own, 1 - me)
    shmem.fence()
    m.own.fill_(4)


@race
def target_of_get_nbi_read(me, m):
    shmem.get_nbi(m.own, m.x, 1 - me)
    m.own.sum()


@ordered
def target_of_get_nbi_read_after_quiet(me, m):
    shmem.get_nbi(m.own, m.x, 1 - me)
    shmem.quiet()
    m.own.sum()


@ordered
def source_of_put_changed(me, m):
    shmem.put(m.x, m.own, 1 - me)
    m.own.fill_(4)


@ordered
def arrays_of_non_blocking_calls_let_go_of(me, m):
    for turn in range(8):
        shmem.put_nbi(m.x[turn : turn + 1], torch.tensor([turn]), 1 - me)
        shmem.get_nbi(torch.tensor([turn]), m.y[:1], 1 - me)


@ordered
def nothing_is_moved(me, m):
    shmem.put(m.x, m.own, 0, size=0)
    shmem.get(torch.ones(3), torch.ones(3), 0, size=0)


@race
def fetch_of_an_atomic_nbi_read(me, m):
    shmem.atomic_fetch_add_nbi(m.own[:1], m.x[0], 1, 0)
    m.own[0].item()


# ---- kernels: each that belongs to one program has its name ----


@triton.jit
def kernel_without_fence_kernel(ctx, x, own, f):
    dev.put(ctx, x, own, 8, 1)
    dev.put_signal(ctx, x + 8, own, 0, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_with_fence_kernel(ctx, x, own, f):
    dev.put(ctx, x, own, 8, 1)
    dev.fence(ctx)
    dev.put_signal(ctx, x + 8, own, 0, f, 1, dev.SIGNAL_SET, 1)


@triton.jit
def kernel_with_signal_set_kernel(ctx, x, own, f):
    dev.put(ctx, x, own, 8, 1)
    dev.signal_set(ctx, f, 1, 1)


@triton.jit
def wait_and_read(ctx, x, out, f):
    dev.signal_wait_until(ctx, f, dev.CMP_EQ, 1)
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 8))))


def sent_and_read(kernel, me, m):
    ctx = shmem.device_context()
    if me == 0:
        kernel[(1,)](ctx, m.x, m.own, m.f)
    else:
        wait_and_read[(1,)](ctx, m.x, m.y, m.f)


@race
def kernel_without_fence(me, m):
    sent_and_read(kernel_without_fence_kernel, me, m)


@ordered
def kernel_with_fence(me, m):
    sent_and_read(kernel_with_fence_kernel, me, m)


@ordered
def kernel_with_signal_set(me, m):
    sent_and_read(kernel_with_signal_set_kernel, me, m)


@triton.jit
def programs_write_one_word_kernel(x):
    tl.store(x, 1)


@triton.jit
def programs_write_their_own_words_kernel(x):
    tl.store(x + tl.program_id(0), 1)


@race
def programs_write_one_word(me, m):
    programs_write_one_word_kernel[(2,)](m.x)


@ordered
def programs_write_their_own_words(me, m):
    programs_write_their_own_words_kernel[(2,)](m.x)


@ordered
def kernel_after_a_kernel(me, m):
    programs_write_their_own_words_kernel[(1,)](m.x)
    programs_write_their_own_words_kernel[(1,)](m.x)


if __name__ == "__main__":
    shmem.init()
    for program, _ in PROGRAMS.values():
        (x, y), (f, g) = shmem.zeros(2, 8, dtype=torch.int64), shmem.zeros(2, dtype=torch.uint64)
        own, lock = torch.ones(8, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
        program(shmem.my_pe(), SimpleNamespace(x=x, y=y, f=f, g=g, own=own, lock=lock))
        shmem.barrier_all()
