"""What several files of tests here share. These tests start jobs, in an environment that no outer job or user has set."""

# ruff: noqa: E402
import os
import pathlib
import sys

# launchers above us
OUTER = (
    "PMI",
    "PMIX_",
    "OMPI_",
    "PRTE_",
    "HYDRA_",
    "MPI4PY_",
    "MPIEXEC_",
    "SLURM_",
    "PBS_",
    "FLUX_",
)
USERS = ("PYSHMEM_", "PYTHONPATH", "PYTHONSTARTUP", "TRITON_", "OMP_", "MKL_")
for name in [name for name in os.environ if name.startswith(OUTER + USERS)]:
    del os.environ[name]

sys.path.append(str(pathlib.Path(__file__).parent.parent / "pes"))  # for what stands in for a GPU's driver

import pytest
import standin
from launching import idle_launcher, launcher, program, start  # noqa: F401  fixtures


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The stand-in for AMD's driver, compiled."""
    return standin.build(tmp_path_factory.mktemp("standin"))
