"""Programs of usual mistakes with one-sided calls, and of what is right: double buffers, halos, rings, locks, counters, kernels.

Run on 3 PEs. A finding names the function of its program, or the kernel that has its name.
"""

import numpy as np
import pyshmem as shmem  # before triton
import pyshmem.device as dev
import torch
import triton
import triton.language as tl

RACES: dict[str, bool] = {}  # by the names of the programs
SET, ADD = shmem.SIGNAL.SET, shmem.SIGNAL.ADD


def race(program):
    RACES[program.__name__] = True
    return program


def ordered(program):
    RACES[program.__name__] = False
    return program


def words(*shape):
    return shmem.zeros(*shape, dtype=torch.int64)


def signals(count=1):
    return shmem.zeros(count, dtype=torch.uint64)


def ones(count):
    return torch.ones(count, dtype=torch.int64)


@triton.jit
def fill(x, value, SIZE: tl.constexpr):
    tl.store(x + tl.program_id(0) * SIZE + tl.arange(0, SIZE), value)


@triton.jit
def tiles_that_overlap_kernel(x, n, STEP: tl.constexpr, SIZE: tl.constexpr):
    places = tl.program_id(0) * STEP + tl.arange(0, SIZE)
    tl.store(x + places, places, mask=places < n)


@triton.jit
def tiles_with_a_mask_kernel(x, n, STEP: tl.constexpr, SIZE: tl.constexpr):
    places = tl.program_id(0) * STEP + tl.arange(0, SIZE)
    tl.store(x + places, places, mask=places < n)


