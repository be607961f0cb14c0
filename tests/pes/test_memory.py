"""9.3 memory: what allocation promises on every PE, and what free gives back."""

import os
import re
from importlib import import_module

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from support import (
    GUARD, assert_same, foreign, from_pe, live, near_neighbours, neighbours, octets, payload, refuses, work,
)  # fmt: skip

import pyshmem as shmem
import pyshmem.shmem as c
from pyshmem.memory.heap import default
from pyshmem.base.job import job

SIZES = [1, 7, 64, 65, 1000, 100_000]
MAKERS = {
    "malloc": lambda n: shmem.malloc(n),
    "calloc": lambda n: shmem.calloc(1, n),
    "align": lambda n: shmem.align(256, n),
    "malloc_with_hints": lambda n: shmem.malloc_with_hints(n, 3),
    "realloc": lambda n: shmem.realloc(None, n),
    "empty": lambda n: shmem.empty(n, dtype=torch.uint8),
    "zeros": lambda n: shmem.zeros(n, dtype=torch.uint8),
    "array": lambda n: shmem.array(torch.zeros(n, dtype=torch.uint8)),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))


def offset_of(array):
    return array.data_ptr() - default().base


def on_all_pes(*numbers):
    """What each PE gave, as rows."""
    mine = shmem.array(torch.tensor(numbers))
    rows = [from_pe(mine, pe).tolist() for pe in range(shmem.n_pes())]
    shmem.free(mine)
    return rows


@makers
def test_allocation_gives_the_same_offset_on_all_pes(make):
    blocks = [make(size) for size in SIZES]
    shmem.free(blocks.pop(2))
    blocks.append(make(50))
    rows = on_all_pes(*map(offset_of, blocks))
    assert all(row == rows[0] for row in rows)


