"""pi is the integral of 4 / (1 + x^2) from 0 to 1. Each PE sums its share of the midpoints; sum_reduce adds the shares.

Run: pyshmemrun -n 4 examples/pi.py
Prints: 4 PEs, 1000000 midpoints: pi = 3.141592653589876, error 8.3e-14"""

import math

import pyshmem as shmem
import torch

shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
steps = 1_000_000

share, pi = shmem.zeros(2, dtype=torch.float64)
first, last = steps * me // n_pes, steps * (me + 1) // n_pes
x = (torch.arange(first, last, dtype=torch.float64, device=share.device) + 0.5) / steps
share.copy_((4 / (1 + x * x)).sum() / steps)
shmem.sum_reduce(pi, share)  # every PE gets the sum

error = abs(pi.item() - math.pi)
assert error < 1e-12, f"PE {me}: wanted pi = {math.pi}, got {pi.item()}"  # the rule's own error is 1 / (12 steps^2)
if me == 0:
    print(f"{n_pes} PEs, {steps} midpoints: pi = {pi.item():.15f}, error {error:.1e}")
shmem.finalize()
