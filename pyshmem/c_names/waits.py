"""Bodies of wait and test. They return C's results: an index or SIZE_MAX, a count with an array of indices, 0 or 1."""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.base.comparisons import SIGNS
from pyshmem.base.errors import DtypeError, refuse
from pyshmem.base.job import job
from pyshmem.c_names.addresses import cells, exactly, word
from pyshmem.c_names.types import TYPES
from pyshmem.check import active as checked
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.host.wait import comparison
from pyshmem.memory import arguments
from pyshmem.native import _native

Tensor = torch.Tensor
SIZE_MAX = 2**64 - 1
_INDEX = TYPES["size"]._replace(dtype=torch.int64)  # torch computes with int64
_SHORT = {  # not supported by the Python API; C has them in deprecated names only
    torch.int16: (_native.wait_int16, _native.test_int16),
    torch.uint16: (_native.wait_uint16, _native.test_uint16),
}


def wait(host: Any, entry: Any) -> Any:
    """(ivar, cmp, value); signal_wait_until returns the value seen."""
    name, argument = entry.name, entry.parameters[0]
    kind = entry.type or TYPES["uint64" if "signal" in name else "long"]
    dtype = kind.dtype
    host = _short(name, dtype, 0) if dtype in _SHORT else host

    def call(ivar: Any, cmp: int, value: int, /) -> Any:
        if type(ivar) is not Tensor or ivar.dtype is not dtype or ivar.numel() != 1:
            ivar = word(name, argument, ivar, kind)
        return host(ivar, cmp, value)

    return call


def wait_change(host: Any, entry: Any) -> Any:
    """(ivar, value): wait until the word differs from value."""
    name, kind = entry.name, entry.type or TYPES["long"]
    host = _short(name, kind.dtype, 0) if kind.dtype in _SHORT else host

    def call(ivar: Any, value: int, /) -> None:
        host(word(name, "ivar", ivar, kind), "!=", value)

    return call


def test(host: Any, entry: Any) -> Any:
    """(ivar, cmp, value): 1 or 0."""
    name, kind, dtype = entry.name, entry.type, entry.type.dtype
    host = _short(name, dtype, 1) if dtype in _SHORT else host

    def call(ivar: Any, cmp: int, value: int, /) -> int:
        if type(ivar) is not Tensor or ivar.dtype is not dtype or ivar.numel() != 1:
            ivar = word(name, "ivar", ivar, kind)
        return int(host(ivar, cmp, value))

    return call


def every(host: Any, entry: Any) -> Any:
    """The _all forms: (ivars, nelems, status, cmp, value or values): 1 or 0 for tests."""
    look = _many(host, entry)
    tests = entry.row.prototype.startswith("int")

    def call(ivars: Any, nelems: int, status: Any, cmp: int, value: Any, /) -> Any:
        found = look(ivars, nelems, status, cmp, value)
        return int(found) if tests else None

    return call


def first(host: Any, entry: Any) -> Any:
    """The _any forms: (ivars, nelems, status, cmp, value or values): an index or SIZE_MAX."""
    look = _many(host, entry)

    def call(ivars: Any, nelems: int, status: Any, cmp: int, value: Any, /) -> int:
        found = look(ivars, nelems, status, cmp, value)
        return SIZE_MAX if found is None else int(found)

    return call


def some(host: Any, entry: Any) -> Any:
    """The _some forms: (ivars, nelems, indices, status, cmp, value or values): returns a count and writes the indices."""
    look, name = _many(host, entry), entry.name

    def call(ivars: Any, nelems: int, indices: Any, status: Any, cmp: int, value: Any, /) -> int:
        places = exactly(name, "indices", indices, _INDEX, nelems)
        found = look(ivars, nelems, status, cmp, value)
        torch.as_tensor(places)[: len(found)] = torch.tensor(found, dtype=torch.int64, device="cpu")
        return len(found)

    return call


def _many(host: Any, entry: Any) -> Any:
    name, kind, vector = entry.name, entry.type, entry.row.host.endswith("_vector")

    def look(ivars: Any, nelems: int, status: Any, cmp: int, value: Any, /) -> Any:
        left_out = None
        if status is not None:
            left_out = torch.as_tensor(exactly(name, "status", status, TYPES["int"], nelems)).cpu().numpy()
        wanted = cells(name, "cmp_values", value, kind, nelems)[:nelems] if vector else value
        return host(exactly(name, "ivars", ivars, kind, nelems), cmp, wanted, left_out)

    return look


def _short(name: str, dtype: torch.dtype, which: int) -> Any:
    """wait_until or test of 16 bits."""
    native = _SHORT[dtype][which]

    def look(ivar: Any, cmp: Any, value: int, /) -> Any:
        heap, address, _ = arguments.word(name, "ivar", ivar)
        if heap.streams:
            refuse(DtypeError, name, "ivar", f"{dtype} elements on {heap.device}", "at least 32 bits there")
        limits = () if which else (job.timeout, job.spins)
        value = arguments.scalar(name, "cmp_value", value, dtype)
        try:
            found = native(address, comparison(name, cmp), value, *limits)
        except TimeoutError:
            refuse_timeout(name, "ivar", "no such value", f"a value {SIGNS[comparison(name, cmp)]} {value}")
        return found if which else None

    if checked:
        from pyshmem.check.record.host_calls import wait as recorded

        return recorded("test" if which else "wait_until", look)
    return look
