"""``pyshmem bench``: ``python -m benchmarks`` of the checkout, or of the installed package, which carries the suites."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("rich",)  # the suites draw only with --plots, and say there that matplotlib is missing


def main(arguments: Sequence[str]) -> int:
    """Run the suites of the checkout in the current folder, or else those that were installed with this package."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"pyshmem bench: {', '.join(missing)} missing: pip install {' '.join(missing)}", file=sys.stderr)
        return 1
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], env=with_suites(), check=False).returncode


def with_suites() -> dict[str, str]:
    """Return the environment in which Python finds the package benchmarks."""
    here = Path(__file__).parents[1]  # the folder of an editable checkout, or the package pyshmem
    checkout = [Path.cwd()] if (Path.cwd() / "pyshmem").exists() else []
    folders = (*checkout, here, here / "suites")
    root = next(folder for folder in folders if (folder / "benchmarks" / "__main__.py").exists())
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
