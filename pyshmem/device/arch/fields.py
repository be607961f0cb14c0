"""How a device context holds numbers that differ between PEs, teams or inits: so that Triton specialises none of them.

Triton compiles variants of a kernel for an int that is 1 and for one that is a multiple of 16. 2 * number + 3 is neither.
"""

from __future__ import annotations


def encoded(number: int) -> int:
    """A number that is 0 or more, as a field holds it."""
    return 2 * number + 3


def decoded(field):
    """The number in a field. Plain: the interpreter's side takes it so, the GPUs' compiles it."""
    return (field - 3) // 2
