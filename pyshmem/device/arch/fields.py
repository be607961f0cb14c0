"""How a device context holds what differs between PEs, teams and inits, so that one compiled kernel serves all of them.

Triton compiles variants of a kernel for an int that is 1, for one that is a multiple of 16, and for 32 and 64 bits. So a
number is held twice, with ODD added: an odd int of 32 bits that is never 1. A distance is held with FAR added: an int of 64
bits that is a multiple of 16 where the distance is. The decoders are plain: the interpreter's side takes them so, the GPUs'
side compiles them. The constants stand in them as numbers: Triton compares a kernel's global ones at each of its launches.
"""

from __future__ import annotations

ODD, FAR = (1 << 30) + 1, 1 << 62


def encoded(number: int) -> int:
    """A number from -2**28 to 2**28, as a field holds it."""
    return 2 * number + ODD


def decoded(field):
    """The number in a field."""
    return (field - 1073741825) >> 1


def encoded_distance(nbytes: int) -> int:
    """A number of bytes from -2**61 to 2**61, as a field holds it."""
    return nbytes + FAR


def decoded_distance(field):
    """The number of bytes in a field."""
    return field - 4611686018427387904
