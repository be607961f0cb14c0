"""alltoallv_on_stream: rows whose numbers only memory knows; on CPU heaps as a host call, and its kernel, interpreted."""

from functools import partial

import pyshmem as shmem
import pytest
import torch
from pyshmem.device import arch
from pyshmem.kernels import uneven
from pyshmem.base import interpreter
from support import GUARD, interpreted, name_of, work
from team_shapes import group  # noqa: F401

on_a_gpu = pytest.mark.skipif(interpreter.active(), reason="no stream in CPU memory")
WIDTH = 3


def count_of(turn, sender, to):
    """Rows from one PE to another: none, one, some."""
    return (turn + 2 * sender + 5 * to) % 7 if (turn + sender + to) % 3 else 0


def row(turn, sender, to, number):
    return [1000 * turn + 100 * sender + 10 * to + number] * WIDTH


def int64(values, **how):
    return torch.tensor(values, dtype=torch.int64, **how)


def on_stream(team, target, source, counts, received, displacements):
    shmem.alltoallv_on_stream(target, source, counts, received, displacements, team)


def by_kernel(scratch, team, target, source, counts, received, displacements):
    ctx = shmem.device_context(team, scratch=scratch)
    at = (target.data_ptr() or source.data_ptr(), source.data_ptr(), counts.data_ptr())  # the interpreter takes no 0
    starts = 0 if displacements is None else displacements.data_ptr()
    shape = (len(target), len(source), WIDTH)
    uneven.swap_rows[(2,)](ctx, *at, starts, received.data_ptr(), *shape, uneven.BITS[target.itemsize])


@pytest.fixture(params=["call", "kernel"])
def exchange(request):
    if request.param == "call":
        yield on_stream
        return
    if not interpreter.active():
        pytest.skip("kernels are compiled")
    scratch = shmem.zeros(1 << 20, dtype=torch.uint8)
    yield partial(by_kernel, scratch)
    shmem.free(scratch)


def arrays(room, length, dtype=torch.int32):
    whole = shmem.full((room + 2, WIDTH), GUARD, dtype=dtype)
    return whole[:room], whole, shmem.zeros((length, WIDTH), dtype=dtype)


def came(turn, me, pes):
    return [row(turn, pe, me, number) for pe in pes for number in range(count_of(turn, pe, me))]


def fill(turn, me, pes, source, gaps):
    """Rows for each member, ``gaps`` rows apart; (counts, displacements)."""
    counts, starts, rows = [count_of(turn, me, to) for to in pes], [], []
    for to, count in zip(pes, counts, strict=True):
        starts.append(len(rows) + gaps)
        rows += [[GUARD] * WIDTH] * gaps + [row(turn, me, to, number) for number in range(count)]
    if rows:
        source[: len(rows)] = torch.tensor(rows, dtype=source.dtype)
    return int64(counts, device=source.device), int64(starts, device=source.device)


@pytest.mark.parametrize("gaps", [0, 2])
def test_every_member_gets_the_rows_of_all_in_the_order_of_pes_however_late_one_is(exchange, gaps, group, me):
    team, pes = group
    target, whole, source = arrays(7 * len(pes), 9 * len(pes))
    if not team:
        return
    for turn in range(6):
        if turn % shmem.n_pes() == me:
            work(5000)
        target.fill_(GUARD)
        counts, starts = fill(turn, me, pes, source, gaps)
        received = torch.full_like(counts, -1)
        exchange(team, target, source, counts, received, starts if gaps else None)
        source.fill_(-7)
        counts.fill_(-1)
        wanted = came(turn, me, pes)
        assert received.tolist() == [count_of(turn, pe, me) for pe in pes]
        assert target[: len(wanted)].tolist() == wanted
        assert (whole[len(wanted) :] == GUARD).all()


@pytest.mark.parametrize("room", [0, 1, 4])
def test_rows_beyond_the_end_of_target_are_dropped_and_counted(exchange, room, me, npes):
    target, whole, source = arrays(room, 7 * npes)
    counts, _ = fill(1, me, range(npes), source, 0)
    received = torch.zeros_like(counts)
    exchange(None, target, source, counts, received, None)
    wanted = came(1, me, range(npes))[:room]
    assert received.tolist() == [count_of(1, pe, me) for pe in range(npes)]
    assert whole[: len(wanted)].tolist() == wanted
    assert (whole[len(wanted) :] == GUARD).all()


