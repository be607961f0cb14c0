"""9.9 with private arrays: the results are those of symmetric ones, whoever passes what, and in pieces of any size."""

from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch
from support import DTYPES, RMA_DTYPES, assert_same, guarded, here, live, name_of, on_one_node, payload, untouched, work
from team_shapes import group, way  # noqa: F401

import pyshmem as shmem
from pyshmem import shmem as c
from pyshmem.memory.heap import default

SIZES = [0, 1, 7, 600]
ROOT = 1  # of every broadcast, or 0 in a team of one
# who passes private arrays: (target, source) on member k
EVERYWHERE = {
    "both": lambda k: (True, True),
    "targets": lambda k: (True, False),
    "sources": lambda k: (False, True),
    "sources of some": lambda k: (False, k % 2 == 0),
    "targets and some sources": lambda k: (True, k % 2 == 1),
}
MIXED = {"some targets": lambda k: (k % 2 == 0, False), "the first": lambda k: (k == 0, k == 0), "all but the first": lambda k: (k > 0, k > 0)}  # fmt: skip
# with the number of elements in a block
CALLS = {
    "broadcast": lambda t, s, count, team: shmem.broadcast(t, s, min(ROOT, team.n_pes() - 1), count, team),
    "collect": lambda t, s, count, team: shmem.collect(t, s, count * (team.my_pe() % 3), team),
    "fcollect": lambda t, s, count, team: shmem.fcollect(t, s, count, team),
    "alltoall": lambda t, s, count, team: shmem.alltoall(t, s, count, team),
    "alltoalls": lambda t, s, count, team: shmem.alltoalls(t, s, 2, 3, count, team),
    "sum_reduce": lambda t, s, count, team: shmem.sum_reduce(t, s, count, team),
    "max_reduce": lambda t, s, count, team: shmem.max_reduce(t, s, count, team),
    "sum_inscan": lambda t, s, count, team: shmem.sum_inscan(t, s, count, team),
    "sum_exscan": lambda t, s, count, team: shmem.sum_exscan(t, s, count, team),
}
ALIKE = ["broadcast", "fcollect", "alltoall", "alltoalls"]  # whose targets must be of one kind


@pytest.fixture
def small_pieces(monkeypatch):
    """So little staging memory that arrays of some hundred elements take many turns."""
    monkeypatch.setattr(default(), "staging_bytes", 1 << 15)


def arrays(count, n, turn, me, dtype=torch.int64):
    """Symmetric (target, source), long enough for all calls; every byte of the target is a guard's."""
    return guarded(3 * n * max(count, 1), dtype)[1], shmem.array(payload(me, turn, 3 * n * count + 1, dtype))


def chosen(way, private, array):
    return way(array.clone()) if private else way(array)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("way", ["tensors", "torch"], indirect=True)
@pytest.mark.parametrize("group", ["world", "evens", "odds, reversed"], indirect=True)
def test_private_arrays_give_what_symmetric_ones_give(name, group, way, me, small_pieces):
    team, pes = group
    for kind in EVERYWHERE if name in ALIKE else {**EVERYWHERE, **MIXED}:
        for turn, count in enumerate(SIZES):
            wanted, source = arrays(count, len(pes), turn, me)
            target, _ = arrays(count, len(pes), turn, me)
            if team:
                CALLS[name](wanted, source, count, team)
                to, own = {**EVERYWHERE, **MIXED}[kind](team.my_pe())
                given = target.clone() if to else target
                CALLS[name](way(given), chosen(way, own, source), count, team)
                assert_same(given.clone(), wanted.clone())
                assert not to or untouched(target)
            assert_same(source.clone(), payload(me, turn, len(source), torch.int64))
            for array in (wanted, source, target):
                shmem.free(array)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_private_arrays_of_every_type_move(dtype, way, me, npes, small_pieces):
    for count in (1, 1000):
        target = torch.empty(count * npes, dtype=dtype, device=here())
        shmem.fcollect(way(target), way(payload(me, 1, count, dtype)))
        assert_same(target, torch.cat([payload(pe, 1, count, dtype) for pe in range(npes)]))


@pytest.mark.parametrize("dtype", [*RMA_DTYPES, np.longdouble, np.clongdouble], ids=str)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "xor"])
def test_private_arrays_of_every_type_are_combined_to_the_same_bits(op, dtype, me, npes, device, small_pieces):
    for count in (3, 2000):
        if isinstance(dtype, torch.dtype):
            source = shmem.array(payload(me, 1, count, dtype))
            target, given = torch.empty_like(source), source.clone()
        elif device == "cpu":
            source = shmem.empty(count * np.dtype(dtype).itemsize, dtype=torch.uint8).numpy().view(dtype)
            source[:] = np.arange(count) + dtype(1) / 3 * me
            target, given = np.empty_like(source), source.copy()
        else:
            pytest.skip("a type of the CPU")
        wanted = source
        try:
            shmem.reduce(wanted, source, op)
        except shmem.DtypeError:
            with pytest.raises(shmem.DtypeError, match=r"target: got \w+ elements; expected one of "):
                shmem.reduce(target, given, op)
            continue
        shmem.reduce(target, given, op)
        shmem.reduce(given, given, op)
        for got in (target, given):
            if isinstance(got, torch.Tensor):
                assert_same(got, wanted.clone())
            else:
                assert (got == wanted).all()


