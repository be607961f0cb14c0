"""The numbers of the targets of compilation and of transports. Triton 3.6 cannot pass on a tuple that contains text.

Functions contain the constants, because Triton compares the global constants of a kernel at each launch.
"""

from functools import cache
from typing import Any, NamedTuple

import triton
import triton.language as tl

TARGETS = ("interpreter", "nvidia", "gfx90a", "gfx942", "gfx950")  # DeviceContext.where is an index here
# DeviceContext.reach. DIRECT: the memory of every peer is mapped for loads, stores and atomics. FAR: that of some is not.
DIRECT, FAR = 0, 1


class Target(NamedTuple):
    """What fences read of a device context, for kernels that have none."""

    where: Any  # a constexpr, as in a DeviceContext


@cache
def target_of(arch: str) -> Target:
    """Return the target of a heap's ``arch``. On a GPU that is not in TARGETS, Triton's own order has to do."""
    return Target(tl.constexpr(TARGETS.index(arch) if arch in TARGETS else 0))


@triton.constexpr_function
def known(where: object) -> int:
    """Return the index. If a kernel assigns its context to another name, the index is no constant, which is an error."""
    if not isinstance(where, int):
        from pyshmem.base.errors import ArgumentError, refuse  # here: Triton compiles no function of its module

        got = "a copy of a device context, which has lost its constants"
        refuse(ArgumentError, "kernel", "ctx", got, "the context that the kernel received")
    return where


@triton.constexpr_function
def is_nvidia(where: int) -> bool:
    return known(where) == 1


@triton.constexpr_function
def is_gfx90a(where: int) -> bool:
    return known(where) == 2


@triton.constexpr_function
def is_amd(where: int) -> bool:
    return known(where) >= 2


@triton.constexpr_function
def nanoseconds_of_tick(where: int) -> int:
    """Return the period of s_memrealtime: 25 MHz on gfx90a (MI200's ISA, 8.2.5), 100 MHz on gfx942 and gfx950."""
    return 40 if known(where) == 2 else 10


@triton.constexpr_function
def between_fences(where: int, sem: str) -> str:
    """Return the order of an atomic for which arch.gpu.atomics.before and behind provide ``sem`` on AMD."""
    return "relaxed" if where >= 2 else sem


@triton.constexpr_function
def is_direct(reach: int) -> bool:
    return known(reach) == 0
