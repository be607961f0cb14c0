"""Mapped memory: loads and stores, native atomics, copy engines. One route for each kind of memory serves all mapped PEs."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from typing import Any

from pyshmem.runtime import comparisons
from pyshmem.runtime.job import job
from pyshmem.runtime.words import OnCpu

COMPARE = tuple(getattr(operator, name.lower()) for name in comparisons.NAMES)
Atomics = dict[str, dict[Any, Callable[..., Any]]]


class Direct(OnCpu):
    """What a route does. A place is an address of another PE as this route names it: here, where its memory is mapped.

    ``atomics[operator][dtype]`` applies an atomic to a place: set, add, and, or, xor(place, value); fetch(place); swap,
    fetch_add, fetch_and, fetch_or, fetch_xor(place, value), which return the element from before; compare_swap(place,
    cond, value). They raise OverflowError for an int that the type cannot hold.
    """

    atomics: Atomics
    # put(place, source, nbytes), get(dest, place, nbytes): done on return, or enqueued on torch's current stream.
    put: Callable[[int, int, int], None]
    get: Callable[[int, int, int], None]
    # store(place, source, nbytes): put of one element, by a single store where it has at most 8 bytes.
    store: Callable[[int, int, int], None]
    # put_strided(place, source, place step, source step, item, count): items of so many bytes, their starts so far apart.
    put_strided: Callable[[int, int, int, int, int, int], None]
    get_strided: Callable[[int, int, int, int, int, int], None]  # dest, place, dest step, place step, item, count

    def put_nbi(self, place: int, source: int, nbytes: int, ctx: Any, private: Any) -> None:
        """put that quiet of ``ctx`` waits for, None for the default context.

        private: the program's array, which is kept until then: nothing else may take its memory.
        """
        self.put(place, source, nbytes)

    def get_nbi(self, dest: int, place: int, nbytes: int, ctx: Any, private: Any) -> None:
        """get that quiet of ``ctx`` waits for."""
        self.get(dest, place, nbytes)

    def fetch(self, place: int, nbytes: int) -> int:
        """Where in CPU memory these bytes can be read, until the next fetch or look of this thread."""
        raise NotImplementedError

    def signal(self, update: str, place: int, value: int) -> None:
        """Update a uint64, "set" or "add". No put or store from before is seen after it."""
        raise NotImplementedError

    def put_signal(
        self, place: int, source: int, nbytes: int, home: Direct, update: str, word: int, value: int
    ) -> None:
        """put, then ``home.signal``: ``home`` is the route to the signal's memory, which may be of another kind."""
        self.put(place, source, nbytes)
        if home is not self:
            self.settle()  # the other kind of memory does not wait for the copy
        home.signal(update, word, value)

    def await_remote(self, place: int, dtype: Any, code: int, value: int) -> None:
        """Wait until a word compares so. Errors: TimeoutError."""
        fetch, holds = self.atomics["fetch"][dtype], COMPARE[code]
        until = time.monotonic() + (job.timeout or math.inf)
        while not holds(fetch(place), value):
            if time.monotonic() > until:
                raise TimeoutError

    def order(self) -> None:
        """fence: what this PE starts from now on comes after what it has started, on every stream."""
        raise NotImplementedError

    def settle(self, ctx: Any = None) -> None:
        """quiet: complete what this PE has started in ``ctx``, and for None in every context."""
        raise NotImplementedError

    def drain(self) -> None:
        """Complete all work of this PE on the memory, on whatever stream it is."""
        raise NotImplementedError
