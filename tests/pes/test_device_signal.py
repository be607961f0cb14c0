"""9.8 in kernels: signals, and put_signal above all: the signal never overtakes its payload."""

import threading

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base import interpreter
from support import DTYPES, aside, assert_same, guarded, name_of, neighbours, payload, untouched, work

pytestmark = pytest.mark.usefixtures("beside_the_heap")

# Triton has no complex numbers, and compiles AMD's 8-bit floats for some AMD GPUs only
POINTEES = [
    dtype for dtype in DTYPES if not dtype.is_complex and (interpreter.active() or "fnuz" not in name_of(dtype))
]
LARGE = 1 << 18  # a copy that takes long: a signal sent before it would be seen before it has ended


@triton.jit
def send(ctx, dest, source, n, signal, value, OP: tl.constexpr, pe):
    dev.put_signal(ctx, dest, source, n, signal, value, OP, pe)


@triton.jit
def pass_round(
    ctx, routine: tl.constexpr, results, dest, source, n, arrived, taken, left, right, turns, OP: tl.constexpr
):  # fmt: skip
    """Every turn's row of source to dest on the right, and what came from the left to the same row of results."""
    for turn in range(1, turns + 1):
        value = 1 if OP == dev.SIGNAL_ADD else turn
        routine(ctx, dest, source + n * turn, n, arrived, value, OP, right)
        dev.signal_wait_until(ctx, arrived, dev.CMP_GE, turn)
        dev.get(ctx, results + n * turn, dest, n, dev.my_pe(ctx))
        dev.signal_set(ctx, taken, turn, left)
        dev.signal_wait_until(ctx, taken, dev.CMP_GE, turn)


@pytest.mark.parametrize("op", ["SIGNAL_SET", "SIGNAL_ADD"])
@pytest.mark.parametrize("routine", [dev.put_signal, dev.put_signal_nbi])
@pytest.mark.parametrize("dtype", POINTEES, ids=str)
def test_put_signal_shows_the_signal_after_its_payload(dtype, routine, op):
    """100 turns round the ring. No barrier, fence or quiet between signal and data: they would hide the fault looked for."""
    left, me, right = neighbours()
    turns, n = 100, 7
    target, whole = guarded(n, dtype)
    arrived, taken = shmem.zeros(2, dtype=torch.uint64)
    source = torch.cat([payload(me, turn, n, dtype) for turn in range(turns + 1)])
    results = torch.zeros((turns + 1) * n).to(dtype)
    pass_round[(1,)](
        shmem.device_context(), routine, results, whole, source, n, arrived, taken, left, right, turns, getattr(dev, op)
    )
    for turn in range(1, turns + 1):
        assert_same(results[n * turn : n * turn + n], payload(left, turn, n, dtype))
    assert untouched(whole[n:])


@pytest.mark.parametrize("op", ["SIGNAL_SET", "SIGNAL_ADD"])
def test_put_signal_shows_the_signal_after_the_last_element_of_a_large_payload(op):
    """The host waits and looks at the last element at once: a signal sent before the copy, or during it, is caught."""
    left, me, right = neighbours()
    target, whole = guarded(LARGE, torch.int64)
    arrived, taken = shmem.zeros(2, dtype=torch.uint64)
    last, seen = target[-1:], []

    def take():
        for turn in range(1, 21):
            shmem.signal_wait_until(arrived, ">=", turn)
            seen.append(shmem.g(last, me))
            shmem.signal_set(taken, turn, left)

    taker = threading.Thread(target=aside(take))
    taker.start()
    for turn in range(1, 21):
        source = torch.full((LARGE,), me * 1000 + turn)
        send[(1,)](
            shmem.device_context(),
            whole,
            source,
            LARGE,
            arrived,
            turn if op == "SIGNAL_SET" else 1,
            getattr(dev, op),
            right,
        )
        shmem.signal_wait_until(taken, ">=", turn)
    taker.join()
    assert seen == [left * 1000 + turn for turn in range(1, 21)]
    assert untouched(whole[LARGE:])


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_put_signal_of_any_size_moves_the_signal_too(size):
    left, me, right = neighbours()
    (target, whole), signal = guarded(size, torch.float32), shmem.zeros(1, dtype=torch.uint64)
    source = payload(me, 1, size + 1, torch.float32)
    send[(1,)](shmem.device_context(), whole, source, size, signal, 11, dev.SIGNAL_SET, right)
    assert shmem.signal_wait_until(signal, "!=", 0) == 11
    assert_same(target.clone(), payload(left, 1, size, torch.float32))
    assert untouched(whole[size:])


