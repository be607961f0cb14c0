"""Tile orders on a GPU of several chiplets: programs are dealt to chiplets in turn, and those of one make neighbouring tiles."""

from hypothesis import given
from hypothesis import strategies as st

from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm.orders import tile_at


def tiles_of(programs, chiplets, high, wide, group):
    """The (row, column) of the tiles that each program makes, by the number that the GPU gave the program."""
    first = [renumbered.fn(program, programs, chiplets) for program in range(programs)]
    return [[tile_at.fn(index, high, wide, group) for index in range(start, high * wide, programs)] for start in first]


@given(st.integers(1, 10), st.integers(1, 32), st.integers(1, 16), st.integers(1, 50), st.integers(1, 9))
def test_every_order_makes_each_tile_once(group, high, wide, programs, chiplets):
    made = sorted(tile for tiles in tiles_of(programs, chiplets, high, wide, group) for tile in tiles)
    assert made == [(i, j) for i in range(high) for j in range(wide)]


@given(st.integers(1, 50), st.integers(1, 9))
def test_renumbered_programs_of_a_chiplet_make_neighbouring_tiles(programs, chiplets):
    """Numbers of one chiplet are in succession: those of rows of one tile are the rows."""
    found = tiles_of(programs, chiplets, programs, 1, 1)
    for chiplet in range(min(chiplets, programs)):
        rows = sorted(found[program][0][0] for program in range(chiplet, programs, chiplets))
        assert rows == list(range(rows[0], rows[0] + len(rows)))
