"""Puts and signals on the current stream; on CPU heaps they take effect at once. Their kernels, interpreted or compiled."""

import pyshmem as shmem
import pytest
import torch
from pyshmem.kernels import signals
from pyshmem.base import comparisons, interpreter
from support import GUARD, guarded, interpreted, neighbours, payload, untouched, work

on_a_gpu = pytest.mark.skipif(interpreter.active(), reason="no stream in CPU memory")
ENGINES = ["kernel", "stream"]
SET, ADD = shmem.SIGNAL.SET, shmem.SIGNAL.ADD


@pytest.fixture
def words():
    """Two signals: what has come, and what has been taken."""
    return shmem.zeros(2, dtype=torch.uint64)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_put_signal_shows_the_signal_after_its_payload(engine, words):
    left, me, right = neighbours()
    target, whole = guarded(5000, torch.int32)
    come, taken = words
    for turn in range(1, 21):
        if turn % shmem.n_pes() == me:
            work(5000)
        source = payload(me, turn, 5000, torch.int32)
        shmem.put_signal_on_stream(target, source, right, come, turn, SET, engine=engine)
        source.fill_(-1)  # on the stream, after the copy
        shmem.signal_wait_until_on_stream(come, ">=", turn, engine)
        seen = target.clone()
        shmem.signal_on_stream(taken, turn, SET, left, engine)
        shmem.signal_wait_until_on_stream(taken, ">=", turn, engine)
        assert torch.equal(seen, payload(left, turn, 5000, torch.int32))
    assert untouched(whole[5000:])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_signal_shows_the_puts_in_front_of_it(engine, words):
    left, me, right = neighbours()
    first, second = shmem.zeros((2, 3000), dtype=torch.float32)
    for turn in range(1, 11):
        shmem.put_on_stream(first, payload(me, turn, 3000, torch.float32), right)
        shmem.put_on_stream(second, payload(me, turn + 1, 1000, torch.float32), right, 1000)
        shmem.signal_on_stream(words[0], turn, SET, right, engine)
        shmem.signal_wait_until_on_stream(words[0], "==", turn, engine)
        seen = first.clone(), second[:1000].clone()
        shmem.barrier_on_stream()
        for turns, found in enumerate(seen):
            assert torch.equal(found, payload(left, turn + turns, len(found), torch.float32))


def test_a_signal_adds_and_every_comparison_waits_for_its_value(words, npes):
    for pe in range(npes):
        shmem.signal_on_stream(words[0], 3, ADD, pe)
    shmem.signal_wait_until_on_stream(words[0], ">=", 3 * npes)
    for cmp, value in (("==", 3 * npes), ("!=", 0), (">", 3 * npes - 1), ("<", 2**64 - 1), ("<=", 3 * npes)):
        shmem.signal_wait_until_on_stream(words[0], cmp, value)
    shmem.signal_on_stream(words[1], 2**64 - 1, SET, shmem.my_pe())
    shmem.signal_wait_until_on_stream(words[1], ">", 2**63)
    shmem.quiet_on_stream()
    shmem.quiet()
    assert (shmem.signal_fetch(words[0]), shmem.signal_fetch(words[1])) == (3 * npes, 2**64 - 1)


def test_quiet_on_stream_completes_non_blocking_puts_in_front_of_a_signal(words):
    left, me, right = neighbours()
    target = shmem.zeros(100_000, dtype=torch.int64)
    for turn in range(1, 6):
        source = payload(me, turn, 100_000, torch.int64)
        shmem.put_nbi(target, source, right)
        shmem.quiet_on_stream()
        shmem.signal_on_stream(words[0], turn, SET, right)
        shmem.signal_wait_until_on_stream(words[0], ">=", turn)
        seen = target.clone()
        shmem.barrier_on_stream()
        assert torch.equal(seen, payload(left, turn, 100_000, torch.int64))


