"""Rows of the table of C prototypes, and the routines of each. setup.py imports this module, where there is no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pyshmem.c_names.spellings import SPELLINGS


class Row(NamedTuple):
    """A family of names. In ``prototype``, <TYPENAME> and TYPE stand for each of ``types``.

    body: "module.function", which creates the function from the Python API's ``host`` and an Entry; without host, it is
        the function itself.
    sizes: of the names that count bits or bytes, such as put32 and putmem.  ctx: whether each name has a ctx form.
    generic: whether C11 has the name without a type.  deprecated: (since, replacement).
    """

    prototype: str
    body: str
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

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the C parameters, without ctx."""
        return _parameters(self.prototype)


class Routine(NamedTuple):
    """One C name: its row, OpenSHMEM's name of its type or "", and whether ctx is the first argument."""

    name: str
    row: Row
    typename: str = ""
    ctx: bool = False

    @property
    def prototype(self) -> str:
        text = self.row.prototype.replace(self.row.name + "(", self.name + ("(shmem_ctx_t ctx, " if self.ctx else "("))
        return text.replace("TYPE", SPELLINGS[self.typename][0]) if self.typename else text


@cache
def _parameters(prototype: str) -> tuple[str, ...]:
    inside = prototype[prototype.index("(") + 1 : -1]
    return () if inside == "void" else tuple(each.split(" ")[-1].lstrip("*") for each in inside.split(", "))


def names(rows: tuple[Row, ...]) -> dict[str, Routine]:
    """Every C name of the rows. Two rows may share a name that C11 distinguishes by type; the first is kept."""
    found: dict[str, Routine] = {}
    for row in rows:
        for routine in _routines(row):
            found.setdefault(routine.name, routine)
    return found


def _routines(row: Row) -> Iterator[Routine]:
    for ctx in (False, True) if row.ctx else (False,):
        name = row.name.replace("shmem_", "shmem_ctx_", 1) if ctx else row.name
        if not row.types and not row.sizes:
            yield Routine(name, row, "", ctx)
        for each in row.types:
            yield Routine(name.replace("<TYPENAME>", each), row, each, ctx)
        for each in row.sizes:  # put_signal: put32_signal
            yield Routine(re.sub("<TYPENAME>_([a-z]+)", rf"\g<1>{each}", name), row, each, ctx)


def generics(rows: tuple[Row, ...]) -> dict[str, Row]:
    """The names of C11's generic selection."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.generic:
            found.setdefault(row.name.replace("<TYPENAME>_", ""), row)
    return found
