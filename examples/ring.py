"""A list is passed once around the ring of PEs. Each PE waits for it, signs it, and puts it to its right neighbour.

Run: pyshmemrun -n 4 examples/ring.py
Prints: 4 PEs: the list came back signed by [0, 1, 2, 3]"""

import pyshmem as shmem
import torch

shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
right = (me + 1) % n_pes

signed = shmem.full(n_pes, -1, dtype=torch.int64)
arrived = shmem.zeros(1, dtype=torch.int32)

if me > 0:
    shmem.wait_until(arrived, "==", 1)
signed[me] = me
shmem.put(signed, signed, right)
shmem.fence()  # without it the flag could be seen before the list
shmem.p(arrived, 1, right)

if me == 0:
    shmem.wait_until(arrived, "==", 1)
    assert signed.tolist() == list(range(n_pes)), f"wanted every PE's number, got {signed.tolist()}"
    print(f"{n_pes} PEs: the list came back signed by {signed.tolist()}")
shmem.finalize()
