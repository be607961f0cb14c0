"""Checks of arguments that operators share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.host.teams import Team, require_one_node
from pyshmem.memory.arguments import is_number
from pyshmem.memory.heap import default

WITHOUT_TILES = ("bulk_synchronous", "copy_engine", "reduce_on_stream")  # schedules that reach PEs on other nodes
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DOUBLE = "bulk_synchronous"
WITH_DOUBLE = (*DTYPES, torch.float64)  # of operators whose DOUBLE schedule computes float64 by torch: no kernel does


def schedule_of(
    routine: str, schedule: Any, usual: str, known: Collection[str], team: Team, dtype: torch.dtype | None = None
) -> str:
    """Return the name of the schedule, ``usual`` for "auto". dtype: of operands, where it may be float64.

    Errors: ArgumentError if it is not ``known``; UnreachableError if it stores tiles, and ``team`` spans nodes.
    """
    if dtype is torch.float64:
        require_for_double(routine, schedule)
        return DOUBLE
    if schedule == "auto":
        return usual
    if not isinstance(schedule, str) or schedule not in known:
        refuse(ArgumentError, routine, "schedule", repr(schedule), "auto or " + ", ".join(known))
    if schedule not in WITHOUT_TILES:
        wants = "auto or " + ", ".join(each for each in known if each in WITHOUT_TILES)
        require_one_node(routine, team, "schedule", f"{schedule!r} for ", wants)
    return schedule


def require_for_double(routine: str, schedule: Any) -> None:
    """Errors: ArgumentError for a schedule that does not take float64."""
    if schedule not in ("auto", DOUBLE):
        refuse(ArgumentError, routine, "schedule", f"{schedule!r} with torch.float64", f"auto or {DOUBLE}")


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors have memory in common."""
    starts = one.data_ptr(), other.data_ptr()
    return starts[0] < starts[1] + other.nbytes and starts[1] < starts[0] + one.nbytes


def require_own(routine: str, out: torch.Tensor, **read: torch.Tensor) -> None:
    """Errors: ArgumentError if out is in memory of an array that is read, which is named."""
    for name, array in read.items():
        if overlap(out, array):
            refuse(ArgumentError, routine, "out", f"memory of {name}", "memory of its own")


def factor_of(routine: str, scale: Any, width: int) -> float:
    """Return what products of queries and keys of ``width`` elements are multiplied by. Errors: ArgumentError."""
    if scale is None:
        return float(width**-0.5)
    if not is_number(scale) or not math.isfinite(scale):
        refuse(ArgumentError, routine, "scale", repr(scale), "a number, or None")
    return float(scale)


def require_array(
    routine: str, name: str, array: Any, shape: Mapping[str, int | None] | tuple[int, ...],
    dtypes: tuple[torch.dtype, ...] = (),
) -> None:  # fmt: skip
    """Check a contiguous tensor beside the heap. shape: its own, or the names of dimensions, with lengths where they matter.

    dtypes: those that it may have; none are given where any may be.
    Errors: ArgumentError, DtypeError.
    """
    wanted = shape if isinstance(shape, tuple) else tuple(shape.values())
    if not isinstance(array, torch.Tensor):
        refuse(ArgumentError, routine, name, type(array).__name__, "a torch tensor")
    fits = array.dim() == len(wanted) and all(w in (None, s) for s, w in zip(array.shape, wanted, strict=False))
    if not fits:
        refuse(ArgumentError, routine, name, f"shape {tuple(array.shape)}", f"shape {_spelled(shape)}")
    if not array.is_contiguous():
        refuse(ArgumentError, routine, name, f"strides {array.stride()}", "a contiguous tensor")
    if array.device.type != default().device:
        refuse(ArgumentError, routine, name, f"a tensor on {array.device}", f"one on {default().device}")
    if dtypes:
        require_dtype(routine, name, array, dtypes)


def require_dtype(routine: str, name: str, array: torch.Tensor, wanted: tuple[torch.dtype, ...]) -> None:
    """Errors: DtypeError."""
    if array.dtype not in wanted:
        refuse(DtypeError, routine, name, str(array.dtype), "one of " + ", ".join(map(str, wanted)))


def _spelled(shape: Mapping[str, int | None] | tuple[int, ...]) -> str:
    if isinstance(shape, tuple):
        return str(shape)
    return "(" + ", ".join(name if length is None else f"{name} {length}" for name, length in shape.items()) + ")"
