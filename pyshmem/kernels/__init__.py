"""The Triton kernels that host calls launch."""