def test_put_signal_sets_or_adds_all_64_bits():
    _, me, right = neighbours()
    signal, (data, whole) = shmem.zeros(1, dtype=torch.uint64), guarded(1, torch.int8)
    ctx, big = shmem.device_context(), 2**63 + 3
    send[(1,)](ctx, data, payload(me, 1, 1, torch.int8), 1, signal, big, dev.SIGNAL_SET, right)
    shmem.barrier_all()
    assert shmem.signal_fetch(signal) == big
    shmem.barrier_all()
    send[(1,)](ctx, data, payload(me, 1, 1, torch.int8), 1, signal, big, dev.SIGNAL_ADD, right)
    shmem.barrier_all()
    assert shmem.signal_fetch(signal) == 6  # wraps
    assert untouched(whole[1:])


@triton.jit
def update_signal(ctx, signal, found, pe):
    dev.signal_set(ctx, signal, 40, pe)
    dev.signal_add(ctx, signal, 2, pe)
    dev.barrier_all(ctx)
    tl.store(found, dev.signal_fetch(ctx, signal))


def test_signal_set_and_add_write_on_the_pe_and_fetch_reads_here():
    _, _, right = neighbours()
    _, signals = guarded(1, torch.uint64, behind=2)
    found = torch.zeros(1, dtype=torch.uint64)
    update_signal[(1,)](shmem.device_context(), signals[1], found, right)
    assert found.item() == 42
    assert untouched(signals[::2].contiguous())


@triton.jit
def count(ctx, signal, turns, pe):
    for _ in range(turns):
        dev.signal_add(ctx, signal, 3, pe)


def test_no_signal_add_is_lost_among_kernels_and_hosts(npes):
    """All PEs to the last one, kernels and host threads at once."""
    signal, turns = shmem.zeros(1, dtype=torch.uint64), 200
    thread = threading.Thread(target=aside(lambda: [shmem.signal_add(signal, 1, npes - 1) for _ in range(turns)]))
    thread.start()
    count[(1,)](shmem.device_context(), signal, turns, npes - 1)
    thread.join()
    shmem.barrier_all()
    assert shmem.signal_fetch(signal) == (4 * turns * npes if shmem.my_pe() == npes - 1 else 0)


@triton.jit
def await_signal(ctx, signal, data, seen, value, CMP: tl.constexpr):
    tl.store(seen, dev.signal_wait_until(ctx, signal, CMP, value))
    tl.store(seen + 1, tl.load(data))


@pytest.mark.parametrize(
    ("cmp", "first", "value", "last"),
    [
        ("CMP_EQ", 1, 2**63 + 2, 2**63 + 2),
        ("CMP_NE", 2**63, 2**63, 5),
        ("CMP_GT", 5, 2**63, 2**63 + 1),  # as signed numbers 5 > -2**63 would hold at once
        ("CMP_GE", 5, 2**63, 2**63),
        ("CMP_LT", 2**63, 6, 5),
        ("CMP_LE", 2**64 - 1, 6, 6),
    ],
)
def test_signal_wait_until_waits_and_returns_the_value_seen(cmp, first, value, last):
    """The left neighbour's host writes late: a wait that does not wait would find neither signal nor data."""
    left, _, right = neighbours()
    signal, data = shmem.full(1, first, dtype=torch.uint64), shmem.zeros(1, dtype=torch.uint64)
    seen = torch.zeros(2, dtype=torch.uint64)

    def write():
        work(200000)
        shmem.p(data, 100 + shmem.my_pe(), right)
        shmem.fence()
        shmem.signal_set(signal, last, right)

    writer = threading.Thread(target=aside(write))
    writer.start()
    await_signal[(1,)](shmem.device_context(), signal, data, seen, value, getattr(dev, cmp))
    writer.join()
    assert seen.tolist() == [last, 100 + left]
