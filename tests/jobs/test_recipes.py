"""The recipe for pytest of docs/howto.md, as it stands there: tests run on all PEs, and a test that fails ends the job."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/howto.md").read_text().partition("## Test a program with pytest\n")[2]
CONFTEST = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
COMMAND = re.search(r"^\$ pyshmemrun -n 4 (-m pytest -q tests)$", PAGE, re.MULTILINE)[1].split()
TESTS = """
import pyshmem as shmem

def test_that_passes():
    shmem.barrier_all()
    assert shmem.n_pes() == 2

def test_that_may_fail_on_pe_1():
    assert {passes} or shmem.my_pe() != 1, "as it is meant"
    shmem.barrier_all()
"""


@pytest.fixture
def run(tmp_path):
    """Returns (status, output) of the command of the page on 2 PEs."""

    def run(tests):
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
        (tmp_path / "tests" / "test_program.py").write_text(tests)
        command = [os.path.join(os.path.dirname(sys.executable), "pyshmemrun"), "-n", "2", *COMMAND]
        environment = {**os.environ, "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "0"}  # no other end
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250, env=environment)
        return done.returncode, done.stdout + done.stderr

    return run


def test_tests_that_pass_on_all_pes_end_with_status_0(run):
    status, output = run(TESTS.format(passes=True))
    assert status == 0 and output.count("2 passed") == 2, output


def test_a_test_that_fails_on_one_pe_ends_the_job_while_another_waits_for_it(run):
    status, output = run(TESTS.format(passes=False))
    assert status == 1, output
    assert "PE 1: tests/test_program.py::test_that_may_fail_on_pe_1" in output and "as it is meant" in output, output
