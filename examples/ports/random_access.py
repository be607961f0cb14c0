"""Every PE goes through its part of a pseudorandom sequence. Each number selects a word of a table distributed over the PEs,
and atomic_xor combines the word with the number. A second pass restores the table, since x ^ y ^ y is x.

Run: pyshmemrun -n 4 examples/ports/random_access.py
Prints: 4 PEs: 16384 random updates of 4096 words, every word right; updated again, the table is what it was
After: RandomAccess (GUPS) of the HPC Challenge and its OpenSHMEM versions, written afresh. The benchmark accepts one lost
update in 100, because most systems get, modify and put; atomics lose none."""

import itertools

import numpy as np
import pyshmem as shmem


def sequence(pe):
    """The numbers of one PE: the next part of the powers of x modulo x^64 + x^2 + x + 1, whose coefficients are bits."""
    number, first = 1, pe * n_updates
    for i in itertools.count():
        if i >= first + n_updates:
            return
        if i >= first:
            yield number
        number = (number << 1) & (2**64 - 1) ^ (7 if number >> 63 else 0)


def update():
    """All PEs go through their numbers once."""
    for number in sequence(me):
        pe, place = divmod(number % size, per_pe)
        shmem.atomic_xor(table[place], number, pe)
    shmem.barrier_all()


shmem.init()
me, n_pes = shmem.my_pe(), shmem.n_pes()
per_pe = 1024
size, n_updates = n_pes * per_pe, 4 * per_pe

at_first = np.arange(me * per_pe, (me + 1) * per_pe, dtype=np.uint64)  # word i of the whole table holds i
table = shmem.array(at_first)

update()
expected = at_first.copy()
for number in itertools.chain(*map(sequence, range(n_pes))):
    pe, place = divmod(number % size, per_pe)
    if pe == me:
        expected[place] ^= np.uint64(number)
wrong = (table.cpu().numpy() != expected).sum()
assert wrong == 0, f"PE {me}: {wrong} of {per_pe} words are wrong"
shmem.barrier_all()  # all PEs have checked

update()
wrong = (table.cpu().numpy() != at_first).sum()
assert wrong == 0, f"PE {me}: after the second time, {wrong} of {per_pe} words are not what they were"
shmem.barrier_all()
if me == 0:
    updates = f"{n_pes * n_updates} random updates of {size} words"
    print(f"{n_pes} PEs: {updates}, every word right; updated again, the table is what it was")
shmem.finalize()
