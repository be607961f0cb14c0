"""9.3, 9.9: a collective that PEs call with different sizes or types is an error on all of them, and their next call works."""

import os
import re
from itertools import combinations

import pytest
import torch
from support import guarded, live, on_one_node, payload, refused_by_all, untouched
from team_shapes import way  # noqa: F401

import pyshmem as shmem

FOLDS = ["sum_reduce", "max_reduce", "sum_inscan", "sum_exscan"]
several_numbers = pytest.mark.skipif(
    "PYSHMEM_RACE_TRACES" in os.environ,
    reason="the checker pairs calls by their numbers, which differ between PEs here",
)
SIZES = [(8, 4), (20, 600), (600, 500)]  # by mailboxes; by mailboxes and in shares; in shares


@pytest.fixture(autouse=True)
def several(npes):
    if npes == 1:
        pytest.skip("a PE agrees with itself")


def last_differs(me, npes, usual, odd):
    return odd if me == npes - 1 else usual


def said(npes, usual, odd):
    """The part of the message that tells both calls, with their PEs in order."""
    usual, odd = (anywhere(re.escape(words)) for words in (usual, odd))
    return f"got {usual} on PEs? 0.* and {odd} on PE {npes - 1}; expected the same on all PEs of TEAM_WORLD$"


def anywhere(pattern):
    """The pattern of a message, for elements in either heap."""
    return pattern.replace("elements", "elements( in GPU memory)?")


@pytest.mark.many
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("way", ["tensors", "arrays", "torch"], indirect=True)
def test_reductions_of_different_sizes_are_refused_on_all_pes_and_write_nothing(name, way, private, sizes, me, npes):
    target, source = guarded(600, torch.int32)[1], shmem.array(payload(me, 0, 600, torch.int32))
    given = source.clone() if private and me == 0 else source
    size = last_differs(me, npes, *sizes)
    text = f"{name}: PE {me}: size: " + said(npes, *(f"{count} int32 elements" for count in sizes))
    refused_by_all(shmem.OutOfRangeError, text, lambda: getattr(shmem, name)(way(target), way(given), size))
    assert untouched(target)
    shmem.sum_reduce(way(source[:100]), way(shmem.ones(100, dtype=torch.int32)))
    assert (source[:100] == npes).all()


@pytest.mark.many
@pytest.mark.parametrize("count", [4, 600])
@pytest.mark.parametrize("name", [*FOLDS, "collect", "fcollect", "alltoall", "alltoalls"])
def test_collectives_of_different_types_are_refused_on_all_pes(name, count, me, npes):
    dtype = last_differs(me, npes, torch.float32, torch.int32)
    source = shmem.zeros(count * npes).view(dtype)
    target = guarded(count * npes, torch.float32)[1].view(dtype)
    text = f"{name}: PE {me}: dtype: " + said(npes, f"{count} float32 elements", f"{count} int32 elements")
    refused_by_all(shmem.DtypeError, text, lambda: getattr(shmem, name)(target, source, size=count))
    assert untouched(target) or name not in (*FOLDS, "collect")


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", ["fcollect", "alltoall", "alltoalls", "broadcast"])
def test_copies_of_different_sizes_are_refused_on_all_pes(name, private, me, npes):
    target, source = shmem.zeros(8 * npes), shmem.ones(8 * npes)
    if name == "broadcast" and not private and not target.is_cuda:
        pytest.skip("the root of a small broadcast of CPU memory waits for nobody")
    call = (lambda *arrays, size: shmem.broadcast(*arrays, 0, size)) if name == "broadcast" else getattr(shmem, name)
    arrays = [array.clone() if private else array for array in (target, source)]
    root = " from root 0" * (name == "broadcast")
    text = f"{name}: PE {me}: size: " + said(npes, f"8 float32 elements{root}", f"4 float32 elements{root}")
    refused_by_all(shmem.OutOfRangeError, text, lambda: call(*arrays, size=last_differs(me, npes, 8, 4)))


@pytest.mark.many
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", [*FOLDS, "fcollect", "alltoall", "alltoalls"])
def test_no_elements_on_one_pe_alone_are_refused_on_all(name, private, me, npes):
    target, source = torch.zeros(8 * npes), torch.ones(8 * npes)
    target, source = (target, source) if private else map(shmem.array, (target, source))
    text = f"{name}: PE {me}: size: " + said(npes, "1 float32 elements", "0 float32 elements")
    refused_by_all(
        shmem.OutOfRangeError, text, lambda: getattr(shmem, name)(target, source, size=last_differs(me, npes, 1, 0))
    )


