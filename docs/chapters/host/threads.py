from concurrent.futures import ThreadPoolExecutor

import pyshmem as shmem
import torch

level = shmem.init_thread(shmem.THREAD.MULTIPLE)
assert level == shmem.query_thread()
me, n = shmem.my_pe(), shmem.n_pes()
words = shmem.zeros(4, dtype=torch.int64)
with ThreadPoolExecutor(4 if level == shmem.THREAD.MULTIPLE else 1) as threads:
    list(threads.map(lambda i: shmem.p(words[i], me + 1, (me + 1) % n), range(4)))
shmem.barrier_all()
assert (words == (me - 1) % n + 1).all()
shmem.finalize()
