"""alltoallv: rows whose numbers the members know, each its own; private and symmetric arrays, teams, and pieces of any size."""

import numpy as np
import pytest
import torch
from support import DTYPES, GUARD, assert_same, here, name_of, payload, work
from team_shapes import group, way  # noqa: F401

import pyshmem as shmem
from pyshmem.memory.heap import default

WIDTH = 3
# whose arrays are private: (target, source) on member k
KINDS = {
    "symmetric": lambda k: (False, False),
    "private": lambda k: (True, True),
    "targets of some": lambda k: (k % 2 == 0, False),
    "sources of some": lambda k: (False, k % 2 == 1),
    "some of both": lambda k: (k % 2 == 0, k % 2 == 1),
}


@pytest.fixture(params=[None, 1 << 13], ids=["", "small pieces"])
def pieces(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(default(), "staging_bytes", request.param)


def count_of(turn, sender, to):
    """Rows from one PE to another: none, one, some, many."""
    return (turn + 2 * sender + 5 * to) % 7 * (40 if turn == 3 else 1) if (turn + sender + to) % 3 else 0


def row(turn, sender, to, number):
    return [10_000 * turn + 2000 * sender + 400 * to + number] * WIDTH


def rows(turn, me, pes, gaps):
    """(source, counts, displacements) of rows for each member, ``gaps`` rows apart."""
    counts, starts, found = [count_of(turn, me, to) for to in pes], [], []
    for to, count in zip(pes, counts, strict=True):
        starts.append(len(found) + gaps)
        found += [[GUARD] * WIDTH] * gaps + [row(turn, me, to, number) for number in range(count)]
    return torch.tensor(found, dtype=torch.int32, device=here()).reshape(-1, WIDTH), counts, starts


def came(turn, me, pes):
    return [row(turn, pe, me, number) for pe in pes for number in range(count_of(turn, pe, me))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gaps", [0, 2])
@pytest.mark.parametrize("way", ["tensors", "torch"], indirect=True)
def test_every_member_gets_the_rows_of_all_in_the_order_of_pes_however_late_one_is(way, group, gaps, kind, me, pieces):
    team, pes = group
    room = 7 * 40 * len(pes)
    whole, source = (
        shmem.full((room + 1, WIDTH), GUARD, dtype=torch.int32),
        shmem.zeros((room, WIDTH), dtype=torch.int32),
    )
    if not team:
        return
    to_private, own_private = KINDS[kind](team.my_pe())
    if to_private:
        whole = torch.full_like(whole, GUARD)
    for turn in range(5):
        if turn % shmem.n_pes() == me:
            work(5000)
        whole.fill_(GUARD)
        mine, counts, starts = rows(turn, me, pes, gaps)
        given = mine if own_private else source
        if not own_private:
            source[: len(mine)] = mine
        received = torch.full((len(pes),), -1, dtype=torch.int64)
        shmem.alltoallv(whole[:room], given, counts, received, starts if gaps else None, team)
        given.fill_(-7)  # at once: all members have read it
        wanted = came(turn, me, pes)
        assert received.tolist() == [count_of(turn, pe, me) for pe in pes]
        assert whole[: len(wanted)].tolist() == wanted and (whole[len(wanted) :] == GUARD).all()


def test_no_target_is_written_before_its_pe_calls(me, npes):
    """So the next call may have the same target, without a barrier in between."""
    target, source = shmem.full((npes, 100), -1.0), shmem.zeros((npes, 100))
    for turn in range(60):
        if turn % npes == me:
            work(2000)
        assert turn == 0 or (target == turn - 1).all()
        source.fill_(turn)
        shmem.alltoallv(target, source, [1] * npes)
        assert (target == turn).all()


@pytest.mark.parametrize("kind", ["symmetric", "private"])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128], ids=name_of)
def test_rows_of_any_dtype_and_shape_are_moved_whole(dtype, kind, me, npes, pieces):
    source = payload(me, 1, 5 * npes * 2 * 33, dtype).view(-1, 2, 33)
    target = torch.zeros_like(source)
    if kind == "symmetric":
        source, target = shmem.array(source), shmem.zeros_like(source)
    shmem.alltoallv(target, source, np.full(npes, 5))
    blocks = [payload(pe, 1, 5 * npes * 2 * 33, dtype).view(npes, -1)[me] for pe in range(npes)]
    assert_same(target.view(-1).clone(), torch.cat(blocks))


def test_counts_are_lists_arrays_or_tensors_and_received_is_any_int64(me, npes):
    target, source = shmem.zeros(3 * npes), shmem.full(3 * npes, me + 1.0)
    for make in (list, tuple, np.array, torch.tensor, lambda given: np.array(given, np.uint8)):
        for received in (None, np.zeros(npes, np.int64), shmem.zeros(npes, dtype=torch.int64)):
            shmem.alltoallv(target, source, make([me + 1 if me < 3 else 0] * npes), received, make([0] * npes))
            assert received is None or received.tolist() == [pe + 1 if pe < 3 else 0 for pe in range(npes)]


