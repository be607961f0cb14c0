"""What the tests expect where PEs are on several nodes. Tiles reach PEs of one node, so their tests are skipped, or refused.

test_several_nodes.py and test_device_far.py test the refusals, of each operator and of each call of kernels.
"""

import re

import pytest
from support import on_one_node

import pyshmem as shmem

# Nothing in these files works between nodes; a kernel of address_tables would access memory that is not there.
OF_TILES = (
    "address_tables", "device_meshes", "device_partitioned", "device_tile_kinds", "device_tiles", "irregular_triangles",
    "models_in_turn", "ops", "ops_few_rows", "ops_plans", "ops_scaled", "ops_selection", "training",
)  # fmt: skip
# In these files a test that is refused by name, on all PEs, counts as skipped. In all others it fails.
SOME_OF_TILES = (
    "attention", "autocast", "chapter_programs", "device_collectives", "device_gluon", "device_grids", "device_kernels",
    "device_refusals", "device_rma", "experts", "flash_decode", "float8", "gradcheck", "nn", "norms", "on_stream",
    "ops_gradients", "torch_func", "torch_library", "torch_models",
)  # fmt: skip
BY_NAME = re.compile(
    r"\w[\w ]*: PE \d+: (\w+: got .* which spans nodes|ctx: got the context of a team with PEs on other)"
)
refused = set()  # the tests that this PE was refused


def _is_in(item, files):
    return not on_one_node() and item.path.stem.removeprefix("test_") in files


def skip_tiles(items):
    for item in items:
        if _is_in(item, OF_TILES):
            item.add_marker(pytest.mark.skip(reason="tiles reach PEs of one node"))


def note_refusal(item, error, report):
    """A test that failed by a refusal, or by another exception because of one, becomes one that was skipped."""
    while error is not None and _is_in(item, SOME_OF_TILES):
        found = BY_NAME.search(str(error))
        if found:
            refused.add(item.nodeid)
            report.outcome, report.longrepr = "skipped", (*item.location[:2], f"refused: {str(error)[found.start() :]}")
            return
        error = error.__cause__ or error.__context__


def require_alike(item):
    """Assert that this test was refused on all PEs or on none. Collective."""
    if _is_in(item, SOME_OF_TILES):
        notes = shmem.TEAM_WORLD.meeting.share("test", bytes([item.nodeid in refused]))
        assert len(set(notes)) == 1, f"refused on PEs {[pe for pe, note in enumerate(notes) if note[0]]} alone"
