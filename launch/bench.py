"""``pyshmem bench``: a door to ``python -m benchmarks`` of a checkout. The package itself has no benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MISSING = """pyshmem bench: the benchmarks are part of pyshmem's sources and not of the installed package.
In a checkout, `make bench` installs pyshmem and runs them. pyshmem bench runs them in a checkout, and anywhere after
pip install --editable '.[bench,mpich]' in one."""


def main(arguments: Sequence[str]) -> int:
    """Run the suites of the checkout in the current folder, or else of that which is installed as editable."""
    root = next((folder for folder in (Path.cwd(), Path(__file__).parents[1]) if _has_suites(folder)), None)
    if root is None:
        print(MISSING, file=sys.stderr)
        return 1
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def _has_suites(folder: Path) -> bool:
    return (folder / "benchmarks" / "__main__.py").exists() and (folder / "pyshmem").exists()
