"""The C names in processes of their own."""

import pathlib
import re

from jobs import mpiexec, python

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_first_program_of_the_page_counts_all_pes(tmp_path):
    page = (ROOT / "docs/c-names.md").read_text()
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    status, out, err = mpiexec(2, program + "assert total == sum(range(npes)), total\n", tmp_path=tmp_path)
    assert (status, out) == (0, ""), err


def test_names_are_made_when_asked_for(tmp_path):
    """Importing pyshmem.shmem stays cheap: none of its 1788 functions is made by it."""
    program = "import pyshmem.shmem as c; print(sum(name.startswith('shmem_') for name in vars(c)))"
    assert python(program, tmp_path=tmp_path) == (0, "0\n", "")
