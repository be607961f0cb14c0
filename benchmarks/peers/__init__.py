"""The libraries that can be measured, and the commands of their jobs. It imports none of them: each has its own job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

INSTALL_SHMEM4PY = """not installed, or there is no oshrun. To compare, give it an environment of its own:
    python -m venv s4py && s4py/bin/pip install numpy cffi setuptools wheel
    SHMEMCC=oshcc s4py/bin/pip install --no-build-isolation shmem4py      (oshcc: an OpenSHMEM such as Open MPI's)
    python -m benchmarks.pt2pt --shmem4py-python s4py/bin/python          (or set SHMEM4PY_PYTHON)"""


@dataclass(frozen=True)
class Peer:
    """A library to measure. ``module`` is its file in this package; its class Library does the operations."""

    name: str
    module: str
    python: str
    launcher: list[str]  # the mpiexec and its options, without the number of processes
    path: str = ""  # a folder to import the library from, before the interpreter's own
    environment: dict[str, str] = field(default_factory=dict)  # of its PEs, beside that of the benchmark

    def command(self, n_pes: int, *arguments: str) -> list[str]:
        return [*self.launcher, "-n", str(n_pes), self.python, *arguments]


def pyshmem(name: str, path: str, mpiexec: str | None) -> Peer:
    """Return pyshmem from ``path``, on the CPU heap."""
    environment = {"PYSHMEM_HEAP": "cpu"}
    return Peer(name, "pyshmem", sys.executable, [find(mpiexec)], path, environment)


def mpi4py(name: str, mpiexec: str | None) -> Peer:
    return Peer(name, "mpi_calls", sys.executable, [find(mpiexec)])


def find(mpiexec: str | None) -> str:
    """Return ``mpiexec``, or else that of this interpreter's environment, or else that of the PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = mpiexec or (str(beside) if beside.exists() else shutil.which("mpiexec"))
    if not found:
        sys.exit("no mpiexec beside this Python or on the PATH: pip install mpich, or --mpiexec PATH")
    return found


def shmem4py(python: str | None, oshrun: str | None) -> Peer | None:
    """Return shmem4py if it is installed and can be started, else None."""
    found = oshrun or shutil.which("oshrun")
    python = shutil.which(python or os.environ.get("SHMEM4PY_PYTHON") or sys.executable)
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('shmem4py') is None)"
    if not found or not python or subprocess.run([python, "-c", probe], check=False).returncode:
        return None
    environment = {"SHMEM_SYMMETRIC_SIZE": "1G"}  # Open MPI's heap has 256 MiB else, less than the largest rows need
    return Peer("shmem4py", "shmem4py", os.path.abspath(python), [found], "", environment)


def bound(peer: Peer, n_pes: int, bind: bool) -> Peer:
    """Return ``peer`` with the options of its launcher that give every PE a core of its own if there are enough.

    Open MPI: --oversubscribe is given only where PEs outnumber cores, for it makes idle PEs yield, which slows waits. Its
    other settings for OpenSHMEM (spml, sshmem, scoll, UCX transports) are not faster than the defaults (4.1.4).
    """
    enough = n_pes <= len(os.sched_getaffinity(0))
    place = "core" if bind and enough else "none"
    mpiexec = peer.launcher[0]
    if not _open_mpi(mpiexec):
        return replace(peer, launcher=[mpiexec, "-bind-to", place])
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return replace(peer, launcher=[mpiexec, *root, "--bind-to", place, *([] if enough else ["--oversubscribe"])])


@cache
def _open_mpi(mpiexec: str) -> bool:
    """Whether it is Open MPI's, which says OpenRTE or Open MPI, and not that of MPICH and its kin."""
    return "Open" in subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
