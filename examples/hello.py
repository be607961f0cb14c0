"""Every PE writes its process number into PE 0's memory, and PE 0 prints them in order.

Run: pyshmemrun -n 4 examples/hello.py
Prints: PE 0 of 4 is process 5001
        PE 1 of 4 is process 5002, and so on: one line per PE"""

import os

import pyshmem as shmem
import torch

shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()

processes = shmem.zeros(n_pes, dtype=torch.int64)  # symmetric: every PE has this array, and every PE may write to it
shmem.p(processes[me], os.getpid(), 0)
shmem.barrier_all()  # from here on every PE's number is in PE 0's array

if me == 0:
    assert (processes > 0).all(), f"wanted {n_pes} process numbers, got {processes.tolist()}"
    for pe, process in enumerate(processes.tolist()):
        print(f"PE {pe} of {n_pes} is process {process}")
shmem.finalize()
