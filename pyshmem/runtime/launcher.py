"""How this process was started: read from the launcher's variables, before and after MPI is there."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys

from pyshmem.runtime.errors import LaunchError, refuse

# Each launcher tells its processes how many they are: (variable, what sets it).
_SIZES = (("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"), ("PMI_SIZE", "MPICH's mpiexec"))
_OPENMPI_LIBRARY = "libmpi.so.40"


def refuse_torchrun() -> None:
    """Errors: LaunchError under torchrun, whose processes MPI does not connect."""
    if "TORCHELASTIC_RUN_ID" in os.environ and not any(name in os.environ for name, _ in _SIZES):
        refuse(LaunchError, "init", "launcher", "torchrun", "mpiexec -n N python prog.py, or pyshmemrun -n N prog.py")


def match_library() -> None:
    """Under Open MPI's mpiexec make mpi4py load Open MPI, where the environment's own MPICH would come first."""
    if "OMPI_COMM_WORLD_SIZE" not in os.environ or "mpi4py.MPI" in sys.modules:
        return
    if "MPI4PY_MPIABI" in os.environ or "MPI4PY_LIBMPI" in os.environ or not importlib.util.find_spec("mpi4py._mpiabi"):
        return
    try:
        ctypes.CDLL(_OPENMPI_LIBRARY)
    except OSError:
        return  # none to be found; what mpi4py loads by itself is checked after MPI has started
    os.environ["MPI4PY_MPIABI"] = "openmpi"
    os.environ["MPI4PY_LIBMPI"] = _OPENMPI_LIBRARY


def refuse_foreign_library(version: str) -> None:
    """Errors: LaunchError, before MPI_Init can hang or abort, where mpiexec and libmpi are of different MPIs."""
    got = "Open MPI" if "Open MPI" in version else version.split("\n", 1)[0].strip()
    if "OMPI_COMM_WORLD_SIZE" in os.environ and "Open MPI" not in version:
        refuse(
            LaunchError,
            "init",
            "launcher",
            f"Open MPI's mpiexec, while mpi4py loads {got}",
            "both of one MPI: use pyshmemrun, or that MPI's own mpiexec",
        )


def refuse_split_job(mpi_size: int) -> None:
    """Errors: LaunchError where the launcher started n processes and MPI sees one: n jobs of one PE."""
    for name, launcher in _SIZES:
        size = os.environ.get(name, "")
        if size.isdigit() and int(size) > 1 and mpi_size == 1:
            refuse(
                LaunchError,
                "init",
                "launcher",
                f"{size} processes from {launcher}, each alone in MPI",
                "mpiexec and libmpi of one MPI: use pyshmemrun, or the mpiexec of the MPI that mpi4py loads",
            )
