"""The calls of the host API, recorded: each makes the call itself, then writes what it has done."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch

from pyshmem.base.errors import ShmemError, WaitTimeoutError
from pyshmem.base.job import job
from pyshmem.check.record.recording import Range, extent, hidden, recorder
from pyshmem.check.trace import now
from pyshmem.host.amo import _ROWS as ATOMICS
from pyshmem.host.contexts import CTX_DEFAULT
from pyshmem.host.signal import SIGNAL
from pyshmem.host.teams import TEAM_WORLD
from pyshmem.host.wait import comparison
from pyshmem.memory.arguments import describe, scalar_of
from pyshmem.memory.words import TEST

Call = Callable[..., Any]
INVALID = (ShmemError, AttributeError, IndexError, KeyError, TypeError, ValueError)  # what invalid arguments lead to
_FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def context(ctx: Any) -> int:
    return 0 if ctx is None or ctx is CTX_DEFAULT else id(ctx)


def integer(value: Any) -> int:
    """An argument of a call as an int: arrays of one element are numbers too."""
    return value if type(value) is int else int(scalar_of(value))


def world(pe: Any, ctx: Any) -> int:
    return integer(pe) if ctx is None else int(ctx.team._world_pe("check", integer(pe)))


def whom(pe: Any, ctx: Any) -> tuple[int, int]:
    """The context of an operation, and the PE that it is on."""
    return (0, pe) if ctx is None and type(pe) is int else (context(ctx), world(pe, ctx))


def value_at(address: int, nbytes: int) -> int | None:
    """What a word holds, without its sign."""
    return int.from_bytes(ctypes.string_at(address, nbytes), "little") if 0 < nbytes <= 8 else None


def bits(value: Any, dtype: Any) -> int | None:
    """A number as the word that holds it; None for floats, for which nobody waits."""
    return None if dtype in _FLOATS or isinstance(value, float) else integer(value)


# ---- copies ----


def copied(own: Any, symmetric: Any, size: Any, nbi: bool, ctx: Any) -> tuple[Range, list[Range], int | None]:
    """What a copy of ``size`` elements, by default of all of ``own``, accesses there and here, and the word if it is one.

    nbi: it is non-blocking, and accesses its own side until quiet.
    """
    address, nbytes = extent(own, None if size is None else integer(size))
    start = recorder.place(symmetric)
    here = [recorder.keep(recorder.at(address, nbytes), own, context(ctx))] if nbi else recorder.own(address, nbytes)
    return (start, start + nbytes), here, value_at(address, nbytes) if nbytes <= 8 else None


def put(name: str, call: Call) -> Call:
    nbi = name.endswith("_nbi")

    @wraps(call)
    def recorded(target: Any, source: Any, pe: int, size: int | None = None, ctx: Any = None) -> Any:
        if recorder.idle:
            return call(target, source, pe, size, ctx)
        time = now()
        found = hidden(call, target, source, pe, size, ctx)
        there, here, value = copied(source, target, size, nbi, ctx)
        recorder.write(time, "put", name, *whom(pe, ctx), [there], here, nbi, value)
        return found

    return recorded


def get(name: str, call: Call) -> Call:
    nbi = name.endswith("_nbi")

    @wraps(call)
    def recorded(target: Any, source: Any, pe: int, size: int | None = None, ctx: Any = None) -> Any:
        if recorder.idle:
            return call(target, source, pe, size, ctx)
        time = now()
        found = hidden(call, target, source, pe, size, ctx)
        there, here, _ = copied(target, source, size, nbi, ctx)
        recorder.write(time, "get", name, *whom(pe, ctx), [there], here, nbi)
        return found

    return recorded


def p(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(target: Any, value: Any, pe: int, ctx: Any = None) -> Any:
        if recorder.idle:
            return call(target, value, pe, ctx)
        time = now()
        found = hidden(call, target, value, pe, ctx)
        word = bits(value, target.dtype) if isinstance(value, (int, np.integer)) else None
        there = recorder.symmetric(target)
        recorder.write(time, "put", name, *whom(pe, ctx), [there], [], False, word)
        return found

    return recorded


def g(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(source: Any, pe: int, ctx: Any = None) -> Any:
        if recorder.idle:
            return call(source, pe, ctx)
        time = now()
        found = hidden(call, source, pe, ctx)
        recorder.write(time, "get", name, *whom(pe, ctx), [recorder.symmetric(source)], [], False)
        return found

    return recorded


def blocks(name: str, call: Call) -> Call:
    """iput and iget are the block forms with blocks of one element."""
    is_put, strided = "put" in name, name[1] != "b"

    def side(array: Any, step: int, size: int, count: int) -> Range:
        operand = describe(name, "array", array)
        return recorder.strided(operand.address, size * operand.itemsize, step * operand.itemsize, count)

    @wraps(call)
    def recorded(target: Any, source: Any, pe: int, tst: int = 1, sst: int = 1, *rest: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(target, source, pe, tst, sst, *rest, **options)
        time = now()
        found = hidden(call, target, source, pe, tst, sst, *rest, **options)
        given = dict(zip(("size", "ctx") if strided else ("bsize", "nblocks", "ctx"), rest, strict=False)) | options
        ctx = given.get("ctx")
        if strided:
            size, count = 1, given.get("size")
            if count is None:
                count = -(-describe(name, "source", source).nelems // integer(sst))
        else:
            size, count = integer(given["bsize"]), given["nblocks"]
        if not integer(count) * size:
            return found
        dest, src = (side(each, integer(step), size, integer(count)) for each, step in ((target, tst), (source, sst)))
        if is_put:
            recorder.write(time, "put", name, *whom(pe, ctx), [dest[1:]], [src], False, None)
        else:
            recorder.write(time, "get", name, *whom(pe, ctx), [src[1:]], [dest], False)
        return found

    return recorded


def put_signal(name: str, call: Call) -> Call:
    nbi = name.endswith("_nbi")

    @wraps(call)
    def recorded(
        target: Any, source: Any, pe: int, signal: Any, value: int, sigop: int, size: Any = None, ctx: Any = None
    ) -> Any:
        if recorder.idle:
            return call(target, source, pe, signal, value, sigop, size, ctx)
        time = now()
        found = hidden(call, target, source, pe, signal, value, sigop, size, ctx)
        there, here, _ = copied(source, target, size, nbi, ctx)
        word, operator = recorder.place(signal), "add" if int(sigop) == SIGNAL.ADD else "set"
        rest = [there], here, nbi, word, 8, operator, integer(value)
        recorder.write(time, "putsig", name, *whom(pe, ctx), *rest)
        return found

    return recorded


def signal_update(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(signal: Any, value: int, pe: int, ctx: Any = None) -> Any:
        if recorder.idle:
            return call(signal, value, pe, ctx)
        time = now()
        found = hidden(call, signal, value, pe, ctx)
        word = recorder.place(signal)
        rest = word, 8, name.removeprefix("signal_"), integer(value), None, 8
        recorder.write(time, "amo", name, *whom(pe, ctx), *rest)
        return found

    return recorded


# ---- atomics ----


def atomic(name: str, call: Call) -> Call:
    row = ATOMICS[name.removesuffix("_nbi")]
    nbi = name.endswith("_nbi")
    alone = "inc" in name or row.operator == "fetch"
    operands = ("cond", "value") if row.operator == "compare_swap" else () if alone else ("value",)
    word = "source" if row.operator == "fetch" else "target"
    names = (*(("fetch",) if nbi else ()), word, *operands, "pe", "ctx")
    fetches, compares = row.fetches and not nbi, row.operator == "compare_swap"
    operator = "update" if nbi and row.operator != "fetch" else row.operator

    @wraps(call)
    def recorded(*arguments: Any, **options: Any) -> Any:
        if recorder.idle:
            return call(*arguments, **options)
        time = now()
        old = hidden(call, *arguments, **options)
        given = arguments + tuple(map(options.get, names[len(arguments) :]))
        array, dtype = given[nbi], given[nbi].dtype
        nbytes, start = extent(array)[1], recorder.place(array)
        value = bits(given[-3], dtype) if operands else None if row.operator == "fetch" else 1
        fetched: Any = None
        if fetches:
            condition = bits(given[-4], dtype) if compares else None
            fetched = now(), None if isinstance(old, float) else old, condition
        whose, target = whom(*given[-2:])
        width = -nbytes if dtype in _FLOATS else nbytes
        recorder.write(time, "amo", name, whose, target, start, nbytes, operator, value, fetched, width)
        if nbi:
            into = recorder.keep(recorder.array(given[0]), given[0], whose)
            recorder.write(time, "get", name, whose, target, [], [into], True)
        return old

    return recorded


# ---- waits ----


def wait(name: str, call: Call) -> Call:
    blocks, many = name.startswith(("wait", "signal")), "_all" in name or "_any" in name or "_some" in name
    one = name in ("wait_until", "signal_wait_until", "test")

    @wraps(call)
    def recorded(ivars: Any = None, cmp: Any = None, value: Any = None, status: Any = None, **options: Any) -> Any:
        ivars = options.pop("ivar", options.pop("signal", ivars))
        given = (ivars, cmp, options.get("cmp_values", value), *((status,) if many else ()))
        if recorder.idle:
            return call(*given)
        try:
            rows = _rows(name, *given)
        except INVALID:  # the call itself refuses them
            return hidden(call, *given)
        begins = blocks and rows and not (one and _holds(ivars, rows[0]))
        if begins:
            recorder.write(now(), "waits", name, rows)
        try:
            found = hidden(call, *given)
        except ShmemError as error:
            if begins and not isinstance(error, WaitTimeoutError):  # it was refused, and waits no longer
                recorder.write(now(), "wait", [], name)
            raise
        if found is None or found is False:
            held = rows if found is None and ("_all" in name or not many) else []
        elif found is True or name == "signal_wait_until":
            held = rows
        else:
            places = {int(each) for each in (found if isinstance(found, list) else [found])}
            first, size = describe(name, "ivars", ivars).address, describe(name, "ivars", ivars).itemsize
            start = recorder.at(first, 0)[1]
            held = [row for row in rows if (row[0] - start) // size in places]
        if held or blocks:
            recorder.write(now(), "wait", held, name)
        return found

    return recorded


def _holds(ivar: Any, row: tuple[int, int, bool, int, int]) -> bool:
    """Whether the condition of a wait holds already, so that the wait needs no record of its begin."""
    holds = TEST.get(ivar.dtype) if type(ivar) is torch.Tensor else None
    if holds is None or ivar.data_ptr() % row[1] or not recorder.maps(ivar.data_ptr()):
        return False
    try:
        return bool(holds(ivar.data_ptr(), row[3], row[4]))
    except OverflowError:  # the call itself refuses the value
        return False


def _rows(name: str, ivars: Any, cmp: Any, value: Any, status: Any = None) -> list[tuple[int, int, bool, int, int]]:
    """The words of a wait: (start, size, is signed, comparison, value)."""
    operand = describe(name, "ivars", ivars)
    start, size = recorder.at(operand.address, 0)[1], operand.itemsize
    signed, code = operand.dtype not in _UNSIGNED, comparison(name, cmp)
    if status is None and type(value) is int and operand.nelems == 1:  # the usual case
        return [(start, size, signed, int(code), value)]
    if name.endswith("_vector"):
        values = [int(each) for each in (value.tolist() if hasattr(value, "tolist") else value)]
    else:
        values = [integer(value)] * operand.nelems
    ignored = [False] * operand.nelems if status is None else [bool(each) for each in np.asarray(status).reshape(-1)]
    return [
        (start + i * size, size, signed, int(code), each)
        for i, (each, skip) in enumerate(zip(values, ignored, strict=True))
        if not skip
    ]


def signal_fetch(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(signal: Any) -> int:
        if recorder.idle:
            return int(call(signal))
        found = int(hidden(call, signal))
        recorder.write(now(), "fetched", [(recorder.place(signal), 8)], found)
        return found

    return recorded


# ---- on streams: work of the CPU heap is done at once ----


def on_stream(name: str, call: Call) -> Call:
    plain = name.removesuffix("_on_stream")
    if plain == "quiet":
        return quiet(name, call)
    if plain == "put":
        return put(plain, lambda target, source, pe, size, ctx: call(target, source, pe, size))
    made = {"put_signal": _put_signal_on_stream, "signal_wait_until": _wait_on_stream, "signal": _signal_on_stream}
    return made[plain](plain, call)


def _order_stream() -> None:
    """A signal of a stream comes after all that precedes it there."""
    if not recorder.idle:
        recorder.order(0)


def _put_signal_on_stream(name: str, call: Call) -> Call:
    def recorded(*given: Any, **options: Any) -> Any:
        _order_stream()
        engine = {"engine": options.pop("engine")} if "engine" in options else {"engine": given[7]} if given[7:] else {}
        put_signal(name, lambda *plain: call(*plain[:-1], **engine))(*given[:7], **options)

    return recorded


def _wait_on_stream(name: str, call: Call) -> Call:
    def recorded(signal: Any, cmp: Any, value: Any, *engine: Any, **named: Any) -> Any:
        wait(name, lambda *given: call(*given, *engine, **named))(signal, cmp, value)

    return recorded


def _signal_on_stream(name: str, call: Call) -> Call:
    def recorded(signal: Any, value: Any, sigop: Any, pe: Any, *engine: Any, **named: Any) -> Any:
        _order_stream()
        operator = "signal_add" if sigop == SIGNAL.ADD else "signal_set"
        update = signal_update(
            operator, lambda signal, value, pe, ctx: call(signal, value, sigop, pe, *engine, **named)
        )
        update(signal, value, pe)

    return recorded


# ---- order ----


def fence(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(ctx: Any = None) -> Any:
        call(ctx)  # which accesses no array
        if not recorder.idle:
            recorder.order(context(ctx))

    return recorded


def quiet(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(ctx: Any = None) -> Any:
        if recorder.idle:
            return call(ctx)
        hidden(call, ctx)
        if name == "quiet":
            recorder.complete(context(ctx))
        else:
            recorder.quiet(context(ctx))
            recorder.write(now(), name, context(ctx), None)

    return recorded


def pe_quiet(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(pes: Any, ctx: Any = None) -> Any:
        if recorder.idle:
            return call(pes, ctx)
        pes = list(pes)
        hidden(call, pes, ctx)
        if ctx is None or ctx:  # a context that could not be made has no PEs, and the call does nothing
            recorder.write(now(), "quiet", context(ctx), [world(pe, ctx) for pe in pes])

    return recorded


def lock(name: str, call: Call) -> Call:
    @wraps(call)
    def recorded(lock: Any) -> Any:
        if recorder.idle:
            return call(lock)
        time = now()
        found = hidden(call, lock)
        start = recorder.place(lock)
        if name == "clear_lock":
            recorder.quiet()
            recorder.write(time, "unlock", start)
        elif not found:
            recorder.write(now(), "lock", start)
        return found

    return recorded


def team_key(team: Any) -> tuple[int, ...]:
    """The PEs of a team, and which of the teams of these PEs it is: threads use several at once."""
    if team is None or team is TEAM_WORLD:
        return 0, 1, int(job.n_pes)
    return int(team.start), int(team.stride), int(team.size), int(team.area_index)


def whole(way: str, name: str, call: Call, key: Any = None, signature: tuple[Any, ...] = (), reads: Sequence[Range] = (),
          writes: Sequence[Range] = (), root: int = -1) -> Any:  # fmt: skip
    """Make a collective call.

    way: whose knowledge a member gets: all's, the "root"'s, lower PEs' for "scan". "from_root", "from_all": the same, and
    the root, or every member, writes into the targets of all at once.
    """
    time = now()
    found = hidden(call)
    end = now()
    if way == "barrier":
        recorder.quiet()
    recorder.write(time, "met", key or team_key(None), name, signature, way, root, reads, end, writes)
    return found


def me() -> int:
    return int(job.my_pe)
