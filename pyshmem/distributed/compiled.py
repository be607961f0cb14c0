"""The module of _symm_mem.cpp, compiled where it is first used: it fits one version of torch and of Python alone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from triton import knobs

from pyshmem.base.errors import ArgumentError, refuse

_SOURCE = Path(__file__).with_name("_symm_mem.cpp")
_NAME = "_symm_mem"


def command() -> list[str]:
    """Return the command of the C++ compiler, as oshc++ takes it."""
    return shlex.split(os.environ.get("PYSHMEM_CXX", "") or "c++")


def has_compiler() -> bool:
    return shutil.which(command()[0]) is not None


def compiled() -> Any:
    """Return the module. The first process of a user compiles it; others wait. It lies in Triton's cache of kernels.

    Errors: ArgumentError.
    """
    key = "\n".join((_SOURCE.read_text(), torch.__version__, str(torch.version.git_version), sys.version))
    folder = Path(knobs.cache.dir, f"pyshmem-{hashlib.sha256(key.encode()).hexdigest()[:32]}")
    file = folder / f"{_NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not file.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "lock").touch()
        except OSError as error:
            refuse(ArgumentError, "enable", "TRITON_CACHE_DIR", str(error), "a folder to compile a module in")
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                _compile(file)
    spec = spec_from_file_location(_NAME, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(file: Path) -> None:
    torchs, pythons = Path(torch.__file__).parent, sysconfig.get_path("include")
    compiler = command()[0]
    if not has_compiler():
        refuse(ArgumentError, "enable", "PYSHMEM_CXX", f"no program {compiler!r}", "a C++ compiler: Debian has g++")
    if not Path(pythons, "Python.h").is_file():
        wants = "Python's headers: Debian has python3-dev"
        refuse(ArgumentError, "enable", "Python.h", f"no such file in {pythons}", wants)
    new = file.with_suffix(".new")
    whole = [
        *(*command(), "-std=c++20", "-O1", "-fPIC", "-shared", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={torch.compiled_with_cxx11_abi():d}",
        *(f"-I{torchs}/include", f"-I{pythons}", str(_SOURCE), "-o", str(new)),
        *(f"-L{torchs}/lib", "-ltorch_cpu", "-lc10"),
    ]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:500])
        got = f"torch {torch.__version__}, with which {compiler} fails: {first}"
        refuse(ArgumentError, "enable", "torch", got, "torch 2.11 or newer, with its headers")
    new.rename(file)
