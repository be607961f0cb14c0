"""Launches of kernels: grids, shmem.jit, shmem.launch and autotuning."""
