"""Sort random keys over all PEs: each PE owns a range of keys. It reserves space at the owners with atomic_fetch_add, puts a
bucket of keys to each owner, and sorts the keys that it received by counting.

Run: pyshmemrun -n 4 examples/ports/isx_sort.py
Prints: 4 PEs: 65536 keys sorted, the order, the count of every key and the sum of all are right
After: ISx, the integer sort of Hanebutte and Hemstad (PGAS 2015), written afresh."""

import pyshmem as shmem
import torch


def draw(pe):
    """The keys that one PE starts with."""
    return torch.randint(0, key_end, (n_keys,), generator=torch.Generator().manual_seed(pe), dtype=torch.int32)


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
n_keys, key_end = 16384, 30_000
width = -(-key_end // n_pes)  # PE 0 owns the keys from 0 to width - 1, PE 1 the next width, ...

received = shmem.empty(2 * n_keys, dtype=torch.int32)  # twice the mean; a put beyond the end would be refused
n_received = shmem.zeros(1, dtype=torch.int64)
keys = draw(me).to(received.device)

owners = keys // width
counts = torch.bincount(owners, minlength=n_pes).tolist()
buckets = keys[owners.argsort()].split(counts)
for i in range(n_pes):
    pe = (me + i) % n_pes  # each PE begins with itself, so that they do not all write to PE 0
    first = shmem.atomic_fetch_add(n_received, counts[pe], pe)
    shmem.put(received[first:], buckets[pe], pe)
shmem.barrier_all()  # every key has reached its owner

mine, low = received[: int(n_received)], me * width
assert ((low <= mine) & (mine < low + width)).all(), f"PE {me}: keys of another PE are here"
histogram = torch.bincount(mine - low, minlength=width)
mine[:] = torch.arange(low, low + width, device=mine.device).repeat_interleave(histogram)  # sorted
shmem.barrier_all()

# checks that a benchmark can afford: the order, also across PEs, the number of keys, and their sum
assert (mine[1:] >= mine[:-1]).all(), f"PE {me}: its keys are not in order"
if me + 1 < n_pes:
    assert mine[-1] <= shmem.g(received[0], me + 1), f"PE {me}: its last key is above the next PE's first"
checks = shmem.array([len(mine) - n_keys, (mine.sum() - keys.sum()).item()], dtype=torch.int64)
shmem.sum_reduce(checks, checks)
assert checks.tolist() == [0, 0], f"PE {me}: keys too many, and their sum too large by: {checks.tolist()}"

# a check for small sizes: the count of every key
everything = torch.cat([draw(pe) for pe in range(n_pes)])
expected = torch.bincount(everything, minlength=n_pes * width)[low : low + width]
assert torch.equal(histogram.cpu(), expected), f"PE {me}: counts of keys differ from torch.bincount's"
if me == 0:
    print(f"{n_pes} PEs: {len(everything)} keys sorted, the order, the count of every key and the sum of all are right")
shmem.finalize()
