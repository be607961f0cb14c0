import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x, y = shmem.arange(6, dtype=torch.float32), shmem.rand(2, 3)  # as torch's, in symmetric memory; collective
assert shmem.is_symmetric(x) and y.shape == (2, 3)
z = shmem.array([[1, 2], [3, 4]]) * me  # the product is private: torch has allocated it
assert not shmem.is_symmetric(z)
shmem.reduce_on_stream(x, x, "sum")  # enqueued: in order with torch's operations on the current stream
assert torch.equal(x.cpu(), n * torch.arange(6.0))
shmem.finalize()
