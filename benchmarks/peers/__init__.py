"""The libraries that can be measured, and the commands of their jobs. It imports none of them: each has its own job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

INSTALL_SHMEM4PY = """not installed, or there is no oshrun. To compare, give it an environment of its own:
    python -m venv s4py && s4py/bin/pip install numpy cffi setuptools wheel
    SHMEMCC=oshcc s4py/bin/pip install --no-build-isolation shmem4py      (oshcc: an OpenSHMEM such as Open MPI's)
    python -m benchmarks.host --shmem4py-python s4py/bin/python           (or set SHMEM4PY_PYTHON)"""


_START_UP = """
import time, {before}
start = time.perf_counter()
{start}
print(time.perf_counter() - start, flush=True)
__import__("os")._exit(0)
"""
_METADATA = """
import tracemalloc
try:
    from pyshmem.runtime.allocator import Allocator
except ImportError:  # a checkout from before 2026-11-22
    from pyshmem.host.allocator import Allocator
allocator = Allocator(1 << 30)
tracemalloc.start()
for _ in range(10000):
    allocator.allocate(1000)
print(tracemalloc.get_traced_memory()[0] / 10000)
"""


@dataclass(frozen=True)
class Peer:
    """A library to measure. ``module`` is its file in this package; its class Library does the operations."""

    name: str
    module: str
    python: str
    launcher: list[str]  # the mpiexec and its options, without the number of processes
    path: str = ""  # a folder to import the library from, before the interpreter's own
    programs: dict[str, str] = field(default_factory=dict)  # operations of a whole process: what prints the figure
    environment: dict[str, str] = field(default_factory=dict)  # of its PEs, beside that of the benchmark

    def command(self, n_pes: int, *arguments: str) -> list[str]:
        return [*self.launcher, "-n", str(n_pes), self.python, *arguments]


def pyshmem(name: str, path: str, mpiexec: str | None, n_pes: int, bind: bool) -> Peer:
    """Return pyshmem from ``path``."""
    start = "import pyshmem; pyshmem.init()"
    programs = {"start_up": _START_UP.format(before="torch", start=start), "metadata": _METADATA}
    return Peer(name, "pyshmem", sys.executable, launcher(find(mpiexec), n_pes, bind), path, programs)


def find(mpiexec: str | None) -> str:
    """Return ``mpiexec``, or else that of this interpreter's environment, or else that of the PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = mpiexec or (str(beside) if beside.exists() else shutil.which("mpiexec"))
    if not found:
        sys.exit("no mpiexec beside this Python or on the PATH: pip install mpich, or --mpiexec PATH")
    return found


def shmem4py(python: str | None, oshrun: str | None, n_pes: int, bind: bool) -> Peer | None:
    """Return shmem4py if it is installed and can be started, else None."""
    found = oshrun or shutil.which("oshrun")
    python = shutil.which(python or os.environ.get("SHMEM4PY_PYTHON") or sys.executable)
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('shmem4py') is None)"
    if not found or not python or subprocess.run([python, "-c", probe], check=False).returncode:
        return None
    python = os.path.abspath(python)
    programs = {"start_up": _START_UP.format(before="numpy", start="from shmem4py import shmem")}
    return Peer("shmem4py", "shmem4py", python, launcher(found, n_pes, bind), "", programs)


def launcher(mpiexec: str, n_pes: int, bind: bool) -> list[str]:
    """Return ``mpiexec`` with the options that give every PE a core of its own if there are enough.

    Open MPI: --oversubscribe is given only where PEs outnumber cores, for it makes idle PEs yield, which slows waits. Its
    defaults for OpenSHMEM were as fast as any other spml, sshmem, scoll and UCX transport tried (4.1.4, 2026-11).
    """
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    enough = n_pes <= len(os.sched_getaffinity(0))
    bound = "core" if bind and enough else "none"
    if "Open" not in version:  # MPICH and its kin; Open MPI's says OpenRTE or Open MPI
        return [mpiexec, "-bind-to", bound]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [mpiexec, *root, "--bind-to", bound, *([] if enough else ["--oversubscribe"])]
