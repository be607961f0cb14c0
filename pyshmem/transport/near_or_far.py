"""Finds the route to a PE, the address of its memory on that route, and the meeting of a team.

Near PEs, those of this node, are reached by the routes of ``near``, far PEs, those of other nodes, by those of ``far``.

The native functions locate and locate_word find the route to a PE themselves; all other calls use this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from pyshmem.base.errors import OutOfRangeError, UnreachableError, c_name, refuse
from pyshmem.base.job import job
from pyshmem.memory.arguments import KINDS, Sides, exact_int, require_init, word
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import Heap, heaps, views
from pyshmem.native import _native
from pyshmem.native._native import fence, locate_word
from pyshmem.transport.far import gpu as _gpu  # noqa: F401  sets the route of the heap
from pyshmem.transport.far.cpu import close_service, open_service
from pyshmem.transport.near import cpu as _cpu  # noqa: F401  sets the route of the heap
from pyshmem.transport.near.gpu import GpuNear
from pyshmem.transport.route import Route
from pyshmem.transport.teams.compared_calls import Watched
from pyshmem.transport.teams.meeting import Meeting

_WITH_A_ROUTE = "a PE of this node whose memory is mapped, or a PE of another node"
pending: list[Route] = []  # routes with operations that may be incomplete on return: a barrier completes them first


def open_routes() -> None:
    """Open the routes. All heaps are open. Collective over the job. Errors: UnreachableError, ArgumentError, OSError."""
    if gpu.size:
        gpu.near.open()
        pending.append(gpu.near)
    if cpu.far_deltas:
        open_service()
        pending.append(cpu.far)  # last, because kernels may have sent requests
    if gpu.far_deltas:
        gpu.far.open()


def close_routes() -> None:
    """Complete all operations and close the routes. Every PE has passed a barrier after its last access."""
    if gpu.near in pending:
        gpu.near.close()
    if cpu.far in pending:
        close_service()
    if gpu.far_deltas:
        gpu.far.close()
    pending.clear()


def route(routine: str, heap: Heap, pe: Any, private: Heap | None = None) -> tuple[Any, int]:
    """Return (route to world PE ``pe``, distance from an address of ``heap`` on this PE to the remote address).

    private: for copies, the heap in the private side's kind of memory.
    Errors: ArgumentError, OutOfRangeError, UnreachableError, NotInitializedError.
    """
    if type(pe) is not int:
        pe = world_pe(routine, pe)
    away = heap.deltas.get(pe)
    try:
        to, away = (heap.far, heap.far_deltas[pe]) if away is None else (heap.near, away)
    except KeyError:
        refuse_pe(routine, pe)
    if private is None or private is heap:
        return to, away
    if to is heap.far:
        return gpu.far if heap is cpu else gpu.far.from_cpu, away
    return gpu.near.bridges[heap.device], away


def _counted(routine: str, heap: Heap, pe: Any, nbytes: int, private: Heap | None = None) -> tuple[Any, int]:
    """route, for a call that moves so many bytes, which is counted."""
    if type(pe) is not int:
        pe = world_pe(routine, pe)
    found = route(routine, heap, pe, private)
    _native.count_call(pe in cpu.far_deltas, nbytes)
    return found


def routed(routine: str, sides: Sides, pe: Any) -> tuple[Any, int, int, int]:
    """Return (route, remote address, private address, bytes) of a copy, as locate does. Errors: those of route."""
    to, away = _counted(routine, sides.heap, pe, sides.nbytes, sides.private)
    return to, sides.symmetric + away, sides.own, sides.nbytes


def word_on(routine: str, argument: str, target: Any, pe: Any) -> tuple[Any, int, Any]:
    """Return (route, remote address, dtype) of a symmetric array of one element. Errors: those of word and route."""
    found = locate_word(views, target, pe)
    if found is not None:
        return found[0], found[1], KINDS[found[2]]
    heap, address, dtype = word(routine, argument, target)
    to, away = _counted(routine, heap, pe, dtype.itemsize)
    return to, address + away, dtype


def require_pe(routine: str, pe: Any) -> None:
    """Check ``pe`` in a call that moves no data. Errors: those of route."""
    route(routine, cpu, pe)


def world_pe(routine: str, pe: Any) -> int:
    """Return ``pe`` as an int. Errors: NotInitializedError; ArgumentError for a float, a bool or a text."""
    require_init(routine)
    return exact_int(routine, "pe", pe)


_ORDERS = {  # of the arguments of calls that have the PE at another place than C's
    routine: f"; the arguments are {order}, and C's in another order"
    for names, order in (
        ("put get put_nbi get_nbi", "target, source, pe, size"),
        ("iput iget", "target, source, pe, tst, sst, size"),
        ("ibput ibget", "target, source, pe, tst, sst, bsize, nblocks"),
        ("put_signal put_signal_nbi", "target, source, pe, signal, value, sigop, size"),
    )
    for routine in names.split()
}


def refuse_pe(routine: str, pe: int) -> NoReturn:
    """Report why there is no route to ``pe``. Errors: NotInitializedError, UnreachableError, OutOfRangeError."""
    require_init(routine)
    if 0 <= pe < job.n_pes:
        refuse(UnreachableError, routine, "pe", str(pe), _WITH_A_ROUTE)
    order = "" if c_name() else _ORDERS.get(routine, "")
    refuse(OutOfRangeError, routine, "pe", str(pe), f"a PE from 0 to {job.n_pes - 1}{order}")


def is_reachable(pe: Any) -> bool:
    """Return whether ``pe`` is a PE of the job to which there is a route."""
    return pe in cpu.deltas or pe in cpu.far_deltas


def mapped_address(routine: str, heap: Heap, address: int, pe: Any) -> int | None:
    """Return where loads and stores of this PE reach what ``pe`` has at ``address`` of ``heap``, or None if they cannot.

    Errors: ArgumentError, OutOfRangeError, NotInitializedError.
    """
    number = world_pe(routine, pe)
    if not 0 <= number < job.n_pes:
        refuse_pe(routine, number)
    away = heap.deltas.get(number)
    return None if away is None else address + away


def is_mapped(heap: Heap, pe: int) -> bool:
    """Return whether loads and stores, also those of kernels, reach ``heap`` of the world PE ``pe``."""
    return pe in heap.deltas


def meeting_of(name: str, pes: Sequence[int], me: int, area_index: int) -> Meeting:
    """Return the meeting of a team: how its members synchronise and combine data. The arguments are those of Meeting."""
    meeting = Meeting(name, pes, me, area_index)
    return cast(Meeting, Watched(meeting)) if job.debug else meeting


def order() -> None:
    """Order the operations on every route, for fence."""
    fence()
    for each in pending:
        each.order()


def complete(ctx: Any = None) -> None:
    """Complete the operations on every route, for quiet."""
    fence()
    for each in pending:
        each.settle(ctx)


def complete_on(pes: list[int], ctx: Any) -> None:
    """Complete the operations on the world PEs ``pes``, for pe_quiet."""
    for each in pending:
        if each is not cpu.far:
            each.settle(ctx)
    fence()
    for pe in pes:
        if pe in cpu.far_deltas:
            cpu.far.settle_pe(pe)


def streams() -> GpuNear | None:
    """Return the route that enqueues work on streams, or None."""
    return gpu.near if "cuda" in heaps else None
