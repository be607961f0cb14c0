"""A counter protected only by a lock: every PE reads it, adds 1 and writes it back, first under OpenSHMEM's lock, then under
a lock built on compare_swap. Both counts are right; the first lock is fair, the second serves whoever polls first.

Run: pyshmemrun -n 4 examples/ports/locks.py
Prints: 4 PEs, 1000 turns each: set_lock 4000, 26 us a turn, 3730 changes of owner; compare_swap 4000, 5 us, 481 changes
After: the example of SHMEM_LOCK in OpenSHMEM 1.6, 9.12, and the spin locks of textbooks."""

import os
import time

import pyshmem as shmem
import torch


def spin_lock(word):
    while shmem.atomic_compare_swap(word, 0, 1 + me, 0) != 0:  # 0: free, otherwise 1 + the PE that holds it
        os.sched_yield()  # let its owner run, where PEs outnumber cores


def spin_unlock(word):
    shmem.quiet()  # completes the work done under the lock before the lock is released; clear_lock includes this
    shmem.atomic_set(word, 0, 0)


def count(lock, unlock):
    """All PEs count their turns; the count, microseconds a turn, and how often the owner was another PE than before."""
    word, counter = shmem.zeros(2, dtype=torch.int64)
    owners = shmem.full(n_pes * turns, -1, dtype=torch.int64)
    start = time.perf_counter()
    for _ in range(turns):
        lock(word)
        value = shmem.g(counter, 0)
        shmem.p(owners[value], me, 0)
        shmem.p(counter, value + 1, 0)
        unlock(word)
    shmem.barrier_all()
    microseconds = (time.perf_counter() - start) * 1e6 / len(owners)
    if me == 0:
        counted = torch.bincount(owners.cpu() + 1, minlength=n_pes + 1).tolist()  # [0]: places that were not written
        assert counter.item() == len(owners), f"wanted {len(owners)} turns, counted {counter.item()}"
        assert counted == [0] + [turns] * n_pes, f"wanted {turns} turns of each PE, got {counted[1:]}"
    shmem.barrier_all()
    return int(counter), microseconds, int((owners[1:] != owners[:-1]).sum())


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
turns = 1000

counted, us, changes = count(shmem.set_lock, shmem.clear_lock)
spun, spin_us, spin_changes = count(spin_lock, spin_unlock)
if me == 0:
    by_lock = f"set_lock {counted}, {us:.0f} us a turn, {changes} changes of owner"
    by_swap = f"compare_swap {spun}, {spin_us:.0f} us, {spin_changes} changes"
    print(f"{n_pes} PEs, {turns} turns each: {by_lock}; {by_swap}")
shmem.finalize()
