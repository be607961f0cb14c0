"""cuSPARSE, called by ctypes: each algorithm by itself, with its preprocessing done, which torch does not do."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from ctypes import byref, c_double, c_float, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch

TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2}  # cudaDataType; sums are of the first two
INDICES = {torch.int32: 2, torch.int64: 3}  # cusparseIndexType_t
VECTOR = {"cuSPARSE ALG1": 2, "cuSPARSE ALG2": 3}  # of CSR matrices: cusparseSpMVAlg_t
DENSE = {"cuSPARSE ALG1": 4, "cuSPARSE ALG2": 6, "cuSPARSE ALG3": 12}  # cusparseSpMMAlg_t
ALGORITHMS = tuple(DENSE)
ROWS = 2  # cusparseOrder_t
Call = Callable[[], torch.Tensor]


class Refused(RuntimeError):
    """cuSPARSE has returned an error."""


class Library:
    """cuSPARSE as this process has loaded it, with torch."""

    def __init__(self) -> None:
        found = re.findall(r"/\S*libcusparse\.so[.\d]*", Path("/proc/self/maps").read_text())
        self.functions = ctypes.CDLL(found[0])
        self.handle = c_void_p()
        self.call("Create", byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.functions, f"cusparse{name}")(*arguments)
        if code:
            raise Refused(f"cusparse{name} returned {code}")

    def follow(self) -> None:
        """Go on torch's current stream."""
        self.call("SetStream", self.handle, c_void_p(torch.cuda.current_stream().cuda_stream))

    def sparse(self, matrix: torch.Tensor) -> c_void_p:
        values, index, found = matrix.values(), INDICES[matrix.col_indices().dtype], c_void_p()
        arrays = (c_void_p(each.data_ptr()) for each in (matrix.crow_indices(), matrix.col_indices(), values))
        sizes = (c_int64(each) for each in (*matrix.shape, values.numel()))
        self.call("CreateCsr", byref(found), *sizes, *arrays, index, index, 0, TYPES[values.dtype])
        return found

    def dense(self, array: torch.Tensor) -> c_void_p:
        kind, address, found = TYPES[array.dtype], c_void_p(array.data_ptr()), c_void_p()
        sizes = [c_int64(each) for each in array.shape]
        if array.dim() == 1:
            self.call("CreateDnVec", byref(found), *sizes, address, kind)
        else:
            self.call("CreateDnMat", byref(found), *sizes, sizes[1], address, kind, ROWS)
        return found

    def product(self, matrix: torch.Tensor, x: torch.Tensor, algorithm: int) -> Call:
        """Return the product, which uses what the preprocessing has left in a buffer."""
        y = x.new_empty(matrix.shape[0], *x.shape[1:])
        routine, size, operations = ("SpMV", c_size_t(), (0,)) if x.dim() == 1 else ("SpMM", c_size_t(), (0, 0))
        number = c_double if x.dtype is torch.float64 else c_float
        one, zero = number(1), number(0)
        arguments = (
            self.handle, *operations, byref(one), self.sparse(matrix), self.dense(x), byref(zero), self.dense(y),
            TYPES[torch.promote_types(x.dtype, torch.float32)], algorithm,
        )  # fmt: skip
        self.call(f"{routine}_bufferSize", *arguments, byref(size))
        buffer = torch.empty(max(size.value, 16), dtype=torch.uint8, device=x.device)
        self.follow()
        self.call(f"{routine}_preprocess", *arguments, c_void_p(buffer.data_ptr()))
        torch.cuda.synchronize()
        held = matrix, x, buffer, one, zero  # addresses are in the arguments

        def multiply() -> torch.Tensor:
            self.follow()
            self.call(routine, *arguments, c_void_p(held[2].data_ptr()))
            return y

        return multiply


loaded = cache(Library)


def products(matrix: torch.Tensor, x: torch.Tensor) -> dict[str, Call]:
    """Return the product of a CSR tensor on an NVIDIA GPU by each algorithm that takes it."""
    library, found = loaded(), {}
    for name, algorithm in (VECTOR if x.dim() == 1 else DENSE).items():
        try:
            found[name] = library.product(matrix, x, algorithm)
        except Refused:
            continue
    return found
