"""What order of memory the device functions promise, where every store to a peer comes as late as it may.

A kernel here ends when its data has been read: the end of a kernel completes everything.
"""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.memory.cpu_heap import cpu
from support import assert_same, guarded, neighbours, payload, untouched

N = 3000  # elements: several blocks of the wide copy and a tail, stored by all four waves


@triton.jit
def send_put_signal(ctx, data, source, n, arrived, turn, right):
    dev.put_signal(ctx, data, source, n, arrived, turn, dev.SIGNAL_SET, right)


@triton.jit
def send_tiles(ctx, data, source, n, right):
    for first in range(0, n, 1024):
        lane = first + tl.arange(0, 1024)
        dev.store(ctx, data + lane, tl.load(source + lane, mask=lane < n), right, mask=lane < n)


@triton.jit
def send_store_and_signal_set(ctx, data, source, n, arrived, turn, right):
    send_tiles(ctx, data, source, n, right)
    dev.signal_set(ctx, arrived, turn, right)


@triton.jit
def send_store_and_signal_add(ctx, data, source, n, arrived, turn, right):
    send_tiles(ctx, data, source, n, right)
    dev.signal_add(ctx, arrived, 1, right)


@triton.jit
def send_store_fence_and_flag(ctx, data, source, n, arrived, turn, right):
    send_tiles(ctx, data, source, n, right)
    dev.fence(ctx)
    dev.atomic_set(ctx, arrived, turn, right, sem="relaxed")


@triton.jit
def send_put_quiet_and_flag(ctx, data, source, n, arrived, turn, right):
    dev.put(ctx, data, source, n, right)
    dev.quiet(ctx)
    dev.atomic_add(ctx, arrived, 1, right, sem="relaxed")


@triton.jit
def send_store_and_atomic_of_every_thread(ctx, data, source, n, arrived, turn, right):
    """Each thread releases what it has stored itself: to be read when all 1024 lanes have added."""
    lane = tl.arange(0, 1024)
    for first in range(0, n, 1024):
        place = first + lane
        dev.store(ctx, data + place, tl.load(source + place, mask=place < n), right, mask=place < n)
    dev.atomic_add(ctx, arrived + lane * 0, 1, right, sem="release")


@triton.jit
def exchange(ctx, SEND: tl.constexpr, data, source, out, n, arrived, taken, turn, EACH: tl.constexpr):
    """Send to the right, copy to out what comes from the left, and stay until the right has done so."""
    me, n_pes = dev.my_pe(ctx), dev.n_pes(ctx)
    right, left = (me + 1) % n_pes, (me + n_pes - 1) % n_pes
    SEND(ctx, data, source, n, arrived, turn, right)
    dev.signal_wait_until(ctx, arrived, dev.CMP_GE, turn * EACH)
    for first in range(0, n, 1024):
        lane = first + tl.arange(0, 1024)
        tl.store(out + lane, tl.load(data + lane, mask=lane < n), mask=lane < n)
    dev.signal_set(ctx, taken, turn, left)
    dev.signal_wait_until(ctx, taken, dev.CMP_GE, turn)


WAYS = {
    send_put_signal: 1,
    send_store_and_signal_set: 1,
    send_store_and_signal_add: 1,
    send_store_fence_and_flag: 1,
    send_put_quiet_and_flag: 1,
    send_store_and_atomic_of_every_thread: 1024,  # signals a turn
}


def turns_of_exchange(ctx, send, dtype=torch.float32):
    left, me, _ = neighbours()
    (data, whole), (arrived, taken) = guarded(N, dtype), shmem.zeros(2, dtype=torch.uint64)
    for turn in range(1, 4):
        out = torch.empty(N, dtype=dtype)
        exchange[(1,)](ctx, send, data, payload(me, turn, N, dtype), out, N, arrived, taken, turn, WAYS[send])
        assert_same(out, payload(left, turn, N, dtype))
    shmem.barrier_all()
    assert untouched(whole[N:])


@pytest.mark.parametrize("send", WAYS, ids=lambda send: send.fn.__name__)
def test_who_sees_the_flag_sees_the_data_before_it(send):
    turns_of_exchange(shmem.device_context(), send)


def test_peers_are_found_by_a_table_too():
    table = torch.tensor([cpu.deltas[pe] for pe in range(shmem.n_pes())], dtype=torch.int64)
    ctx = shmem.device_context()._replace(stride=0, table=table.data_ptr(), by_table=tl.constexpr(True))
    turns_of_exchange(ctx, send_put_signal, torch.int8)


@triton.jit
def put_and_meet(ctx, data, source, out, n, turns):
    me, n_pes = dev.my_pe(ctx), dev.n_pes(ctx)
    for turn in range(turns):
        dev.put(ctx, data, source + turn * n, n, (me + 1) % n_pes)
        dev.barrier_all(ctx)
        dev.get(ctx, out + turn * n, data, n, me)
        dev.barrier_all(ctx)


def test_barrier_all_completes_the_puts_of_all_pes_50_times():
    left, me, _ = neighbours()
    (data, whole), n, turns = guarded(200, torch.int32), 200, 25
    source = torch.cat([payload(me, turn, n, torch.int32) for turn in range(turns)])
    out = torch.empty(n * turns, dtype=torch.int32)
    put_and_meet[(1,)](shmem.device_context(), data, source, out, n, turns)
    assert_same(out, torch.cat([payload(left, turn, n, torch.int32) for turn in range(turns)]))
    assert untouched(whole[n:])
