"""The kernels of the examples: the whole programs, as they are."""

import pathlib
import re
import runpy

import pyshmem as shmem
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
PRINTS = {"ring_broadcast.py": "1000 elements came round, by host calls and by a kernel"}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_checks_itself(name, capsys, me, npes):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    assert re.fullmatch(f"{npes} PEs: {PRINTS[name]}\n", said) if me == 0 else said == ""
    assert shmem.query_initialized()
