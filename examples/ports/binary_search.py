"""Binary search in a sorted array that is distributed over the PEs: each step reads one word with g, one-sided.

Run: pyshmemrun -n 4 examples/ports/binary_search.py
Prints: 4 PEs: 800 keys searched in 10007 sorted values, 58 are there, 10685 words read
After: the binary search among the programs of Sandia OpenSHMEM (SOS), written afresh for keys that may be absent."""

import pyshmem as shmem
import torch


def first_not_below(key):
    """The first place in the whole array whose value is not below key, and the number of words read."""
    low, high, words = 0, total, 0
    while low < high:
        middle = (low + high) // 2
        value = shmem.g(mine[middle % width], middle // width)  # PE 0 has the first width values, PE 1 the next, ...
        low, high, words = (middle + 1, high, words + 1) if value < key else (low, middle, words + 1)
    return low, words


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
total, n_keys, largest = 10007, 200, 100_000
width = -(-total // n_pes)

generator = torch.Generator().manual_seed(0)  # the same array on all PEs; each keeps its part
whole = torch.randint(0, largest, (total,), generator=generator).sort().values  # includes duplicates
part = whole[me * width : (me + 1) * width]
mine = shmem.empty(width, dtype=torch.int64)
mine[: len(part)] = part
shmem.barrier_all()

keys = torch.randint(-10, largest + 10, (n_keys,), generator=torch.Generator().manual_seed(1 + me))
places, words = torch.tensor([first_not_below(key) for key in keys.tolist()]).T
there = torch.isin(keys, whole)

assert torch.equal(places, torch.searchsorted(whole, keys)), f"PE {me}: places differ from torch.searchsorted's"
found = [place < total and whole[place] == key for place, key in zip(places.tolist(), keys.tolist(), strict=True)]
assert found == there.tolist(), f"PE {me}: found {sum(found)} of its keys, wanted {there.sum()}"

counts = shmem.array([there.sum(), words.sum()], dtype=torch.int64)
shmem.sum_reduce(counts, counts)
if me == 0:
    hits, reads = counts.tolist()
    print(f"{n_pes} PEs: {n_pes * n_keys} keys searched in {total} sorted values, {hits} are there, {reads} words read")
shmem.finalize()
