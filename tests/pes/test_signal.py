"""9.8 signals, and put_signal above all: the signal never overtakes its payload."""

import threading

import numpy as np
import pytest
import torch
from support import GUARD, RMA_DTYPES, aside, assert_same, guarded, neighbours, payload, refuses, untouched

import pyshmem as shmem

PUT_SIGNALS = [shmem.put_signal, shmem.put_signal_nbi]
SIGNALS = [0, 1, 2**63, 2**64 - 1]
by_name = {"ids": lambda each: each.__name__}


@pytest.mark.parametrize("dtype", RMA_DTYPES, ids=str)
def test_put_signal_shows_the_signal_after_its_payload(device, dtype):
    """No barrier, fence or quiet between signal and data: those would hide the fault looked for."""
    me, left, right = shmem.my_pe(), (shmem.my_pe() - 1) % shmem.n_pes(), (shmem.my_pe() + 1) % shmem.n_pes()
    target = shmem.full(65, GUARD, dtype=dtype, device=device)
    arrived, taken = shmem.zeros(2, dtype=torch.uint64, device=device)
    for turn in range(1, 101):
        shmem.put_signal(target[:64], payload(me, turn, 64, dtype, device), right, arrived, turn, shmem.SIGNAL.SET)
        assert shmem.signal_wait_until(arrived, ">=", turn) == turn
        torch.testing.assert_close(target[:64].clone(), payload(left, turn, 64, dtype, device), rtol=0, atol=0)
        shmem.signal_set(taken, turn, left)  # left may overwrite target
        shmem.signal_wait_until(taken, ">=", turn)
    assert target[64].item() == GUARD


@pytest.mark.parametrize("put_signal", PUT_SIGNALS, **by_name)
@pytest.mark.parametrize("count", [1, 1000, 500_000])
def test_put_signal_is_polled_without_seeing_old_data(put_signal, count, npes):
    """PEs send one after the other, so that each reader polls before it is sent to; it looks at the last element first."""
    left, me, right = neighbours()
    target, whole = guarded(count, torch.int64)
    arrived = shmem.zeros(1, dtype=torch.uint64)
    for turn in range(10 * npes):
        value = turn // npes + 1
        if me == turn % npes:
            put_signal(target, torch.full((count,), value), right, arrived, 1, shmem.SIGNAL.ADD)
        if left == turn % npes:
            while shmem.signal_fetch(arrived) < value:
                pass
            last, first = target[-1].item(), target[0].item()
            assert (last, first) == (value, value) and bool((target == value).all())
    assert untouched(whole[count:])


@pytest.mark.parametrize("put_signal", PUT_SIGNALS, **by_name)
def test_put_signal_sets_or_adds_to_the_signal(put_signal):
    left, me, right = neighbours()
    target, (first, second) = shmem.zeros(4, dtype=torch.int32), shmem.zeros(2, dtype=torch.uint64)
    for old in SIGNALS:
        for value in SIGNALS:
            for word in (first, second):
                shmem.signal_set(word, old, me)
            shmem.barrier_all()
            put_signal(target, payload(me, 1, 4, torch.int32), right, first, value, shmem.SIGNAL.SET)
            shmem.fence()
            put_signal(target, payload(me, 1, 4, torch.int32), right, second, value, shmem.SIGNAL.ADD)
            shmem.barrier_all()
            assert shmem.signal_fetch(first) == value
            assert shmem.signal_fetch(second) == (old + value) % 2**64


@pytest.mark.parametrize("put_signal", PUT_SIGNALS, **by_name)
def test_put_signal_moves_the_first_size_elements(put_signal):
    left, me, right = neighbours()
    target, whole = guarded(6, torch.float32)
    signal = shmem.zeros((), dtype=torch.uint64)
    for turn, size in enumerate((0, 1, 4), 1):
        put_signal(target, payload(me, 1, 6, torch.float32), right, signal, turn, shmem.SIGNAL.SET, size)
        shmem.signal_wait_until(signal, "==", turn)
        assert_same(target[:size], payload(left, 1, size, torch.float32))
        assert untouched(whole[size:])
        shmem.barrier_all()