@pytest.mark.many
@pytest.mark.parametrize("odd", [4, 0, 600])
def test_small_broadcasts_that_are_not_the_roots_are_refused_there(odd, me, npes):
    """The root waits for nobody. If it is calls ahead, the member finds the difference in a later one."""
    target, source = shmem.zeros(600), shmem.full((600,), 1.0 + me)
    if target.is_cuda:
        pytest.skip("broadcasts of GPU memory compare as all copies do")
    text = rf"^broadcast: PE {me}: call: got \d+ float32 elements from root 0 here, and another size or type on the root, .*TEAM_WORLD$"
    refusals = []
    for size in (last_differs(me, npes, 8, odd), 8, 8):
        try:
            shmem.broadcast(target, source, 0, size)  # check: ignore, the sizes shall differ
        except shmem.ArgumentError as error:
            refusals.append(str(error))
    assert len(refusals) == last_differs(me, npes, 0, 1), refusals
    assert all(re.match(text, refusal) for refusal in refusals)
    shmem.barrier_all()
    shmem.broadcast(target, source, npes - 1, 600)
    assert (target == npes).all()


def test_large_broadcasts_of_different_sizes_are_refused_on_all_pes(me, npes):
    if not on_one_node():
        pytest.skip("the root waits for nobody")
    target, source = shmem.zeros(300_000), shmem.ones(300_000)
    size = last_differs(me, npes, 300_000, 290_000)
    text = f"broadcast: PE {me}: size: " + said(
        npes, "300000 float32 elements from root 0", "290000 float32 elements from root 0"
    )
    refused_by_all(shmem.OutOfRangeError, text, lambda: shmem.broadcast(target, source, 0, size))


def test_strides_that_differ_are_refused_on_all_pes(me, npes):
    target, source = shmem.zeros(8 * npes), shmem.ones(8 * npes)
    stride = last_differs(me, npes, 2, 3)
    text = f"alltoalls: PE {me}: call: " + said(
        npes, "1 float32 elements at stride 2", "1 float32 elements at stride 3"
    )
    refused_by_all(shmem.ArgumentError, text, lambda: shmem.alltoalls(target, source, stride, 1, 1))


@pytest.mark.parametrize("make", [shmem.zeros, shmem.malloc, lambda size: shmem.align(128, size)])
def test_allocations_of_different_sizes_are_refused_on_all_pes_and_leave_the_heap_as_it_was(make, me, npes):
    before = live()
    text = r"(zeros|malloc|align): PE \d+: size: got 100 \w+ elements at heap offset \d+ on .* and 200 \w+ elements .*; expected the same"
    refused_by_all(shmem.OutOfRangeError, anywhere(text), lambda: make(last_differs(me, npes, 100, 200)))
    assert live() == before
    word = shmem.zeros(1)  # at one offset on all
    shmem.put(word, torch.ones(1, device=word.device), (me + 1) % npes)
    shmem.barrier_all()
    assert word.item() == 1


def test_an_allocation_that_fits_on_some_pes_only_is_refused_on_all(me, npes):
    before = live()
    size = last_differs(me, npes, 64, 1 << 50)
    refused_by_all(shmem.OutOfRangeError, "malloc: .*size: got 64 uint8 elements", lambda: shmem.malloc(size))
    assert live() == before


def test_blocks_that_differ_are_not_freed_nor_resized(me, npes):
    a, b = shmem.zeros(16), shmem.zeros(16)
    before = live()
    refused_by_all(shmem.ArgumentError, "free: ", lambda: shmem.free(last_differs(me, npes, a, b)))
    refused_by_all(shmem.ArgumentError, "realloc: ", lambda: shmem.realloc(last_differs(me, npes, a, b), 640))
    refused_by_all(shmem.OutOfRangeError, "realloc: ", lambda: shmem.realloc(a, last_differs(me, npes, 640, 1280)))
    assert live() == before


def test_different_routines_are_refused_on_all_pes(me, npes):
    word = shmem.zeros(1, dtype=torch.int64)
    text = f"call: got sum_reduce of 1 int64 elements on PEs? 0.* and max_reduce of 1 int64 elements on PE {npes - 1}; expected the same call"
    call = last_differs(me, npes, shmem.sum_reduce, shmem.max_reduce)
    refused_by_all(shmem.ArgumentError, anywhere(text), lambda: call(word, word))
    text = f"call: got barrier_all on PEs? 0.* and zeros of 5 float32 elements at heap offset .* on PE {npes - 1}; expected"
    call = last_differs(me, npes, shmem.barrier_all, lambda: shmem.zeros(5))
    refused_by_all(shmem.ArgumentError, anywhere(text), call)
    text = f"call: got sum_reduce of 1 int64 elements on PEs? 0.* and collect of 1 int64 elements on PE {npes - 1}; expected the same call"
    call = last_differs(me, npes, lambda: shmem.sum_reduce(word, word), lambda: shmem.collect(word, word))
    refused_by_all(shmem.ArgumentError, anywhere(text), call)
    shmem.sum_reduce(word.fill_(1), word)
    assert word.item() == npes


