"""Finds out from the launcher's environment variables how this process was started, before and after MPI is initialised."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys

from pyshmem.base import bootstrap
from pyshmem.base.environment import read
from pyshmem.base.errors import LaunchError, refuse
from pyshmem.native import _native

# The variables in which launchers pass the number of processes: (variable, launcher).
_SIZES = (("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"), ("PMI_SIZE", "MPICH's mpiexec"))
_TORCHRUN = "TORCHELASTIC_RUN_ID"
_OPENMPI_LIBRARY = "libmpi.so.40"
_SHARED = "/dev/shm"
_LEAST_SHARED = 2 << 20  # bytes: MPICH takes 1 MiB for each PE of the node
_noted = False
announced = False  # see tell_c_programs


def is_torchs() -> bool:
    """Return whether torch connects the processes, not MPI: torchrun, or a program that has a process group and no MPI.

    Variables in torch's style alone do not count where a program or a launcher of MPI may have set them beside its own.
    """
    if _TORCHRUN in os.environ:
        return all(os.environ[name] == "1" for name, _ in _SIZES if name in os.environ)
    if is_mpis():
        return False
    return all(name in os.environ for name in bootstrap.VARIABLES) or bootstrap.has_group()


def is_mpis() -> bool:
    """Return whether a launcher of MPI may have started this process, or its program has imported MPI."""
    return (
        any(name in os.environ for name in (*(name for name, _ in _SIZES), "PMIX_RANK")) or "mpi4py.MPI" in sys.modules
    )


def tell_c_programs() -> None:
    """Tell PEs in C of this job that Python opens it: they would do it without Python if all were in C.

    The C library has done so already where it has started Python; then ``announced`` is set.
    """
    if not announced:
        _native.vote_for_python()


def refuse_torchrun() -> None:
    """Errors: LaunchError for a communicator of MPI under torchrun, because MPI does not connect its processes."""
    if _TORCHRUN in os.environ and is_torchs():
        wants = "no argument or a process group; for MPI mpiexec -n N python prog.py, or pyshmemrun -n N prog.py"
        refuse(LaunchError, "init", "comm", "a communicator of MPI, which does not connect torchrun's processes", wants)


def match_library() -> None:
    """Under Open MPI's mpiexec, make mpi4py load Open MPI even if the Python environment contains MPICH."""
    if "OMPI_COMM_WORLD_SIZE" not in os.environ or "mpi4py.MPI" in sys.modules:
        return
    if "MPI4PY_MPIABI" in os.environ or "MPI4PY_LIBMPI" in os.environ or not importlib.util.find_spec("mpi4py._mpiabi"):
        return
    try:
        ctypes.CDLL(_OPENMPI_LIBRARY)
    except OSError:
        return  # not found; the library that mpi4py loads is checked after MPI_Init
    os.environ["MPI4PY_MPIABI"] = "openmpi"
    os.environ["MPI4PY_LIBMPI"] = _OPENMPI_LIBRARY


def choose_network(version: str) -> None:
    """Under srun --mpi=pmi2, have an MPICH that has UCX and libfabric take libfabric. Called before MPI_Init.

    UCX's addresses are too long for Slurm's PMI-2: MPI_Init, or a later call, may end in `value not properly terminated`.
    """
    device = re.search(r"MPICH Device: *ch4:(.*)", version)
    by_slurm = {"SLURM_STEP_ID", "PMI_FD"} <= os.environ.keys() and "MPI_LOCALRANKID" not in os.environ  # not by Hydra
    if device and by_slurm and device[1].split()[:1] == ["ucx"] and "ofi" in device[1].split():
        os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")


def refuse_foreign_library(version: str) -> None:
    """Errors: LaunchError if mpiexec and libmpi are of different MPIs. Called before MPI_Init, which could hang or abort."""
    got = "Open MPI" if "Open MPI" in version else version.split("\n", 1)[0].strip()
    if "OMPI_COMM_WORLD_SIZE" in os.environ and "Open MPI" not in version:
        refuse(
            LaunchError,
            "init",
            "launcher",
            f"Open MPI's mpiexec, while mpi4py loads {got}",
            "mpiexec and libmpi of one MPI: use pyshmemrun, or the mpiexec of that MPI",
        )


def refuse_full_shared_memory() -> None:
    """Errors: LaunchError if MPI has no room in /dev/shm. Called before MPI_Init, in which SIGBUS would kill it."""
    if not os.path.isdir(_SHARED):
        return
    state = os.statvfs(_SHARED)
    if state.f_bavail * state.f_frsize < _LEAST_SHARED:
        got = f"{state.f_bavail * state.f_frsize} bytes free on {os.uname().nodename}"
        refuse(LaunchError, "init", _SHARED, got, f"{_LEAST_SHARED} or more for MPI: remove what other jobs have left")


def refuse_split_job(mpi_size: int) -> None:
    """Errors: LaunchError if the launcher started n processes that MPI does not connect: these are n jobs of one PE."""
    for name, launcher in _SIZES:
        size = os.environ.get(name, "")
        if size.isdigit() and int(size) > 1 and mpi_size == 1:
            refuse(
                LaunchError,
                "init",
                "launcher",
                f"{size} processes from {launcher}, which MPI does not connect",
                "mpiexec and libmpi of one MPI: use pyshmemrun, or the mpiexec of the MPI that mpi4py loads",
            )


def note_single_pe(mpi_size: int) -> None:
    """Tell somebody who has started a program by python alone, at a terminal, how more PEs are started. Once."""
    global _noted
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    launched = mpi_size > 1 or any(name in os.environ for name in (*dict(_SIZES), "PMIX_RANK"))
    is_program = program.endswith(".py") and program != "__main__.py"
    if is_program and not (launched or _noted or read("PYSHMEM_QUIET")) and sys.stderr and sys.stderr.isatty():
        line = f"pyshmem: only 1 PE; pyshmemrun -n 4 {program} starts 4 (PYSHMEM_QUIET=1 hides this line)"
        print(line, file=sys.stderr)
    _noted = True
