"""The route to the CPU memory of near PEs. The core copies and performs atomics; operations are complete on return.

The functions are in C: python/copies.c, and base/word.h for atomics.
"""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.words import OnCpu, native
from pyshmem.native import _native
from pyshmem.transport.route import Route, atomics_of


class CpuNear(Route, OnCpu):
    """The route to the CPU memory of near PEs."""

    put = get = store = staticmethod(_native.copy)
    put_strided = get_strided = staticmethod(_native.copy_strided)
    atomics = atomics_of(native, native)
    _signals = {"set": atomics["set"][torch.uint64], "add": atomics["add"][torch.uint64]}  # noqa: RUF012

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


cpu.near = CpuNear()
