import pyshmem as shmem
import torch

shmem.init()
counts = shmem.calloc(10, 8, dtype=torch.int64)  # 10 elements of 8 bytes, all zero
page = shmem.align(4096, 100)
assert page.data_ptr() % 4096 == 0 and page.numel() == 100
counts[9] = 7
counts = shmem.realloc(counts, 160)  # 20 elements; the first 10 are kept
assert counts.numel() == 20 and counts[9] == 7 and shmem.is_symmetric(counts[5:8])
shmem.free(counts)
assert not shmem.is_symmetric(counts)
shmem.finalize()
