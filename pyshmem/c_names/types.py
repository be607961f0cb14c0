"""C's types as torch's and NumPy's.

torch has no long double: its 16 bytes are moved as complex128, which has the same size, and computed with as NumPy's
longdouble.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from pyshmem.c_names.spellings import SPELLINGS


class CType(NamedTuple):
    """``dtype`` moves the bits, ``numpy`` computes; they differ only for long double."""

    name: str
    c: str
    dtype: torch.dtype
    numpy: np.dtype[np.generic]


def _type(name: str, c: str, numpy: str) -> CType:
    kind = np.dtype(numpy)
    bits = {8: "float64", 16: "complex128"}[kind.itemsize] if name == "longdouble" else numpy
    return CType(name, c, getattr(torch, bits), kind)


TYPES = {name: _type(name, *spellings) for name, spellings in SPELLINGS.items()}
LONG_DOUBLE = TYPES["longdouble"]
HALVES = (  # beyond C11: the generic names of copies and reductions accept these too
    CType("float16", "_Float16", torch.float16, np.dtype("float16")),
    CType("bfloat16", "__bf16", torch.bfloat16, np.dtype("V2")),
)