def test_rows_that_source_does_not_have_are_not_sent(exchange, me, npes):
    target, whole, source = arrays(10 * npes, 4)
    source[:] = torch.arange(4, dtype=torch.int32)[:, None] + 10 * me
    for count, start, sent in ((9, 1, 3), (3, 4, 0), (2, 5, 0), (2, -1, 0), (-3, 0, 0), (1 << 62, 2, 2)):
        target.fill_(GUARD)
        counts, starts = (int64([each] * npes, device=source.device) for each in (count, start))
        received = torch.full_like(counts, -1)
        exchange(None, target, source, counts, received, starts)
        assert received.tolist() == [sent] * npes
        wanted = [[10 * pe + start + number] * WIDTH for pe in range(npes) for number in range(sent)]
        assert target[: len(wanted)].tolist() == wanted
        assert (whole[len(wanted) :] == GUARD).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float64, torch.complex128], ids=name_of)
def test_rows_of_any_dtype_and_shape_are_moved_whole(dtype, me, npes):
    source, target = shmem.full((5 * npes, 2, 33), me + 1, dtype=dtype), shmem.zeros((5 * npes, 2, 33), dtype=dtype)
    counts = int64([5] * npes, device=source.device)
    received = torch.empty_like(counts)
    shmem.alltoallv_on_stream(target, source, counts, received)
    assert target[:, 1, 32].real.tolist() == [pe + 1 for pe in range(npes) for _ in range(5)]
    assert (target == target[:, :1, :1]).all()


@interpreted
def test_the_kernel_leaves_no_source_before_all_have_read_it_however_slow_one_is(me, npes, monkeypatch):
    copy, scratch = arch.copy, shmem.zeros(1 << 20, dtype=torch.uint8)
    target, whole, source = arrays(7 * npes, 7 * npes)
    for turn in range(4):

        def slow(*operands, late=turn % npes == me):
            work(20_000 if late else 0)
            copy(*operands)

        monkeypatch.setattr(arch, "copy", slow)
        counts, _ = fill(turn, me, range(npes), source, 0)
        by_kernel(scratch, None, target, source, counts, torch.zeros_like(counts), None)
        source.fill_(-7)
        wanted = came(turn, me, range(npes))
        assert target[: len(wanted)].tolist() == wanted


@on_a_gpu
def test_a_graph_takes_the_numbers_that_memory_has_at_its_replay(me, npes):
    target, whole, source = arrays(7 * npes, 7 * npes)
    counts, received = (torch.zeros(npes, dtype=torch.int64, device="cuda") for _ in range(2))
    shmem.alltoallv_on_stream(target, source, counts, received)
    shmem.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        shmem.alltoallv_on_stream(target, source, counts, received)
    for turn in range(20):
        new, _ = fill(turn, me, range(npes), source, 0)
        counts.copy_(new)
        graph.replay()
        wanted = came(turn, me, range(npes))
        assert received.tolist() == [count_of(turn, pe, me) for pe in range(npes)]
        assert target[: len(wanted)].tolist() == wanted
    shmem.barrier_all()


def n(count=None, dtype=torch.int64):
    return shmem.zeros(shmem.n_pes() if count is None else count, dtype=dtype)


REFUSED = [
    (lambda a: (a, torch.ones(8), n(), n()), shmem.NotSymmetricError, "source: "),
    (lambda a: (a, shmem.ones((4, 2)), n(), n()), shmem.ArgumentError, "source: got rows of 2 elements; expected .* target, 1"),
    (lambda a: (a, a[:0], n(), n()), shmem.ArgumentError, "source: got no rows"),
    (lambda a: (a, a, n(dtype=torch.int32), n()), shmem.DtypeError, "counts: got int32 elements"),
    (lambda a: (a, a, n(), n(9)), shmem.ArgumentError, r"received: got 9 elements; expected \d, one for each member"),
    (lambda a: (a, a, n(), n(), [1]), shmem.ArgumentError, "displacements: got a list"),
    (lambda a: (a, a, n(), n(), None, 3), shmem.ArgumentError, "team: got int"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "error", "words"), REFUSED, ids=range(len(REFUSED)))
def test_a_refused_call_says_what_is_wrong(operands, error, words):
    array = shmem.ones(8)
    with pytest.raises(error, match=f"alltoallv_on_stream: PE \\d+: {words}"):
        shmem.alltoallv_on_stream(*operands(array))
    assert array.tolist() == [1] * 8
