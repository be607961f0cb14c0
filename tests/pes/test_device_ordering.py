"""9.9 and 9.11 in kernels: fence, quiet, barrier_all, sync_all."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import GUARD, assert_same, guarded, interpreted, neighbours, payload, refused_by_all, untouched, work

pytestmark = pytest.mark.usefixtures("beside_the_heap")


@triton.jit
def late_kernel(ctx, dest, me, right, busy):
    for _ in range(busy):  # one PE is late by this much
        dev.my_pe(ctx)
    dev.put(ctx, dest, me, 1, right)
    dev.barrier_all(ctx)


@pytest.mark.parametrize("round_", range(3))
def test_barrier_all_completes_the_puts_of_all_pes_however_late_they_are(round_, npes):
    """Each PE is the late one in some round; what its left neighbour put is there when it leaves."""
    left, me, right = neighbours()
    target, whole = guarded(1, torch.int64)
    late = 2000 if me == round_ % npes else 0
    late_kernel[(1,)](shmem.device_context(), target, torch.tensor([100 + me]), right, late)
    assert target.item() == 100 + left
    assert untouched(whole[1:])


@triton.jit
def turns_of_barriers(ctx, word, seen, right, turns):
    me = dev.my_pe(ctx)
    for turn in range(turns):
        dev.p(ctx, word, me * 1000 + turn, right)
        dev.barrier_all(ctx)
        tl.store(seen + turn, tl.load(word))
        dev.barrier_all(ctx)


def test_100_turns_of_barriers_follow_each_other():
    left, _, right = neighbours()
    word, seen = shmem.zeros(1, dtype=torch.int32), torch.zeros(100, dtype=torch.int32)
    turns_of_barriers[(1,)](shmem.device_context(), word, seen, right, 100)
    assert seen.tolist() == [left * 1000 + turn for turn in range(100)]


@triton.jit
def meet(ctx):
    dev.barrier_all(ctx)


@triton.jit
def meet_on_sync(ctx):
    dev.sync_all(ctx)


@interpreted
@pytest.mark.parametrize(("kernel", "routine"), [(meet, "barrier_all"), (meet_on_sync, "sync_all")])
def test_a_barrier_in_a_kernel_does_not_meet_one_of_the_host(kernel, routine, me, npes):
    """On GPUs both would wait forever. The next barriers, of all kernels or of all hosts, meet."""
    ctx, host = shmem.device_context(), getattr(shmem, routine)
    odd = npes - 1
    if npes > 1:
        name = f"kernel {kernel.fn.__name__}: {routine}"
        call, said = (host, routine) if me == odd else (lambda: kernel[(1,)](ctx), name)
        text = f"{said}: PE {me}: call: got {name} on PEs? 0.* and {routine} on PE {odd}; expected the same call"
        refused_by_all(Exception, f"(^|ArgumentError.*){text}", call)
    for _ in range(3):
        kernel[(1,)](ctx)
        host()


@triton.jit
def store_then_sync(ctx, word, seen, right, turns):
    me = dev.my_pe(ctx)
    for turn in range(turns):
        tl.store(word, me * 1000 + turn)
        dev.sync_all(ctx)
        tl.store(seen + turn, dev.g(ctx, word, right))
        dev.sync_all(ctx)


def test_sync_all_orders_plain_stores_for_100_turns():
    _, _, right = neighbours()
    word, seen = shmem.zeros(1, dtype=torch.int64), torch.zeros(100, dtype=torch.int64)
    store_then_sync[(1,)](shmem.device_context(), word, seen, right, 100)
    assert seen.tolist() == [right * 1000 + turn for turn in range(100)]


def test_sync_all_waits_for_the_last_pe(me, npes):
    word = shmem.zeros(1, dtype=torch.int64)
    for last in range(npes):
        if me == last:
            work(20000)
            for pe in range(npes):
                shmem.p(word, last + 1, pe)
            shmem.quiet()
        meet_on_sync[(1,)](shmem.device_context())
        assert word.item() == last + 1
        shmem.barrier_all()


@triton.jit
def send_in_order(ctx, data, flag, source, n, right, left, turns, results, FENCE: tl.constexpr):
    """put, then FENCE, then p of the flag: the classic message, both sides in one kernel."""
    for turn in range(1, turns + 1):
        dev.put(ctx, data, source + n * turn, n, right)
        FENCE(ctx)
        dev.p(ctx, flag, turn, right)
        dev.wait_until(ctx, flag, dev.CMP_GE, turn)
        dev.get(ctx, results + n * turn, data, n, dev.my_pe(ctx))
        dev.atomic_set(ctx, flag + 1, turn, left)
        dev.wait_until(ctx, flag + 1, dev.CMP_GE, turn)


@pytest.mark.parametrize("order", ["fence", "quiet"])
def test_fence_and_quiet_order_a_put_before_the_flag(order):
    """100 turns without a barrier; the processor's own order is strong here, so a missing fence shows on others only."""
    left, me, right = neighbours()
    turns, n = 100, 33
    (data, whole), flags = guarded(n, torch.int32), shmem.zeros(2, dtype=torch.int64)
    source = torch.cat([payload(me, turn, n, torch.int32) for turn in range(turns + 1)])
    results = torch.full(((turns + 1) * n,), GUARD, dtype=torch.int32)
    send_in_order[(1,)](
        shmem.device_context(), data, flags, source, n, right, left, turns, results, FENCE=getattr(dev, order)
    )
    for turn in range(1, turns + 1):
        assert_same(results[n * turn : n * turn + n], payload(left, turn, n, torch.int32))
    assert untouched(whole[n:])
