"""Refuse, at import and in one line, versions that are known not to work: alone or in pairs."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OLDEST = {"torch": (2, 11), "triton": (3, 6), "numpy": (1, 26), "mpi4py": (4, 1)}
_ALSO_NAMED = {"triton": ("triton-rocm", "pytorch-triton-rocm")}  # by the wheels that torch's ROCm builds ask for


def check() -> None:
    """Errors: ImportError naming the package, what is installed, and what to install."""
    found = {name: _installed(name) for name in OLDEST}
    for name, least in OLDEST.items():
        if found[name] < least:
            raise ImportError(
                f"pyshmem needs {name} >= {_text(least)}; {_text(found[name])} is installed: pip install -U {name}"
            )


def check_built() -> None:
    """Errors: ImportError where this is a checkout's folder, which Python finds first in programs that lie beside it."""
    try:
        import_module("pyshmem.runtime._native")
    except ImportError as error:
        folder = Path(__file__).parent
        if any(folder.glob("runtime/_native*.so")):
            raise
        raise ImportError(
            f"{folder} is pyshmem's source without its compiled part: "
            f"run from another directory, or `pip install -e .` in {folder.parent}"
        ) from error


def check_interpreter() -> None:
    """Errors: ImportError for a pair whose interpreter does not work; compiled for a GPU, the same pair does.

    Measured with the device tests on triton 3.6.0, 3.7.0, 3.7.1, 3.8.0, 3.9.0 x NumPy 2.3.5, 2.4.6: one pair fails.
    """
    triton, numpy = _installed("triton"), _installed("numpy")
    if triton < (3, 7) and numpy >= (2, 4):
        raise ImportError(
            f"triton {_text(triton)} cannot interpret range(n) under NumPy {_text(numpy)}: "
            "pip install 'numpy<2.4', or 'triton>=3.7'"
        )


def _installed(name: str) -> tuple[int, int]:
    for each in (name, *_ALSO_NAMED.get(name, ())):
        try:
            release = re.match(r"(\d+)\.(\d+)", version(each))
        except PackageNotFoundError:
            continue
        if release:
            return int(release[1]), int(release[2])
    raise ImportError(f"pyshmem needs {name} >= {_text(OLDEST[name])}, which is not installed: pip install {name}")


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
