#!/bin/bash
# one PE a GPU of one node, under Flux: flux batch flux-gpu.sh program.py [argument ...]
#flux: --job-name=pyshmem
#flux: --nodes=1
# SITE: the GPUs of a node
#flux: --nslots=4
# SITE: the cores of a node, divided by its GPUs
#flux: --cores-per-slot=8
#flux: --gpus-per-slot=1
# SITE: how long it may take
#flux: --time-limit=10m
# SITE
#flux: --queue=batch

# SITE: the cluster's MPI and compilers; leave it out where the environment has an MPI of its own (pip install mpich)
module load mpi || exit
# SITE: the environment in which pyshmem is installed
source "$HOME/shmem/bin/activate" || exit

export PYSHMEM_HEAP=cuda           # refuses to start where a PE has no GPU, instead of using CPU memory
export OMP_NUM_THREADS=8           # SITE: the cores of a PE; by itself OpenMP may take all of the node's for each

# Flux starts the processes itself and gives MPI their numbers: SITE: -o mpi=spectrum, -o pmi=pmix, as the MPI wants it
# gpu-affinity=on: each PE sees all GPUs of the job, so that PEs can map each other's memory
flux run --ntasks=4 --cores-per-task=8 --gpus-per-task=1 --setopt=gpu-affinity=on python "$@"
