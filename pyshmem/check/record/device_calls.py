"""The device calls of interpreted kernels, recorded. Their arguments are tensors of the interpreter."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from pyshmem.base.errors import ShmemError, WaitTimeoutError
from pyshmem.check.record.host_calls import INVALID, value_at
from pyshmem.check.record.recording import Range, hidden, recorder
from pyshmem.check.trace import now
from pyshmem.device.arch.fields import decoded
from pyshmem.device.arch.interpreter.values import item_bytes, memory, number

Call = Callable[..., Any]
Given = dict[str, Any]


def made_for(name: str, call: Call) -> Call | None:
    """The recorded form of a device call; None if its accesses are recorded one by one, or it makes none."""
    write = _CALLS.get(name)
    if write is None and name.startswith(("wait_until", "test")):
        write = _wait
    if write is None and (name in _MEETINGS or name.removesuffix("_grid").endswith(("_reduce", "scan"))):
        return _meeting(name, call)
    if write is None:
        return None
    signature, recording = inspect.signature(call), write

    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        time = now()
        given = signature.bind(*arguments, **options).arguments
        return recording(name, given, partial(hidden, call, *arguments, **options), time)

    return recorded


def world(given: Given, argument: str = "pe") -> int:
    ctx = given["ctx"]
    return int(decoded(number(ctx.start)) + int(number(given[argument])) * decoded(number(ctx.step)))


def _range(pointer: Any, count: Any) -> Range:
    return recorder.at(int(number(pointer)), int(count) * item_bytes(pointer))


def _there(pointer: Any, count: Any) -> Range:
    return _range(pointer, count)[1:]


def _put(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    count = number(given["nelems"])
    here = _range(given["source"], count)
    nbi = name.endswith("_nbi")
    value = value_at(int(number(given["source"])), count * item_bytes(given["dest"]))
    if nbi:
        recorder.keep(here)
    recorder.write(time, "put", name, 0, world(given), [_there(given["dest"], count)], [here], nbi, value)
    return found


def _get(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    count = number(given["nelems"])
    here = _range(given["dest"], count)
    nbi = name.endswith("_nbi")
    if nbi:
        recorder.keep(here)
    recorder.write(time, "get", name, 0, world(given), [_there(given["source"], count)], [here], nbi)
    return found


def _p(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    value = number(given["value"])
    word = value if isinstance(value, int) else None
    recorder.write(time, "put", name, 0, world(given), [_there(given["dest"], 1)], [], False, word)
    return found


def _g(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    recorder.write(time, "get", name, 0, world(given), [_there(given["source"], 1)], [], False)
    return found


def _blocks(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    size = number(given.get("bsize", 1))
    count = number(given["nblocks"] if "nblocks" in given else given["nelems"])
    if not count * size:
        return found
    sides = []
    for argument, step in (("dest", "dst"), ("source", "sst")):
        item, address = item_bytes(given[argument]), int(number(given[argument]))
        sides.append(recorder.strided(address, size * item, number(given[step]) * item, count))
    dest, source = sides
    if "put" in name:
        recorder.write(time, "put", name, 0, world(given), [dest[1:]], [source], False, None)
    else:
        recorder.write(time, "get", name, 0, world(given), [source[1:]], [dest], False)
    return found


def _put_signal(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    count = number(given["nelems"])
    here, nbi = _range(given["source"], count), name.endswith("_nbi")
    if nbi:
        recorder.keep(here)
    operator = "add" if number(given["sig_op"]) == 1 else "set"
    word = _there(given["sig_addr"], 1)[0], 8, operator, int(number(given["signal"]))
    recorder.write(time, "putsig", name, 0, world(given), [_there(given["dest"], count)], [here], nbi, *word)
    return found


def _signal(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    word = _there(given["sig_addr"], 1)[0], name.removeprefix("signal_"), int(number(given["signal"]))
    recorder.write(time, "signal", name, world(given), *word)
    return found


def _fetch(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    recorder.write(now(), "fetched", [(_there(given["sig_addr"], 1)[0], 8)], int(number(found)))
    return found


def _order(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    if name == "fence":
        recorder.write(now(), "fence", 0)
    elif name == "quiet":
        recorder.write(now(), "quiet", 0, None)
    else:
        count = number(given["npes"])
        pes = (ctypes.c_int32 * count).from_address(int(number(given["target_pes"])))
        ctx = given["ctx"]
        world_pes = [decoded(number(ctx.start)) + pe * decoded(number(ctx.step)) for pe in pes]
        recorder.write(now(), "quiet", 0, world_pes)
    return found


def _wait(name: str, given: Given, call: Call, time: int) -> Any:
    pointer = given.get("ivar", given.get("ivars", given.get("sig_addr")))
    try:
        rows = _rows(pointer, given)
    except INVALID:  # the call itself refuses them
        return call()
    blocks = not name.startswith("test")
    if blocks and rows:
        recorder.write(now(), "waits", name, rows)
    try:
        found = call()
    except ShmemError as error:
        if blocks and not isinstance(error, WaitTimeoutError):  # it was refused, and waits no longer
            recorder.write(now(), "wait", [], name)
        raise
    if "_any" in name:
        size = item_bytes(pointer)
        start = _there(pointer, 0)[0]
        held = [row for row in rows if (row[0] - start) // size == int(number(found))]
    elif "_some" in name:
        indices = _numbers(given["indices"], int(number(found)))
        size, start = item_bytes(pointer), _there(pointer, 0)[0]
        held = [row for row in rows if (row[0] - start) // size in set(indices)]
    else:
        held = rows if blocks or bool(number(found)) else []
    if held or blocks:
        recorder.write(now(), "wait", held, name)
    return found


def _numbers(pointer: Any, count: int) -> list[int]:
    return [int(each) for each in memory(pointer, count)]


def _rows(pointer: Any, given: Given) -> list[tuple[int, int, bool, int, int]]:
    size, start = item_bytes(pointer), _there(pointer, 0)[0]
    signed = "uint" not in str(pointer.dtype.element_ty)
    code = int(number(given["cmp"]))
    count = max(int(number(given["nelems"])), 0) if "nelems" in given else 1
    value = given.get("value", given.get("values", given.get("cmp_values")))
    values = (
        _numbers(value, count)
        if getattr(getattr(value, "dtype", None), "is_ptr", bool)()
        else [int(number(value))] * count
    )
    status = given.get("status")
    skipped = (
        [False] * count if status is None or isinstance(status, int) else [bool(n) for n in _numbers(status, count)]
    )
    rows = zip(range(count), values, skipped, strict=True)
    return [(start + i * size, size, signed, code, each) for i, each, skip in rows if not skip]


# ---- what the programs of a team do together: each learns what the others know ----

_MEETINGS = ("barrier_all", "barrier_all_grid", "sync_all", "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
             "broadcast", "broadcast_grid", "alltoall", "alltoall_grid", "alltoalls", "alltoalls_grid", "collect",
             "collect_grid", "fcollect", "fcollect_grid", "scan", "sendrecv")  # fmt: skip

_BARRIERS = ("barrier_all", "sync_all")  # with the host's they are one sequence


def _meeting(name: str, call: Call) -> Call:
    signature = inspect.signature(call)

    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        given = signature.bind(*arguments, **options).arguments
        if not hasattr(given["ctx"], "start"):  # the call itself refuses it
            return hidden(call, *arguments, **options)
        root = world(given, "root") if "root" in given else -1
        way = "root" if root >= 0 else "barrier" if name.startswith("barrier") else "sync"
        return meet(given["ctx"], name, way, partial(call, *arguments, **options), root)

    return recorded


def meet(ctx: Any, name: str, way: str, call: Call, root: int = -1) -> Any:
    """Make a call that all members of ctx's team make."""
    start, step, n_pes = (int(decoded(number(each))) for each in (ctx.start, ctx.step, ctx.n_pes))
    key: tuple[Any, ...] = (start, step, n_pes)
    if name not in _BARRIERS:
        key = *key, _program()
    called = name if name in _BARRIERS else f"dev.{name}"
    time = now()
    found = hidden(call)
    recorder.write(time, "met", key, called, (), way, root, [], now(), [])
    return found


def _program() -> str:
    """Return the name of the program that calls: programs of one index meet."""
    from triton.runtime.interpreter import interpreter_builder

    return "program " + " ".join(map(str, interpreter_builder.grid_idx))


def _send(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    recorder.write(time, "sent", world(given), _program())
    return found


def _recv(name: str, given: Given, call: Call, time: int) -> Any:
    found = call()
    recorder.write(now(), "received", world(given), _program())
    return found


_CALLS: dict[str, Any] = {
    **dict.fromkeys(("put", "put_nbi"), _put),
    **dict.fromkeys(("get", "get_nbi"), _get),
    **dict.fromkeys(("iput", "iget", "ibput", "ibget"), _blocks),
    **dict.fromkeys(("put_signal", "put_signal_nbi"), _put_signal),
    **dict.fromkeys(("signal_set", "signal_add"), _signal),
    **dict.fromkeys(("fence", "quiet", "pe_quiet"), _order),
    "p": _p,
    "g": _g,
    "signal_fetch": _fetch,
    "signal_wait_until": _wait,
    "send": _send,
    "recv": _recv,
}
