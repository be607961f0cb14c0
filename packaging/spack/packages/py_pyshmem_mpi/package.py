# In the root of the checkout:
#   spack repo add packaging/spack
#   spack dev-build py-pyshmem-mpi@0.1.0 +cuda cuda_arch=90 ^mpich
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.python import PythonPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *


class PyPyshmemMpi(PythonPackage, CudaPackage, ROCmPackage):
    """OpenSHMEM for Python and Triton: one-sided communication on CPUs, AMD and NVIDIA GPUs, launched by MPI."""

    homepage = "http://www.openshmem.org"

    license("MIT")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-torch@2.11:", type=("build", "run"))
    depends_on("py-triton@3.6:", type=("build", "run"))
    depends_on("py-tomli@2:", type=("build", "run"))

    depends_on("py-torch~cuda~rocm", when="~cuda~rocm")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"py-torch+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    for arch in ROCmPackage.amdgpu_targets:
        depends_on(f"py-torch+rocm amdgpu_target={arch}", when=f"+rocm amdgpu_target={arch}")
