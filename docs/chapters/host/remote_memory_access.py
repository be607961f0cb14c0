import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
left, right = (me - 1) % n, (me + 1) % n
x, column = shmem.zeros(8), shmem.zeros(8, 3)
shmem.put(x, torch.full((4,), float(me)), right)  # the first four elements of x there
shmem.p(x[7], 10.0 + me, right)  # one element
shmem.iput(column.view(-1)[1:], torch.arange(8.0), right, tst=3)  # every third element: the middle column there
shmem.barrier_all()
assert x.tolist() == [left] * 4 + [0, 0, 0, 10 + left]
assert torch.equal(column[:, 1].cpu(), torch.arange(8.0)) and not column[:, 0].any()
copy = torch.empty(8)
shmem.get(copy, x, right)
assert copy[0] == me and shmem.g(x[7], right) == 10 + me
shmem.finalize()
