"""The allocator against a naive model: it hands out what it has, once, and takes all of it back."""

import itertools
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyshmem.memory.allocator import ALIGNMENT, Allocator, lowest_gap

SIZE = 64 * 64  # small, so that it fills up
ORIGIN = 5 * 64  # of the addresses


class Model(RuleBasedStateMachine):
    """Every byte of the heap has an owner in ``bytes_of``, or None."""

    def __init__(self):
        super().__init__()
        self.allocator, self.twin = Allocator(SIZE, ORIGIN), Allocator(SIZE, ORIGIN)
        self.blocks = {}  # offset: bytes asked for

    def state(self):
        return self.allocator.live(), list(self.allocator.holes())

    def free_run(self, nbytes, alignment):
        """Whether some aligned run of nbytes is free, found the slow way."""
        taken = {
            unit
            for start, size in self.blocks.items()
            for unit in range(start // ALIGNMENT, -(-(start + size) // ALIGNMENT))
        }
        units = -(-nbytes // ALIGNMENT)
        starts = [
            start for start in range(SIZE // ALIGNMENT - units + 1) if (ORIGIN + start * ALIGNMENT) % alignment == 0
        ]
        return any(not taken & set(range(start, start + units)) for start in starts)

    @rule(nbytes=st.integers(1, SIZE + 1), alignment=st.sampled_from([8, 64, 128, 512]))
    def allocate(self, nbytes, alignment):
        before, possible = self.state(), self.free_run(nbytes, alignment)
        offset = self.allocator.allocate(nbytes, alignment)
        assert self.twin.allocate(nbytes, alignment) == offset
        assert (offset is not None) == possible
        if offset is None:
            assert self.state() == before
        else:
            assert (ORIGIN + offset) % alignment == 0
            self.blocks[offset] = nbytes

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def release(self, data):
        offset = data.draw(st.sampled_from(sorted(self.blocks)))
        assert self.allocator.release(offset) and self.twin.release(offset)
        del self.blocks[offset]
        assert not self.allocator.release(offset), "freed twice"

    @precondition(lambda self: self.blocks)
    @rule(data=st.data(), nbytes=st.integers(1, SIZE))
    def resize(self, data, nbytes):
        offset = data.draw(st.sampled_from(sorted(self.blocks)))
        before, old = self.state(), self.blocks.pop(offset)
        room = min([start for start in self.blocks if start > offset], default=SIZE) - offset
        done = self.allocator.resize(offset, nbytes)
        assert self.twin.resize(offset, nbytes) == done
        assert done == (nbytes <= room)
        self.blocks[offset] = nbytes if done else old
        if not done:
            assert self.state() == before

    @rule(offset=st.integers(-10, SIZE + 10), nbytes=st.integers(1, 300))
    def look(self, offset, nbytes):
        inside = [s for s, size in self.blocks.items() if s <= offset and offset + nbytes <= s + size]
        assert self.allocator.covers(offset, nbytes) == bool(inside)
        assert self.allocator.size_of(offset) == self.blocks.get(offset)
        nearest = self.allocator.nearest(offset)
        distances = [max(s - offset, offset - (s + size) + 1, 0) for s, size in self.blocks.items()]
        if not distances:
            assert nearest is None
        else:
            assert max(nearest[0] - offset, offset - nearest[1] + 1, 0) == min(distances)

    @invariant()
    def blocks_and_holes_share_the_heap_without_overlap_or_touching_holes(self):
        assert self.allocator.live() == sorted((s, s + size) for s, size in self.blocks.items())
        holes = list(self.allocator.holes())
        rounded = [(s, -(-e // ALIGNMENT) * ALIGNMENT) for s, e in self.allocator.live()]
        parts = sorted([*rounded, *holes])
        assert sum(high - low for low, high in parts) == SIZE
        assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
        assert all(a[1] < b[0] for a, b in itertools.pairwise(holes)), "holes that touch are one hole"
        assert self.state() == (self.twin.live(), list(self.twin.holes())), "the same calls give the same heap"


TestAllocator = Model.TestCase
TestAllocator.settings = settings(max_examples=150, stateful_step_count=40)


def metadata_per_allocation(release_every_second):
    tracemalloc.start()
    allocator = Allocator(1 << 30)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10000):
        allocator.allocate(100)
    if release_every_second:
        for start, _ in allocator.live()[::2]:
            allocator.release(start)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / len(allocator.live())


def test_metadata_is_below_100_bytes_an_allocation():
    assert metadata_per_allocation(False) < 100
    assert metadata_per_allocation(True) < 150, "every second one freed: the most holes there can be"


@pytest.mark.parametrize("alignment", [8, 64, 4096])
@pytest.mark.parametrize("taken", [1, 100, SIZE - 1000, SIZE])
def test_an_allocation_fits_into_a_heap_extended_by_what_is_missing_and_not_by_less(taken, alignment):
    for less in (64, 0):
        allocator = Allocator(SIZE, ORIGIN)
        assert allocator.allocate(taken) == 0
        allocator.extend(SIZE + allocator.missing(SIZE, alignment) - less)
        offset = allocator.allocate(SIZE, alignment)
        assert offset is None if less else (ORIGIN + offset) % alignment == 0


@pytest.mark.parametrize("alignment", [8, 64, 256, 4096, 2 * SIZE])
@pytest.mark.parametrize("taken", [1, 100, SIZE - 1000, SIZE])
def test_the_largest_hole_at_an_alignment_has_room_for_its_size_and_for_no_byte_more(taken, alignment):
    allocator = Allocator(SIZE, ORIGIN)
    assert allocator.allocate(taken) == 0
    most = allocator.largest_hole(alignment)
    assert most >= 0
    assert allocator.allocate(most + 1, alignment) is None
    assert most == 0 or allocator.allocate(most, alignment) is not None


def test_an_empty_heap_allocates_nothing():
    allocator = Allocator(0)
    assert allocator.allocate(1) is None
    assert not allocator.covers(0, 1)
    assert allocator.largest_hole() == 0


def test_a_plan_of_a_team_lies_where_all_its_pes_have_room():
    taken = [[(0, 100)], [(100, 300)], [(400, 500)]]
    assert [lowest_gap(itertools.chain(*taken), nbytes, 1000) for nbytes in (100, 101, 500, 501)] == [
        300,
        500,
        500,
        None,
    ]
    assert lowest_gap([], 10, 10) == 0
