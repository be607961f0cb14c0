"""pyshmemrun: start one process per PE through the MPI that mpi4py loads, and end all of them when one fails."""

import sys

# the command line of pyshmemrun, without pyshmem's own __init__, whose import of torch would take a second
PYSHMEMRUN = (
    sys.executable,
    "-c",
    """import importlib.util, sys
sys.modules["pyshmem"] = importlib.util.module_from_spec(importlib.util.find_spec("pyshmem"))
from pyshmem.launch.run import main
sys.exit(main())""",
)
