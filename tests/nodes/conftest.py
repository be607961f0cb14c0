"""The tests here start jobs, in an environment that no outer job or user has set."""

import os

OUTER = (
    "PMI",
    "PMIX_",
    "OMPI_",
    "PRTE_",
    "HYDRA_",
    "MPI4PY_",
    "MPIEXEC_",
    "SLURM_",
    "PYSHMEM_",
    "PYTHONPATH",
    "TRITON_",
    "OMP_",
)
for name in [name for name in os.environ if name.startswith(OUTER)]:
    del os.environ[name]
