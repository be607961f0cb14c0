import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
inbox, arrived = shmem.zeros(100), shmem.zeros(1, dtype=torch.uint64)
data = torch.full((100,), float(me))
shmem.put_signal(inbox, data, (me + 1) % n, arrived, 1, shmem.SIGNAL_ADD)
shmem.signal_wait_until(arrived, ">=", 1)  # the data of this signal are here
assert (inbox == (me - 1) % n).all() and shmem.signal_fetch(arrived) == 1
shmem.finalize()
