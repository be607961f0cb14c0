"""Where kernels run, numbered: Triton 3.6 cannot pass on a tuple with text in it."""

import triton.language as tl

PLACES = ("interpreter", "nvidia", "gfx90a", "gfx942", "gfx950")  # DeviceContext.where is an index here
NVIDIA = tl.constexpr(PLACES.index("nvidia"))
GFX90A = tl.constexpr(PLACES.index("gfx90a"))
