#!/usr/bin/env bash
# Run a command in unfriendly surroundings: in the background under nohup, without a terminal or standard input, inside what
# looks like a Slurm allocation, with another MPI's mpiexec first on PATH, and with the user's settings of everything.
# tests/unfriendly.sh make test-jobs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
stand_in() {
    printf '#!/bin/sh\n[ "$1" = --version ] && echo "%s" && exit\necho "the foreign $0 was run" >&2\nexit 99\n' "$2" > "$folder/$1"
    chmod +x "$folder/$1"
}
stand_in srun "slurm-wlm 22.05.8"
stand_in mpiexec "mpiexec (OpenRTE) 4.1.4"
export PATH="$folder:$PATH" PYTHONPATH="$folder" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MPI4PY_RC_THREAD_LEVEL=single
export SHMEM_DEBUG=1 SHMEM_INFO=1 SHMEM_SYMMETRIC_SIZE=2m SHMEM_VERSION=1 PYSHMEM_WAIT_TIMEOUT=2 PYSHMEM_MAX_TEAMS=3 PYSHMEM_SCRATCH=1m
export SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_NTASKS=7 SLURM_PROCID=3 SLURM_NNODES=1 SLURM_JOB_NODELIST=localhost
trap '' HUP INT QUIT
setsid nohup "$@" < /dev/null 2>&1 | cat & # no terminal; its shell has no job control, so the signals stay ignored
wait $!
