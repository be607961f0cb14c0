"""Creates the functions of C names from the rows of the table."""

from __future__ import annotations

import inspect
from functools import cache, wraps
from types import FunctionType
from typing import Any

import pyshmem
from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.c_names import active_sets, collectives, management, one_sided, waits
from pyshmem.c_names.deprecation import warn_once
from pyshmem.c_names.rows import Routine, Row
from pyshmem.c_names.spellings import NUMERIC, RMA
from pyshmem.c_names.types import HALVES, LONG_DOUBLE, TYPES, CType
from pyshmem.host.contexts import Ctx
from pyshmem.memory.arguments import an

_BODIES = {
    module.__name__.rpartition(".")[2]: module for module in (active_sets, collectives, management, one_sided, waits)
}


class Entry:
    """What a body needs to know of a name: its row and its C type."""

    __slots__ = ("name", "row", "type")

    def __init__(self, name: str, row: Row, type: CType | None = None) -> None:
        self.name, self.row, self.type = name, row, type

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.row.parameters


def body_of(row: Row) -> Any:
    """The function that the row's ``body`` names."""
    module, _, name = row.body.partition(".")
    return getattr(_BODIES[module], name)


def function(routine: Routine) -> Any:
    """The function of a C name."""
    name, row, typename, ctx = routine
    body = _made(Entry(name, row, TYPES.get(typename))) if row.host else _lone(name, row)
    shown = row.parameters if row.host else None
    if ctx:
        body, shown = _with_ctx(body), ("ctx", *row.parameters)
    if row.deprecated[0]:
        body = _deprecated(body, name, row, typename + "_" if typename else "")
    return _named(body, name, routine.prototype, row, shown)


def generic(name: str, row: Row) -> Any:
    """The function of a generic name; as in C11, the element type of the first pointer to TYPE selects the routine."""
    call = _selected(name, row) if row.types else _either(row) if row.host else _copied(body_of(row))
    if row.deprecated[0]:
        call = _deprecated(call, name, row, "")
    prototype = row.prototype.replace("<TYPENAME>_", "")
    return _named(call, name, prototype, row, row.parameters if row.host else None)


def _selected(name: str, row: Row) -> Any:
    index = next(i for i, each in enumerate(row.prototype.split(", ")) if "TYPE *" in each)
    bodies: dict[Any, Any] = {}

    def call(*args: Any) -> Any:
        ctx = row.ctx and args and isinstance(args[0], Ctx)
        place = index + bool(ctx)
        where = args[place] if place < len(args) else None
        try:
            body = bodies[where.dtype]  # type: ignore[union-attr]
        except (AttributeError, KeyError, TypeError):
            entry = Entry(name, row, _selects(name, row, row.parameters[index], where))
            body = bodies[where.dtype] = _made(entry)  # type: ignore[union-attr]
        return body(*args[1:], ctx=args[0]) if ctx else body(*args)

    return call


def _selects(name: str, row: Row, argument: str, where: Any) -> CType:
    """The row's type for the array ``where``. Errors: ArgumentError if it has no element type, DtypeError."""
    dtype = getattr(where, "dtype", None)
    if dtype is None:
        refuse(ArgumentError, name, argument, an(type(where).__name__), "a tensor or an array: its type selects")
    kinds = [TYPES[each] for each in row.types] + list(HALVES if row.types in (RMA, NUMERIC) else ())
    for kind in kinds:
        if dtype == kind.numpy or (dtype is kind.dtype and kind is not LONG_DOUBLE):
            return kind
    names = dict.fromkeys(f"{kind.numpy}" for kind in kinds)  # long and int64_t are one type here
    refuse(DtypeError, name, argument, f"{dtype} elements", "one of " + ", ".join(names))


def _either(row: Row) -> Any:
    """A name without types whose first argument may be a ctx: shmem_signal_set, shmem_signal_add."""
    body = _made(Entry(row.name, row))

    def call(*args: Any) -> Any:
        return body(*args[1:], ctx=args[0]) if args and isinstance(args[0], Ctx) else body(*args)

    return call


def _with_ctx(body: Any) -> Any:
    def call(ctx: Any, *args: Any) -> Any:
        return body(*args, ctx=ctx)

    return call


def _deprecated(body: Any, name: str, row: Row, typename: str) -> Any:
    """``body``, with a warning at the first call."""
    since, instead = row.deprecated
    instead = instead.replace("<TYPENAME>_", typename)

    @wraps(body)
    def call(*args: Any, **options: Any) -> Any:
        warn_once(name, since, instead)
        return body(*args, **options)

    return call


def _made(entry: Entry) -> Any:
    """The row's body under this name, which Python's errors about the number of arguments then show."""
    body = body_of(entry.row)(getattr(pyshmem, entry.row.host), entry)
    body.__qualname__ = entry.name
    return body


def _lone(name: str, row: Row) -> Any:
    """A routine with its own body. If a call passes C's output pointers, the error says what is returned instead."""
    body, c = body_of(row), row.prototype
    taken = inspect.signature(body).parameters
    pointers = [each.split("*")[1] for each in c[:-1].split("(")[1].split(", ") if "*" in each]
    written = [each for each in pointers if each not in taken]
    if not written or any(each.kind is each.VAR_POSITIONAL for each in taken.values()):
        return _copied(body)
    returned = ["status"] * c.startswith("int ") + written
    answer = f"({', '.join(returned)})" if len(returned) > 1 else returned[0]
    wants = f"({', '.join(taken)}), and returns {answer}: what C writes through pointers is returned"

    @wraps(body)
    def call(*arguments: Any) -> Any:
        try:
            return body(*arguments)
        except TypeError:
            if len(arguments) == len(taken):
                raise
        got = f"{len(arguments)} argument{'s' * (len(arguments) != 1)}"
        raise TypeError(f"{name}: got {got}; expected {wants}")

    return call


def _copied(body: Any) -> Any:
    """The same code under another name."""
    copy = FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
    copy.__annotations__, copy.__doc__ = body.__annotations__, body.__doc__
    copy.__dict__.update(body.__dict__)
    return copy


def _named(body: Any, name: str, prototype: str, row: Row, parameters: tuple[str, ...] | None = None) -> Any:
    """``body`` with the name, docstring and signature that users see; as in C, there are no keywords."""
    body.__name__ = body.__qualname__ = name
    body.__module__ = "pyshmem.shmem"
    if parameters is not None:
        body.__signature__ = _signature(parameters)
    own = f"{body.__doc__}  " if body.__doc__ and not row.host else ""
    means = f"Calls pyshmem.{row.host}.  " if row.host else ""
    old = "Deprecated since OpenSHMEM {}: use {}.  ".format(*row.deprecated) if row.deprecated[0] else ""
    body.__doc__ = f"{prototype}\n\n{own}{means}{old}Spec: {row.page}."
    return body


@cache
def _signature(parameters: tuple[str, ...]) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY) for each in parameters])
