"""9.10 wait and test: on one word and on many, who is looked at, how a wait ends, and what goes on meanwhile."""

import operator
import os
import re
import signal
import threading

import numpy as np
import pytest
import torch
from support import AMO_INTEGERS, assert_same, foreign, name_of, neighbours, on_one_node, payload, refuses, work

import pyshmem as shmem
from pyshmem.memory.heap import default
from pyshmem.base.job import job

COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
SIGNS = dict(zip(shmem.CMP, COMPARISONS, strict=True))
ids = {"ids": lambda each: name_of(each) if isinstance(each, torch.dtype) else str(each)}


def edges(dtype):
    """Values on both sides of the sign and of the halves of the range."""
    info = torch.iinfo(dtype)
    middle = 0 if dtype.is_signed else 1 << (info.bits - 1)
    return [info.min, info.min + 1, middle - 1, middle, middle + 1, info.max]


def holder(value, dtype):
    return shmem.full(1, value, dtype=dtype)


@pytest.mark.parametrize("dtype", AMO_INTEGERS, **ids)
def test_test_compares_as_python_does(dtype, me):
    """Unsigned values above half the range are large, not negative."""
    word = holder(0, dtype)
    for seen in edges(dtype):
        shmem.p(word, seen, me)
        shmem.quiet()
        for value in edges(dtype):
            for cmp, sign in SIGNS.items():
                assert shmem.test(word, cmp, value) is COMPARISONS[sign](seen, value)
                assert shmem.test(word, sign, value) is COMPARISONS[sign](seen, value)
                assert shmem.test_all(word, sign, value) is COMPARISONS[sign](seen, value)
                assert shmem.test_any(word, cmp, value) == (0 if COMPARISONS[sign](seen, value) else None)
                assert shmem.test_some(word, sign, value) == ([0] if COMPARISONS[sign](seen, value) else [])


@pytest.mark.parametrize("dtype", AMO_INTEGERS, **ids)
@pytest.mark.parametrize("cmp", SIGNS)
@pytest.mark.parametrize("text", [False, True], ids=["enum", "text"])
def test_wait_until_returns_once_the_peers_value_compares(dtype, cmp, text):
    """For every pair of values where the comparison fails first and holds later."""
    left, me, right = neighbours()
    word, compare = holder(0, dtype), COMPARISONS[SIGNS[cmp]]
    for before in edges(dtype):
        for after in edges(dtype):
            for value in edges(dtype)[1::2]:
                if compare(before, value) or not compare(after, value):
                    continue
                shmem.p(word, before, me)
                shmem.barrier_all()
                shmem.p(word, after, right)
                assert shmem.wait_until(word, SIGNS[cmp] if text else cmp, value) is None
                assert shmem.g(word, me) == after
                shmem.barrier_all()


def test_wait_until_returns_at_once_where_the_comparison_holds_already():
    word = holder(5, torch.int64)
    shmem.wait_until(word, ">", 4)
    shmem.wait_until(word.view(()), "!=", np.int8(4))
    shmem.wait_until(foreign(word), "<=", 5.0)