def _split():
    shmem.TEAM_WORLD.split_strided().destroy()


def _arrays(count, npes, dtype=torch.float32):
    return torch.zeros(count * npes, dtype=dtype), torch.ones(count, dtype=dtype)


def calls_of(npes):
    """One call of each kind, by name. All names are different collectives."""
    target, source = shmem.zeros(8 * npes), shmem.ones(8 * npes)
    big, ones = shmem.zeros(80_000 * npes), shmem.ones(80_000)
    private, given, shared = torch.zeros(8), torch.ones(8), torch.ones(8).share_memory_()
    two = {"broadcast": (0,), "broadcast from the last PE": (npes - 1,), "reduce_on_stream": ("sum",)}
    names = [
        *("broadcast", "broadcast from the last PE", "fcollect", "collect", "alltoall", "sum_inscan", "sum_exscan"),
        *("sum_reduce", "max_reduce", "fcollect_on_stream", "alltoall_on_stream", "reduce_on_stream"),
    ]
    calls = {
        name: lambda name=name: getattr(shmem, name.split()[0])(target, source[:8], *two.get(name, ()), size=8)
        for name in names
        if "alltoall" not in name
    }
    calls |= {
        name: lambda name=name: getattr(shmem, name)(target, source) for name in ("alltoall", "alltoall_on_stream")
    }
    return calls | {
        "alltoalls": lambda: shmem.alltoalls(target, source, 2, 1, 2),
        "large min_reduce": lambda: shmem.min_reduce(big, ones),
        "prod_reduce of private arrays": lambda: shmem.prod_reduce(private, given.repeat(100), 8),
        "barrier_all": shmem.barrier_all,
        "sync": shmem.TEAM_WORLD.sync,
        "barrier_on_stream": shmem.barrier_on_stream,
        "allocation": lambda: shmem.free(shmem.zeros(100)),
        "free": lambda: shmem.free(big),
        "register": lambda: shmem.unregister(shmem.register(shared)),
        "unregister": lambda: shmem.TEAM_WORLD.meeting.sync("unregister"),
        "split": _split,
    }


def refusal_of(call):
    """What this PE is told: in the call, or in the next one if it was the root of a broadcast, which waits for nobody."""
    try:
        call()
        shmem.sync_all()
    except shmem.ShmemError as error:
        return str(error)
    return "nothing"


@several_numbers
def test_every_two_different_collectives_are_an_error_on_all_pes_at_once(me, npes):
    """The last PE calls another one, and the first of each pair in turn; then all call alike again."""
    calls = calls_of(npes)
    word = shmem.zeros(1, dtype=torch.int64)
    if word.is_cuda:
        pytest.skip("calls on streams meet on the GPU")
    pairs = list(combinations(calls, 2))
    for first, second in pairs if on_one_node() else pairs[::9]:  # nodes notice it later than PEs of one node
        for usual, odd in ((first, second), (second, first)):
            said = refusal_of(calls[last_differs(me, npes, usual, odd)])
            assert re.search(r": (call|size|root|dtype): got .* on PEs? 0.* and .* on PE ", said), (usual, odd, said)
            shmem.sum_reduce(word.fill_(1), word)
            assert word.item() == npes, (usual, odd)


@several_numbers
@pytest.mark.parametrize("count", [8, 300_000])
@pytest.mark.parametrize("private", [False, True])
def test_different_roots_of_a_broadcast_are_refused_on_all_pes_and_named(private, count, me, npes):
    target, source = shmem.zeros(count), shmem.full((count,), 1.0 + me)
    if private:
        target, source = target.clone(), source.clone()
    root = last_differs(me, npes, 0, npes - 1)
    said = refusal_of(lambda: shmem.broadcast(target, source, root))
    where = anywhere(f"{count} float32 elements")
    assert re.search(f"got .*{where} from root 0 on PEs? 0.* and .*{where} from root {npes - 1} on PE", said), said
    word = shmem.ones(1, dtype=torch.int64)
    shmem.sum_reduce(word, word)
    assert word.item() == npes
