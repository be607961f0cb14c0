"""Puts and signals that are enqueued on torch's current stream. OpenSHMEM has no such calls; idea and names are NVSHMEM's.

The calls of a stream take effect in its order: a PE that sees a signal sees what precedes it on the stream. CUDA graphs can
capture them. A value may be in memory and is then read when the stream reaches the call, so that a graph can count its
replays. Only PEs whose GPU memory is mapped are reached. CPU memory has no streams: there the calls take effect at once.

engine: "kernel" runs kernels of one program, whose waits end after PYSHMEM_WAIT_TIMEOUT. "stream" leaves the processors
free: the stream itself writes or polls the word, by the driver's stream memory operations. Such a wait has no time-out: if
the signal never comes, neither the stream nor a host call that waits for it goes on.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch

from pyshmem.base.comparisons import SIGNS, Sign
from pyshmem.base.errors import ArgumentError, UnreachableError, refuse
from pyshmem.base.job import job
from pyshmem.host.collectives import context_of
from pyshmem.host.contexts import Ctx, is_usable
from pyshmem.host.ordering import quiet
from pyshmem.host.signal import SIGNAL, require_signal, signal_wait_until, update_of
from pyshmem.host.teams import TEAM_SHARED
from pyshmem.host.wait import CMP, comparison
from pyshmem.kernels.plans import known, remember
from pyshmem.memory.arguments import Array, describe, refuse_dtype, scalar, transfer, word
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import Heap
from pyshmem.transport.near_or_far import order, pending, route, streams

__all__ = [
    "put_on_stream", "put_signal_on_stream", "quiet_on_stream", "signal_on_stream", "signal_wait_until_on_stream",
]  # fmt: skip

ENGINES = ("kernel", "stream")
Engine = Literal["kernel", "stream"]


def put_on_stream(target: Array, source: Array, pe: int, size: int | None = None) -> None:
    """Enqueue a copy of the first ``size`` elements of ``source`` to ``target`` on ``pe``, by a copy engine.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: contiguous, in the same kind of memory as target. Later work on the stream may change it.
    size: the number of elements; None means all of source. pe counts in TEAM_WORLD.
    Order: on torch's current stream. A signal that follows on the stream shows it on pe. On the CPU heap the call is done
        on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError.
    Spec: none; 9.6 SHMEM_PUT, and putmem_on_stream of NVSHMEM.
    """
    to, place, own, nbytes = _copy("put_on_stream", target, source, pe, size)
    to.put(place, own, nbytes)


def signal_on_stream(signal: Array, value: Any, sigop: int, pe: int, engine: Engine = "kernel") -> None:
    """Enqueue an update of ``signal`` on ``pe``.

    signal: one symmetric uint64 element. sigop: SIGNAL.SET writes ``value``, SIGNAL.ADD adds it.
    value: an int from 0 to 2**64 - 1; with "kernel" also one int64 or uint64 element in GPU memory, which is read on the
        stream. pe counts in TEAM_WORLD.
    engine: "kernel", or "stream", which occupies no processor and supports SIGNAL.SET.
    Order: on torch's current stream. A PE that sees the signal sees what kernels and puts before it on the stream have
        stored. On the CPU heap the call is done on return.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError.
    Spec: none; 9.8 SHMEM_SIGNAL_SET, SHMEM_SIGNAL_ADD, and signal_op_on_stream of NVSHMEM.
    """
    name = "signal_on_stream"
    there = _place(name, signal, pe)
    _signal(name, there, _update_of(name, there[0], value, sigop, engine), engine)


def put_signal_on_stream(
    target: Array,
    source: Array,
    pe: int,
    signal: Array,
    value: Any,
    sigop: int,
    size: int | None = None,
    engine: Engine = "kernel",
) -> None:
    """Enqueue a copy of ``size`` elements of ``source`` to ``target`` on ``pe``, then an update of ``signal`` there.

    target: symmetric, contiguous, of source's dtype, with at least size elements.
    source: contiguous, in the same kind of memory as target. size: None means all of source.
    signal: one symmetric uint64 element outside target; sigop: SIGNAL.SET or SIGNAL.ADD. pe counts in TEAM_WORLD.
    value: an int, or with "kernel" one int64 or uint64 element in GPU memory.  engine: of the update, "kernel" or "stream".
    Order: on torch's current stream. A PE that sees the signal sees the copy and what precedes it on the stream.
    Errors: NotSymmetricError, OutOfRangeError, DtypeError, ArgumentError, UnreachableError, NotInitializedError.
    Spec: none; 9.8 SHMEM_PUT_SIGNAL, and putmem_signal_on_stream of NVSHMEM.
    """
    name = "put_signal_on_stream"
    to, place, own, nbytes = _copy(name, target, source, pe, size)
    there = _place(name, signal, pe)
    heap, home, at = there
    if nbytes and to is not home:
        refuse(ArgumentError, name, "signal", f"memory of {heap.device}", "memory of the kind of target's")
    if place - 8 < at < place + nbytes:
        refuse(ArgumentError, name, "signal", "an element of target", "a word outside what is copied")
    update = _update_of(name, heap, value, sigop, engine)
    to.put(place, own, nbytes)
    _signal(name, there, update, engine)


def signal_wait_until_on_stream(signal: Array, cmp: CMP | Sign, value: Any, engine: Engine = "kernel") -> None:
    """Let the stream wait until the comparison of the local ``signal`` with ``value`` is true.

    signal: one symmetric uint64 element.
    cmp: a member of CMP, or one of "==", "!=", ">", ">=", "<", "<=".
    value: an int from 0 to 2**64 - 1; with "kernel" also one int64 or uint64 element in GPU memory, which is read on the
        stream.
    engine: "kernel"; or "stream", which occupies no processor, supports == and >=, of values that are less than 2**63
        apart, and has no time-out.
    Order: later work on torch's current stream sees what the signal's sender ordered before it. On the CPU heap the call
        returns when the signal has come.
    Errors: NotSymmetricError, ArgumentError, DtypeError, NotInitializedError; a time-out is raised by a later call.
    Spec: none; 9.10 SHMEM_SIGNAL_WAIT_UNTIL, and signal_wait_until_on_stream of NVSHMEM.
    """
    name = "signal_wait_until_on_stream"
    heap, address, dtype = word(name, "signal", signal)
    require_signal(name, dtype)
    code = comparison(name, cmp)
    number, at = _value(name, value, heap, engine)
    if not heap.streams:
        signal_wait_until(signal, cmp, number)
        return
    stream = heap.near.use_stream()
    if engine == "stream":
        if not gpu.driver.can_wait(code):
            _refuse_engine(name, f"'stream' for {SIGNS[code]}", "== or >= on an NVIDIA GPU")
        gpu.driver.wait_value(stream, address, code, number)
        return
    key = (name, code, job.generation)
    plan = known.get(key) or remember(key, _kernels().wait(context_of(TEAM_SHARED), code))
    plan.launch(name, stream, address, number, at)


def quiet_on_stream(ctx: Ctx | None = None) -> None:
    """Let torch's current stream wait for all operations of this PE on GPU memory; the host does not wait for them.

    ctx: whose non-blocking operations are meant; None means those of all contexts.
    Order: later work on the stream finds puts, also non-blocking ones, and updates complete. Under capture of a graph, those
        that belong to the capture. Operations on CPU memory are complete on return.
    Errors: NotInitializedError, ArgumentError.
    Spec: none; 9.11 SHMEM_QUIET, and quiet_on_stream of NVSHMEM.
    """
    if not is_usable("quiet_on_stream", ctx):
        return
    near = streams()
    if near is None:
        quiet(ctx)
        return
    for each in pending:
        if each is not near:
            each.settle(ctx)
    near.join(ctx)


def _copy(routine: str, target: Any, source: Any, pe: Any, size: int | None) -> tuple[Any, int, int, int]:
    """Return (route, remote address, local address, bytes). Errors: those of put_on_stream."""
    sides = transfer(routine, ("target", "source"), target, source, size)
    if sides.private is not sides.heap:
        refuse(
            ArgumentError,
            routine,
            "source",
            f"memory of {sides.private.device}",
            f"that of target, {sides.heap.device}",
        )
    to, away = _route(routine, sides.heap, pe)
    return to, sides.symmetric + away, sides.own, sides.nbytes


def _route(routine: str, heap: Heap, pe: Any) -> tuple[Any, int]:
    to, away = route(routine, heap, pe)
    if heap.streams and to is not heap.near:
        refuse(UnreachableError, routine, "pe", str(pe), "a PE whose GPU memory is mapped here: one of this node")
    return to, away


def _place(routine: str, signal: Any, pe: Any) -> tuple[Heap, Any, int]:
    """Return (heap, route, remote address) of a signal."""
    heap, address, dtype = word(routine, "signal", signal)
    require_signal(routine, dtype)
    to, away = _route(routine, heap, pe)
    return heap, to, address + away


def _signal(routine: str, there: tuple[Heap, Any, int], update: tuple[str, int, int], engine: str) -> None:
    (heap, to, place), (operation, number, at) = there, update
    if not heap.streams:
        order()
        to.signal(operation, place, number)
        return
    stream = heap.near.use_stream()
    if engine == "stream":
        gpu.driver.write_value(stream, place, number)
        return
    heap.near.publish(stream)
    key = ("signal_on_stream", operation, job.generation)
    plan = known.get(key) or remember(key, _kernels().update(operation == "add"))
    plan.launch(routine, stream, place, number, at)


def _update_of(routine: str, heap: Heap, value: Any, sigop: Any, engine: str) -> tuple[str, int, int]:
    """Return (the update's name, the value, the address of a value in memory or 0)."""
    update = update_of(routine, sigop)
    number, at = _value(routine, value, heap, engine)
    if engine == "stream" and heap.streams and (sigop != SIGNAL.SET or not gpu.driver.has("write_value")):
        _refuse_engine(
            routine, "'stream'", "'kernel' for SIGNAL.ADD, and where the driver lacks stream memory operations"
        )
    return update, number, at


def _value(routine: str, value: Any, heap: Heap, engine: str) -> tuple[int, int]:
    """Return (value, 0), or (0, the address of the value) if it is in GPU memory. Errors: ArgumentError, DtypeError."""
    if engine not in ENGINES:
        _refuse_engine(routine, repr(engine), "'kernel' or 'stream'")
    if not heap.streams or type(value) is int or not hasattr(value, "__cuda_array_interface__"):
        return int(scalar(routine, "value", value, torch.uint64)), 0
    held = describe(routine, "value", value)
    if held.dtype not in (torch.int64, torch.uint64):
        refuse_dtype(routine, "value", held.dtype, (torch.int64, torch.uint64))
    if held.heap is not heap or held.nelems != 1 or engine != "kernel":
        got = f"{held.nelems} elements in memory of {held.heap.device} for {engine!r}"
        refuse(ArgumentError, routine, "value", got, f"an int, or for 'kernel' one element in memory of {heap.device}")
    return 0, held.address


def _refuse_engine(routine: str, got: str, wants: str) -> None:
    refuse(ArgumentError, routine, "engine", got, wants)


@cache
def _kernels() -> Any:
    """Return pyshmem.kernels.signals, which imports triton."""
    from pyshmem.kernels import signals

    return signals
