"""Defines the operations of a route, by which host calls reach the memory of a PE."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from typing import Any

from pyshmem.base import comparisons
from pyshmem.base.job import job
from pyshmem.memory.words import ATOMICS

COMPARE = tuple(getattr(operator, name.lower()) for name in comparisons.NAMES)
Atomics = dict[str, dict[Any, Callable[..., Any]]]
_ONLY_FETCH, _ONLY_UPDATE = ("fetch", "swap", "compare_swap"), ("set",)


def atomics_of(fetching: Callable[..., Any], updating: Callable[..., Any]) -> Atomics:
    """Return a route's table of all operators. Both functions take (operator, dtype) and return a function of the table."""
    table: Atomics = {}
    for name, dtypes in ATOMICS.items():
        if name not in _ONLY_FETCH:
            table[name] = {dtype: updating(name, dtype) for dtype in dtypes}
        if name not in _ONLY_UPDATE:
            form = name if name in _ONLY_FETCH else f"fetch_{name}"
            table[form] = {dtype: fetching(name, dtype) for dtype in dtypes}
    return table


class Route:
    """The way to one kind of memory of a PE. ``place`` is an address of remote memory: where it is mapped, for a near PE.

    ``atomics[name][dtype]`` performs an atomic on the element at ``place``: fetch(place), compare_swap(place, cond, value),
    swap(place, value) and fetch_add(place, value), ... return the previous value; set(place, value), add(place, value), ...
    need not. They raise OverflowError for an int that the type cannot hold.
    """

    atomics: Atomics
    # put(place, source, nbytes), get(dest, place, nbytes): complete on return, or enqueued on torch's current stream.
    put: Callable[[int, int, int], None]
    get: Callable[[int, int, int], None]
    # store(place, source, nbytes): put of one element, by a single store if it has at most 8 bytes.
    store: Callable[[int, int, int], None]
    # put_strided(place, source, place step, source step, item, count): count items of ``item`` bytes; steps are in bytes.
    put_strided: Callable[[int, int, int, int, int, int], None]
    get_strided: Callable[[int, int, int, int, int, int], None]  # dest, place, dest step, place step, item, count

    def put_nbi(self, place: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        """Start a put, which quiet of ``ctx`` completes; None is the default context.

        private: the program's array, which is kept alive until then, so that its memory is not reused.
        """
        self.put(place, source, nbytes)

    def get_nbi(self, dest: int, place: int, nbytes: int, ctx: Any, private: Any) -> None:
        """Start a get, which quiet of ``ctx`` completes."""
        self.get(dest, place, nbytes)

    def fetch(self, place: int, nbytes: int) -> int:
        """Read bytes into CPU memory, and return their address, which is valid until this thread's next fetch or look."""
        raise NotImplementedError

    def signal(self, update: str, place: int, value: int) -> None:
        """Update a uint64 by "set" or "add". Earlier puts and stores are visible before the update."""
        raise NotImplementedError

    def put_signal(self, place: int, source: int, nbytes: int, home: Route, update: str, word: int, value: int) -> None:
        """Put, then update the signal by ``home``, the route to the signal's memory, which may be of another kind."""
        self.put(place, source, nbytes)
        if home is not self:
            self.settle()  # an update in the other kind of memory is not ordered after the copy
        home.signal(update, word, value)

    def await_remote(self, place: int, dtype: Any, code: int, value: int) -> None:
        """Wait until the comparison of a remote word holds. Errors: TimeoutError."""
        fetch, holds = self.atomics["fetch"][dtype], COMPARE[code]
        until = time.monotonic() + (job.timeout or math.inf)
        while not holds(fetch(place), value):
            if time.monotonic() > until:
                raise TimeoutError

    def order(self) -> None:
        """Order operations that this PE starts later after those that it has started, on all streams, for fence."""
        raise NotImplementedError

    def settle(self, ctx: Any = None) -> None:
        """Complete the operations that this PE has started in ``ctx``, or in all contexts if None, for quiet."""
        raise NotImplementedError

    def drain(self) -> None:
        """Complete all work of this PE on the memory, on all streams."""
        raise NotImplementedError