@pytest.mark.parametrize("name", ["broadcast", "fcollect", "alltoall", "sum_reduce", "sum_inscan"])
@pytest.mark.parametrize("count, turns", [(5, 60), (9000, 9)])
def test_calls_on_private_arrays_follow_each_other_without_a_word_between(name, count, turns, me, npes, small_pieces):
    """A source is written just before the call and just after it; calls on symmetric arrays come between."""
    source, target = (torch.empty(n * count, dtype=torch.int64, device=here()) for n in (npes, npes))
    flag, seen = shmem.zeros(1, dtype=torch.int64), shmem.zeros(turns, dtype=torch.int64)
    for turn in range(turns):
        if me == turn // 3 % npes:
            work(5000)
        source[:] = payload(me, turn, npes * count, torch.int64)
        CALLS[name](target, source, count, shmem.TEAM_WORLD)
        source.fill_(-1)
        sent = [payload(pe, turn, npes * count, torch.int64) for pe in range(npes)]
        if name in ("fcollect", "alltoall"):
            first = me * count if name == "alltoall" else 0
            assert_same(target, torch.cat([each[first : first + count] for each in sent]))
        else:
            last = {"broadcast": [min(ROOT, npes - 1)], "sum_reduce": range(npes), "sum_inscan": range(me + 1)}[name]
            assert_same(target[:count], torch.stack([sent[pe][:count] for pe in last]).sum(0))
        flag.fill_(turn)
        shmem.max_reduce(seen[turn : turn + 1], flag)
    assert seen.tolist() == list(range(turns))


def test_private_arrays_that_overlap_are_read_before_they_are_written(me, npes, small_pieces):
    count = 3000
    for shift in (0, 1, -1, 700, -700):
        whole = payload(me, 1, count + 1400, torch.int64)
        before = [payload(pe, 1, count + 1400, torch.int64)[700 : 700 + count] for pe in range(npes)]
        shmem.sum_reduce(whole[700 + shift : 700 + shift + count], whole[700 : 700 + count])
        assert_same(whole[700 + shift : 700 + shift + count], torch.stack(before).sum(0))
    whole = payload(me, 2, npes * count, torch.int64)
    shmem.fcollect(whole, whole[me * count : (me + 1) * count])
    parts = [payload(pe, 2, npes * count, torch.int64)[pe * count : (pe + 1) * count] for pe in range(npes)]
    assert_same(whole, torch.cat(parts))
    shmem.alltoall(whole[: npes * 1000], whole[: npes * 1000])
    assert_same(whole[: npes * 1000], torch.cat([torch.cat(parts)[me * 1000 : (me + 1) * 1000]] * npes))


def test_large_private_arrays_take_the_staging_memory_as_it_is_and_no_heap(me, npes):
    before = live()
    array = payload(me, 1, 200_000, torch.float32)
    for _ in range(3):
        target = torch.empty_like(array)
        shmem.sum_reduce(target, array)
        assert_same(target, torch.stack([payload(pe, 1, 200_000, torch.float32) for pe in range(npes)]).sum(0))
        shmem.broadcast(target, array, npes - 1)
        assert_same(target, payload(npes - 1, 1, 200_000, torch.float32))
    assert live() == before


# ---- what is refused ----


def refused(error, pattern, call):
    with pytest.raises(error, match=pattern):
        call()


@pytest.mark.many
@pytest.mark.parametrize("name", ALIKE[1:])
def test_targets_of_different_kinds_are_refused_on_all_members(name, me, npes):
    if npes == 1:
        pytest.skip("a PE is of one kind with itself")
    for count in (1, 5000):
        target, source = arrays(count, npes, 1, me)
        given = target.clone() if me == npes - 1 else target
        text = rf"target: got private memory on PE {npes - 1} and symmetric memory on PEs? 0.*; expected targets of one kind"
        refused(shmem.ArgumentError, rf"^{name}: PE {me}: {text} on all PEs of TEAM_WORLD$",
                partial(CALLS[name], given, source, count, shmem.TEAM_WORLD))  # fmt: skip
        shmem.sum_reduce(given, given)  # the next call is not disturbed


