"""Writes the families of C names for c-names.md, by the table of prototypes."""

import inspect
import pathlib

from pyshmem.c_names import rows, spellings, unfold
from pyshmem.c_names.table import ROWS

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
_LISTS = {spellings.RMA: "all 24", spellings.NUMERIC: "all 24 and complexd, complexf"}


def write(folder: pathlib.Path) -> None:
    """Write c-families.md: a table for each chapter of the specification."""
    lines = []
    for section, title in SECTIONS.items():
        found = [row for row in ROWS if row.page.split(" ")[0] == section]
        lines.append(f"### {title}\n\n| C | types | Python |\n| --- | --- | --- |\n")
        lines += [f"| {_names(row)} | {_types(row)} | {_host(row)} |\n" for row in found]
        lines.append("\n")
    (folder / "c-families.md").write_text("".join(lines))


def _types(row: rows.Row) -> str:
    return _LISTS.get(row.types, ", ".join(row.types))


def _names(row: rows.Row) -> str:
    sized = rows.names((row._replace(ctx=False, types=()),)) if row.sizes else {}
    parts = [f"`{name}`" for name in sized]
    if row.types or not sized:
        parts.insert(0, f"`{row.prototype}`")
    else:
        parts[0] = f"`{sized[next(iter(sized))].prototype}`"
    parts += ["with ctx"] * row.ctx + ["generic"] * row.generic
    if row.deprecated[0]:
        parts.append(f"deprecated since {row.deprecated[0]}")
    return "; ".join(parts)


def _host(row: rows.Row) -> str:
    """The Python function, or the return value of a routine with its own body."""
    if row.host:
        return f"`{row.host}`"
    returned = str(inspect.signature(unfold.body_of(row))).split(" -> ")[-1].replace("'", "").replace("|", "or")
    return "" if returned == "None" else f"returns `{returned}`"
