"""The C names in processes of their own: type checkers, star import, what ends a job."""

import pathlib
import re
import subprocess
import sys

import pytest
from jobs import mpiexec, python

ROOT = pathlib.Path(__file__).resolve().parents[2]
RIGHT = """\
import torch
from pyshmem.shmem import *

shmem_init()
x = shmem_malloc(64, torch.int64)
shmem_long_put(x, torch.zeros(8, dtype=torch.int64), 8, 0)
shmem_put(SHMEM_CTX_DEFAULT, x, x, 1, 0)
config = shmem_team_config_t(num_contexts=1)
ret, team = shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, shmem_n_pes(), config, SHMEM_TEAM_NUM_CONTEXTS)
ret, ctx = shmem_team_create_ctx(team, SHMEM_CTX_PRIVATE)
value: int = pshmem_ctx_long_g(ctx, x, 0) + _my_pe() + _SHMEM_SYNC_VALUE
shmem_finalize()
"""
WRONG = {
    "shmem_long_put(1, 2)": "Too few arguments",
    "w: str = shmem_long_g(1, 2)": "Incompatible types",
    "shmem_clear_cache_inv()": "not defined",
    "shmem_ctx_long_put(1, 1, 1, 1, 1)": "incompatible type",
    "shmem_long_g(1, pe=2)": "Unexpected keyword",
}


def checked(tmp_path, program):
    pytest.importorskip("mypy")
    path = tmp_path / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, "-m", "mypy", path], capture_output=True, text=True, cwd=ROOT, timeout=300)
    return [line for line in done.stdout.splitlines() if line.startswith(str(path)) and " error: " in line]


def test_a_right_program_passes_the_type_checker(tmp_path):
    assert checked(tmp_path, RIGHT) == []


def test_a_type_checker_finds_each_wrong_call(tmp_path):
    found = checked(tmp_path, "from pyshmem.shmem import *\n" + "\n".join(WRONG))
    for (call, word), line in zip(WRONG.items(), found, strict=True):
        assert word in line, f"{call}: {line}"


def test_the_first_program_of_the_page_counts_all_pes(tmp_path):
    page = (ROOT / "docs/c-names.md").read_text()
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    status, out, err = mpiexec(2, program + "assert total == sum(range(npes)), total\n", tmp_path=tmp_path)
    assert (status, out) == (0, ""), err


def test_names_are_made_when_asked_for(tmp_path):
    """Importing pyshmem.shmem stays cheap: none of its 1788 functions is made by it."""
    program = "import pyshmem.shmem as c; print(sum(name.startswith('shmem_') for name in vars(c)))"
    assert python(program, tmp_path=tmp_path) == (0, "0\n", "")
