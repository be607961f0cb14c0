"""Broadcast and reductions over a team. Spec: OpenSHMEM 1.6, 9.9.

The members read each other's memory, between two barriers of the team: after the first every source is ready, after the
second nobody reads any longer. So calls may follow each other, and a source may be changed on return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pyshmem.host import _native
from pyshmem.host.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.host.heap import cpu
from pyshmem.host.operands import DTYPES, Operand, count_of, name_of, refuse_dtype, symmetric_array
from pyshmem.host.ordering import synchronise
from pyshmem.host.teams import Team, member

_COMPLEX = tuple(dtype for dtype in DTYPES if dtype.is_complex)
_HALF = (torch.float16, torch.bfloat16)
_REALS = tuple(dtype for dtype in DTYPES if dtype.itemsize > 1 and not dtype.is_complex) + (torch.int8, torch.uint8)
_UNSIGNED = {torch.uint16: np.uint16, torch.uint32: np.uint32, torch.uint64: np.uint64}  # torch cannot compute on these

# name: (torch's operator, NumPy's, element types)
_OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[torch.dtype, ...]]] = {
    "sum": (torch.add, np.add, _REALS + _COMPLEX),
    "prod": (torch.mul, np.multiply, _REALS + _COMPLEX),
    "min": (torch.minimum, np.minimum, _REALS),
    "max": (torch.maximum, np.maximum, _REALS),
}


def broadcast(target: Any, source: Any, root: int, size: int | None = None, team: Team | None = None) -> None:
    """Copy the first ``size`` elements of ``source`` on the team's PE ``root``, all for None, to ``target`` on every member.

    target, source: symmetric, of one dtype, target at least size elements; the root's own target is written too.
    Order: collective over the team; on return the local target holds the data and source may be changed.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, NotInitializedError.
    Spec: 9.9 SHMEM_BROADCAST.
    """
    group = member("broadcast", team)
    dest, src, count = _operands("broadcast", target, source, size)
    delta = cpu.deltas[group.world_pe("broadcast", root)]
    synchronise("broadcast", group)
    if count and src.address + delta != dest.address:
        _native.copy(dest.address, src.address + delta, count * src.itemsize)
    synchronise("broadcast", group)


def reduce(target: Any, source: Any, op: str, size: int | None = None, team: Team | None = None) -> None:
    """Combine ``source`` of all members element by element with ``op``: "sum", "prod", "min" or "max", into every target.

    target, source: symmetric, of one dtype, the same array or apart. Half types are summed in float32. All members get
    the same bits.  Order and errors: broadcast's.  Spec: 9.9 SHMEM_SUM_REDUCE and its kin.
    """
    _reduce("reduce", target, source, op, size, team)


def sum_reduce(target: Any, source: Any, size: int | None = None, team: Team | None = None) -> None:
    """reduce with "sum". Spec: 9.9 SHMEM_SUM_REDUCE."""
    _reduce("sum_reduce", target, source, "sum", size, team)


def prod_reduce(target: Any, source: Any, size: int | None = None, team: Team | None = None) -> None:
    """reduce with "prod". Spec: 9.9 SHMEM_PROD_REDUCE."""
    _reduce("prod_reduce", target, source, "prod", size, team)


def min_reduce(target: Any, source: Any, size: int | None = None, team: Team | None = None) -> None:
    """reduce with "min". Spec: 9.9 SHMEM_MIN_REDUCE."""
    _reduce("min_reduce", target, source, "min", size, team)


def max_reduce(target: Any, source: Any, size: int | None = None, team: Team | None = None) -> None:
    """reduce with "max". Spec: 9.9 SHMEM_MAX_REDUCE."""
    _reduce("max_reduce", target, source, "max", size, team)


def _reduce(routine: str, target: Any, source: Any, op: str, size: int | None, team: Team | None) -> None:
    """Each member combines one share of the elements, and writes the result into every member's target.

    A share is read by nobody but its owner, so writing it in place is safe; one owner, so all get the same bits.
    """
    group = member(routine, team)
    dest, src, count = _operands(routine, target, source, size)
    if not isinstance(op, str) or op not in _OPERATORS:
        refuse(ArgumentError, routine, "op", repr(op), "one of " + ", ".join(_OPERATORS))
    if dest.dtype not in _OPERATORS[op][2]:
        refuse_dtype(routine, "target", dest.dtype, _OPERATORS[op][2])
    synchronise(routine, group)
    share = -(-count // group.size)
    first = min(group.me * share, count)
    length = min(share, count - first)
    if length:
        skip = first * dest.itemsize
        _combine(op, group, dest.address + skip, src.address + skip, length, dest.dtype)
        for member_pe in range(group.size):
            if member_pe != group.me:
                delta = (member_pe - group.me) * group.pe_stride
                _native.copy(dest.address + skip + delta, dest.address + skip, length * dest.itemsize)
    synchronise(routine, group)


def _combine(op: str, group: Team, dest: int, src: int, length: int, dtype: torch.dtype) -> None:
    """dest = src of this member op src of the next op ... round to the one before it."""
    by_torch, by_numpy, _ = _OPERATORS[op]
    total = cpu.tensor(dest, (length,), dtype)
    parts = [
        cpu.tensor(src + (pe % group.size - group.me) * group.pe_stride, (length,), dtype)
        for pe in range(group.me, group.me + group.size)
    ]
    if dtype in _HALF:
        wide = parts[0].float()
        for part in parts[1:]:
            by_torch(wide, part.float(), out=wide)
        total.copy_(wide)
        return
    _native.copy(dest, src, length * dtype.itemsize)
    for part in parts[1:]:
        if dtype in _UNSIGNED:
            by_numpy(total.numpy(), part.numpy(), out=total.numpy())
        else:
            by_torch(total, part, out=total)


def _operands(routine: str, target: Any, source: Any, size: int | None) -> tuple[Operand, Operand, int]:
    dest, src = symmetric_array(routine, "target", target), symmetric_array(routine, "source", source)
    if dest.dtype != src.dtype:
        refuse(DtypeError, routine, "source", f"{name_of(src.dtype)} elements", f"the {name_of(dest.dtype)} of target")
    count = src.nelems if size is None else count_of(routine, "size", size)
    if count > min(dest.nelems, src.nelems):
        refuse(
            OutOfRangeError,
            routine,
            "size",
            f"{count} elements, with target of {dest.nelems} and source of {src.nelems}",
            "at most the smaller",
        )
    return dest, src, count
