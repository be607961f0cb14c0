#!/bin/bash
# one PE a GPU of one node, under PBS: qsub -v "PROGRAM=program.py" pbs-gpu.sh
#PBS -N pyshmem
# SITE: cores, PEs and GPUs of a node
#PBS -l select=1:ncpus=32:mpiprocs=4:ngpus=4
# SITE: how long it may take
#PBS -l walltime=00:10:00
# SITE
#PBS -q batch
# SITE
#PBS -A project
cd "$PBS_O_WORKDIR" || exit

# SITE: the cluster's MPI and compilers; leave it out where the environment has an MPI of its own (pip install mpich)
module load mpi || exit
# SITE: the environment in which pyshmem is installed
source "$HOME/shmem/bin/activate" || exit

export PYSHMEM_HEAP=cuda           # refuses to start where a PE has no GPU, instead of using CPU memory
export OMP_NUM_THREADS=8           # SITE: the cores of a PE; by itself OpenMP may take all of the node's for each

# SITE: --timeout 540 --dump-after 300 behind pyshmemrun ends a job that hangs, and says who waits for what
pyshmemrun -n "$(wc -l < "$PBS_NODEFILE")" $PROGRAM  # the file has a line for each of mpiprocs
