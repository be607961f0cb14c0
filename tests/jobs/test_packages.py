"""What is installed is what is here, and what is not built says so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("first", ["import pyshmem.launch", "import pyshmem"])
def test_launch_is_the_function_whichever_module_of_the_launcher_is_imported(first):
    program = f"""
{first}
import sys
import pyshmem.launch
from pyshmem.launch.run import launchers
from pyshmem.launch.run.launchers import Launcher
print(pyshmem.launch.__module__, sys.modules["pyshmem.launch"].run.launchers is launchers)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "pyshmem True\n", done.stderr


def test_another_projects_pyshmem_in_the_same_folder_is_refused(tmp_path):
    """Its files overwrite ours or ours overwrite its: what is imported would be a mixture."""
    (tmp_path / "pyshmem-1.4.0.dist-info").mkdir()
    (tmp_path / "pyshmem-1.4.0.dist-info" / "METADATA").write_text("Name: pyshmem\nVersion: 1.4.0\n")
    (tmp_path / "program.py").write_text("import pyshmem")
    for command in ([sys.executable], [Path(sys.executable).with_name("pyshmemrun"), "-n", "1"]):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        words = [*command, "program.py"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode != 0
        assert done.stderr.splitlines()[-1].endswith(
            "this is pyshmem-mpi, and another project's pyshmem 1.4.0 is installed into the same folder: "
            "pip uninstall pyshmem pyshmem-mpi, then install pyshmem-mpi again"
        )


def test_a_compiled_part_that_cannot_be_loaded_says_why(tmp_path):
    shutil.copytree(ROOT / "pyshmem", tmp_path / "pyshmem", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "pyshmem/native/_native.abi3.so").write_text("not of this machine")
    (tmp_path / "program.py").write_text("import pyshmem")
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "_native.abi3.so" in done.stderr.splitlines()[-1], done.stderr
