"""The C names with random arguments; make test-sanitized calls them under sanitizers, too."""

import pathlib

import pytest
from jobs import mpiexec

PROGRAM = pathlib.Path(__file__).with_name("c") / "fuzzed.py"


@pytest.mark.parametrize("nodes", [{}, {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp"}], ids=["near", "far"])
def test_every_name_does_with_random_arguments_what_a_model_does(nodes, tmp_path):
    status, out, err = mpiexec(2, PROGRAM.read_text(), "7", "3", tmp_path=tmp_path, environment=nodes)
    assert status == 0, err
    assert int(out) > 1000
