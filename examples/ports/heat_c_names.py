"""Heat in a rod between a hot end and a cold end, in the style of an OpenSHMEM 1.0 C program: C names, and collectives over
active sets (PE_start, logPE_stride, PE_size) with pSync and pWrk. Deprecated names warn once each on stderr.

Run: pyshmemrun -n 4 examples/ports/heat_c_names.py
Prints: 4 PEs: 200 steps on 256 points by deprecated calls, equal to the serial solution in every bit
After: the heat conduction programs of OpenSHMEM's examples and tutorials, written afresh."""

# ruff: noqa: F403, F405
import torch
from pyshmem.shmem import *


def conduct(u):
    """The points between the ends of u, a time step later."""
    return u[1:-1] + 0.25 * ((u[:-2] - u[1:-1]) + (u[2:] - u[1:-1]))


def static(count, dtype):
    """C's static double x[count], or long: symmetric, zero."""
    array = shmalloc(count * 8, dtype)
    array.zero_()
    return array


start_pes(0)
me, npes = shmem_my_pe(), shmem_n_pes()
n, steps = 64, 200  # points per PE

barrier_sync, reduce_sync = static(SHMEM_BARRIER_SYNC_SIZE, torch.int64), static(SHMEM_REDUCE_SYNC_SIZE, torch.int64)
collect_sync, even_sync = static(SHMEM_COLLECT_SYNC_SIZE, torch.int64), static(SHMEM_REDUCE_SYNC_SIZE, torch.int64)
pWrk = static(SHMEM_REDUCE_MIN_WRKDATA_SIZE, torch.float64)
for pSync in barrier_sync, reduce_sync, collect_sync, even_sync:
    pSync.fill_(SHMEM_SYNC_VALUE)
old, new = static(n + 2, torch.float64), static(n + 2, torch.float64)  # with one halo point on either side
whole, change, maximum, hottest = (static(count, torch.float64) for count in (n * npes, 1, 1, 1))
if me == 0:
    old[0] = new[0] = 100.0  # the hot end; the cold one is 0, as static memory is
shmem_barrier_all()

for _ in range(steps):
    if me > 0:
        shmem_double_put(old[n + 1 :], old[1:], 1, me - 1)
    if me < npes - 1:
        shmem_double_put(old, old[n:], 1, me + 1)
    shmem_barrier(0, 0, npes, barrier_sync)
    new[1:-1] = conduct(old)
    old, new = new, old

change[0] = (old - new)[1:-1].abs().max()
shmem_double_max_to_all(maximum, change, 1, 0, 0, npes, pWrk, reduce_sync)
shmem_fcollect64(whole, old[1:], n, 0, 0, npes, collect_sync)
if me % 2 == 0:  # an active set is a subset of the PEs: here the even ones
    change[0] = old[1:-1].max()
    shmem_double_max_to_all(hottest, change, 1, 0, 1, (npes + 1) // 2, pWrk, even_sync)

rod = torch.zeros(n * npes + 2, dtype=torch.float64, device=old.device)
rod[0] = 100.0
for _ in range(steps):
    before, rod[1:-1] = rod.clone(), conduct(rod)
assert torch.equal(whole, rod[1:-1]), f"PE {me}: {(whole != rod[1:-1]).sum()} points are not the serial ones"
assert maximum.item() == (rod - before).abs().max(), f"PE {me}: the largest change is {maximum.item()}"
assert me % 2 or hottest.item() == rod[1], f"PE {me}: wanted {rod[1]} as the hottest point, got {hottest.item()}"
if me == 0:
    size = f"{steps} steps on {n * npes} points"
    print(f"{npes} PEs: {size} by deprecated calls, equal to the serial solution in every bit")
shmem_finalize()
