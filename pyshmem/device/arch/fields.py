"""The encoding of fields of a device context, with which one compiled kernel serves all PEs, teams and inits.

Other bundles of numbers that differ from call to call use it too.

Triton compiles separate variants of a kernel for an int that is 1, for multiples of 16, and for 32 and 64 bits. The
encoding avoids this. A number is stored as 2 * number + ODD, an odd int of 32 bits that is never 1. A distance is stored
with FAR added, an int of 64 bits that is a multiple of 16 if the distance is. The decoders are plain functions: the
interpreter calls them as they are, and arch/gpu compiles them. Their constants are literals, because Triton compares
the global constants of a kernel at each launch.
"""

from __future__ import annotations

ODD, FAR = (1 << 30) + 1, 1 << 62


def encoded(number: int) -> int:
    """Return the field for a number from -2**28 to 2**28."""
    return 2 * number + ODD


def encoded_each(*numbers: int) -> list[int]:
    """Return the fields for numbers from -2**28 to 2**28."""
    return [2 * number + ODD for number in numbers]


def decoded(field):
    """Return the number in a field."""
    return (field - 1073741825) >> 1


def encoded_distance(nbytes: int) -> int:
    """Return the field for a number of bytes from -2**61 to 2**61."""
    return nbytes + FAR


def decoded_distance(field):
    """Return the number of bytes in a field."""
    return field - 4611686018427387904


def mesh_field(number: int) -> int:
    """Return the field for a number up to 2**61 that is never 1, has 32 bits if it can, and what divides it up to 16."""
    return number + (1 << 30) if number < 1 << 30 else number + FAR


def mesh_number(field):
    """Return the number in a field that is known."""
    return field - (1 << 30) if field < 1 << 31 else field - FAR
