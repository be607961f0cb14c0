"""Rows of numbers of 8 bits, of float8_e4m3fn, with a scale for each row or block of a row: numbers are code * scale.

Kernels store codes as integers, which they make themselves: so every GPU, and the interpreter, has them.
Format: FP8 Formats for Deep Learning (arXiv 2209.05433); a scale for each token, as in vLLM and TensorRT-LLM, or
for each 128 of its elements, as in DeepSeek-V3 (arXiv 2412.19437).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl

from pyshmem.device.arch import jit

KIND = torch.float8_e4m3fn
CODES = tl.constexpr(tl.uint8)  # the elements of an array of codes in kernels
WIDE = 128  # elements of a block that has a scale of its own
MOST = tl.constexpr(448.0)  # the largest number
LEAST = tl.constexpr(1e-30)  # the largest of a row counts as no less: a scale is a normal number


class Scaled(NamedTuple):
    """Numbers of 8 bits with scales: row i is ``values[i].float() * scales[i]``.

    values: (tokens, hidden), torch.float8_e4m3fn.  scales: torch.float32, (tokens,), or one for each 128 elements of a row,
        the last of which may be fewer: (tokens, ceil(hidden / 128)).
    """

    values: torch.Tensor
    scales: torch.Tensor

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the numbers in another dtype, as a new tensor."""
        if self.scales.dim() == 1:
            scales = self.scales[:, None]
        else:
            scales = self.scales.repeat_interleave(WIDE, dim=1)[:, : self.values.shape[1]]
        return (self.values.float() * scales).to(dtype)


@jit
def factor_of(most):
    """Return the scale of a row whose largest magnitude is ``most``."""
    return tl.maximum(most, LEAST) * (1.0 / MOST)


@jit
def coded(values):
    """Return the codes of float32 numbers, the nearest ones, of two as near the even one. Larger ones become 448."""
    bits = values.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    code = (
        (size + 0x7FFFF + ((size >> 20) & 1)) >> 20
    ) - 960  # 3 bits of the fraction; exponents count from -7, not -127
    small = (tl.abs(values) + 16384.0).to(
        tl.int32, bitcast=True
    ) - 0x46800000  # below 2**-6, where codes are 2**-9 apart
    code = tl.minimum(tl.where(size < 0x3C800000, small, code), 0x7E)
    code = tl.where(size > 0x7F800000, 0x7F, code)  # not a number
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
