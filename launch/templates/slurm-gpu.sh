#!/bin/bash
# one PE a GPU of one node, under Slurm: sbatch slurm-gpu.sh program.py [argument ...]
#SBATCH --job-name=pyshmem
#SBATCH --export=NONE
#SBATCH --nodes=1
# SITE: the GPUs of a node
#SBATCH --ntasks-per-node=4
# SITE: the same number
#SBATCH --gpus-per-node=4
# each PE sees all GPUs of the node, so that PEs can map each other's memory
#SBATCH --gpu-bind=none
# SITE: the cores of a node, divided by its GPUs
#SBATCH --cpus-per-task=8
# SITE: how long it may take
#SBATCH --time=00:10:00
# SITE
#SBATCH --partition=batch
# SITE
#SBATCH --account=project

export SLURM_EXPORT_ENV=ALL        # the shell that submits gives the job no variables; this script gives srun all of its own

# SITE: the cluster's MPI and compilers; leave it out where the environment has an MPI of its own (pip install mpich)
module load mpi || exit
# SITE: the environment in which pyshmem is installed
source "$HOME/shmem/bin/activate" || exit

export PYSHMEM_HEAP=cuda           # refuses to start where a PE has no GPU, instead of using CPU memory
export OMP_NUM_THREADS=8           # SITE: the cores of a PE; by itself OpenMP may take all of the node's for each

# exec: signals that Slurm sends to the batch step alone (--signal=B:USR1@60) reach the PEs
# SITE: --timeout 540 --dump-after 300 behind pyshmemrun ends a job that hangs, and says who waits for what
exec pyshmemrun "$@"               # one PE for each of the job's tasks
