"""The README's programs are run as they stand there, and print what it says."""

import pathlib
import re
import subprocess
import sys

import pytest

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(# (\S+\.py)\n.*?)```", README, re.DOTALL)
OUTPUT = re.search(r"\$ pyshmemrun -n 4 ring\.py\n(.*?)```", README, re.DOTALL)[1].splitlines()


@pytest.mark.parametrize("text, name", PROGRAMS, ids=[name for _, name in PROGRAMS])
def test_readme_program_prints_what_the_readme_shows(text, name, tmp_path):
    (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pyshmem.launch", "-n", "4", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # not by lines: where Python's output is unbuffered, PEs may write between a text and its newline
    assert sorted(re.findall(r"PE \d of 4: \d+ from the left", done.stdout)) == sorted(OUTPUT)


def test_readme_shows_a_host_program_and_a_triton_program():
    assert [name for _, name in PROGRAMS] == ["ring.py", "ring_triton.py"]
