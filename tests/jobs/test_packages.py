"""What is installed is what is here, and what is not built says so."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_package_of_the_tree_is_installed():
    """An installation that lacks one fails only on the machine that needs it."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "pyshmem").rglob("*.py")}
    assert set(listed) == found | {"pyshmem.launch"}


def test_a_program_in_a_checkout_that_is_not_built_is_told_so(tmp_path):
    """Python looks beside the program first, and finds the source there, whatever is installed."""
    shutil.copytree(ROOT / "pyshmem", tmp_path / "pyshmem", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "program.py").write_text("import pyshmem")
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {tmp_path}/pyshmem is pyshmem's source without the compiled module: "
        f"run from another directory, or `pip install -e .` in {tmp_path}"
    )
    assert "_native" in done.stderr and "direct cause" in done.stderr


def test_a_compiled_part_that_cannot_be_loaded_says_why(tmp_path):
    shutil.copytree(ROOT / "pyshmem", tmp_path / "pyshmem", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "pyshmem/runtime/_native.abi3.so").write_text("not of this machine")
    (tmp_path / "program.py").write_text("import pyshmem")
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "_native.abi3.so" in done.stderr.splitlines()[-1], done.stderr
