"""The route to a PE: which operations reach it, and where its memory lies for them. Only ``direct`` routes exist now.

The native locate and locate_word find the route to a mapped PE by themselves; what they do not take asks here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from pyshmem.runtime._native import fence, locate_word
from pyshmem.runtime.arguments import KINDS, Sides, integer_of, require_init, word
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.runtime.errors import OutOfRangeError, UnreachableError, refuse
from pyshmem.runtime.gpu.heap import gpu
from pyshmem.runtime.heap import Heap, heaps, views
from pyshmem.runtime.job import job
from pyshmem.transport.direct import Direct
from pyshmem.transport.direct import cpu as _cpu  # noqa: F401  gives the heap its route
from pyshmem.transport.direct.gpu import GpuDirect

pending: list[Direct] = []  # routes on which an operation may outlive its call: a barrier completes them first


def open_routes() -> None:
    """After all heaps are open."""
    if gpu.size:
        gpu.direct.open()
        pending.append(gpu.direct)


def close_routes() -> None:
    """Complete all. Every PE has passed a barrier after its last use."""
    if pending:
        gpu.direct.close()
        pending.clear()


def route(routine: str, heap: Heap, pe: Any, private: Heap | None = None) -> tuple[Any, int]:
    """(route to world PE ``pe``, what to add to an address of ``heap`` here for the place that the route knows).

    private: the kind of memory of the private side of a copy, where there is one.
    Errors: OutOfRangeError, UnreachableError, NotInitializedError.
    """
    try:
        away = heap.deltas[pe]
    except (KeyError, TypeError):
        number = integer_of(pe)
        if number is pe:
            refuse_pe(routine, pe)
        return route(routine, heap, number, private)
    if private is None or private is heap:
        return heap.direct, away
    return gpu.direct.bridges[heap.device], away


def routed(routine: str, sides: Sides, pe: Any) -> tuple[Any, int, int, int]:
    """(route, place, private address, bytes) of a copy, as the native locate gives them. Errors: those of route."""
    to, away = route(routine, sides.heap, pe, sides.private)
    return to, sides.near + away, sides.own, sides.nbytes


def word_on(routine: str, argument: str, target: Any, pe: Any) -> tuple[Any, int, Any]:
    """(route, place, dtype) of the one element of a symmetric array on world PE ``pe``. Errors: those of word and route."""
    found = locate_word(views, target, pe)
    if found is not None:
        return found[0], found[1], KINDS[found[2]]
    heap, address, dtype = word(routine, argument, target)
    to, away = route(routine, heap, pe)
    return to, address + away, dtype


def require_pe(routine: str, pe: Any) -> None:
    """Errors: those of route, for a call that moves nothing."""
    route(routine, cpu, pe)


def refuse_pe(routine: str, pe: Any) -> NoReturn:
    """Say why there is no route to ``pe``."""
    require_init(routine)
    if isinstance(pe, (int, np.integer)) and 0 <= pe < job.n_pes:
        refuse(UnreachableError, routine, "pe", str(pe), "a PE of this node: no transport between nodes yet")
    refuse(OutOfRangeError, routine, "pe", repr(pe), f"a PE from 0 to {job.n_pes - 1}")


def is_reachable(pe: Any) -> bool:
    """Whether ``pe`` is a PE of the job to which there is a route."""
    return pe in cpu.deltas


def mapped_distance(routine: str, heap: Heap, pe: Any) -> int | None:
    """Bytes from an address of ``heap`` here to the same place on ``pe`` as loads and stores reach it; None: they do not.

    Errors: OutOfRangeError, NotInitializedError.
    """
    number = integer_of(pe)
    if isinstance(number, (int, np.integer)) and 0 <= number < job.n_pes:
        return heap.deltas.get(int(number))
    refuse_pe(routine, number)


def order() -> None:
    """fence, on every route: the processor's own orders those on which every operation is complete when it returns."""
    fence()
    for each in pending:
        each.order()


def complete(ctx: Any = None) -> None:
    """quiet, on every route."""
    fence()
    for each in pending:
        each.settle(ctx)


def streams() -> GpuDirect | None:
    """The route on which work is enqueued on streams, where there is one."""
    return gpu.direct if "cuda" in heaps else None
