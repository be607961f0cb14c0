"""pyshmemrun: start one process per PE through the MPI that mpi4py loads, and end all of them when one fails."""
