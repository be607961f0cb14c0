"""The C names with sizes of 0, and with wrong arguments: sizes that wrap, words that are not aligned, NULL, no handles."""

import pathlib

import pytest
from jobs import mpiexec

PROGRAM = pathlib.Path(__file__).with_name("c") / "sizes.py"


@pytest.mark.parametrize(
    ("n", "nodes"),
    [(1, {}), (3, {}), (2, {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp"})],
    ids=["alone", "near", "far"],
)
def test_sizes_of_0_and_wrong_arguments_write_nothing_and_wrong_ones_are_errors(n, nodes, tmp_path):
    status, out, err = mpiexec(n, PROGRAM.read_text(), "7", tmp_path=tmp_path, environment=nodes)
    assert status == 0, err
    assert int(out) > 200
