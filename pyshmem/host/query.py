"""The PE's number and the number of PEs. Spec: OpenSHMEM 1.6, 9.1."""

from __future__ import annotations

from pyshmem.base.job import job
from pyshmem.memory.arguments import require_init

__all__ = ["my_pe", "n_pes"]


def my_pe() -> int:
    """Return the number of this PE, from 0. Errors: NotInitializedError. Spec: 9.1 SHMEM_MY_PE."""
    if not job.inits:
        require_init("my_pe")
    return job.my_pe


def n_pes() -> int:
    """Return the number of PEs of the job. Errors: NotInitializedError. Spec: 9.1 SHMEM_N_PES."""
    if not job.inits:
        require_init("n_pes")
    return job.n_pes
