"""Which cases of the tests of tests/pes run on 3 and on 4 PEs, where that is slow."""

import zlib

MANY = 4  # the cases of a test from which on the two share them


def shared(items, n_pes):
    """The items that ``n_pes`` run, and the others: every second case of a test, in an order that no parameter follows.

    The order does not go by the names of cases, which differ between PEs where they show a team.
    """
    cases = {}
    for item in items:
        cases.setdefault((item.path, item.originalname), []).append(item)
    left = set()
    for (_, name), each in cases.items():
        if len(each) >= MANY:
            places = sorted(range(len(each)), key=lambda place: zlib.crc32(f"{name} {place}".encode()))
            left.update(each[place] for place in places[n_pes % 2 :: 2])
    return [item for item in items if item not in left], [item for item in items if item in left]
