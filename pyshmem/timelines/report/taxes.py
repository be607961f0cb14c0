"""``pyshmem taxes out.json``: where the time of each PE went, by a timeline."""

from __future__ import annotations

import argparse
import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from pyshmem.timelines import merging
from pyshmem.timelines.programs import by_programs
from pyshmem.timelines.reading import read
from pyshmem.timelines.replay import Timeline, savings
from pyshmem.timelines.report.rereads import rows_of
from pyshmem.timelines.report.units import positive, require_order, short
from pyshmem.timelines.taxes import PARTS, Call, Taxes, divided, links

DESCRIPTION = """Print where the time of each PE went, by a timeline that pyshmemrun --trace has written: computing, waits,
meetings until the last PE came, and communication that nothing hides. The parts of a PE sum to the time of the whole."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    gc.disable()  # the calls of a timeline have no cycles, and to look for some takes a third of the time
    try:
        return _run(arguments)
    finally:
        gc.enable()


def _run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.window:
        require_order(parser, options.window)
    path = options.timeline
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print("pyshmem taxes: rich is missing: pip install rich", file=sys.stderr)
        return 2
    try:
        if not path.exists():
            for line in merging.finish(path, whole=False):  # of a job that was killed, started by mpiexec
                print(f"pyshmem taxes: {line}", file=sys.stderr)
        calls, arrows, notes = read(path)
        taxes, saved = divided(calls), savings(Timeline(calls, arrows))
        shown = [part for part in PARTS if any(parts[part] for parts in taxes.parts.values())]
        if options.picture:
            _drawing("lanes")(calls, arrows, options.picture, options.window)
        if options.savings and shown:
            _drawing("savings")(taxes, saved, shown, options.savings)
    except (OSError, ValueError) as error:
        print(f"pyshmem taxes: {error}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False, emoji=False)  # names are what they are
    _print_parts(console, Table, taxes, saved, shown)
    _print_programs(console, Table, calls)
    _print_links(console, Table, calls, max(taxes.whole.values(), default=0.0))
    if found := rows_of(calls, options.memory_rate):
        console.print(_table(Table, *found))
    for line in [*_slowest(taxes), *notes]:
        console.print(line, highlight=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("pyshmem taxes", description=DESCRIPTION)
    parser.add_argument("timeline", type=Path, metavar="out.json", help="of pyshmemrun --trace out.json")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw it, into a .png, .svg or .pdf")
    parser.add_argument("--window", type=float, nargs=2, metavar=("FROM", "TO"), help="what of it to draw, in ms")
    parser.add_argument(
        "--savings", type=Path, metavar="FILE", help="also draw the parts, and the program without each"
    )
    parser.add_argument(
        "--memory-rate", type=positive, metavar="GB/S", help="of the memory from which bytes are read again"
    )
    return parser


def _print_parts(console: Any, table: Any, taxes: Taxes, saved: dict[str, float], shown: Sequence[str]) -> None:
    whole = max(taxes.whole.values(), default=0.0)
    titles = ["PE", "whole", *shown, "waited for most"]
    rows = [[str(pe), *_cells(taxes, pe, shown)] for pe in taxes.whole]
    if whole:
        cells = (
            f"{saved[part] / 1e3:.2f} {100 * saved[part] / whole:3.0f}%" if part in saved else "-" for part in shown
        )
        rows.append(["saved", "", *cells, ""])
    title = "Time of each PE, in ms and % of the whole; saved: by the program, if it took no time"
    console.print(_table(table, title, titles, rows))
    if taxes.by_owner:
        titles = ["kernel or operator", "PE", "in it", *shown]
        console.print(
            _table(table, "In kernels and operators, on the PE that was in it longest", titles, _owners(taxes, shown))
        )


def _print_programs(console: Any, table: Any, calls: list[Call]) -> None:
    every = by_programs(calls)
    whole = {pe: sum(done.time for done in own.values()) for pe, own in every.items()}
    rows = []
    for name in {name for own in every.values() for name in own}:
        pe = max(every, key=lambda each: every[each][name].time if name in every[each] else -1.0)
        done = every[pe][name]
        share = f"{100 * done.time / whole[pe]:.0f}%" if whole[pe] else "-"
        each = f"{done.time / done.times:.2f}" if done.times else "-"
        rows.append(
            (done.time, [name, str(pe), str(done.times), f"{done.time / 1e3:.2f}", share, each, _longest(done.waited)])
        )
    if rows:
        titles = ["mark or device call", "PE", "times", "ms in it", "of all", "us each", "waited for most"]
        title = "In the programs of kernels, by marks and device calls, on the PE that was in it longest"
        console.print(_table(table, title, titles, [row for _, row in sorted(rows, key=lambda row: -row[0])]))


def _print_links(console: Any, table: Any, calls: list[Call], whole: float) -> None:
    if pairs := links(calls):
        titles = ["from", "to", "calls", "bytes", "ms busy", "of the whole", "rate while busy"]
        rows = [[f"PE {pe}", f"PE {to}", str(link.calls), short(link.nbytes, "B"), f"{link.time / 1e3:.2f}",
                 f"{100 * link.time / whole:.0f}%", short(1e9 * link.rate, "B/s")]
                for (pe, to), link in pairs.items()]  # fmt: skip
        console.print(_table(table, "Puts and gets between PEs, while such a call runs", titles, rows))


def _drawing(module: str) -> Callable[..., None]:
    """The function ``draw`` of a module of this package, which wants matplotlib."""
    try:
        return cast("Callable[..., None]", import_module(f".{module}", __package__).draw)
    except ImportError:
        raise ValueError("matplotlib is missing, for pictures: pip install matplotlib") from None


def _table(table: Any, title: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    made = table(title=title, title_justify="left")
    for each in titles:
        named = each in ("kernel or operator", "mark or device call", "call")
        made.add_column(each, justify="left" if named else "right", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def _shares(parts: dict[str, float], shown: Iterable[str]) -> list[str]:
    whole = sum(parts.values())
    return [f"{parts[part] / 1e3:.2f} {100 * parts[part] / whole:3.0f}%" if parts[part] else "-" for part in shown]


def _cells(taxes: Taxes, pe: int, shown: Iterable[str]) -> list[str]:
    return [f"{taxes.whole[pe] / 1e3:.2f}", *_shares(taxes.parts[pe], shown), _longest(taxes.waited[pe])]


def _longest(waited: dict[int, float]) -> str:
    """The PE that was waited for most, and how long."""
    most = max(waited, key=lambda who: waited[who], default=None)
    return "-" if most is None else f"PE {most}: {waited[most] / 1e3:.2f}"


def _owners(taxes: Taxes, shown: Sequence[str]) -> Iterable[list[str]]:
    rows = []
    for name, by_pe in taxes.by_owner.items():
        pe, parts = max(by_pe.items(), key=lambda item: sum(item[1].values()))
        time = sum(parts.values())
        rows.append((time, [name.removeprefix("shmem."), str(pe), f"{time / 1e3:.2f}", *_shares(parts, shown)]))
    return [row for _, row in sorted(rows, key=lambda row: -row[0])]


def _slowest(taxes: Taxes) -> Iterable[str]:
    total: dict[int, float] = defaultdict(float)
    for waited in taxes.waited.values():
        for who, time in waited.items():
            total[who] += time
    if total:
        who = max(total, key=lambda each: total[each])
        pes = sum(who in waited for waited in taxes.waited.values())
        yield f"PE {who} was waited for longest: {total[who] / 1e3:.2f} ms in all, by {pes} PE{'s' * (pes > 1)}"
