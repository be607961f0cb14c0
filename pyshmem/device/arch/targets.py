"""What kernels are compiled for and how they reach peers, numbered: Triton 3.6 cannot pass on a tuple with text in it.

Constants are in functions here: Triton compares a kernel's global constants at each of its launches.
"""

import triton

TARGETS = ("interpreter", "nvidia", "gfx90a", "gfx942", "gfx950")  # DeviceContext.where is an index here
DIRECT = 0  # DeviceContext.reach: every peer's memory is mapped, for loads, stores and atomics


@triton.constexpr_function
def known(where: object) -> int:
    """The index, which Triton makes a number of the running kernel where a context is assigned to another name."""
    if not isinstance(where, int):
        from pyshmem.runtime.errors import ArgumentError, refuse  # here: Triton compiles no function of its module

        got = "a copy of a device context, which has lost its constants"
        refuse(ArgumentError, "kernel", "ctx", got, "the device context as the kernel got it")
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