@pytest.mark.parametrize("put_signal", PUT_SIGNALS, **by_name)
def test_put_signal_of_length_0_moves_the_signal_alone(put_signal, npes):
    signal = shmem.zeros(1, dtype=torch.uint64)
    for pe in range(npes):
        put_signal(torch.empty(0), np.empty(0, np.float32), pe, signal, 1, shmem.SIGNAL.ADD, ctx=shmem.CTX_DEFAULT)
    shmem.signal_wait_until(signal, "==", npes)


def test_signals_of_all_pes_add_up(npes):
    signal = shmem.zeros(1, dtype=torch.uint64)
    for _ in range(2000):
        shmem.signal_add(signal, 1, 0)
        shmem.put_signal(torch.empty(0), torch.empty(0), 0, signal, 2, shmem.SIGNAL.ADD)
    shmem.barrier_all()
    assert shmem.atomic_fetch(signal, 0) == 2000 * npes * 3


def test_signal_set_and_add_reach_one_pe_and_wrap_around(me, npes):
    signal = shmem.full(1, 5, dtype=torch.uint64)
    if me == 0:
        shmem.signal_add(signal, 2**64 - 1, npes - 1)
        shmem.signal_add(signal, 2, npes - 1, ctx=shmem.CTX_DEFAULT)
    shmem.barrier_all()
    assert shmem.signal_fetch(signal) == (6 if me == npes - 1 else 5)
    shmem.barrier_all()
    if me == 0:
        shmem.signal_set(signal, 2**64 - 1, npes - 1)
    shmem.barrier_all()
    assert shmem.signal_fetch(signal) == (2**64 - 1 if me == npes - 1 else 5)


@pytest.mark.parametrize("cmp, value, seen", [("==", 2**63, 2**63), ("!=", 0, 2**63), (">", 2**63 - 1, 2**63),
                                              (">=", 2**63, 2**63), ("<", 2**63, 7), ("<=", 7, 7)])  # fmt: skip
def test_signal_wait_until_returns_the_value_it_has_seen(cmp, value, seen):
    left, me, right = neighbours()
    signal = shmem.full(1, 2**64 - 1 if seen == 7 else 0, dtype=torch.uint64)
    shmem.signal_set(signal, seen, right)
    assert shmem.signal_wait_until(signal, cmp, value) == seen


def test_signal_wait_until_returns_what_compared_though_the_signal_goes_on():
    """A thread of the left neighbour sets 1 and 2 by turns, also while this PE is on its way back from the wait."""
    left, me, right = neighbours()
    signal, done = shmem.zeros(2, dtype=torch.uint64)

    @aside
    def alternate():
        while not shmem.signal_fetch(done):
            shmem.signal_set(signal, 2, right)
            shmem.signal_set(signal, 1, right)

    writer = threading.Thread(target=alternate)
    writer.start()
    seen = []
    for _ in range(30):
        shmem.signal_set(signal, 2, me)  # so that it has to wait
        seen.append(shmem.signal_wait_until(signal, "==", 1))
    shmem.signal_set(done, 1, left)
    writer.join()
    assert seen == [1] * 30


def test_put_signal_refuses_a_signal_inside_its_target(me):
    words = shmem.zeros(4, dtype=torch.uint64)
    source = torch.from_numpy(np.ones(3, np.uint64))
    with refuses("put_signal", "signal: got an element of target; expected a word outside"):
        shmem.put_signal(words[:3], source, me, words[2:3], 1, shmem.SIGNAL.SET)
    with refuses("put_signal", "signal: got an element of target"):
        shmem.put_signal(
            words.view(torch.uint8)[4:8], torch.ones(4, dtype=torch.uint8), me, words[0], 1, shmem.SIGNAL.SET
        )
    assert words.tolist() == [0, 0, 0, 0]
    shmem.put_signal(words[:3], source, me, words[3], 1, shmem.SIGNAL.SET)
    shmem.quiet()
    assert words.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("sigop", [2, -1, "SET", None, [0]])
def test_put_signal_refuses_other_operators(sigop, me):
    target, signal = shmem.zeros(2), shmem.zeros(1, dtype=torch.uint64)
    with refuses("put_signal", r"sigop: got .*; expected SIGNAL\.SET or SIGNAL\.ADD$"):
        shmem.put_signal(target, torch.ones(2), me, signal, 1, sigop)
    assert target.tolist() == [0, 0] and signal.item() == 0
