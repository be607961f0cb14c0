"""What an operator is asked to do: sizes, layouts, types, team and options. Its arguments are checked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch

from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.host.teams import Team, member
from pyshmem.memory.arguments import symmetric_array
from pyshmem.memory.heap import default
from pyshmem.ops.checks import WITH_DOUBLE, require_for_double
from pyshmem.ops.gemm.scaling import Scales, form_of
from pyshmem.ops.gradients import Gradient, require_kind
from pyshmem.ops.machine import eight_bits
from pyshmem.ops.shares import share_of, start_of

SHARED = ("gemm_all_gather", "gemm_all_reduce")  # all PEs have the result
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


Product = Literal["gemm_all_gather", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"]
Schedule = Literal["auto", "copy_engine", "fused", "bulk_synchronous"]
Split = Literal["rows", "columns"]
Order = Literal[
    "auto", "data_parallel", "streamed_1", "streamed_2", "streamed_3", "streamed_4", "streamed_5", "streamed", "halves"
]  # fmt: skip


class Options(NamedTuple):
    """The keyword arguments that all operators share."""

    schedule: str = "auto"
    order: str = "auto"
    epilogue: Any = None  # a triton.jit function
    size: int | None = None  # of the divided dimension, where n_pes does not divide it
    columns: int | None = None  # N of all_gather_gemm, which is divided too
    tile: tuple[int, int, int] | None = None  # BM, BN, BK of our kernels
    out_dtype: torch.dtype | None = None  # of the product of 8-bit floats
    use_fast_accum: bool = False  # as in torch._scaled_mm
    gradient: Gradient = "partial"


_DEFAULTS = (*Options(), None, None)
_NAMES = (*Options._fields, "scale_a", "scale_b")
_FAST = _NAMES.index("use_fast_accum")


def given(*values: Any) -> dict[str, Any]:
    """Return the options and scales, by name, that are not the defaults. values: all of them, in the order of Options."""
    if values == _DEFAULTS and values[_FAST] is False:  # 0 is equal to False, and refused later
        return {}
    return {name: value for name, value, usual in zip(_NAMES, values, _DEFAULTS, strict=True) if value is not usual}


class Operand(NamedTuple):
    """How a matrix lies in memory, seen with K as its second dimension."""

    along: bool  # K runs along contiguous memory
    pitch: int  # elements from one line of contiguous memory to the next
    aligned: bool  # address and pitch are multiples of 16 bytes
    dtype: torch.dtype


class Problem(NamedTuple):
    """An operator, its sizes and its options. M, N, K: the whole product's.  m, n, k: of this PE's own product."""

    operator: str
    M: int
    N: int
    K: int
    m: int
    n: int
    k: int
    dtype: torch.dtype  # of the result
    a: Operand
    b: Operand
    scaling: str  # a form of scaling.py
    team: Team
    split: str  # "rows" or "columns", of gemm_all_gather
    options: Options
    aligned: bool  # whether a and b are, on all PEs once they have agreed

    @property
    def n_pes(self) -> int:
        return self.team.size

    @property
    def me(self) -> int:
        return self.team.me

    @property
    def sent(self) -> torch.dtype:
        """The type of what crosses."""
        return self.a.dtype if self.operator == "all_gather_gemm" else self.dtype

    @property
    def symmetric(self) -> bool:
        """Whether all PEs have the result, which peers then write."""
        return self.operator in SHARED

    @property
    def corner(self) -> tuple[int, int]:
        """The row and the column of the result at which this PE's product begins."""
        if self.operator == "all_gather_gemm" or self.split == "columns":
            return 0, start_of(self.N, self.me, self.n_pes)
        return start_of(self.M, self.me, self.n_pes) if self.operator == "gemm_all_gather" else 0, 0

    @property
    def result(self) -> tuple[int, int]:
        """The shape of what the operator returns here."""
        if self.operator == "all_gather_gemm":
            return self.M, self.n
        if self.operator == "gemm_reduce_scatter":
            return share_of(self.M, self.me, self.n_pes), self.N
        return self.M, self.N

    @property
    def flops(self) -> int:
        """The number of floating-point operations of this PE's product."""
        m = self.M if self.operator == "all_gather_gemm" else self.m
        return 2 * m * self.n * self.k

    @property
    def typical(self) -> tuple[int, int]:
        """The flops and the shorter side of a PE's product, the same number on all PEs though some have one row more."""
        columns = self.operator == "all_gather_gemm" or self.split == "columns"
        flops = 2 * self.M * self.N * self.K // self.n_pes
        return flops, min(self.M // self.n_pes, self.N // self.n_pes if columns else self.N)

    @property
    def largest(self) -> tuple[int, int, int]:
        """The rows, the columns and K of PE 0's product. No other's is larger, and all PEs get the same numbers."""
        M, N, K, n_pes = self.M, self.N, self.K, self.n_pes
        if self.operator == "all_gather_gemm" or self.split == "columns":
            return M, share_of(N, 0, n_pes), K
        if self.operator == "gemm_all_gather":
            return share_of(M, 0, n_pes), N, K
        return M, N, share_of(K, 0, n_pes)

    @property
    def bytes_sent(self) -> int:
        """Total sent by this PE."""
        item, peers = self.sent.itemsize, self.n_pes - 1
        own = share_of(self.M, self.me, self.n_pes)
        elements = {
            "gemm_all_gather": peers * self.m * self.n,
            "all_gather_gemm": peers * self.m * self.k,
            "gemm_reduce_scatter": (self.M - own) * self.N,
            "gemm_all_reduce": (self.M - own) * self.N + peers * own * self.N,
        }
        return item * elements[self.operator]


# the dimensions of which each PE has a share, by operator and split: ``size`` is the length of the first, ``columns`` of N
_DIVIDED = {
    ("gemm_all_gather", "rows"): "M",
    ("gemm_all_gather", "columns"): "N",
    ("all_gather_gemm", "rows"): "MN",
    ("gemm_reduce_scatter", "rows"): "K",
    ("gemm_all_reduce", "rows"): "K",
}


def problem_of(
    operator: str, a: Any, b: Any, team: Team | None, split: str, options: Mapping[str, Any], scales: Scales = ()
) -> Problem:
    """Check the operands and describe the problem. Errors: ArgumentError, DtypeError, NotInitializedError."""
    group = member(operator, team)
    chosen = _options(operator, options)
    for name, value in (("a", a), ("b", b)):
        require_matrix(operator, name, value)
    if a.dtype is torch.float64:
        require_for_double(operator, chosen.schedule)
        if chosen.epilogue is not None:
            refuse(ArgumentError, operator, "epilogue", "a function with torch.float64", "None: no kernel computes it")
    if a.dtype != b.dtype and a.dtype.itemsize + b.dtype.itemsize > 2:
        refuse(DtypeError, operator, "b", str(b.dtype), f"a's type, {a.dtype}")
    if (operator, split) not in _DIVIDED:
        refuse(ArgumentError, operator, "split", repr(split), "'rows' or 'columns'")
    if a.shape[1] != b.shape[0]:
        got = f"{tuple(b.shape)}, with a of {tuple(a.shape)}"
        refuse(ArgumentError, operator, "b", got, f"{a.shape[1]} rows, as many as a has columns")
    (m, k), n = a.shape, b.shape[1]
    sizes = {"M": m, "N": n, "K": k}
    divided = _DIVIDED[operator, split]
    if chosen.columns is not None and len(divided) == 1:
        refuse(ArgumentError, operator, "columns", str(chosen.columns), "None: it is for all_gather_gemm")
    for name, option in zip(divided, ("size", "columns"), strict=False):
        sizes[name] = _whole(operator, option, name, sizes[name], group, getattr(chosen, option))
    scaling = form_of(operator, a, b, scales)
    dtype = _result_type(operator, a.dtype, chosen)
    left, right = operand_of(a), operand_of(b.T)
    return Problem(
        operator, **sizes, m=m, n=n, k=k, dtype=dtype, a=left, b=right, scaling=scaling, team=group, split=split,
        options=chosen, aligned=left.aligned and right.aligned,
    )  # fmt: skip


def with_rows(problem: Problem, M: int, a: Operand | None = None, b: Operand | None = None) -> Problem:
    """Return the same problem with M rows in all. a, b: how the operands lie in memory; None: as they do."""
    operator, _, N, K, _, n, k, dtype, left, right, scaling, team, split, options, aligned = problem
    m = M
    if "M" in _DIVIDED[operator, split]:
        m = share_of(M, team.me, team.size)
        if options.size is not None:
            options = options._replace(size=M)
    # _replace takes three times as long
    return Problem(
        operator, M, N, K, m, n, k, dtype, a or left, b or right, scaling, team, split, options, aligned
    )  # fmt: skip


def rows_of_all(operator: str, a: torch.Tensor, team: Team, split: str, size: int | None) -> tuple[int, bool]:
    """Return the rows of the whole product, and whether ``size`` says how many they are."""
    if "M" not in _DIVIDED.get((operator, split), ""):
        return a.shape[0], False
    return (a.shape[0] * team.size, False) if size is None else (size, True)


def lengths_of(problem: Problem) -> list[str]:
    """Return lines with the lengths that all PEs know alike: of this PE's operands, or of the whole where it is given."""
    options, divided = problem.options, _DIVIDED[problem.operator, problem.split]
    whole = dict(zip(divided, (("size", options.size), ("columns", options.columns)), strict=False))
    lines = []
    for name, text in (
        ("M", f"a: {problem.m} rows"),
        ("K", f"a: {problem.k} columns"),
        ("N", f"b: {problem.n} columns"),
    ):
        option, length = whole.get(name, ("", None))
        lines.append(text if length is None else f"{option}: {length}")
    return lines


def _result_type(operator: str, given: torch.dtype, chosen: Options) -> torch.dtype:
    """The type of the result of operands of a type. Errors: DtypeError, ArgumentError."""
    wanted, eight = chosen.out_dtype, given.itemsize == 1
    if wanted is not None and wanted not in (DTYPES if eight else (given,)):
        known = ", ".join(map(str, DTYPES)) if eight else f"None or the operands' type, {given}"
        refuse(DtypeError, operator, "out_dtype", str(wanted), known)
    if chosen.use_fast_accum and not eight:
        refuse(ArgumentError, operator, "use_fast_accum", f"True for {given}", "False: it is for floats of 8 bits")
    return wanted or (torch.bfloat16 if eight else given)


def require_out(problem: Problem, out: Any) -> None:
    """Check the array that takes the result. Errors: ArgumentError, DtypeError, NotSymmetricError."""
    operator = problem.operator
    if not isinstance(out, torch.Tensor) or tuple(out.shape) != problem.result:
        got = f"{tuple(out.shape)}" if isinstance(out, torch.Tensor) else type(out).__name__
        refuse(ArgumentError, operator, "out", got, f"a tensor of shape {problem.result}")
    if out.dtype != problem.dtype:
        refuse(DtypeError, operator, "out", str(out.dtype), f"the result's type, {problem.dtype}")
    if not out.is_contiguous():
        refuse(ArgumentError, operator, "out", f"strides {out.stride()}", "a contiguous tensor")
    if out.data_ptr() % 16:
        refuse(ArgumentError, operator, "out", f"the address {out.data_ptr():#x}", "a multiple of 16")
    heap = default()
    if out.device.type != heap.device:
        refuse(ArgumentError, operator, "out", f"a tensor on {out.device}", f"one on {heap.device}")
    if problem.symmetric:
        symmetric_array(operator, "out", out)


def _options(operator: str, given: Mapping[str, Any]) -> Options:
    chosen = Options(**given)
    if chosen.epilogue is not None and not hasattr(chosen.epilogue, "fn"):
        refuse(ArgumentError, operator, "epilogue", type(chosen.epilogue).__name__, "a function of triton.jit")
    if type(chosen.use_fast_accum) is not bool:
        refuse(ArgumentError, operator, "use_fast_accum", repr(chosen.use_fast_accum), "True or False")
    require_kind(operator, chosen.gradient)
    if chosen.gradient != "partial" and operator not in SHARED:
        refuse(ArgumentError, operator, "gradient", repr(chosen.gradient), "'partial': each PE has a result of its own")
    for name in ("schedule", "order"):
        if not isinstance(getattr(chosen, name), str):
            refuse(ArgumentError, operator, name, repr(getattr(chosen, name)), "'auto' or a name")
    if chosen.tile is not None and not _is_tile(chosen.tile):
        refuse(ArgumentError, operator, "tile", repr(chosen.tile), "a tuple of three powers of two, each 16 or more")
    for name in ("size", "columns"):
        length = getattr(chosen, name)
        if length is not None and (type(length) is not int or length < 0):
            refuse(ArgumentError, operator, name, repr(length), "an int, 0 or more")
    return chosen


def _is_tile(tile: Any) -> bool:
    if not isinstance(tile, tuple) or len(tile) != 3:
        return False
    return all(type(length) is int and length >= 16 and length.bit_count() == 1 for length in tile)


def require_matrix(operator: str, name: str, value: Any) -> None:
    """Errors: ArgumentError, DtypeError."""
    if not isinstance(value, torch.Tensor) or value.dim() != 2:
        got = f"{value.dim()} dimensions" if isinstance(value, torch.Tensor) else type(value).__name__
        refuse(ArgumentError, operator, name, got, "a torch tensor of 2 dimensions")
    if value.dtype not in WITH_DOUBLE:
        processor, types = eight_bits()
        if value.dtype not in types:
            wants = "one of " + ", ".join(map(str, WITH_DOUBLE + types))
            wants += "" if types else f"; {processor} multiplies no floats of 8 bits"
            refuse(DtypeError, operator, name, str(value.dtype), wants)
    if value.device.type != default().device:
        refuse(ArgumentError, operator, name, f"a tensor on {value.device}", f"one on {default().device}")
    if not is_lined(value):
        wants = "rows or columns of contiguous elements"
        refuse(ArgumentError, operator, name, f"strides {value.stride()}", wants)


def is_lined(matrix: torch.Tensor) -> bool:
    """Whether the rows or the columns of a matrix are contiguous and do not overlap, as kernels need them."""
    rows, columns = matrix.shape
    down, across = matrix.stride()
    by_rows = across == 1 and (down >= columns or rows == 1)
    by_columns = down == 1 and (across >= rows or columns == 1)
    return by_rows or by_columns or not matrix.numel()


def _whole(operator: str, option: str, name: str, own: int, team: Team, size: int | None) -> int:
    """The length of a divided dimension. Errors: ArgumentError if this PE's share of ``size`` is not ``own``."""
    if size is None:
        return own * team.size
    share = share_of(size, team.me, team.size)
    if share != own:
        got = f"{size}, with {own} elements of {name} here"
        refuse(ArgumentError, operator, option, got, f"a size of which PE {team.me} of {team.size} has {own}")
    return size


def operand_of(matrix: torch.Tensor) -> Operand:
    """Return how a matrix lies in memory: a or b.T, whose second dimension is K."""
    rows, columns = matrix.stride()
    along = columns == 1 and (rows >= matrix.shape[1] or matrix.shape[0] <= 1)
    pitch = max(rows if along else columns, 1)
    return Operand(along, pitch, (matrix.data_ptr() | pitch * matrix.itemsize) % 16 == 0, matrix.dtype)


def layouts_of(a: torch.Tensor, b: torch.Tensor) -> tuple[Operand, Operand, bool, bool]:
    """Return how a and b lie in memory, and whether each is at a multiple of 16: kernels are compiled for such addresses."""
    return operand_of(a), operand_of(b.T), a.data_ptr() % 16 == 0, b.data_ptr() % 16 == 0