def test_a_broadcast_is_refused_where_the_target_is_private_and_the_roots_is_not(me, npes):
    """On a GPU heap it is performed: all members meet before anything is copied."""
    if npes == 1:
        pytest.skip("a PE is of one kind with itself")
    for turn, count in enumerate((1, 5000, 300_000)):
        target, source = guarded(count, torch.int64)[1], shmem.array(payload(me, turn, count, torch.int64))
        text = (
            rf"^broadcast: PE {me}: target: got private memory on .* and symmetric memory on PE 0, the root; expected"
        )
        given = torch.empty_like(target) if me == npes - 1 else target
        if given is not target and here().type == "cpu":
            refused(shmem.ArgumentError, text, partial(shmem.broadcast, given, source, 0))
        elif on_one_node():
            shmem.broadcast(given, source, 0)
            assert_same(given[:count].clone(), payload(0, turn, count, torch.int64))
        else:  # the data may come through the last PE, which has refused the call
            with suppress(shmem.ArgumentError):
                shmem.broadcast(target, source, 0)
        shmem.sync_all()
        shmem.broadcast(target.clone() if me == 0 else target, source, 0)  # the root's decides
        if me:
            assert_same(target[:count].clone(), payload(0, turn, count, torch.int64))


def test_memory_that_no_call_may_use_is_refused(me, npes):
    source, freed = shmem.full(64, 7.0), shmem.zeros(64)
    private = torch.zeros(64, device=here())
    shmem.free(freed)
    constant = np.zeros(64, np.float32)
    constant.flags.writeable = False
    for target, text, error in (
        (freed, "a float32 array of shape .* that is not symmetric: its memory was freed", shmem.NotSymmetricError),
        (torch.zeros(128, device=here())[::2], "an array of shape .* that is not C-contiguous", shmem.ArgumentError),
        (constant, "a read-only array; expected a writable array", shmem.ArgumentError),
        (np.zeros(64), "float32 elements; expected the float64 of target", shmem.DtypeError),
        (torch.zeros(63, device=here()), "64 elements, with target of 63 and source of 64", shmem.OutOfRangeError),
    ):
        if isinstance(target, np.ndarray) and here().type != "cpu":
            continue
        refused(error, rf"^sum_reduce: PE {me}: \w+: got {text}", partial(shmem.sum_reduce, target, source))
    forbidden = {"its memory was freed": freed}
    if npes > 1 and on_one_node():
        forbidden["another PE's memory"] = shmem.ptr(source, (me + 1) % npes)
    for text, given in forbidden.items():
        for pair in ((given, source), (source, given), (private, given)):
            few = partial(shmem.sum_reduce, *pair, 4)
            refused(shmem.NotSymmetricError, rf"^sum_reduce: PE {me}: \w+: got .*{text}", few)
    for name in ("fcollect", "alltoall", "reduce"):
        text = rf"^{name}_on_stream: PE {me}: target: got a float32 array of shape .* private memory"
        refused(shmem.NotSymmetricError, text, partial(getattr(shmem, f"{name}_on_stream"), private, source))
    assert source.tolist() == [7.0] * 64 and not private.any()


@pytest.mark.parametrize("which", ["target", "source"])
def test_c_names_take_symmetric_arrays_only(which, me, npes):
    world, array = c.SHMEM_TEAM_WORLD, shmem.full(4 * npes, 7.0)
    to, own = (array.clone(), array) if which == "target" else (array, array.clone())
    for name, call in {
        "shmem_float_broadcast": lambda: c.shmem_float_broadcast(world, to, own, 4, 0),
        "shmem_float_collect": lambda: c.shmem_float_collect(world, to, own, 4),
        "shmem_float_fcollect": lambda: c.shmem_float_fcollect(world, to, own, 4),
        "shmem_float_alltoall": lambda: c.shmem_float_alltoall(world, to, own, 4),
        "shmem_float_alltoalls": lambda: c.shmem_float_alltoalls(world, to, own, 1, 1, 4),
        "shmem_float_sum_reduce": lambda: c.shmem_float_sum_reduce(world, to, own, 4),
        "shmem_float_sum_inscan": lambda: c.shmem_float_sum_inscan(world, to, own, 4),
    }.items():
        refused(shmem.NotSymmetricError, rf"^{name}: PE {me}: {which}: got a float32 array .* private memory", call)
    assert (to == 7).all() and (own == 7).all()


def test_without_staging_memory_private_arrays_are_refused_on_all_members(me, monkeypatch):
    monkeypatch.setattr(default(), "staging_bytes", 0)
    array = torch.ones(1000, device=here())
    text = rf"^sum_reduce: PE {me}: PYSHMEM_STAGING: got 0 bytes of staging memory for private arrays in TEAM_WORLD; expected"
    refused(shmem.HeapExhaustedError, text, lambda: shmem.sum_reduce(array, array))
