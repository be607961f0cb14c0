"""Wrong arguments of the C names: sizes that wrap, words that are not aligned, NULL, handles that are none."""

import pathlib

import pytest
from jobs import mpiexec

PROGRAM = pathlib.Path(__file__).with_name("c") / "refused.py"


@pytest.mark.parametrize(
    ("n", "nodes"), [(1, {}), (2, {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp"})], ids=["near", "far"]
)
def test_a_wrong_argument_of_any_name_is_an_error_and_nothing_is_written(n, nodes, tmp_path):
    status, out, err = mpiexec(n, PROGRAM.read_text(), "7", tmp_path=tmp_path, environment=nodes)
    assert status == 0, err
    assert int(out) > 200
