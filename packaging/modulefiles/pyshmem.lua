-- A modulefile of Lmod for an installation of pyshmem in a virtual environment. Change the two lines below to your site's.
local prefix = "/opt/pyshmem/0.1.0" -- made by: python -m venv PREFIX; PREFIX/bin/pip install pyshmem-mpi
local mpi = "mpich" -- the site's module of MPI, which mpi4py loads

help([[OpenSHMEM for Python and Triton. pyshmem info shows what a job would use; pyshmemrun -n 4 prog.py runs a program.]])
whatis("Name: pyshmem")
whatis("Version: 0.1.0")
whatis("Description: one-sided communication for Python and Triton")

conflict("pyshmem")
depends_on(mpi)
prepend_path("PATH", pathJoin(prefix, "bin"))
setenv("VIRTUAL_ENV", prefix)
-- Defaults of the site, which users override by environment variables: write the file (docs/environment.md has one), or
-- remove this line.
setenv("PYSHMEM_CONFIG", pathJoin(prefix, "etc", "pyshmem.toml"))
