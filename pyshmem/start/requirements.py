"""Refuses at import versions of packages, or pairs of them, that do not work. The message has one line."""

from __future__ import annotations

import os
import platform
import re
import sys
from glob import iglob
from importlib import import_module
from pathlib import Path

OLDEST = {"torch": (2, 11), "triton": (3, 6), "numpy": (1, 26), "mpi4py": (4, 1)}
# in the wheels that torch's ROCm builds require
_ALSO_NAMED = {
    "triton": ("triton-rocm", "pytorch-triton-rocm"),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-rocm-7-0"),
}
_AMD_DEVICE = "/dev/kfd"  # AMD's kernel driver
# the torch of the package index is CUDA's, and its Triton would be written over that of torch for ROCm
_ROCM = "torch --index-url https://download.pytorch.org/whl/rocm7.2"


def check() -> None:
    """Errors: ImportError, which names the package, the installed version and the command that installs a newer one."""
    found = {name: installed(name) for name in OLDEST}
    for name, least in OLDEST.items():
        if found[name] < least:
            raise ImportError(
                f"pyshmem needs {name} >= {_text(least)}; {_text(found[name])} is installed: pip install -U {_source(name)}"
            )


def check_alone() -> None:
    """Errors: ImportError if the other project's distribution ``pyshmem`` is installed too: both have a package pyshmem."""
    for folder in sys.path:
        for other in iglob("pyshmem-*.dist-info", root_dir=folder or "."):
            raise ImportError(
                f"this is pyshmem-mpi, and another project's {other[:-10].replace('-', ' ')} is installed into the same "
                "folder: pip uninstall pyshmem pyshmem-mpi, then install pyshmem-mpi again"
            )


def check_built() -> None:
    """Errors: ImportError if this is a checkout without the compiled module, which Python finds before the installation."""
    try:
        import_module("pyshmem.native._native")
    except ImportError as error:
        folder = Path(__file__).parents[1]
        if any(folder.glob("native/_native*.so")):
            raise
        raise ImportError(
            f"{folder} is pyshmem's source without the compiled module: "
            f"run from another directory, or `pip install -e .` in {folder.parent}"
        ) from error


def check_interpreter() -> None:
    """Errors: ImportError for versions with which the interpreter does not work. Compiled kernels work with them.

    The device tests ran with triton 3.6.0, 3.7.0, 3.7.1, 3.8.0 and 3.9.0, and NumPy 2.3.5 and 2.4.6; one pair failed.
    """
    triton, numpy = installed("triton"), installed("numpy")
    if triton < (3, 7) and numpy >= (2, 4):
        raise ImportError(
            f"triton {_text(triton)} cannot interpret range(n) under NumPy {_text(numpy)}: "
            "pip install 'numpy<2.4', or 'triton>=3.7'"
        )


def installed(name: str) -> tuple[int, int]:
    """Return (major, minor) of a package. Errors: ImportError if it is not installed."""
    if release := re.match(r"(\d+)\.(\d+)", version_of_any(name)):
        return int(release[1]), int(release[2])
    raise ImportError(
        f"pyshmem needs {name} >= {_text(OLDEST[name])}, which is not installed: pip install {_source(name)}"
    )


def _source(name: str) -> str:
    """Return what pip installs the package from: for AMD GPUs torch, which brings Triton, from the index for ROCm."""
    if name not in ("torch", "triton"):
        return name
    torch = version_of("torch")
    amd = "rocm" in torch if torch else os.path.exists(_AMD_DEVICE)
    return _ROCM if amd else name


def versions() -> str:
    """Return the versions of Python and of the packages, such as "Python 3.11.7, torch 2.13.0, ..."."""
    names = (*OLDEST, "mpich", "cupy", "rocm-sdk-core")  # the last has ROCm's libraries, from 7.14 on
    found = [
        f"{name} {found}"
        for name in names
        for each in (name, *_ALSO_NAMED.get(name, ()))
        if (found := version_of(each))
    ]
    return ", ".join([f"Python {platform.python_version()}", *found])


def version_of_any(name: str) -> str:
    """Return the version of a package, whatever the name of its distribution, "" if none is installed."""
    return next(filter(None, map(version_of, (name, *_ALSO_NAMED.get(name, ())))), "")


def version_of(name: str) -> str:
    """Return the version of a package, "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # as long to import as the rest of pyshmemrun

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