@triton.jit
def programs_that_read_their_neighbours_kernel(x, y, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(x + places, places)
    tl.store(y + places, tl.load(x + (places + 1) % (4 * SIZE)))


@triton.jit
def smooth(x, y, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + places, tl.load(x + (places + 1) % (4 * SIZE)))


@triton.jit
def send(ctx, x, own, sig, peer, FENCED: tl.constexpr):
    dev.put_nbi(ctx, x, own, 32, peer)
    if FENCED:
        dev.fence(ctx)
    dev.put_signal(ctx, x + 32, own, 32, sig, 1, dev.SIGNAL_SET, peer)


@race
def double_buffer_without_second_flag():
    buf, sig = words(2, 64), signals()
    if me == 0:
        for i in range(5):
            shmem.put_signal(buf[i % 2], torch.full((64,), i), 1, sig, i + 1, SET)
            shmem.quiet()
    elif me == 1:
        for i in range(5):
            shmem.signal_wait_until(sig, ">=", i + 1)
            buf[i % 2].sum()


@ordered
def double_buffer_with_acknowledgement():
    buf, sig, ack = words(2, 64), signals(), signals()
    if me == 0:
        for i in range(5):
            if i >= 2:
                shmem.signal_wait_until(ack, ">=", i - 1)
            shmem.put_signal(buf[i % 2], torch.full((64,), i), 1, sig, i + 1, SET)
            shmem.quiet()
    elif me == 1:
        for i in range(5):
            shmem.signal_wait_until(sig, ">=", i + 1)
            buf[i % 2].sum()
            shmem.signal_add(ack, 1, 0)


@race
def double_buffer_acknowledged_before_it_is_read():
    buf, sig, ack = words(2, 64), signals(), signals()
    if me == 0:
        for i in range(5):
            if i >= 2:
                shmem.signal_wait_until(ack, ">=", i - 1)
            shmem.put_signal(buf[i % 2], torch.full((64,), i), 1, sig, i + 1, SET)
            shmem.quiet()
    elif me == 1:
        for i in range(5):
            shmem.signal_wait_until(sig, ">=", i + 1)
            shmem.signal_add(ack, 1, 0)
            buf[i % 2].sum()


@race
def signal_value_used_twice():
    x, y, sig = words(64), words(64), signals()
    if me == 0:
        shmem.put_signal(x, ones(64), 1, sig, 1, SET)
        shmem.put_signal(y, ones(64), 1, sig, 1, SET)
    elif me == 1:
        shmem.signal_wait_until(sig, "==", 1)
        x.sum()
        shmem.signal_wait_until(sig, "==", 1)
        y.sum()


@ordered
def signal_value_per_message():
    x, y, sig = words(64), words(64), signals()
    if me == 0:
        shmem.put_signal(x, ones(64), 1, sig, 1, SET)
        shmem.fence()
        shmem.put_signal(y, ones(64), 1, sig, 2, SET)
    elif me == 1:
        shmem.signal_wait_until(sig, "==", 2)
        x.sum()
        y.sum()


@race
def halo_with_one_barrier():
    grid = shmem.zeros(34)
    for _ in range(3):
        shmem.put(grid[:1], grid[32:33], right)
        shmem.put(grid[33:], grid[1:2], left)
        shmem.barrier_all()
        a = grid.numpy()
        a[1:33] = (a[:32] + a[2:34]) / 2


@ordered
def halo_with_two_barriers():
    grid = shmem.zeros(34)
    for _ in range(3):
        shmem.put(grid[:1], grid[32:33], right)
        shmem.put(grid[33:], grid[1:2], left)
        shmem.barrier_all()
        a = grid.numpy()
        a[1:33] = (a[:32] + a[2:34]) / 2
        shmem.barrier_all()


@ordered
def halo_in_two_places():
    halo, grid = shmem.zeros(2, 2), shmem.zeros(32)
    for step in range(5):
        here = halo[step % 2]
        shmem.put(here[:1], grid[31:].clone(), right)
        shmem.put(here[1:], grid[:1].clone(), left)
        shmem.barrier_all()
        a = grid.numpy()
        a += here.numpy().sum()


@race
def halo_got_while_it_is_computed():
    grid = shmem.zeros(34)
    edge = torch.zeros(1)
    for _ in range(3):
        shmem.get(edge, grid[32:33], left)
        grid[1:33] += edge
        shmem.barrier_all()


@race
def get_nbi_read_before_quiet():
    x, own = words(64), np.zeros(64, dtype=np.int64)
    shmem.barrier_all()
    shmem.get_nbi(own, x, right)
    shmem.check.reads(own)
    own.sum()
    shmem.quiet()


@ordered
def get_nbi_read_after_quiet():
    x, own = words(64), torch.zeros(64, dtype=torch.int64)
    shmem.barrier_all()
    shmem.get_nbi(own, x, right)
    shmem.quiet()
    own.sum()


@race
def lock_forgotten_by_one():
    count, lock = words(1), words(1)
    if me:
        shmem.set_lock(lock)
    shmem.p(count, shmem.g(count, 0) + 1, 0)
    shmem.quiet()
    if me:
        shmem.clear_lock(lock)


@ordered
def lock_taken_by_all():
    count, lock = words(1), words(1)
    shmem.set_lock(lock)
    shmem.p(count, shmem.g(count, 0) + 1, 0)
    shmem.clear_lock(lock)


@race
def wait_for_the_other_word():
    x, y, sig = words(64), words(64), signals(2)
    if me == 0:
        shmem.put_signal(x, ones(64), 1, sig[:1], 1, SET)
        shmem.put_signal(y, ones(64), 1, sig[1:], 1, SET)
    elif me == 1:
        shmem.signal_wait_until(sig[1:], "==", 1)
        x.sum()


@ordered
def wait_for_both_words():
    x, y, sig = words(64), words(64), signals(2)
    if me == 0:
        shmem.put_signal(x, ones(64), 1, sig[:1], 1, SET)
        shmem.put_signal(y, ones(64), 1, sig[1:], 1, SET)
    elif me == 1:
        for i in (1, 0):
            shmem.signal_wait_until(sig[i : i + 1], "==", 1)
        (x + y).sum()


@race
def put_after_the_signal():
    x, sig = words(64), signals()
    own = ones(32)
    if me == 0:
        shmem.put_signal(x[:32], own, 1, sig, 1, SET)
        shmem.put(x[32:], own, 1)
        shmem.quiet()
    elif me == 1:
        shmem.signal_wait_until(sig, "==", 1)
        x.numpy().max()


@ordered
def put_before_the_signal_with_fence():
    x, sig = words(64), signals()
    own = ones(32)
    if me == 0:
        shmem.put(x[32:], own, 1)
        shmem.fence()
        shmem.put_signal(x[:32], own, 1, sig, 1, SET)
    elif me == 1:
        shmem.signal_wait_until(sig, "==", 1)
        x.numpy().max()


@race
def atomic_counter_read_plainly():
    count = words(1)
    shmem.atomic_inc(count, 0)
    if me == 0:
        while int(count[0]) < n:
            shmem.atomic_fetch(count, 0)


@ordered
def atomic_counter_fetched():
    count = words(1)
    shmem.atomic_inc(count, 0)
    if me == 0:
        while shmem.atomic_fetch(count, 0) < n:
            pass
        count.numpy()[0]


@race
def ring_that_reuses_its_source():
    inbox, outbox = words(64), words(64)
    for _ in range(n - 1):
        shmem.put_nbi(inbox, outbox, right)
        outbox += 1
        shmem.barrier_all()


@ordered
def ring_that_quiets_first():
    inbox, outbox = words(64), words(64)
    for _ in range(n - 1):
        shmem.put_nbi(inbox, outbox, right)
        shmem.quiet()
        outbox += 1
        shmem.barrier_all()
        outbox.copy_(inbox)
        shmem.barrier_all()


@race
def ring_that_forwards_what_is_overwritten():
    inbox, sig = words(n, 8), signals()
    own = ones(8)
    shmem.put_signal(inbox[0], own, right, sig, 1, SET)
    for step in range(1, n):
        shmem.signal_wait_until(sig, ">=", step)
        shmem.put_signal(inbox[0], inbox[0], right, sig, step + 1, SET)


@ordered
def ring_with_a_place_per_step():
    inbox, sig = words(n + 1, 8), signals()
    own = ones(8)
    shmem.put_signal(inbox[0], own, right, sig, 1, ADD)
    for step in range(1, n):
        shmem.signal_wait_until(sig, ">=", step)
        shmem.fence()
        shmem.put_signal(inbox[step], inbox[step - 1], right, sig, 1, ADD)


@race
def counter_of_arrivals_too_small():
    inbox, count = words(n, 16), words(1)
    own = ones(16)
    shmem.put(inbox[me], own, 0)
    shmem.fence()
    shmem.atomic_inc(count, 0)
    if me == 0:
        shmem.wait_until(count, ">=", n - 1)
        inbox.sum()


@ordered
def counter_of_all_arrivals():
    inbox, count = words(n, 16), words(1)
    own = ones(16)
    shmem.put(inbox[me], own, 0)
    shmem.fence()
    shmem.atomic_inc(count, 0)
    if me == 0:
        shmem.wait_until(count, ">=", n)
        inbox.sum()


@race
def kernel_stores_and_a_peer_gets_after_sync():
    x, own = words(64), torch.zeros(64, dtype=torch.int64)
    fill[(4,)](x, me, SIZE=16)
    shmem.sync_all()
    shmem.get(own, x, right)


@ordered
def kernel_stores_and_a_peer_gets_after_barrier():
    x, own = words(64), torch.zeros(64, dtype=torch.int64)
    fill[(4,)](x, me, SIZE=16)
    shmem.barrier_all()
    shmem.get(own, x, right)


@race
def tiles_that_overlap():
    x = words(256)
    tiles_that_overlap_kernel[(4,)](x, 256, STEP=60, SIZE=64)


@ordered
def tiles_with_a_mask():
    x = words(250)
    tiles_with_a_mask_kernel[(4,)](x, 250, STEP=64, SIZE=64)


@race
def programs_that_read_their_neighbours():
    x, y = words(64), words(64)
    programs_that_read_their_neighbours_kernel[(4,)](x, y, SIZE=16)


@ordered
def two_kernels_for_neighbours():
    x, y = words(64), words(64)
    fill[(4,)](x, 1, SIZE=16)
    smooth[(4,)](x, y, SIZE=16)


@race
def kernel_puts_without_fence():
    x, own, sig = words(64), words(64), signals()
    if me == 0:
        send[(1,)](shmem.device_context(), x, own, sig, 1, FENCED=False)
    elif me == 1:
        shmem.signal_wait_until(sig, "==", 1)
        x.sum()


@ordered
def kernel_puts_with_fence():
    x, own, sig = words(64), words(64), signals()
    if me == 0:
        send[(1,)](shmem.device_context(), x, own, sig, 1, FENCED=True)
    elif me == 1:
        shmem.signal_wait_until(sig, "==", 1)
        x.sum()


@race
def host_writes_for_a_kernel_of_a_peer():
    x = words(64)
    shmem.put(x, ones(64), right)
    fill[(4,)](x, 1, SIZE=16)


@race
def numpy_stores_that_a_peer_gets():
    x, own = words(64), np.zeros(64, dtype=np.int64)
    a = x.numpy()
    np.add(a, 1, out=a)
    shmem.get(own, x, right)


@ordered
def numpy_stores_in_own_slices():
    x = words(n, 8)
    shmem.put(x[me], np.ones(8, dtype=np.int64), 0)
    shmem.barrier_all()
    if me == 0:
        x.numpy()[1:] *= 2


@race
def reduction_of_what_a_peer_still_puts():
    source, target = words(8), words(8)
    shmem.put(source, ones(8), right)
    shmem.sum_reduce(target, source)


@ordered
def reduction_and_reuse_of_its_source():
    source, target = words(8), words(8)
    for step in range(3):
        source.fill_(step)
        shmem.sum_reduce(target, source)
        target.sum()


@race
def put_nbi_and_a_sync():
    x, y = words(8), words(8)
    shmem.put_nbi(y, x, right)
    shmem.sync_all()
    y.sum()


@race
def compare_swap_lock_without_quiet():
    data, lock = words(8), words(1)
    while shmem.atomic_compare_swap(lock, 0, 1, 0) != 0:
        pass
    shmem.put(data, torch.full((8,), me), 0)
    shmem.atomic_set(lock, 0, 0)


@ordered
def compare_swap_lock_with_quiet():
    data, lock = words(8), words(1)
    while shmem.atomic_compare_swap(lock, 0, 1, 0) != 0:
        pass
    shmem.put(data, torch.full((8,), me), 0)
    shmem.quiet()
    shmem.atomic_set(lock, 0, 0)


if __name__ == "__main__":
    shmem.init()
    me, n = shmem.my_pe(), shmem.n_pes()
    right, left = (me + 1) % n, (me - 1) % n
    for name in RACES:
        globals()[name]()
        shmem.barrier_all()
