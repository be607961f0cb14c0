"""pyshmem inside Gluon kernels: ``import pyshmem.device.gluon as dev``, with the calls of pyshmem.device.

They are the same functions: a kernel of ``@gluon.jit`` compiles them for Gluon, and tiles keep the layouts that it gives
them. In a worker of gl.warp_specialize a call is made by the worker's warps: it covers what they have stored and loaded,
and what others did before a barrier with them. WITHOUT names what is not here: it makes tiles of its own. Collectives on
tiles return tiles in the layout of their operand; without axis, reduce_scatter returns one in the slice of its first
dimension, and all_gather takes scalars only.
Errors: ImportError where no Gluon kernel could run.
"""

from pyshmem import device as _device
from pyshmem.base import interpreter as _interpreter

if _interpreter.active():
    raise ImportError(
        "pyshmem.device.gluon: kernels are interpreted here, and Gluon has no interpreter: it needs a GPU, and "
        f"{_interpreter.VARIABLE} not set; a kernel of triton.jit with pyshmem.device runs in both"
    )
try:
    import triton.experimental.gluon as _gluon  # noqa: F401
except ImportError as _error:
    raise ImportError("pyshmem.device.gluon: this Triton has no Gluon (triton.experimental.gluon)") from _error

WITHOUT = {"load_tile", "store_tile"}

__all__ = sorted(set(_device.__all__) - WITHOUT)
globals().update({_name: getattr(_device, _name) for _name in __all__})
