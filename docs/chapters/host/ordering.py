import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
right = (me + 1) % n
first, second, flag = shmem.zeros(1000), shmem.zeros(1000), shmem.zeros(1, dtype=torch.int64)
source = torch.full((1000,), float(me))
shmem.put(first, source, right)
shmem.put_nbi(second, source, right)
shmem.quiet()  # both puts are complete, and source may be written again
source.zero_()
shmem.put(first, torch.full((1000,), me + 0.5), right)
shmem.fence()  # orders the flag behind the puts, without waiting for them
shmem.p(flag, 1, right)
shmem.wait_until(flag, "==", 1)
assert (first == (me - 1) % n + 0.5).all() and (second == (me - 1) % n).all()
shmem.finalize()
