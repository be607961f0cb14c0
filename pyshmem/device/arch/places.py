"""Where kernels run, numbered: Triton 3.6 cannot pass on a tuple with text in it.

Constants are in functions here: Triton compares a kernel's global constants at each of its launches.
"""

import triton

PLACES = ("interpreter", "nvidia", "gfx90a", "gfx942", "gfx950")  # DeviceContext.where is an index here


@triton.constexpr_function
def is_nvidia(where: int) -> bool:
    return where == 1


@triton.constexpr_function
def is_gfx90a(where: int) -> bool:
    return where == 2
