#!/bin/bash
# one PE a core of one node, under Flux: flux batch flux-core.sh program.py [argument ...]
#flux: --job-name=pyshmem
#flux: --nodes=1
# SITE: the cores of a node
#flux: --nslots=32
# SITE
#flux: --cores-per-slot=1
# SITE: how long it may take
#flux: --time-limit=10m
# SITE
#flux: --queue=batch

# SITE: the cluster's MPI and compilers; leave it out where the environment has an MPI of its own (pip install mpich)
module load mpi || exit
# SITE: the environment in which pyshmem is installed
source "$HOME/shmem/bin/activate" || exit

export PYSHMEM_HEAP=cpu SHMEM_SYMMETRIC_SIZE=1g  # SITE: bytes of each PE's heap; all together must fit into the memory
export OMP_NUM_THREADS=1           # one core a PE

# Flux starts the processes itself and gives MPI their numbers: SITE: -o mpi=spectrum, -o pmi=pmix, as the MPI wants it
flux run --ntasks=32 --cores-per-task=1 python "$@"
