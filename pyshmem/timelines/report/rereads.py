"""The table of bytes that calls wrote to memory and later ones read again, of ``pyshmem taxes``."""

from __future__ import annotations

from collections.abc import Iterable

from pyshmem.timelines.locality import by_calls
from pyshmem.timelines.report.units import short
from pyshmem.timelines.taxes import Call

_TITLES = ["call", "calls", "within the call", "from earlier calls", "most of it from"]


def rows_of(calls: Iterable[Call], rate: float | None) -> tuple[str, list[str], list[list[str]]] | None:
    """Return (title, titles of columns, rows) of the PE that read most again; None if no call is known to have done so.

    rate: of the memory, in GB/s.
    """
    every = by_calls(calls)
    if not every:
        return None
    pe = max(every, key=lambda each: sum(row.nbytes for row in every[each].values()))
    own = every[pe].values()
    table = [
        [name, str(row.calls), "-" if row.within is None else short(row.within, "B"), short(row.earlier, "B"),
         max(row.writers, key=lambda who: row.writers[who], default="-")]
        for name, row in every[pe].items()
    ]  # fmt: skip
    sums = sum(row.within or 0 for row in own), sum(row.earlier for row in own)
    table.append(["all", "", *(short(each, "B") for each in sums), ""])
    titles = list(_TITLES)
    if rate:
        titles.append(f"us at {rate:g} GB/s")
        for cells, nbytes in zip(table, [*(row.nbytes for row in own), sum(sums)], strict=True):
            cells.append(f"{nbytes / rate / 1e3:.1f}")
    return f"Bytes that a kernel wrote to memory and a later one read again, on PE {pe}", titles, table
