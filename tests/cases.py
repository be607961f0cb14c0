"""Which cases of the tests of tests/pes run on how many PEs, where that is slow."""

import zlib

MANY = 4  # the cases of a test from which on all runs share them
# Of four parts of the cases, those that each number of PEs runs: two numbers have each part, one of them 2 or 3.
PARTS = {1: (0, 1, 2), 2: (1, 2, 3), 3: (0,), 4: (3,)}


def runs(place, count, n_pes):
    """Whether ``n_pes`` run the case at this place of ``count``. Of two or three, 3 PEs run the first and 4 PEs the last."""
    if count >= MANY:
        return place % 4 in PARTS[n_pes]
    return n_pes < 3 or place == {3: 0, 4: count - 1}[n_pes]


def shared(items, n_pes):
    """The items that ``n_pes`` run, and the others, by parts of each test's cases that follow no parameter.

    The parts do not go by the names of cases, which differ between PEs where they show a team.
    """
    cases = {}
    for item in items:
        cases.setdefault((item.path, item.originalname), []).append(item)
    left = set()
    for (_, name), each in cases.items():
        order = sorted(range(len(each)), key=lambda place: zlib.crc32(f"{name} {place}".encode()))
        left.update(each[place] for i, place in enumerate(order) if not runs(i, len(each), n_pes))
    return [item for item in items if item not in left], [item for item in items if item in left]
