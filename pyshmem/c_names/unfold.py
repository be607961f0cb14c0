"""Creates the names from the rows of the table, and the function of a name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, wraps
from types import FunctionType
from typing import Any, NamedTuple

import pyshmem
from pyshmem.c_names.deprecation import warn_once
from pyshmem.c_names.types import HALVES, LONG_DOUBLE, NUMERIC, RMA, TYPES, CType
from pyshmem.host.contexts import Ctx
from pyshmem.runtime.arguments import an
from pyshmem.runtime.errors import ArgumentError, DtypeError, refuse


class Row(NamedTuple):
    """A family of names. In ``prototype``, <TYPENAME> and TYPE stand for each of ``types``.

    body: creates the function from the Python API's ``host`` and an Entry; without host, it is the function itself.
    sizes: of the names that count bits or bytes, such as put32 and putmem.  ctx: whether each name has a ctx form.
    generic: whether C11 has the name without a type.  deprecated: (since, replacement).
    """

    prototype: str
    body: Callable[..., Any]
    page: str
    host: str = ""
    types: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    ctx: bool = False
    generic: bool = False
    deprecated: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        return re.search(r"(\S+)\(", self.prototype)[1].lstrip("*")  # type: ignore[index]


class Entry:
    """One name: its row, its C type, and whether ctx is the first argument."""

    __slots__ = ("ctx", "name", "row", "type")

    def __init__(self, name: str, row: Row, type: CType | None = None, ctx: bool = False) -> None:
        self.name, self.row, self.type, self.ctx = name, row, type, ctx

    @property
    def prototype(self) -> str:
        text = self.row.prototype.replace(self.row.name + "(", self.name + ("(shmem_ctx_t ctx, " if self.ctx else "("))
        return text.replace("TYPE", self.type.c) if self.type else text

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the row's C parameters, without ctx."""
        return _parameters(self.row.prototype)


@cache
def _parameters(prototype: str) -> tuple[str, ...]:
    inside = prototype[prototype.index("(") + 1 : -1]
    return () if inside == "void" else tuple(each.split(" ")[-1].lstrip("*") for each in inside.split(", "))


def names(rows: tuple[Row, ...]) -> dict[str, Entry]:
    """Every C name of the rows. Two rows may share a name that C11 distinguishes by type; the first is kept."""
    found: dict[str, Entry] = {}
    for row in rows:
        for entry in _entries(row):
            found.setdefault(entry.name, entry)
    return found


def _entries(row: Row) -> Iterator[Entry]:
    for ctx in (False, True) if row.ctx else (False,):
        name = row.name.replace("shmem_", "shmem_ctx_", 1) if ctx else row.name
        if not row.types and not row.sizes:
            yield Entry(name, row, None, ctx)
        for each in row.types:
            yield Entry(name.replace("<TYPENAME>", each), row, TYPES[each], ctx)
        for each in row.sizes:  # put_signal: put32_signal
            yield Entry(re.sub("<TYPENAME>_([a-z]+)", rf"\g<1>{each}", name), row, TYPES[each], ctx)


def generics(rows: tuple[Row, ...]) -> dict[str, Row]:
    """The names of C11's generic selection."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.generic:
            found.setdefault(row.name.replace("<TYPENAME>_", ""), row)
    return found


def function(entry: Entry) -> Any:
    """The function of a C name."""
    row = entry.row
    body = _made(entry) if row.host else _lone(entry)
    shown = entry.parameters if row.host else None
    if entry.ctx:
        body, shown = _with_ctx(body), ("ctx", *entry.parameters)
    if row.deprecated[0]:
        body = _deprecated(body, entry.name, row, entry.type.name + "_" if entry.type else "")
    return _named(body, entry.name, entry.prototype, row, shown)


def generic(name: str, row: Row) -> Any:
    """The function of a generic name; as in C11, the element type of the first pointer to TYPE selects the routine."""
    call = _selected(name, row) if row.types else _either(row) if row.host else _copied(row.body)
    if row.deprecated[0]:
        call = _deprecated(call, name, row, "")
    prototype = row.prototype.replace("<TYPENAME>_", "")
    return _named(call, name, prototype, row, Entry(name, row).parameters if row.host else None)


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
            entry = Entry(name, row, _selects(name, row, _parameters(row.prototype)[index], where))
            body = bodies[where.dtype] = _made(entry)  # type: ignore[union-attr]
        return body(*args[1:], ctx=args[0]) if ctx else body(*args)

    return call


def _selects(name: str, row: Row, argument: str, where: Any) -> CType:
    """The row's type for the array ``where``. Errors: ArgumentError if it has no element type, DtypeError."""
    dtype = getattr(where, "dtype", None)
    if dtype is None:
        refuse(
            ArgumentError,
            name,
            argument,
            an(type(where).__name__),
            "a tensor or an array: its type selects",
        )
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
    body = entry.row.body(getattr(pyshmem, entry.row.host), entry)
    body.__qualname__ = entry.name
    return body


def _lone(entry: Entry) -> Any:
    """A routine with its own body. If a call passes C's output pointers, the error says what is returned instead."""
    body, c = entry.row.body, entry.row.prototype
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
        raise TypeError(f"{entry.name}: got {got}; wants {wants}")

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
