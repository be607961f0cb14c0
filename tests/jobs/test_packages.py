"""What is installed is what is here."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_package_of_the_tree_is_installed():
    """An installation that lacks one fails only on the machine that needs it."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "pyshmem").rglob("*.py")}
    assert set(listed) == found | {"pyshmem.launch"}
