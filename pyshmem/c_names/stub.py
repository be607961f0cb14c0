"""Generates pyshmem/shmem.pyi, for editors and type checkers, and docs/c-names.md from the table.

Run: python -m pyshmem.c_names.stub            With --check it writes nothing and fails if a file is stale.
"""

from __future__ import annotations

import inspect
import pathlib
import sys
import textwrap

from pyshmem import shmem
from pyshmem.c_names import handles, types, unfold
from pyshmem.c_names.table import ROWS

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_HEAD = '''"""Generated from pyshmem/c_names/table.py by python -m pyshmem.c_names.stub; do not edit."""

from typing import Any, overload

import torch

from pyshmem.c_names.handles import shmem_ctx_session_config_t as shmem_ctx_session_config_t
from pyshmem.c_names.handles import shmem_team_config_t as shmem_team_config_t
from pyshmem.host.contexts import Ctx
from pyshmem.host.teams import Team

Address = Any  # a tensor, an array, a ctypes object or pointer, or an int; None is NULL
shmem_ctx_t = Ctx
shmem_team_t = Team

'''
_MARK = "<!-- from here on generated: python -m pyshmem.c_names.stub -->"
SECTIONS = {
    "9.1": "Life and queries",
    "9.2": "Threads",
    "9.3": "Memory",
    "9.4": "Teams",
    "9.5": "Contexts",
    "9.6": "Remote memory access",
    "9.7": "Atomics",
    "9.8": "Signals",
    "9.9": "Collectives",
    "9.10": "Wait and test",
    "9.11": "Ordering",
    "9.12": "Locks",
    "SHMEM_PCONTROL": "Profiling",
}
_LISTS = {
    types.RMA: "all 24",
    types.NUMERIC: "all 24 and complexd, complexf",
}


def stub() -> str:
    lines, names, generics = [_HEAD], unfold.names(ROWS), unfold.generics(ROWS)
    for name, value in sorted(handles.values().items()):
        kind = type(value).__name__
        if "SHMEM" in name:
            lines.append(f"{name}: {kind if kind in ('Team', 'Ctx', 'str') else 'int'}\n")
    for name, entry in names.items():
        if name not in generics:
            lines.append(f"def {name}{_signature(entry, entry.ctx)}: ...\n")
    for name, row in generics.items():
        entry = unfold.Entry(name, row)
        forms = [_signature(entry, ctx) for ctx in ((False, True) if row.ctx else (False,))]
        mark = "@overload\n" if len(forms) > 1 else ""
        lines += [f"{mark}def {name}{form}: ...\n" for form in forms]
    lines += [f"p{name} = {name}\n" for name in names]
    quoted = ", ".join(f'"{name}"' for name in shmem.__all__)
    lines.append("__all__ = [\n" + textwrap.indent(textwrap.fill(quoted, 116), "    ") + ",\n]\n")
    return "".join(lines)


def _signature(entry: unfold.Entry, ctx: bool) -> str:
    """The parameters and what is returned, with Python's types."""
    if not entry.row.host:
        return str(inspect.signature(entry.row.body)).replace("'", "")
    before, inside = entry.row.prototype[:-1].split("(")
    value = entry.type.value if entry.type else "Any"
    parts = ["ctx: shmem_ctx_t"] if ctx else []
    for each, name in zip(inside.split(", "), entry.parameters, strict=True):
        kind = each.removeprefix("const ").split(" ")[0]
        parts.append(f"{name}: {_python(kind, '*' in each, value)}")
    return f"({', '.join(parts)}, /) -> {_python(before.split(' ')[0], False, value)}"


def _python(kind: str, pointer: bool, value: str) -> str:
    if pointer:
        return "Address"
    return {"void": "None", "TYPE": value, "shmem_team_t": "shmem_team_t"}.get(kind, "int")


def page() -> str:
    """docs/c-names.md: the text down to the mark, which is written by hand, then the families."""
    lines = [(_ROOT / "docs/c-names.md").read_text().split(_MARK)[0] + _MARK]
    for section, title in SECTIONS.items():
        rows = [row for row in ROWS if row.page.split(" ")[0] == section]
        lines.append(f"\n\n### {title}\n\n| C | types | Python |\n| --- | --- | --- |\n")
        lines.append("\n".join(f"| {_names(row)} | {_types(row)} | {_host(row)} |" for row in rows))
    return "".join(lines) + "\n"


def _types(row: unfold.Row) -> str:
    return _LISTS.get(row.types, ", ".join(row.types))


def _names(row: unfold.Row) -> str:
    sized = unfold.names((row._replace(ctx=False, types=()),)) if row.sizes else {}
    parts = [f"`{name}`" for name in sized]
    if row.types or not sized:
        parts.insert(0, f"`{row.prototype}`")
    else:
        parts[0] = f"`{sized[next(iter(sized))].prototype}`"
    parts += ["with ctx"] * row.ctx + ["generic"] * row.generic
    if row.deprecated[0]:
        parts.append(f"deprecated since {row.deprecated[0]}")
    return "; ".join(parts)


def _host(row: unfold.Row) -> str:
    """The Python function, or the return value of a routine with its own body."""
    if row.host:
        return f"`{row.host}`"
    returned = str(inspect.signature(row.body)).split(" -> ")[-1].replace("'", "").replace("|", "or")
    return "" if returned == "None" else f"returns `{returned}`"


def main(arguments: list[str]) -> int:
    stale = 0
    for path, made in ((_ROOT / "pyshmem/shmem.pyi", stub()), (_ROOT / "docs/c-names.md", page())):
        if not path.exists() or path.read_text() != made:
            if "--check" in arguments:
                print(f"{path.relative_to(_ROOT)} is stale: run python -m pyshmem.c_names.stub")
                stale += 1
            else:
                path.write_text(made)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
