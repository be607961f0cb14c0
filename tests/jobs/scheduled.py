"""PE 0 performs small programs many times, on itself and on PE 1, and prints how many results exist and how many came up.

Run on two PEs under pyshmemrun --check=schedules. A result that no execution of the memory model has is an error.
"""

import random

import litmus
import pyshmem as shmem
import torch

TIMES = 20
shmem.init()
data = shmem.zeros(2, dtype=torch.int64)
PLACES = {"x": data[0:1], "y": data[1:2]}


def perform(ops):
    """Return what an execution reads, and what is left on both PEs."""
    for place in PLACES.values():
        for pe in range(2):
            shmem.p(place, 0, pe)
    shmem.quiet()
    reads = []
    for at, (name, word, pe) in enumerate(ops):
        place, value = PLACES.get(word), at + 1
        if name == "put":
            shmem.p(place, value, pe)
        elif name == "store":
            place.fill_(value)
        elif name in ("read", "get"):
            reads.append((0, at, place.item() if name == "read" else int(shmem.g(place, pe))))
        else:
            getattr(shmem, name)()
    shmem.quiet()
    return tuple(reads), tuple(int(shmem.g(place, pe)) for pe in range(2) for place in PLACES.values())


def expected(ops):
    """The results of all executions."""
    results = litmus.results([ops, []])
    left = [(reads, dict(memory)) for reads, memory in results]
    return {
        (reads, tuple(last.get((pe, word), (0,))[-1] for pe in range(2) for word in PLACES)) for reads, last in left
    }


def programs(count):
    """Five to seven operations of PE 0, most of them on PE 1."""
    chance = random.Random(7)
    for _ in range(count):
        names = chance.choices(
            ["put", "fence", "quiet", "get", "store", "read"], [6, 3, 1, 2, 1, 1], k=chance.randint(5, 7)
        )
        yield [(name, chance.choice("xxy"), chance.choice([0, 1, 1, 1])) for name in names]


exist = came = 0
for ops in programs(100) if shmem.my_pe() == 0 else ():
    wanted, found = expected(ops), {perform(ops) for _ in range(TIMES)}
    assert found <= wanted, f"{ops}: got {found - wanted}; expected one of {wanted}"
    exist, came = exist + len(wanted), came + len(found)
if exist:
    print(exist, came)
