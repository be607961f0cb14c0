"""Bodies of RMA, atomics and signals: each kind of C call is a closure around one function of the Python API.

A body handles the common case itself, tensors that the Python function accepts as they are; a call by its C name then takes
less than twice the time of the Python call. ``ctx`` is keyword-only; unfold makes it the first argument of the ctx names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, refuse
from pyshmem.c_names.addresses import cells, exactly, word
from pyshmem.c_names.elements import sizes_of
from pyshmem.c_names.types import LONG_DOUBLE, TYPES
from pyshmem.memory.arguments import an, count_of, scalar_of

Tensor = torch.Tensor
_SIGNAL = TYPES["uint64"]
# Errors of the Python function for arrays that are valid addresses in C: a view that is too short, another element type.
_BY_ADDRESS = (ArgumentError, DtypeError, OutOfRangeError)


def copy(host: Any, entry: Any) -> Any:
    """put and get: (dest, source, nelems, pe)."""
    name, kind = entry.name, entry.type
    dtype = None if kind is LONG_DOUBLE else kind.dtype
    size, sizes = kind.dtype.itemsize, sizes_of(kind)

    def call(dest: Any, source: Any, nelems: int, pe: int, /, *, ctx: Any = None) -> None:
        count = nelems
        if type(dest) is Tensor and type(nelems) is int:
            if dest.dtype is not dtype:
                count = alike(dest.dtype, source, nelems * size, sizes)
            try:
                host(dest, source, pe, count, ctx)
                return
            except _BY_ADDRESS:
                count = nelems
        to, own = cells(name, "dest", dest, kind, count), cells(name, "source", source, kind, count)
        host(to, own, pe, count, ctx)

    return call


def copy_signal(host: Any, entry: Any) -> Any:
    """put_signal: (dest, source, nelems, sig_addr, signal, sig_op, pe)."""
    name, kind = entry.name, entry.type
    dtype = None if kind is LONG_DOUBLE else kind.dtype
    size, sizes = kind.dtype.itemsize, sizes_of(kind)

    def call(
        dest: Any, source: Any, nelems: int, sig_addr: Any, signal: int, sig_op: int, pe: int, /, *, ctx: Any = None
    ) -> None:
        if type(sig_addr) is not Tensor or sig_addr.dtype is not torch.uint64 or sig_addr.numel() != 1:
            sig_addr = word(name, "sig_addr", sig_addr, _SIGNAL)
        count = nelems
        if type(dest) is Tensor and type(nelems) is int:
            if dest.dtype is not dtype:
                count = alike(dest.dtype, source, nelems * size, sizes)
            try:
                host(dest, source, pe, sig_addr, signal, sig_op, count, ctx)
                return
            except _BY_ADDRESS:
                count = nelems
        to, own = cells(name, "dest", dest, kind, count), cells(name, "source", source, kind, count)
        host(to, own, pe, sig_addr, signal, sig_op, count, ctx)

    return call


def alike(held: torch.dtype, source: Any, nbytes: int, sizes: dict[torch.dtype, int]) -> int:
    """The elements of type ``held`` in nbytes; -1, which is refused later, if types or sizes do not fit."""
    if type(source) is Tensor and source.dtype is held and held in sizes:
        size = sizes[held]
        if not nbytes % size:
            return nbytes // size
    return -1


def strided(host: Any, entry: Any) -> Any:
    """iput and iget: (dest, source, dst, sst, nelems, pe)."""
    name, kind = entry.name, entry.type

    def call(dest: Any, source: Any, dst: int, sst: int, nelems: int, pe: int, /, *, ctx: Any = None) -> None:
        to = cells(name, "dest", dest, kind, span(name, "dst", dst, nelems))
        host(to, cells(name, "source", source, kind, span(name, "sst", sst, nelems)), pe, dst, sst, nelems, ctx)

    return call


def blocked(host: Any, entry: Any) -> Any:
    """ibput and ibget: (dest, source, dst, sst, bsize, nblocks, pe)."""
    name, kind = entry.name, entry.type

    def call(
        dest: Any, source: Any, dst: int, sst: int, bsize: int, nblocks: int, pe: int, /, *, ctx: Any = None
    ) -> None:
        to = cells(name, "dest", dest, kind, span(name, "dst", dst, nblocks, bsize))
        own = cells(name, "source", source, kind, span(name, "sst", sst, nblocks, bsize))
        host(to, own, pe, dst, sst, bsize, nblocks, ctx)

    return call


def span(routine: str, argument: str, stride: int, count: int, block: int = 1) -> int:
    """How many elements lie between the first and the last of ``count`` blocks of ``block`` elements."""
    step = count_of(routine, argument, stride)
    if step < 1:
        refuse(ArgumentError, routine, argument, str(step), "1 or more")
    blocks, length = count_of(routine, "nelems", count), count_of(routine, "bsize", block)
    return (blocks - 1) * step + length if blocks and length else 0


def fetch(host: Any, entry: Any) -> Any:
    """g, atomic_fetch and the increments: (source, pe)."""
    name, kind, argument = entry.name, entry.type, entry.parameters[0]
    if kind is LONG_DOUBLE:
        return _fetch_long_double(entry)
    dtype = kind.dtype

    def call(dest: Any, pe: int, /, *, ctx: Any = None) -> Any:
        if type(dest) is not Tensor or dest.dtype is not dtype or dest.numel() != 1:
            dest = word(name, argument, dest, kind)
        return host(dest, pe, ctx)

    return call


def update(host: Any, entry: Any) -> Any:
    """p, and the atomics with one value: (dest, value, pe)."""
    name, kind, argument = entry.name, entry.type or _SIGNAL, entry.parameters[0]
    if kind is LONG_DOUBLE:
        return _update_long_double(entry)
    dtype = kind.dtype

    def call(dest: Any, value: Any, pe: int, /, *, ctx: Any = None) -> Any:
        if type(dest) is not Tensor or dest.dtype is not dtype or dest.numel() != 1:
            dest = word(name, argument, dest, kind)
        return host(dest, value, pe, ctx)

    return call


def exchange(host: Any, entry: Any) -> Any:
    """atomic_compare_swap: (dest, cond, value, pe)."""
    name, kind = entry.name, entry.type
    dtype = kind.dtype

    def call(dest: Any, cond: Any, value: Any, pe: int, /, *, ctx: Any = None) -> Any:
        if type(dest) is not Tensor or dest.dtype is not dtype or dest.numel() != 1:
            dest = word(name, "dest", dest, kind)
        return host(dest, cond, value, pe, ctx)

    return call


def later(host: Any, entry: Any) -> Any:
    """The non-blocking atomics: (fetch, dest, 0 to 2 values, pe)."""
    name, kind, argument = entry.name, entry.type, entry.parameters[1]
    count = len(entry.parameters)

    def call(fetch: Any, dest: Any, /, *values: Any, ctx: Any = None) -> None:
        if len(values) != count - 2:
            raise TypeError(f"{name} takes {count} arguments, not {len(values) + 2}")
        host(word(name, "fetch", fetch, kind), word(name, argument, dest, kind), *values, ctx=ctx)

    return call


def signal_fetch(host: Any, entry: Any) -> Any:
    """signal_fetch: (sig_addr)."""

    def call(sig_addr: Any, /) -> int:
        return int(host(word(entry.name, "sig_addr", sig_addr, _SIGNAL)))

    return call


def _update_long_double(entry: Any) -> Any:
    """p of a long double: NumPy creates the bits, put moves them."""
    from pyshmem.host.rma import put

    name, dtype = entry.name, LONG_DOUBLE.dtype

    def call(dest: Any, value: Any, pe: int, /, *, ctx: Any = None) -> None:
        if not isinstance(value, np.floating):  # which may have more bits than Python's float
            value = scalar_of(value)
        if not isinstance(value, (int, float, np.floating)):
            refuse(DtypeError, name, "value", an(type(value).__name__), "a real number")
        bits = np.array([value], LONG_DOUBLE.numpy).view(str(dtype).removeprefix("torch."))
        put(exactly(name, "dest", dest, LONG_DOUBLE, 1), bits, pe, 1, ctx)

    return call


def _fetch_long_double(entry: Any) -> Any:
    """g of a long double: a NumPy longdouble, as Python's float has fewer bits."""
    from pyshmem.host.rma import get

    name, dtype = entry.name, LONG_DOUBLE.dtype

    def call(source: Any, pe: int, /, *, ctx: Any = None) -> Any:
        bits = np.empty(1, LONG_DOUBLE.numpy)
        get(bits.view(str(dtype).removeprefix("torch.")), exactly(name, "source", source, LONG_DOUBLE, 1), pe, 1, ctx)
        return bits[0]

    return call
