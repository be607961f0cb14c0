"""The surroundings of a test run: environment variables that launchers and users set, and waits for other processes."""

import os
import time

# The user's settings. What names the heap or the GPU of this run (PYSHMEM_HEAP, PYSHMEM_PEER_MAP, ...) is none of them.
SETTINGS = ("SHMEM_", "SMA_", "PYSHMEM_WAIT_TIMEOUT", "PYSHMEM_MAX_TEAMS", "PYSHMEM_SCRATCH", "PYTHONUNBUFFERED")
SECONDS = 60  # for a job to start, or to do what it does; generous, machines are slow and shared
LAUNCHERS = ("PMI", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "MPI4PY_", "MPIEXEC_", "SLURM_", "PBS_", "FLUX_")
USERS = ("PYSHMEM_", "PYTHONPATH", "PYTHONSTARTUP", "TRITON_", "OMP_", "MKL_")


def forget(*beginnings):
    """Remove the environment variables whose names begin so."""
    for name in [name for name in os.environ if name.startswith(beginnings)]:
        del os.environ[name]


def until(condition, seconds=SECONDS):
    """Wait until the condition holds, at most ``seconds``. Return whether it does."""
    limit, late = time.monotonic() + seconds, False
    while not condition():
        if late:
            return False
        time.sleep(0.02)
        late = time.monotonic() > limit  # it is looked at once more: this process may have stood still
    return True
