"""The numbers of the targets of compilation and of transports. Triton 3.6 cannot pass on a tuple that contains text.

Functions contain the constants, because Triton compares the global constants of a kernel at each launch.
"""

import triton

TARGETS = ("interpreter", "nvidia", "gfx90a", "gfx942", "gfx950")  # DeviceContext.where is an index here
# DeviceContext.reach. DIRECT: the memory of every peer is mapped for loads, stores and atomics. FAR: that of some is not.
DIRECT, FAR = 0, 1


@triton.constexpr_function
def known(where: object) -> int:
    """Return the index. If a kernel assigns its context to another name, the index is no constant, which is an error."""
    if not isinstance(where, int):
        from pyshmem.runtime.errors import ArgumentError, refuse  # here: Triton compiles no function of its module

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
def is_direct(reach: int) -> bool:
    return known(reach) == 0
