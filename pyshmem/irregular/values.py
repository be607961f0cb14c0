"""What kernels know of a work, and the values that it gives to atoms."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Constants(NamedTuple):
    """What a kernel knows of a work: its functions, the type of its sums, and their number, a power of 2.

    NEAR: whether ATOM takes the second mask.
    """

    ATOM: Any
    TILE: Any
    SUM: Any
    WIDTH: int
    NEAR: bool


@triton.jit
def values_of(operands, atoms, lanes, inside, near, work: tl.constexpr):
    """Return the values of ``atoms``, zeros where they are not ``inside``.

    near: those inside and others that exist, alike for the atoms of a vector, so that these can be one load.
    """
    value = work.ATOM(operands, atoms, lanes, inside, near) if work.NEAR else work.ATOM(operands, atoms, lanes, near)
    return tl.where(inside, value, 0).to(work.SUM)