@makers
def test_allocations_do_not_overlap_and_are_aligned_for_every_type(make):
    blocks = [make(size) for size in SIZES]
    spans = sorted((offset_of(block), offset_of(block) + block.numel()) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    assert all(block.data_ptr() % 16 == 0 and shmem.is_symmetric(block) for block in blocks)
    assert [block.numel() for block in blocks] == SIZES


@makers
def test_peers_may_use_the_memory_as_soon_as_the_allocation_returns(make, me, npes):
    """One PE comes late: whoever returned before it and wrote to its memory would be overwritten by its fill."""
    left, _, right = neighbours()
    blocks = []
    for turn in range(npes):
        if me == turn:
            work(20000)
        blocks.append(make(64))
        shmem.p(blocks[-1][:1], 100 + me, right)
    shmem.barrier_all()
    assert [block[0].item() for block in blocks] == [100 + left] * npes


def test_malloc_counts_bytes_whatever_the_element_type():
    assert shmem.malloc(100, torch.float64).shape == (12,)
    assert shmem.malloc(100, np.int16).shape == (50,)
    assert shmem.calloc(5, 8, dtype=int).tolist() == [0] * 5
    assert shmem.align(64, 64, torch.complex128).shape == (4,)
    assert shmem.malloc(3, torch.float32).shape == (0,)


def test_malloc_gives_memory_that_may_be_viewed_as_any_type():
    block = shmem.malloc(160)
    for dtype in (torch.int16, torch.float32, torch.int64, torch.complex128):
        assert shmem.is_symmetric(block.view(dtype))


def test_calloc_and_zeros_clear_memory_that_was_used_before():
    for make in (lambda: shmem.calloc(10, 100), lambda: shmem.zeros(1000, dtype=torch.uint8)):
        dirty = shmem.full(1000, 255, dtype=torch.uint8)
        offset = offset_of(dirty)
        shmem.free(dirty)
        clean = make()
        assert offset_of(clean) == offset and not clean.any()
        shmem.free(clean)


@pytest.mark.parametrize("alignment", [8, 16, 64, 128, 1024, 4096, 1 << 16, 1 << 22])
def test_align_gives_an_address_that_is_a_multiple(alignment):
    blocks = [shmem.align(alignment, size) for size in SIZES for _ in range(2)]
    assert all(block.data_ptr() % alignment == 0 for block in blocks)
    rows = on_all_pes(*map(offset_of, blocks))
    assert all(row == rows[0] for row in rows)


def test_align_refuses_more_than_the_heaps_of_all_pes_have_in_common(me):
    before, most = live(), default().alignment
    wants = f"expected at most {most}, as the heaps of all PEs are aligned"
    with pytest.raises(shmem.HeapExhaustedError) as caught:
        shmem.align(2 * most, 100)
    assert str(caught.value) == f"align: PE {me}: alignment: got {2 * most}; {wants}"
    assert c.shmem_align(2 * most, 100) is None
    assert live() == before


@pytest.mark.parametrize("alignment", [0, 1, 4, 12, 8200, 3.0, None, "8"])
def test_align_refuses_what_is_no_power_of_two(alignment):
    before = live()
    with refuses("align", "alignment: got .*; expected (a power of two, 8 or more|an int)$"):
        shmem.align(alignment, 100)
    assert live() == before


@pytest.mark.parametrize("nbytes, error", [(-1, shmem.OutOfRangeError), (1.5, shmem.ArgumentError), (None, shmem.ArgumentError),
                                           (True, shmem.ArgumentError), ("1k", shmem.ArgumentError)])  # fmt: skip
def test_allocation_refuses_sizes_that_are_no_count(nbytes, error):
    before = live()
    keep = shmem.zeros(4)
    calls = {
        "malloc": lambda: shmem.malloc(nbytes),
        "calloc": lambda: shmem.calloc(1, nbytes),
        "align": lambda: shmem.align(64, nbytes),
        "malloc_with_hints": lambda: shmem.malloc_with_hints(nbytes, 0),
        "realloc": lambda: shmem.realloc(keep, nbytes),
    }
    for routine, call in calls.items():
        with refuses(routine, f"nbytes: got {re.escape(repr(nbytes))}; expected ", error):
            call()
    shmem.free(keep)
    assert live() == before


@pytest.mark.parametrize("nbytes", [2**62, 2**63 - 1, 2**63, 2**64 - 17, 2**64 + 8, 2**70])
def test_sizes_that_no_heap_has_are_an_error_of_the_heap_and_none_in_c(nbytes):
    c, keep = import_module("pyshmem.shmem"), shmem.malloc(64)
    before = live()
    for call in (
        lambda: shmem.malloc(nbytes), lambda: shmem.malloc_with_hints(nbytes, 0), lambda: shmem.calloc(8, nbytes),
        lambda: shmem.align(64, nbytes), lambda: shmem.realloc(keep, nbytes), lambda: shmem.zeros(nbytes),
        lambda: shmem.empty((nbytes, 8), dtype=torch.int64),
    ):  # fmt: skip
        with pytest.raises(shmem.HeapExhaustedError, match=r"size: got \d+ bytes; expected at most \d+, "):
            call()
    none = [c.shmem_malloc(nbytes), c.shmem_malloc_with_hints(nbytes, 0), c.shmem_calloc(nbytes, nbytes)]
    assert [*none, c.shmem_align(64, nbytes), c.shmem_realloc(keep, nbytes)] == [None] * 5
    assert live() == before


def test_size_0_gives_an_empty_array_and_waits_for_nobody(me, npes, monkeypatch):
    """The PEs do it one after the other: a barrier in it would wait for those whose turn comes later."""
    turn = shmem.zeros(1, dtype=torch.int32)
    before = live()
    monkeypatch.setattr(job, "timeout", 20.0)
    shmem.wait_until(turn, "==", int(me > 0))
    for empty in (
        shmem.malloc(0),
        shmem.calloc(0, 9),
        shmem.calloc(9, 0),
        shmem.align(64, 0),
        shmem.zeros(0),
        shmem.ones(3, 0),
    ):
        assert empty.numel() == 0 and not shmem.is_symmetric(empty)
        shmem.free(empty)
        shmem.realloc(empty, 0)
    shmem.free(None)
    shmem.put(shmem.malloc(0), torch.empty(0, dtype=torch.uint8), 0)
    shmem.p(turn, 1, (me + 1) % npes)
    shmem.wait_until(turn, "==", 1)
    assert live() == before


# ---- realloc ----


def filled(count):
    """A block, and what was written to it on this PE."""
    block = shmem.malloc(4 * count, torch.int32)
    block.copy_(payload(shmem.my_pe(), 1, count, torch.int32))
    return block, block.clone()


@pytest.mark.parametrize("neighbour", [False, True], ids=["in place", "moved"])
@pytest.mark.parametrize("count", [17, 1000, 5000])
def test_realloc_grows_and_keeps_the_contents(neighbour, count):
    block, contents = filled(16)
    taken = shmem.malloc(64) if neighbour else None
    larger = shmem.realloc(block, 4 * count)
    assert larger.shape == (count,) and larger.dtype == torch.int32 and shmem.is_symmetric(larger)
    assert_same(larger[:16].clone(), contents)
    assert (offset_of(larger) == offset_of(block)) is not neighbour
    assert shmem.is_symmetric(block) is not neighbour  # moved: symmetric no longer
    rows = on_all_pes(offset_of(larger))
    assert all(row == rows[0] for row in rows)
    shmem.free(larger)
    shmem.free(taken)


def test_realloc_shrinks_in_place_and_gives_the_rest_back():
    block, contents = filled(5000)
    smaller = shmem.realloc(block, 4 * 16)
    assert offset_of(smaller) == offset_of(block) and smaller.shape == (16,)
    assert_same(smaller.clone(), contents[:16])
    assert not shmem.is_symmetric(block)  # its end is free
    rest = shmem.malloc(4 * (5000 - 16))
    assert offset_of(rest) == offset_of(smaller) + 64


def test_realloc_moves_into_a_hole_before_the_block():
    before, between = shmem.malloc(1 << 20), shmem.malloc(64)
    block, contents = filled(100)
    after = shmem.malloc(64)
    shmem.free(before)
    moved = shmem.realloc(block, 1000)
    assert offset_of(moved) == offset_of(before) and moved.shape == (250,)
    assert_same(moved[:100].clone(), contents)
    for each in (between, moved, after):
        shmem.free(each)


def test_realloc_of_nothing_is_malloc_and_to_nothing_is_free():
    before = live()
    assert shmem.realloc(None, 100).shape == (100,)
    assert shmem.realloc(shmem.malloc(0, torch.int16), 100).shape == (50,)
    block = shmem.zeros(100)
    gone = shmem.realloc(block, 0)
    assert gone.shape == (0,) and gone.dtype == block.dtype
    assert not shmem.is_symmetric(block) and len(live()) == len(before) + 2
    assert shmem.realloc(shmem.zeros(100), 3).shape == (0,)  # less than one element is nothing too
    assert len(live()) == len(before) + 2


def test_realloc_that_does_not_fit_raises_on_every_pe_and_leaves_the_block():
    block, contents = filled(100)
    before = live()
    with refuses("realloc", rf"size: got {2**60} bytes; expected at most \d+, ", shmem.HeapExhaustedError):
        shmem.realloc(block, 2**60)
    assert live() == before and shmem.is_symmetric(block)
    assert_same(block.clone(), contents)
    shmem.barrier_all()


def test_realloc_refuses_what_no_allocation_returned():
    block = shmem.zeros(10)
    before = live()
    for wrong in (torch.zeros(10), block[1:]):
        with refuses("realloc", "array: got a .*; expected ", shmem.NotSymmetricError):
            shmem.realloc(wrong, 100)
    for wrong in ([1, 2], 3, "x"):
        with refuses("realloc", r"array: got an? \w+; expected a torch tensor or a NumPy array$"):
            shmem.realloc(wrong, 100)
    assert live() == before


def test_realloc_moves_what_a_late_peer_has_put_before_its_call(me, npes):
    """A barrier on entry: the others wait with their copy until the late one has come."""
    left, _, right = neighbours()
    for late in range(npes):
        block, _ = filled(16)
        shmem.malloc(64)
        if me == late:
            work(20000)
            shmem.p(block[3], GUARD, right)
        moved = shmem.realloc(block, 4 * 5000)
        assert moved[3].item() == (GUARD if left == late else payload(me, 1, 16, torch.int32)[3])


def test_realloc_is_over_on_all_pes_when_it_returns():
    """A barrier on return: what a peer puts into the new block is not overwritten by the move there."""
    left, me, right = neighbours()
    count = 1 << 19
    for _ in range(8):
        block, _ = filled(count)
        end = shmem.malloc(64)
        moved = shmem.realloc(block, 4 * count + 4096)
        shmem.p(moved[count - 1], GUARD + me, right)
        shmem.barrier_all()
        assert moved[count - 1].item() == GUARD + left
        shmem.free(end)
        shmem.free(moved)


# ---- free ----


@pytest.mark.parametrize("order", ["as allocated", "backwards", "every other first"])
def test_free_coalesces_until_the_whole_heap_is_one_block_again(order):
    before, whole = live(), default().allocator.largest_hole()
    blocks = [shmem.malloc(size) for size in SIZES * 10]
    if order == "backwards":
        blocks.reverse()
    elif order == "every other first":
        blocks = blocks[::2] + blocks[1::2]
    for block in blocks:
        shmem.free(block)
    assert live() == before and default().allocator.largest_hole() == whole
    everything = shmem.malloc(whole)
    assert everything.numel() == whole
    shmem.free(everything)


def test_free_waits_until_no_peer_uses_the_memory(me, npes):
    """The others free and fill the same place anew, while the late one still reads there."""
    _, _, right = neighbours()
    for late in range(npes):
        block = shmem.full(1000, GUARD, dtype=torch.int32)
        for _ in range(100 if me == late else 0):
            os.sched_yield()  # the others come as far as they may
            assert (from_pe(block, right) == GUARD).all()
        shmem.free(block)
        again = shmem.zeros(1000, dtype=torch.int32)
        assert offset_of(again) == offset_of(block)
        shmem.free(again)


def test_free_refuses_a_second_time_views_and_private_memory(me):
    block, freed = shmem.zeros(4, 4), shmem.zeros(4)
    shmem.free(freed)
    before = live()
    for wrong, got in (
        (freed, "not symmetric: its memory was freed"),
        (torch.zeros(4), "not symmetric: private memory"),
        (block[1:], "a view into an allocation"),
    ):
        with refuses("free", f"array: got .*{got}.*; expected ", shmem.NotSymmetricError):
            shmem.free(wrong)
    _, _, right = near_neighbours()
    peer = shmem.ptr(block, right)
    if right != me:
        with pytest.raises(
            shmem.NotSymmetricError,
            match=r"^free: .* not symmetric: another PE's memory, as shmem\.ptr returns it; expected ",
        ):
            shmem.free(peer)
    for wrong in ([1], 5, "x"):
        with refuses("free", r"array: got an? \w+; expected a torch tensor or a NumPy array$"):
            shmem.free(wrong)
    assert live() == before
    shmem.free(block)


def test_free_takes_any_array_that_begins_where_the_allocation_does():
    """As in C, where the address is all there is: reshaped, viewed as another type, or seen through NumPy."""
    before = live()
    for view in (lambda a: a.view(3, 4), lambda a: a.view(torch.uint8), foreign, lambda a: a.view(3, 4).T):
        shmem.free(view(shmem.zeros(12)))
    assert live() == before


# ---- a heap that is full ----


@pytest.mark.parametrize("make", [*list(MAKERS.values())[:6], lambda n: shmem.zeros(n // 8, dtype=torch.int64)],
                         ids=[*list(MAKERS)[:6], "zeros of int64"])  # fmt: skip
def test_an_allocation_that_does_not_fit_raises_on_every_pe_and_changes_nothing(make, me):
    alignment = 256 if make is MAKERS["align"] else 64
    first = shmem.malloc(64)  # the free block after it begins at no multiple of 256
    before, most = live(), default().allocator.largest_hole(alignment)
    too_many = max(most, getattr(default(), "cap", 0)) + 64  # a heap with a cap grows up to it
    with pytest.raises(shmem.HeapExhaustedError) as caught:
        make(too_many)
    assert isinstance(caught.value, MemoryError)
    wants = (
        f"at most {most}, the largest free block of the heap of {default().size >> 20} MiB: raise {job.size_setting}"
    )
    assert re.fullmatch(
        rf"\w+: PE {me}: size: got {too_many} bytes( at a multiple of 256)?; expected {wants}", str(caught.value)
    ), caught.value
    assert live() == before
    shmem.barrier_all()
    shmem.free(make(most))  # what did fit before still does
    shmem.free(first)


def test_sizes_beyond_all_memory_are_refused_as_any_that_do_not_fit():
    for call in (lambda: shmem.malloc(2**70), lambda: shmem.zeros(2**40, 2**40), lambda: shmem.calloc(2**40, 2**40)):
        with pytest.raises(shmem.HeapExhaustedError):
            call()


def test_allocation_refuses_devices_without_a_heap():
    for device in ("cuda:99", "rubbish", torch.device("meta")):
        with refuses(r"\w+", "device: got .*; expected 'cpu'"):
            shmem.zeros(3, device=device)
    assert shmem.is_symmetric(shmem.zeros(3, device="cpu")) and shmem.is_symmetric(
        shmem.malloc(3, device=torch.device("cpu"))
    )


def test_memory_is_reserved_at_init_and_readable_to_its_last_byte():
    """Nothing of the heap is left to fail later."""
    everything = shmem.malloc(default().allocator.largest_hole())
    octets(everything)[-1] = 1
    shmem.barrier_all()
    assert shmem.g(everything[-1:], (shmem.my_pe() + 1) % shmem.n_pes()) == 1
    shmem.barrier_all()


# ---- any sequence of calls ----

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["malloc", "free", "realloc", "align"]), st.integers(0, 10**4), st.integers(0, 99)),
    max_size=20,
)


@hypothesis.given(ACTIONS)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_any_sequence_of_calls_keeps_contents_and_agrees_on_all_pes(actions):
    """All PEs make the same calls; each block holds values of its own PE, kept until it is freed."""
    before, blocks = live(), []
    for turn, (action, size, chosen) in enumerate(actions):
        if action in ("malloc", "align"):
            block = shmem.malloc(size) if action == "malloc" else shmem.align(8 << chosen % 10, size)
            blocks.append((block, payload(shmem.my_pe(), turn, size, torch.uint8)))
            block.copy_(blocks[-1][1])
        elif blocks:
            block, contents = blocks.pop(chosen % len(blocks))
            if action == "free":
                shmem.free(block)
                continue
            block, kept = shmem.realloc(block, size), min(size, len(contents))
            assert_same(block[:kept].clone(), contents[:kept])
            blocks.append((block, payload(shmem.my_pe(), turn, size, torch.uint8)))
            block.copy_(blocks[-1][1])
    for block, contents in blocks:
        assert_same(block.clone(), contents)
    rows = on_all_pes(0, *(offset_of(block) for block, _ in blocks if block.numel()))
    assert all(row == rows[0] for row in rows)
    for block, _ in blocks:
        shmem.free(block)
    assert live() == before