def test_nobody_need_send_anything(me, npes):
    target, source = shmem.full(4, float(GUARD)), shmem.zeros(0)
    received = np.ones(npes, np.int64)
    for own in (source, torch.empty((0,), device=here())):
        shmem.alltoallv(target, own, [0] * npes, received)
        assert received.tolist() == [0] * npes and (target == GUARD).all()


def test_sources_may_be_empty_or_other_views_on_each_pe(me, npes):
    """Where a member's source is, it says itself: that of the others need not be in the same place."""
    target, whole = shmem.full((npes, 5), -1.0), shmem.zeros((npes + 1, 5))
    for turn in range(2 * npes):
        whole.fill_(100 * turn + me)
        first = me % 2
        own = torch.empty((0, 5), device=here()) if me == turn % npes else whole[first : first + npes]
        shmem.alltoallv(target, own, [len(own) // npes] * npes)
        wanted = [100 * turn + pe for pe in range(npes) if pe != turn % npes]
        assert target[: len(wanted), 4].tolist() == wanted


def n(count):
    return [count] * shmem.n_pes()


REFUSED = [
    (lambda a: (a, torch.ones(8, dtype=torch.float64, device=here()), n(1)), shmem.DtypeError, "source: got float64"),
    (lambda a: (a, a, n(0)), shmem.ArgumentError, "source: got memory of target"),
    (lambda a: (a, shmem.ones((4, 2)), n(0)), shmem.ArgumentError, "source: got rows of 2 elements; expected rows .*, of 1"),
    (lambda a: (a, shmem.ones(4), n(9)), shmem.OutOfRangeError, "counts: got rows 0 to 8 for member 0; expected the 4 rows"),
    (lambda a: (a, shmem.ones(4), n(1), None, n(4)), shmem.OutOfRangeError, "displacements: got rows 4 to 4 for member 0"),
    (lambda a: (a, shmem.ones(4), n(-1)), shmem.OutOfRangeError, "counts: got -1; expected 0 or more"),
    (lambda a: (a, shmem.ones(4), n(0.5)), shmem.ArgumentError, "counts: got 0.5; expected an int"),
    (lambda a: (a, shmem.ones(4), n(0) + [0]), shmem.ArgumentError, r"counts: got \d numbers; expected \d, one for each"),
    (lambda a: (a, shmem.ones(4), 3), shmem.ArgumentError, r"counts: got 3; expected \d ints, one for each member"),
    (lambda a: (a, shmem.ones(4), n(0), np.zeros(99, int)), shmem.ArgumentError, "received: got 99 elements; expected"),
    (lambda a: (a, shmem.ones(4), n(0), np.zeros(99)), shmem.DtypeError, "received: got float64 elements"),
    (lambda a: (a, shmem.ones(4), n(0), None, None, 3), shmem.ArgumentError, "team: got int"),
    (lambda a: (a[:1], torch.ones(64, device=here()), n(2)), shmem.OutOfRangeError,
     r"target: got 1 rows on PE 0; expected at least \d, which come together"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "error", "words"), REFUSED, ids=range(len(REFUSED)))
def test_a_refused_call_says_what_is_wrong_and_moves_nothing(operands, error, words):
    array = shmem.full(8, float(GUARD))
    with pytest.raises(error, match=f"alltoallv: PE \\d+: {words}"):
        shmem.alltoallv(*operands(array))
    assert (array == GUARD).all()
    shmem.barrier_all()


@pytest.mark.parametrize("small", ["the first", "the last"])
def test_a_target_that_is_too_small_on_one_pe_is_refused_on_all(small, me, npes):
    one = 0 if small == "the first" else npes - 1
    target = torch.full((1 if me == one else 2 * npes,), float(GUARD), device=here())
    with pytest.raises(shmem.OutOfRangeError, match=f"target: got 1 rows on PE {one}; expected at least {2 * npes}, "):
        shmem.alltoallv(target, torch.ones(2 * npes, device=here()), n(2))
    assert (target == GUARD).all()
    shmem.barrier_all()


@pytest.mark.parametrize("differs", ["width", "dtype", "routine"])
def test_calls_that_differ_are_refused_on_all(differs, me, npes):
    if npes == 1:
        pytest.skip("nobody to differ from")
    shape = (4 * npes, 2 if differs == "width" and me == 0 else 1)
    dtype = torch.float64 if differs == "dtype" and me == 0 else torch.float32
    target, source = torch.zeros(shape, dtype=dtype, device=here()), torch.ones(shape, dtype=dtype, device=here())
    with pytest.raises(shmem.ShmemError, match=r"alltoallv|collect"):
        if differs == "routine" and me == 0:
            shmem.collect(target, source[:1])
        else:
            shmem.alltoallv(target, source, n(1))
    assert not target.any()
    shmem.barrier_all()
