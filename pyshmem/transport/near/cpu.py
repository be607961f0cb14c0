"""The route to mapped CPU memory. The core copies and performs atomics; every operation is complete on return."""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.runtime import _native
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.runtime.words import LOAD, natives
from pyshmem.transport.near import Near

INTEGERS = (torch.int32, torch.int64, torch.uint32, torch.uint64)
NUMBERS = (*INTEGERS, torch.float32, torch.float64)
_BITWISE = ("and", "or", "xor")


class CpuNear(Near):
    """The route to PEs whose CPU memory is mapped."""

    put = get = store = staticmethod(_native.copy)
    put_strided = get_strided = staticmethod(_native.copy_strided)
    atomics = {  # noqa: RUF012
        "fetch": LOAD,
        **{name: natives(name, NUMBERS) for name in ("set", "swap", "compare_swap", "fetch_add")},
        "add": natives("fetch_add", NUMBERS),
        **{prefix + name: natives(f"fetch_{name}", INTEGERS) for name in _BITWISE for prefix in ("", "fetch_")},
    }
    _signals = {"set": _native.set_uint64, "add": _native.fetch_add_uint64}  # noqa: RUF012

    def fetch(self, place: int, nbytes: int) -> int:
        return place

    def signal(self, update: str, place: int, value: int) -> None:
        self._signals[update](place, value)

    def await_remote(self, place: int, dtype: Any, code: int, value: int) -> None:
        self.wait_word(place, dtype, code, value)

    def settle(self, ctx: Any = None) -> None:
        """Every operation is complete; a fence orders earlier operations before later ones."""
        _native.fence()

    drain = order = settle


cpu.direct = CpuNear()