@on_a_gpu
@pytest.mark.parametrize("counted", [False, True])
def test_a_graph_counts_its_replays_by_values_in_memory_or_takes_words_back(counted, words):
    left, me, right = neighbours()
    target, seen = shmem.zeros(3000, dtype=torch.int64), torch.zeros(3000, dtype=torch.int64, device="cuda")
    turn, source = (torch.zeros(n, dtype=torch.int64, device="cuda") for n in (1, 3000))

    def body():
        turn.add_(1)
        source.copy_(turn.expand(3000)).add_(1000 * me)
        value, engine = (turn, "kernel") if counted else (1, "stream")
        shmem.put_signal_on_stream(target, source, right, words[0], value, SET, engine=engine)
        shmem.signal_wait_until_on_stream(words[0], "==", value, engine)
        seen.copy_(target)
        if not counted:
            shmem.signal_on_stream(words[0], 0, SET, me, engine)
        shmem.signal_on_stream(words[1], value, SET, left, engine)
        shmem.signal_wait_until_on_stream(words[1], "==", value, engine)
        if not counted:
            shmem.signal_on_stream(words[1], 0, SET, me, engine)

    body()
    shmem.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        body()
    for number in range(2, 30):
        graph.replay()
        assert (seen == 1000 * left + number).all()
    shmem.barrier_all()


@interpreted
def test_the_kernels_update_and_wait_where_they_are_interpreted(words, me):
    ctx, value = shmem.device_context(), torch.tensor([9], dtype=torch.int64)
    at = words[0].data_ptr()
    signals.update_signal[(1,)](ctx, at, 5, 0, False)
    signals.await_signal[(1,)](ctx, at, 5, 0, comparisons.EQ)
    signals.update_signal[(1,)](ctx, at, 0, value.data_ptr(), True)
    signals.await_signal[(1,)](ctx, at, 1, value.data_ptr(), comparisons.GT)
    assert shmem.signal_fetch(words[0]) == 14


REFUSED = [
    (lambda a, s: shmem.put_on_stream(a, a, 99), shmem.OutOfRangeError, "put_on_stream: PE \\d+: pe: got 99"),
    (lambda a, s: shmem.put_on_stream(torch.ones(8), a, 0), shmem.NotSymmetricError, "put_on_stream: PE \\d+: target: "),
    (lambda a, s: shmem.signal_on_stream(a[:1], 1, SET, 0), shmem.DtypeError, "signal_on_stream: PE \\d+: signal: got float32"),
    (lambda a, s: shmem.signal_on_stream(s, 1, 7, 0), shmem.ArgumentError, "sigop: got 7; expected SIGNAL.SET or"),
    (lambda a, s: shmem.signal_on_stream(s, -1, SET, 0), shmem.DtypeError, "value: "),
    (lambda a, s: shmem.signal_on_stream(s, 1, SET, 0, "copy"), shmem.ArgumentError, "engine: got 'copy'; expected 'kernel' or"),
    (lambda a, s: shmem.put_signal_on_stream(a, a, 0, s, 1, 7), shmem.ArgumentError, "put_signal_on_stream: .*sigop: got 7"),
    (lambda a, s: shmem.put_signal_on_stream(a, a, 0, s, 1, SET, 9), shmem.OutOfRangeError, "put_signal_on_stream: .*size: "),
    (lambda a, s: shmem.signal_wait_until_on_stream(s, "=>", 1), shmem.ArgumentError, "signal_wait_until_on_stream: .*cmp: "),
    (lambda a, s: shmem.quiet_on_stream(3), shmem.ArgumentError, "quiet_on_stream: PE \\d+: ctx: got int"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=range(len(REFUSED)))
def test_a_refused_call_says_what_is_wrong_and_changes_nothing(call, error, text, words):
    array = shmem.full(8, GUARD, dtype=torch.float32)
    with pytest.raises(error, match=text):
        call(array, words[0])
    assert array.tolist() == [GUARD] * 8
    assert shmem.signal_fetch(words[0]) == 0


def test_a_signal_inside_the_target_is_refused():
    array = shmem.zeros(8, dtype=torch.uint64)
    with pytest.raises(shmem.ArgumentError, match="signal: got an element of target"):
        shmem.put_signal_on_stream(array, array, shmem.my_pe(), array[3], 1, SET)
