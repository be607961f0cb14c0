"""Calls of C programs on the GPU heap: puts, gets, atomics, waits and collectives, by the routes that Python's calls take.

A copy is complete when its call returns, unless the call is non-blocking, as C programs know nothing of torch's streams.
Private memory is memory of the CPU, or of a mapped GPU heap.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from pyshmem.base.far import ATOMICS
from pyshmem.c_names import unfold
from pyshmem.c_names.rows import names
from pyshmem.c_names.table import ROWS
from pyshmem.host.teams import Team
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import Heap
from pyshmem.transport import near_or_far

_BY_NUMBER = {number: names for names, number in ATOMICS.items()}
_ONE_FORM = ("set", "fetch", "swap", "compare_swap")  # the operators without a second form that fetches
_WORD = struct.Struct("q")
_mapped = range(0)  # the addresses of all GPU heaps that are mapped


def ranges() -> tuple[int, int, int, int]:
    """The address and the bytes of this PE's GPU heap, and those of all that are mapped; zeros without one."""
    global _mapped
    _mapped = range(0)
    if not gpu.size:
        return 0, 0, 0, 0
    nbytes = gpu.stride - gpu.system_bytes if gpu.stride else gpu.size  # the room for growth
    aways = gpu.deltas.values() if gpu.stride else [0]
    first, span = gpu.base + min(aways), max(aways) - min(aways) + nbytes
    _mapped = range(first, first + span)
    return gpu.base, nbytes, first, span


def _heap_of(address: int) -> Heap:
    return gpu if address in _mapped else cpu


def _reach(routine: str, where: int, pe: int, private: int = 0) -> tuple[Any, int]:
    """The route to symmetric memory of ``pe``, with its place there. private: the address of the other side of a copy."""
    heap = _heap_of(where)
    if heap is cpu:
        where = cpu.unaliased(where)
    to, away = near_or_far.route(routine, heap, pe, _heap_of(private) if private else None)
    return to, where + away


def text(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace")


_name = cache(text)  # of the routine: a constant of the library


# ---- copies: routine, symmetric side, private side, bytes, PE, whether to complete the copy ----


def _put(a: Any) -> None:
    dest, source, nbytes, pe, wait = a[1:6]
    to, place = _reach(_name(a[0]), dest, pe, source)
    if wait:
        to.put(place, source, nbytes)
        _heap_of(source).synchronize()
    else:
        to.put_nbi(place, source, nbytes, None, None)


def _get(a: Any) -> None:
    source, dest, nbytes, pe, wait = a[1:6]
    to, place = _reach(_name(a[0]), source, pe, dest)
    if wait:
        to.get(dest, place, nbytes)
        _heap_of(dest).synchronize()
    else:
        to.get_nbi(dest, place, nbytes, None, None)


def _put_strided(a: Any) -> None:
    dest, source, to_step, own_step, item, count, pe = a[1:8]
    to, place = _reach(_name(a[0]), dest, pe, source)
    to.put_strided(place, source, to_step, own_step, item, count)
    _heap_of(source).synchronize()


def _get_strided(a: Any) -> None:
    source, dest, own_step, from_step, item, count, pe = a[1:8]
    to, place = _reach(_name(a[0]), source, pe, dest)
    to.get_strided(dest, place, own_step, from_step, item, count)
    _heap_of(dest).synchronize()


# ---- atomics and signals ----


def _atomic(a: Any) -> int:
    """Arguments: routine, address, PE, number of the operator and type, value, cond, whether to return the old value."""
    dest, pe, number, value, cond, fetches = a[1:7]
    form, dtype, kind = _form(number, fetches)
    to, place = _reach(_name(a[0]), dest, pe)
    given = () if form == "fetch" else (cond, value) if form == "compare_swap" else (value,)
    old = to.atomics[form][dtype](place, *(kind.unpack_from(_WORD.pack(each))[0] for each in given))
    return int(_WORD.unpack(kind.pack(old).ljust(_WORD.size, b"\0"))[0]) if fetches else 0


@cache
def _form(number: int, fetches: int) -> tuple[str, torch.dtype, struct.Struct]:
    """The form of an operator by which routes know it, its type, and this type in memory."""
    operator, name = _BY_NUMBER[number]
    form = f"fetch_{operator}" if fetches and operator not in _ONE_FORM else operator
    return form, getattr(torch, name), struct.Struct(np.dtype(name).char)


def _put_signal(a: Any) -> None:
    """Arguments: routine, dest, source, bytes, signal's address, whether to set it, value, PE."""
    dest, source, nbytes, word, sets, value, pe = a[1:8]
    to, place = _reach(_name(a[0]), dest, pe, source)
    home, word_place = _reach(_name(a[0]), word, pe)
    update, value = "set" if sets else "add", value & (1 << 64) - 1
    if nbytes:
        to.put_signal(place, source, nbytes, home, update, word_place, value)
        _heap_of(source).synchronize()
    else:
        home.signal(update, word_place, value)


# ---- what C does on other memory itself ----


def _ptr(a: Any) -> int:
    return near_or_far.mapped_address("shmem_ptr", _heap_of(a[0]), a[0], a[1]) or 0


def collective(routine: str, team: Team, dest: int, source: int, rest: Sequence[int]) -> int:
    """Call a collective by its C name."""
    if routine not in _made:
        _made[routine] = unfold.function(names(ROWS)[routine])
    return int(_made[routine](team, dest, source, *rest))


_made: dict[str, Callable[..., Any]] = {}
CALLS: dict[str, Callable[[Any], Any]] = {
    "put": _put,
    "get": _get,
    "put_strided": _put_strided,
    "get_strided": _get_strided,
    "atomic": _atomic,
    "put_signal": _put_signal,
    "look": lambda a: _heap_of(a[0]).near.look(a[0], a[1]),
    "ptr": _ptr,
    "order": lambda a: near_or_far.order(),
    "settle": lambda a: near_or_far.complete(),
}
