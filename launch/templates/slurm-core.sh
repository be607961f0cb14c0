#!/bin/bash
# one PE a core, under Slurm: sbatch slurm-core.sh program.py [argument ...]
#SBATCH --job-name=pyshmem
#SBATCH --export=NONE
# SITE: see docs/clusters.md for what works between nodes
#SBATCH --nodes=1
# SITE: the cores of a node
#SBATCH --ntasks-per-node=32
#SBATCH --cpus-per-task=1
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

export PYSHMEM_HEAP=cpu SHMEM_SYMMETRIC_SIZE=1g  # SITE: bytes of each PE's heap; all together must fit into the memory
export OMP_NUM_THREADS=1           # one core a PE

# exec: signals that Slurm sends to the batch step alone (--signal=B:USR1@60) reach the PEs
# SITE: --timeout 540 --dump-after 300 behind pyshmemrun ends a job that hangs, and says who waits for what
exec pyshmemrun "$@"               # one PE for each of the job's tasks
