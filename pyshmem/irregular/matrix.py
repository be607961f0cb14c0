"""Sparse matrices in compressed rows (CSR), checked once, so that kernels need not check."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import torch

from pyshmem.base import interpreter
from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, refuse

VALUES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INDICES = (torch.int32, torch.int64)
LARGEST_PART = 1 << 20
# of rows and non-zeros with int32 indices: kernels add the size of a part to them
_MOST = 2**31 - 2 * LARGEST_PART


@dataclass(frozen=True, eq=False)
class CSR:
    """A checked matrix: row i has the non-zeros offsets[i] to offsets[i + 1] of columns and values.

    kept: the Parted of each schedule, size and width, and the launches of each work.
    """

    offsets: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor
    shape: tuple[int, int]
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """The number of rows, which are the tiles."""
        return self.shape[0]

    @property
    def atoms(self) -> int:
        """The number of stored elements, duplicates and zeros included."""
        return self.columns.numel()

    @property
    def device(self) -> torch.device:
        """Where the matrix is."""
        return self.values.device

    @cached_property
    def longest(self) -> int:
        """The most elements of a row. Found once; waits for torch's current stream."""
        return int(self.offsets.diff().max()) if self.rows else 0

    def between(self, first: int, last: int) -> CSR:
        """Return the rows from ``first`` to before ``last``, of all columns. Columns and values are shared."""
        if not 0 <= first <= last <= self.rows:
            refuse(OutOfRangeError, "between", "first, last", f"{first}, {last}", f"0 <= first <= last <= {self.rows}")
        start, end = (int(self.offsets[i]) for i in (first, last))
        offsets = self.offsets[first : last + 1] - start
        return CSR(offsets, self.columns[start:end], self.values[start:end], (last - first, self.shape[1]))


def csr(matrix: Any, device: Any = None) -> CSR:
    """Return ``matrix``, a torch sparse CSR or COO tensor or a SciPy sparse matrix of any format, as a checked CSR.

    Elements of a row may be in any order; products add up duplicates. The result shares arrays where they need no copy:
    do not change the indices afterwards.
    device: of the result; None is the tensor's own device, and the current GPU, if kernels are compiled, for SciPy.
    Errors: ArgumentError, DtypeError, OutOfRangeError with the row and column of an index out of range.
    Spec: none.
    """
    if isinstance(matrix, CSR):
        return matrix
    offsets, columns, values = _arrays(matrix)
    if device is None:
        device = "cpu" if interpreter.active() else values.device if isinstance(matrix, torch.Tensor) else "cuda"
    offsets, columns, values = (each.contiguous().to(device) for each in (offsets, columns, values))
    rows, width = (int(size) for size in matrix.shape)
    _check_types(offsets, columns, values)
    _check_offsets(offsets, columns, values, rows)
    columns, values = (each[: int(offsets[-1])] for each in (columns, values))
    _check_columns(offsets, columns, width)
    return CSR(offsets, columns, values, (rows, width))


def _arrays(matrix: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(offsets, columns, values) as they are in the matrix."""
    if isinstance(matrix, torch.Tensor) and matrix.layout == torch.sparse_csr and matrix.dim() == 2:
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    if isinstance(matrix, torch.Tensor) and matrix.layout == torch.sparse_coo and matrix.dim() == 2:
        found = matrix.coalesce()
        rows, columns = found.indices()
        lengths = torch.bincount(rows, minlength=matrix.shape[0])
        return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), columns, found.values()
    if hasattr(matrix, "tocsr") and len(matrix.shape) == 2:
        found = matrix.tocsr()
        return torch.from_numpy(found.indptr), torch.from_numpy(found.indices), torch.from_numpy(found.data)
    got = f"a {matrix.layout} tensor of shape {tuple(matrix.shape)}" if isinstance(matrix, torch.Tensor) else ""
    _refuse("matrix", got or type(matrix).__name__, "a sparse matrix: torch's CSR or COO, or SciPy's")


def _refuse(argument: str, got: str, wants: str) -> NoReturn:
    refuse(ArgumentError, "csr", argument, got, wants)


def _check_types(offsets: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> None:
    if offsets.dtype != columns.dtype or offsets.dtype not in INDICES:
        refuse(DtypeError, "csr", "indices", f"{offsets.dtype} and {columns.dtype}", "both int32 or both int64")
    if values.dtype not in VALUES:
        refuse(DtypeError, "csr", "values", str(values.dtype), "float16, bfloat16, float32 or float64")
    if columns.dim() != 1 or columns.shape != values.shape:
        got = f"shapes {tuple(columns.shape)} and {tuple(values.shape)}"
        _refuse("columns, values", got, "one column and one value for each non-zero")


def _check_offsets(offsets: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, rows: int) -> None:
    if offsets.shape != (rows + 1,) or int(offsets[0]) != 0:
        _refuse("offsets", f"shape {tuple(offsets.shape)}", f"{rows + 1} offsets, one more than rows, the first 0")
    down = (offsets[1:] < offsets[:-1]).nonzero()
    if down.numel():
        row = int(down[0, 0])
        _refuse("offsets", f"row {row} from {int(offsets[row])} to {int(offsets[row + 1])}", "offsets that never fall")
    if int(offsets[-1]) > columns.numel():
        _refuse("offsets", f"{int(offsets[-1])} non-zeros in all", f"at most {columns.numel()}, as there are columns")
    if offsets.dtype == torch.int32 and rows + int(offsets[-1]) > _MOST:
        _refuse("indices", f"int32 for {rows} rows and {int(offsets[-1])} non-zeros", f"int64 above {_MOST} in all")


def _check_columns(offsets: torch.Tensor, columns: torch.Tensor, width: int) -> None:
    wrong = ((columns < 0) | (columns >= width)).nonzero()
    if wrong.numel():
        atom = wrong[0, 0]
        row = int(torch.searchsorted(offsets, atom.to(offsets.dtype), right=True)) - 1
        got = f"column {int(columns[atom])} in row {row}"
        refuse(OutOfRangeError, "csr", "columns", got, f"columns 0 to {width - 1}" if width else "no non-zeros")
