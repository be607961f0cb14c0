"""pyshmemrun: start one process per PE through the MPI that mpi4py loads, and end all of them when one fails."""

import sys

# what a program begins with that imports modules of pyshmem without its own __init__, whose import of torch takes a second
WITHOUT_TORCH = """import importlib.util, sys
sys.modules["pyshmem"] = importlib.util.module_from_spec(importlib.util.find_spec("pyshmem"))
"""
PYSHMEMRUN = (sys.executable, "-c", f"{WITHOUT_TORCH}from pyshmem.launch.run.command import main\nsys.exit(main())")
