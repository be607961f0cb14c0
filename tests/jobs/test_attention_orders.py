"""The order of attention's tiles on a GPU of several chiplets: each chiplet has heads in succession."""

from hypothesis import given
from hypothesis import strategies as st

from pyshmem.ops.attention.heads import head_and_tile
from pyshmem.ops.attention.prefill_schedules import programs_of
from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.machine import Machine


def made_by(program, heads, tiles, chiplets):
    """The (head, tile) of a program."""
    return head_and_tile.fn(renumbered.fn(program, heads * tiles, chiplets), tiles)


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 24))
def test_each_tile_of_each_head_is_made_once(chiplets, heads, tiles):
    made = sorted(made_by(program, heads, tiles, chiplets) for program in range(heads * tiles))
    assert made == [(head, tile) for head in range(heads) for tile in range(tiles)]


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 24))
def test_a_chiplet_has_heads_in_succession(chiplets, heads, tiles):
    """So it shares a head with its two neighbours at most."""
    for chiplet in range(chiplets):
        found = [made_by(program, heads, tiles, chiplets) for program in range(chiplet, heads * tiles, chiplets)]
        numbers = [head * tiles + tiles - 1 - tile for head, tile in found]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


def test_programs_on_amd_leave_a_processor_of_each_chiplet_for_the_kernels_that_set_flags():
    machine = Machine("gfx942", 304, 8, False)
    assert programs_of(machine, 10**6) == 296 and programs_of(machine, 7) == 7 and programs_of(machine, 0) == 1
    assert programs_of(Machine("nvidia", 132, 1, True), 10**6) == 10**6
