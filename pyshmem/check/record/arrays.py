"""NumPy's accesses of symmetric tensors: x.numpy() is an array that tells what its operators, methods and indices access."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from pyshmem.base.job import job
from pyshmem.check.record.host_calls import value_at
from pyshmem.check.record.recording import Range, recorder
from pyshmem.check.record.tensors import NUMBERED, ranges
from pyshmem.check.trace import LIBRARY, now
from pyshmem.memory.cpu_heap import cpu

_READS = ("tolist", "item", "copy", "astype", "tobytes", "argmax", "argmin", "argsort", "argpartition", "dot", "nonzero",
          "cumsum", "cumprod", "take", "choose", "repeat", "searchsorted", "flatten", "compress", "trace", "__contains__",
          "__bool__", "__int__", "__float__", "__index__", "__complex__", "__repr__", "__str__", "__format__", "__copy__",
          "__deepcopy__")  # fmt: skip
_WRITES = ("fill", "sort", "put", "partition", "setfield")
# functions that write their first argument
_INTO_FIRST = ("copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal")


def install() -> None:
    """Give programs such arrays from now on."""
    plain = torch.Tensor.numpy

    @wraps(plain)
    def numpy(self: torch.Tensor, **options: Any) -> Any:
        recorder.drained()
        array = plain(self, **options)
        own = sys._getframe(1).f_code.co_filename.startswith(LIBRARY)  # pyshmem polls words so
        seen = not own and not recorder.idle and array.size and recorder.is_seen(self.data_ptr())
        return array.view(Watched) if seen else array

    torch.Tensor.numpy = numpy  # type: ignore[method-assign, assignment]


class Watched(np.ndarray[Any, Any]):
    """A view of symmetric memory."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if recorder.idle or _is_view(found, self):
            return found
        _record("index", _chosen(self, key), ())
        return _bare(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        if recorder.idle:
            super().__setitem__(key, value)
            return
        time = now()
        super().__setitem__(key, _bare(value))
        _record("index", ranges_of(value) if isinstance(value, Watched) else (), _chosen(self, key), time)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any) -> Any:
        written = [each for each in (*out, *(inputs[:1] if method == "at" else ())) if isinstance(each, Watched)]
        time = now()
        into = {"out": tuple(map(_bare, out))} if out else {}
        found = getattr(ufunc, method)(*map(_bare, inputs), **into, **tree_map_only(Watched, _bare, options))
        _record_all(ufunc.__name__, (inputs, options), written, time)
        return (out if len(out) > 1 else out[0]) if out else found

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        time = now()
        found = func(*tree_map_only(Watched, _bare, args), **tree_map_only(Watched, _bare, options))
        out = options.get("out", args[0] if func.__name__ in _INTO_FIRST else None)
        if isinstance(out, Watched):
            _record_all(func.__name__, args[out is args[0] :], [out], time)
            return found if found is None else out
        if all(_is_view(each, self) for each in tree_leaves(found)):
            return tree_map_only(np.ndarray, lambda each: each.view(Watched), found)
        _record_all(func.__name__, (args, options), (), time)
        return found


def _method(name: str, writes: bool) -> Callable[..., Any]:
    plain = getattr(np.ndarray, name)

    @wraps(plain)
    def recorded(self: Watched, *arguments: Any, **options: Any) -> Any:
        time = now()
        found = plain(_bare(self), *map(_bare, arguments), **options)
        _record_all(name, (arguments, () if writes else self), [self] if writes else (), time)
        return found

    return recorded


for _name in (*_READS, *_WRITES):
    setattr(Watched, _name, _method(_name, _name in _WRITES))


def _bare(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Watched) else value


def _is_view(found: Any, array: Any) -> bool:
    return isinstance(found, np.ndarray) and np.may_share_memory(_bare(found), _bare(array))


def _chosen(array: Any, key: Any) -> list[Range]:
    """What an index of an array accesses."""
    bare, keys = _bare(array), key if isinstance(key, tuple) else (key,)
    if len(keys) == bare.ndim and all(isinstance(each, (int, np.integer)) for each in keys):
        rows = zip(keys, bare.shape, bare.strides, strict=True)
        return _at(bare.ctypes.data + sum((int(k) + n * (k < 0)) * step for k, n, step in rows), bare.itemsize)
    part = bare[key]
    if _is_view(part, bare):
        return ranges_of(part)
    if bare.size > NUMBERED:
        return ranges_of(bare)
    places = np.full(bare.shape, bare.ctypes.data)
    for axis, (count, step) in enumerate(zip(bare.shape, bare.strides, strict=True)):
        places += (step * np.arange(count)).reshape(-1, *(1,) * (bare.ndim - 1 - axis))
    chosen = places[key].reshape(-1)
    return recorder.each(chosen, bare.itemsize) if chosen.size else []


def _at(address: int, nbytes: int) -> list[Range]:
    return [recorder.at(address, nbytes)] if recorder.is_seen(address) else []


def ranges_of(array: Any) -> list[Range]:
    """The bytes of an array, of any strides; none if it is a copy, which is private."""
    bare, address = _bare(array), array.ctypes.data
    if not bare.size or not recorder.is_seen(address):
        return []
    steps = list(zip(bare.strides, bare.shape, strict=True))
    address += sum(step * (count - 1) for step, count in steps if step < 0)
    return ranges(address, bare.itemsize, [(abs(step), count) for step, count in steps])


def _record_all(name: str, read: Any, written: Iterable[Any], time: int) -> None:
    if not recorder.idle:
        reads = [span for each in tree_leaves(read) if isinstance(each, Watched) for span in ranges_of(each)]
        _record(name, reads, [span for each in written for span in ranges_of(each)], time)


def _record(name: str, reads: Iterable[Range], writes: Any, time: int | None = None) -> None:
    if reads:
        recorder.write(time or now(), "acc", f"numpy.{name}", "r", list(reads), None)
    if writes:
        (pe, start, *end), *more = writes
        word = not more and pe == job.my_pe and start < cpu.size and len(end) == 1
        value = value_at(cpu.base + start, end[0] - start) if word else None
        recorder.write(time or now(), "acc", f"numpy.{name}", "w", list(writes), value)