@pytest.mark.parametrize("write", ["p", "put", "atomic_set", "iput", "store"])
def test_wait_until_sees_every_way_to_write_a_word(write):
    """Classic programs set flags with p and put, and through ptr. What was written before the fence is there too."""
    left, me, right = neighbours()
    data, flag = shmem.zeros(50, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    if write == "store" and not on_one_node():
        pytest.skip("a PE cannot store to another node")
    remote = shmem.ptr(flag, right)
    for turn in range(1, 51):
        shmem.put(data, payload(me, turn, 50, torch.int64), right)
        shmem.fence()
        if write in ("put", "iput"):
            getattr(shmem, write)(flag, torch.tensor([turn]), right, *((1, 1, 1) if write == "iput" else ()))
        elif write == "store":
            remote.fill_(turn)
        else:
            getattr(shmem, write)(flag, turn, right)
        shmem.wait_until(flag, "==", turn)
        assert_same(data.clone(), payload(left, turn, 50, torch.int64))
        shmem.barrier_all()


# ---- many words ----


def flags_of(values, dtype=torch.int32):
    return shmem.array(torch.tensor(values).to(dtype))


def test_wait_until_all_returns_when_every_included_element_has_compared(me, npes):
    """Each PE sets its own element everywhere; the one left out is never set."""
    flags = shmem.zeros(npes + 1, dtype=torch.int64)
    status = [0] * npes + [1]
    for turn in range(1, 101):
        work(2000 * me)  # the last element comes last
        for pe in range(npes):
            shmem.p(flags[me : me + 1], turn, pe)  # check: ignore, the value of a later turn serves too
        shmem.wait_until_all(flags, ">=", turn, status)
        assert (flags[:npes] >= turn).all() and flags[npes] == 0


def test_wait_until_any_returns_the_index_of_an_element_that_compares(me, npes):
    """Taking arrivals one by one and leaving out those taken gives each once."""
    flags, status = shmem.zeros(npes, dtype=torch.uint64), np.zeros(npes, np.int32)
    for pe in range(npes):
        shmem.p(flags[me], 2**63 + me, pe)
    arrived = []
    for _ in range(npes):
        arrived.append(shmem.wait_until_any(flags, ">=", 2**63, status))
        status[arrived[-1]] = 1
    assert sorted(arrived) == list(range(npes))
    assert shmem.wait_until_any(flags, ">=", 2**63, status) is None
    shmem.barrier_all()


def test_wait_until_some_returns_all_that_compare_and_at_least_one(me, npes):
    flags, status = shmem.zeros(npes, dtype=torch.int32), np.zeros(npes, np.int32)
    for pe in range(npes):
        shmem.p(flags[me], me + 1, pe)
    arrived = []
    while len(arrived) < npes:
        some = shmem.wait_until_some(flags, "!=", 0, status)
        assert some and some == sorted(set(some)) and all(type(each) is int for each in some)
        status[some] = 1
        arrived += some
    assert sorted(arrived) == list(range(npes))
    shmem.barrier_all()


def test_the_many_word_tests_look_at_included_elements_alone():
    flags = flags_of([3, 0, 3, 0, 7])
    assert shmem.test_all(flags, ">=", 0) is True
    assert shmem.test_all(flags, "==", 3) is False
    assert shmem.test_all(flags, "==", 3, [0, 1, 0, 1, 1]) is True
    assert shmem.test_all(flags, "==", 3, torch.tensor([False, True, False, True, False])) is False
    assert shmem.test_some(flags, "==", 3) == [0, 2]
    assert shmem.test_some(flags, "==", 3, np.array([5, 0, 0, 0, 0])) == [2]
    assert shmem.test_some(flags, "<", 0) == []
    assert shmem.test_any(flags, "==", 7) == 4
    assert shmem.test_any(flags, "==", 7, (0, 0, 0, 0, -1)) is None
    assert shmem.wait_until_some(flags, "==", 3) == [0, 2]
    assert shmem.wait_until_some(flags, "==", 3, [1, 0, 0, 0, 0]) == [2]
    assert shmem.wait_until_any(flags, "==", 3, [1, 0, 0, 0, 0]) == 2
    shmem.wait_until_all(flags, "==", 3, [0, 1, 0, 1, 1])


@pytest.mark.parametrize("ivars, status", [(torch.empty(0, dtype=torch.int64), None), ([1, 2], [1, 1]), ([1, 2], [-1, 7])],
                         ids=["no elements", "all left out", "left out by any value"])  # fmt: skip
def test_an_empty_set_satisfies_all_and_has_no_any_and_no_some(ivars, status):
    flags = ivars if isinstance(ivars, torch.Tensor) else flags_of(ivars)
    assert shmem.wait_until_all(flags, "==", 99, status) is None
    assert shmem.wait_until_any(flags, "==", 99, status) is None
    assert shmem.wait_until_some(flags, "==", 99, status) == []
    assert shmem.test_all(flags, "==", 99, status) is True
    assert shmem.test_any(flags, "==", 99, status) is None
    assert shmem.test_some(flags, "==", 99, status) == []


@pytest.mark.parametrize("call", [shmem.wait_until_any, shmem.test_any], ids=["wait_until_any", "test_any"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_no_index_starves_though_others_compare_always(call, count):
    """Not even where a loop makes several such calls: each of its calls must come round to every index."""
    flags = shmem.ones(count, dtype=torch.int32)
    for calls in range(1, 2 * count + 1):
        seen = [set() for _ in range(calls)]
        for _ in range(20 * count):
            for each in seen:
                each.add(call(flags, "==", 1))
        assert seen == [set(range(count))] * calls


def test_no_index_starves_among_those_that_are_included():
    flags, status = shmem.ones(6, dtype=torch.int64), [0, 1, 0, 1, 1, 0]
    assert {shmem.wait_until_any(flags, "==", 1, status) for _ in range(100)} == {0, 2, 5}


@pytest.mark.parametrize("status", [[0], [0, 0, 0], 0, np.zeros((2, 2))])
def test_the_many_word_calls_refuse_a_status_of_another_length(status):
    flags = shmem.zeros(2, dtype=torch.int32)
    for name in ("wait_until_all", "wait_until_any", "wait_until_some", "test_all", "test_any", "test_some"):
        with refuses(name, r"status: got \d elements; expected one for each of the 2 of ivars$"):
            getattr(shmem, name)(flags, "==", 0, status)


# ---- how a wait ends that nobody answers ----

FOREVER = {
    "wait_until": (lambda words: shmem.wait_until(words[1], ">=", 5), r"ivar: got 3 at heap offset {offset} in"),
    "wait_until_all": (lambda words: shmem.wait_until_all(words, ">=", 3), r"ivars\[0\]: got 0 in"),
    "wait_until_any": (lambda words: shmem.wait_until_any(words, ">=", 5, [1, 0]), r"ivars: got none in"),
    "wait_until_some": (lambda words: shmem.wait_until_some(words, ">=", 5), r"ivars: got none in"),
    "signal_wait_until": (
        lambda words: shmem.signal_wait_until(words[1], ">=", 5),
        r"signal: got 3 at heap offset {offset} in",
    ),
}


@pytest.mark.parametrize("name", FOREVER)
def test_a_wait_that_nobody_answers_says_so_after_the_time_out(name, me, npes, monkeypatch):
    words = shmem.array(torch.from_numpy(np.array([0, 3], np.uint64)))
    call, got = FOREVER[name]
    monkeypatch.setattr(job, "timeout", 0.25)
    offset = words[1].data_ptr() - default().base
    with pytest.raises(shmem.WaitTimeoutError) as caught:
        call(words)
    assert isinstance(caught.value, TimeoutError)
    wants = "a value >= [35].*; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit"
    wants += "; SHMEM_DEBUG=1 says where the other PEs are" if npes > 1 else ""
    assert re.fullmatch(rf"{name}: PE {me}: {got.format(offset=offset)} 0\.25 s; expected {wants}", str(caught.value))
    monkeypatch.undo()
    shmem.barrier_all()  # and the PE is as good as before


def test_a_time_out_of_0_is_no_limit(me, npes, monkeypatch):
    """The wait outlasts the time-out of the ones before it, until a thread of this PE has written the word."""
    word = shmem.zeros(1, dtype=torch.int32)
    monkeypatch.setattr(job, "timeout", 0.01)
    with pytest.raises(shmem.WaitTimeoutError):
        shmem.wait_until(word, "==", 1)
    monkeypatch.setattr(job, "timeout", 0.0)
    run_beside(lambda: shmem.p(word, 1, me), lambda: shmem.wait_until(word, "==", 1), amount=10**7)


# ---- what goes on while a PE waits ----

WAITS = {
    "wait_until": lambda words: shmem.wait_until(words[:1], "==", 1),
    "wait_until_all": lambda words: shmem.wait_until_all(words, "==", 1),
    "wait_until_any": lambda words: shmem.wait_until_any(words, "==", 1),
    "wait_until_some": lambda words: shmem.wait_until_some(words, "==", 1),
    "signal_wait_until": lambda words: shmem.signal_wait_until(words[:1], "==", 1),
}


def run_beside(other, wait, amount=200000):
    """``wait`` here while a thread first computes, long enough for this one to get there, and then calls ``other``."""

    def compute():
        waiting.wait()
        for _ in range(amount):
            pass
        other()

    waiting = threading.Event()
    thread = threading.Thread(target=compute)
    thread.start()
    waiting.set()
    try:
        wait()
    finally:
        thread.join()


@pytest.mark.parametrize("name", WAITS)
def test_another_thread_goes_on_while_this_one_waits(name, me, monkeypatch):
    """The wait ends only by what the other thread does: it would not, if it held the GIL."""
    monkeypatch.setattr(job, "timeout", 20.0)
    words = shmem.zeros(2, dtype=torch.uint64)
    run_beside(lambda: shmem.put(words, torch.from_numpy(np.ones(2, np.uint64)), me), lambda: WAITS[name](words))


def test_another_thread_goes_on_while_this_one_is_in_a_barrier(me, npes, monkeypatch):
    """The others come to the barrier only after PE 0's second thread has told them, while PE 0 is in it."""
    monkeypatch.setattr(job, "timeout", 20.0)
    word = shmem.zeros(1, dtype=torch.int64)
    if me == 0:
        run_beside(lambda: [shmem.p(word, 1, pe) for pe in range(npes)], shmem.barrier_all)
    else:
        shmem.wait_until(word, "==", 1)
        shmem.barrier_all()


class Interrupted(Exception):
    pass


def signalled(handler, wait):
    """``wait`` here, while a thread sends this process a signal that ``handler`` takes."""
    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        run_beside(lambda: os.kill(os.getpid(), signal.SIGUSR1), wait)
    finally:
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize("name", WAITS)
def test_a_signal_handler_runs_while_the_pe_waits(name, me, monkeypatch):
    """The handler itself ends the wait."""
    monkeypatch.setattr(job, "timeout", 20.0)
    words = shmem.zeros(2, dtype=torch.uint64)
    signalled(lambda *_: shmem.put(words, torch.from_numpy(np.ones(2, np.uint64)), me), lambda: WAITS[name](words))


@pytest.mark.parametrize("name", WAITS)
def test_an_exception_of_a_signal_handler_ends_the_wait(name, monkeypatch):
    """As Ctrl-C does, whose handler raises KeyboardInterrupt. A wait that has timed out lets the handler run, too."""
    monkeypatch.setattr(job, "timeout", 20.0)
    words = shmem.zeros(2, dtype=torch.uint64)

    def handler(*_):
        raise Interrupted

    with pytest.raises(Interrupted) as caught:
        signalled(handler, lambda: WAITS[name](words))
    assert caught.value.__context__ is None, "after the time-out"


def test_a_signal_handler_runs_while_the_pe_is_in_a_barrier(me, npes, monkeypatch):
    monkeypatch.setattr(job, "timeout", 20.0)
    word = shmem.zeros(1, dtype=torch.int64)
    if me == 0:
        signalled(lambda *_: [shmem.p(word, 1, pe) for pe in range(npes)], shmem.barrier_all)
    else:
        shmem.wait_until(word, "==", 1)
        shmem.barrier_all()
