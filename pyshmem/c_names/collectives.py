"""Bodies of the collectives over a team. All return 0; invalid calls raise an error."""

from __future__ import annotations

from typing import Any

from pyshmem.c_names.active_sets import TeamSet, combine
from pyshmem.c_names.addresses import cells
from pyshmem.c_names.one_sided import span
from pyshmem.c_names.types import LONG_DOUBLE
from pyshmem.host.teams import member
from pyshmem.memory.arguments import count_of


def broadcast(host: Any, entry: Any) -> Any:
    """(team, dest, source, nelems, PE_root)."""
    name, kind = entry.name, entry.type

    def call(team: Any, dest: Any, source: Any, nelems: int, PE_root: int, /) -> int:
        to, own = cells(name, "dest", dest, kind, nelems), cells(name, "source", source, kind, nelems)
        host(to, own, PE_root, nelems, team)
        return 0

    return call


def collect(host: Any, entry: Any) -> Any:
    """(team, dest, source, nelems). Only the call learns the total length, so it gets all of dest's memory."""
    name, kind = entry.name, entry.type

    def call(team: Any, dest: Any, source: Any, nelems: int, /) -> int:
        host(cells(name, "dest", dest, kind, None), cells(name, "source", source, kind, nelems), nelems, team)
        return 0

    return call


def fcollect(host: Any, entry: Any) -> Any:
    """(team, dest, source, nelems): dest has nelems elements per PE."""
    name, kind = entry.name, entry.type

    def call(team: Any, dest: Any, source: Any, nelems: int, /) -> int:
        total = count_of(name, "nelems", nelems) * member(name, team).n_pes()
        host(cells(name, "dest", dest, kind, total), cells(name, "source", source, kind, nelems), nelems, team)
        return 0

    return call


def alltoall(host: Any, entry: Any) -> Any:
    """(team, dest, source, nelems): both arrays have nelems elements per PE."""
    name, kind = entry.name, entry.type

    def call(team: Any, dest: Any, source: Any, nelems: int, /) -> int:
        total = count_of(name, "nelems", nelems) * member(name, team).n_pes()
        host(cells(name, "dest", dest, kind, total), cells(name, "source", source, kind, total), nelems, team)
        return 0

    return call


def alltoalls(host: Any, entry: Any) -> Any:
    """(team, dest, source, dst, sst, nelems)."""
    name, kind = entry.name, entry.type

    def call(team: Any, dest: Any, source: Any, dst: int, sst: int, nelems: int, /) -> int:
        total = count_of(name, "nelems", nelems) * member(name, team).n_pes()
        to = cells(name, "dest", dest, kind, span(name, "dst", dst, total))
        host(to, cells(name, "source", source, kind, span(name, "sst", sst, total)), dst, sst, nelems, team)
        return 0

    return call


def reduce(host: Any, entry: Any) -> Any:
    """(team, dest, source, nreduce)."""
    name, kind = entry.name, entry.type
    if kind is LONG_DOUBLE:
        return _reduce_long_double(entry)

    def call(team: Any, dest: Any, source: Any, nreduce: int, /) -> int:
        to, own = cells(name, "dest", dest, kind, nreduce), cells(name, "source", source, kind, nreduce)
        host(to, own, nreduce, team)
        return 0

    return call


def _reduce_long_double(entry: Any) -> Any:
    """Reductions and scans; the operator is the first word of the Python name."""
    operator, kind = entry.row.host.split("_")

    def call(team: Any, dest: Any, source: Any, nreduce: int, /) -> int:
        group = TeamSet(entry.name, team)
        pes = {"reduce": group.pes, "inscan": group.pes[: group.me + 1], "exscan": group.pes[: group.me]}[kind]
        combine(entry, operator, group, dest, source, nreduce, pes)
        return 0

    return call
