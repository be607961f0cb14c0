"""What is installed is what is here, and what is not built says so."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_folder_of_the_tree_is_a_package():
    """setup.py finds packages by their __init__.py: a folder without one would be missing where pyshmem is installed."""
    folders = {file.parent for file in (ROOT / "pyshmem").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


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
