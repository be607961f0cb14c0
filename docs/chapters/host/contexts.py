import pyshmem as shmem
import torch

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
first, second = shmem.zeros(1000), shmem.zeros(1000)
source = torch.full((1000,), float(me))
with shmem.TEAM_WORLD.create_ctx() as ctx:
    shmem.put_nbi(first, source, (me + 1) % n, ctx=ctx)
    shmem.put_nbi(second, source, (me + 2) % n)  # by the default context
    ctx.quiet()  # completes the first one; the second one may still be on its way
shmem.barrier_all()  # completes both
assert (first == (me - 1) % n).all() and (second == (me - 2) % n).all()
shmem.finalize()
