"""The symmetric heap in the memory of NVIDIA and AMD GPUs: one driver interface, two methods to map peer memory."""
