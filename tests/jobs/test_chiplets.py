"""Tile orders on a GPU of several chiplets, by the simulation of their L2 caches in benchmarks/l2.py."""

import pathlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.l2 import DRIFT, MI300X, ORDERS, SHAPES, TILES, Gpu, Order, hit_rate, loads, tiles_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
_, _, GROUPED, RENUMBERED = ORDERS
SMALL = Gpu("small", 12, 4, 1 << 20)
orders = st.builds(Order, st.just("any"), st.integers(1, 10), st.booleans())


@given(orders, st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 50), st.integers(1, 9))
def test_every_order_makes_each_tile_once(order, m, n, programs, chiplets):
    gpu = Gpu("any", programs, chiplets, 1 << 20)
    made = sorted(tile for tiles in tiles_of(gpu, order, m, n, TILES) for tile in tiles)
    assert made == [(i, j) for i in range(-(-m // TILES.BM)) for j in range(-(-n // TILES.BN))]


@given(st.integers(1, 50), st.integers(1, 9))
def test_renumbered_programs_of_a_chiplet_make_neighbouring_tiles(programs, chiplets):
    """Numbers of one chiplet are in succession: those of rows of one tile are the rows."""
    gpu = Gpu("any", programs, chiplets, 1 << 20)
    found = tiles_of(gpu, RENUMBERED._replace(group=1), programs * TILES.BM, 1, TILES)
    for chiplet in range(min(chiplets, programs)):
        rows = sorted(found[program][0][0] for program in range(chiplet, programs, chiplets))
        assert rows == list(range(rows[0], rows[0] + len(rows)))


def test_each_program_loads_both_blocks_of_each_step_of_its_tiles():
    seen = list(loads(SMALL, GROUPED, (512, 1024, 256), TILES, DRIFT))
    tiles, depth = 4 * 4, 4
    assert len(seen) == 2 * tiles * depth
    assert {block for _, block in seen} == {(name, i, k) for name in "ab" for i in range(4) for k in range(depth)}
    assert {chiplet for chiplet, _ in seen} == set(range(4))


def test_a_cache_that_holds_everything_misses_each_block_once_a_chiplet():
    gpu = Gpu("one", 6, 1, 1 << 40)
    rate, missed = hit_rate(gpu, GROUPED, (512, 1024, 256))
    assert rate == 1 - 1 / 4  # 16 tiles load 8 different rows and columns of blocks, 32 loads a step
    assert missed == 2 * 256 * (512 + 1024)


def test_a_cache_that_holds_nothing_has_no_hits():
    rate, missed = hit_rate(SMALL._replace(l2=1), GROUPED, (512, 1024, 256))
    assert rate == 0 and missed == 2 * 256 * 16 * (TILES.BM + TILES.BN)


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_renumbering_by_chiplet_keeps_hits_that_the_grouped_order_loses(shape):
    (before, more), (after, less) = (hit_rate(MI300X, order, shape) for order in (GROUPED, RENUMBERED))
    assert after > before + 0.05 and less < 0.6 * more


def test_the_page_has_the_simulations_results():
    """Of the first shape: the others take long."""
    cells = [
        f"{rate:.0%}, {missed / 1e9:.2f} GB" for rate, missed in (hit_rate(MI300X, each, SHAPES[0]) for each in ORDERS)
    ]
    line = f"| {', '.join(map(str, SHAPES[0]))} | {' | '.join(cells)} |"
    assert line in (ROOT / "docs/amd.md").read_text()
