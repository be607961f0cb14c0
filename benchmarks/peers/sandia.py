"""Sandia OpenSHMEM between two nodes: its C library, called by ctypes, over the libfabric that MPICH has brought.

BENCHMARKS_SANDIA is the path of its libsma.so, which was configured with --with-ofi and --enable-pmi-simple.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.peers.far_states import FarStates

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {  # of shmem_NAME: (result, arguments)
    **dict.fromkeys(("init", "finalize", "quiet", "barrier_all"), (None, ())),
    **dict.fromkeys(("my_pe", "n_pes"), (c_int, ())),
    "malloc": (c_void_p, (c_size_t,)),
    "free": (None, (c_void_p,)),
    "info_get_name": (None, (c_char_p,)),
    **{f"int64_{name}": (None, (c_void_p, c_void_p, c_size_t, c_int)) for name in ("put", "get")},
    **{
        f"int64_{name}": (None, (c_void_p, c_void_p, c_ssize_t, c_ssize_t, c_size_t, c_int))
        for name in ("iput", "iget")
    },
    "int64_p": (None, (c_void_p, c_int64, c_int)),
    "int64_g": (c_int64, (c_void_p, c_int)),
    "int64_atomic_fetch_add": (c_int64, (c_void_p, c_int64, c_int)),
    "int64_wait_until": (None, (c_void_p, c_int, c_int64)),
    "int64_put_signal": (None, (c_void_p, c_void_p, c_size_t, c_void_p, c_uint64, c_int, c_int)),
    "signal_wait_until": (c_uint64, (c_void_p, c_int, c_uint64)),
    "signal_fetch": (c_uint64, (c_void_p,)),
}


class Words:
    """``count`` words at an address, which ctypes passes."""

    def __init__(self, count: int, address: int | None = None) -> None:
        self.count = count
        self.array = np.zeros(count, np.int64)
        if address is not None:
            self.array = np.frombuffer((c_int64 * count).from_address(address), np.int64)
            self.array[:] = 0
        self._as_parameter_ = c_void_p(self.array.ctypes.data)


def load() -> SimpleNamespace:
    """Return its functions by their names without shmem_ and int64_."""
    libfabric = Path(sys.prefix, "lib", "mpich", "libfabric.so.1")
    if libfabric.exists():  # its name satisfies what libsma asks for
        ctypes.CDLL(str(libfabric), ctypes.RTLD_GLOBAL)
    library, calls = ctypes.CDLL(os.environ["BENCHMARKS_SANDIA"]), SimpleNamespace()
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, f"shmem_{name}")
        function.restype, function.argtypes = result, arguments
        setattr(calls, name.removeprefix("int64_"), function)
    put, get, put_signal = calls.put, calls.get, calls.put_signal
    calls.put = lambda target, source, pe: put(target, source, source.count, pe)
    calls.get = lambda target, source, pe: get(target, source, target.count, pe)
    calls.put_signal = lambda target, source, pe, word, value, operator: put_signal(
        target, source, source.count, word, value, operator, pe
    )
    iput, iget = calls.iput, calls.iget
    calls.iput = lambda target, source, pe, tst, sst, size: iput(target, source, tst, sst, size, pe)
    calls.iget = lambda target, source, pe, tst, sst, size: iget(target, source, tst, sst, size, pe)
    calls.CMP, calls.SIGNAL = SimpleNamespace(EQ=1, GE=4), SimpleNamespace(SET=0)
    return calls


class Library(FarStates):
    def __init__(self) -> None:
        calls = load()
        calls.init()
        super().__init__(calls)
        self.begin()

    def facts(self) -> dict[str, str]:
        name = ctypes.create_string_buffer(256)
        self.shmem.info_get_name(name)
        return {"library": name.value.decode(), "calls": "by ctypes"}

    def symmetric(self, nelems: int, dtype: str = "int64") -> Words:
        words = Words(nelems, self.shmem.malloc(8 * nelems))
        self.live.append(words)
        self.shmem.barrier_all()  # all have set them to 0
        return words

    def private(self, nelems: int) -> Words:
        return Words(nelems)

    def signal(self) -> Words:
        return self.symmetric(1)

    def values(self, array: Words) -> np.ndarray:
        return array.array

    def close(self) -> None:
        self.shmem.finalize()
        os._exit(0)
