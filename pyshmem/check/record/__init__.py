"""Records in each PE what its program and its kernels access."""
