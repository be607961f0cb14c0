"""The command line of all suites: their common options, and the way from rows to table and JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import record, sheets, table
from benchmarks.figures import Report
from benchmarks.rows import Row, in_turn, select
from benchmarks.runner import Clock, Effort, measure

_BEGUN = time.monotonic()  # the budget's clock: imports and the start of the job count too


@dataclass(frozen=True)
class Suite:
    """Rows under one command. Its module makes the clock and calls ``run``."""

    name: str
    rows: Sequence[Row]
    full: Effort
    quick: Effort
    sweeps: bool = False  # printed as a sheet for each group instead of one table

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}", description=(description or "").split("\n", 1)[0]
        )
        add_options(parser)
        parser.add_argument("--of-runs", type=int, default=1, metavar="N", help="take an Nth of the samples")
        parser.add_argument("--turn", type=int, default=1, metavar="K", help="of the runs, which it is (1)")
        return parser

    def print_list(self, only: Sequence[str] | None) -> int:
        print("\n".join(f"{row.group}: {row.key}" for row in select(self.rows, only)))
        return 0

    def run(
        self,
        clock: Clock,
        options: argparse.Namespace,
        report: Report,
        speaks: bool = True,
        agreed: Callable[[float], float] = float,
    ) -> int:
        """Measure the selected rows, print and write them. In a job all PEs call this, and one of them prints.

        Rows that would begin after --budget are listed as left out; groups share it. agreed: gives all PEs the time of one.
        """
        rows = select(self.rows, options.only, report.n_pes, options.full, options.quick)
        report.left_out = [row.key for row in rows]
        effort = (self.quick if options.quick else self.full).part(options.of_runs)
        with progress(speaks) as bar:
            task = bar.add_task(self.name, total=len(rows))
            for row in in_turn(rows, options.turn - 1, options.of_runs) if options.budget else rows:
                spent = agreed(time.monotonic() - _BEGUN)
                if options.budget and spent > options.budget:
                    break
                bar.update(task, description=f"{self.name}: {row.key}")
                if not bar.console.is_terminal:
                    bar.console.print(f"{self.name}: {spent:.1f} s: {row.key}", markup=False, highlight=False)
                report.results[row] = measure(row, clock, effort)
                report.left_out.remove(row.key)
                if speaks and options.json:
                    record.write(options.json, report)  # now, for a run that does not end
                bar.advance(task)
        report.results = {row: report.results[row] for row in rows if row in report.results}
        if speaks:
            show(report, options.compare, self.sweeps)
            if options.json:
                record.write(options.json, report)
        return int(report.wrong)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add those that a suite and all suites together have."""
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows with a TEXT in group, name or bytes")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples, and fewer rows")
    parser.add_argument("--full", action="store_true", help="every size of the sweeps, and the largest jobs")
    parser.add_argument("--alone", action="store_true", help="without other libraries")
    parser.add_argument("--budget", type=float, metavar="S", help="begin no row of a run after S seconds; list those")
    parser.add_argument("--json", metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--compare", metavar="FILE", help="print the ratios to an earlier run's --json FILE")


def progress(speaks: bool) -> Progress:
    """Return a bar on stderr. Where that is no terminal, a line for each row stands for it."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=Console(stderr=True, quiet=not speaks), transient=True)


def show(report: Report, compare: str | None, sweeps: bool) -> None:
    """Print the report, beside the run of the file ``compare``."""
    console = table.terminal()
    table.describe(console, report)
    earlier = None
    if compare:
        found, earlier = record.read(compare, report.suite)
        if found["n_pes"] != report.n_pes:
            console.print(f"{compare} was measured on {found['n_pes']} PEs", style="red")
    if sweeps:
        sheets.show(console, record.as_json(report), earlier)
        table.remarks(console, report, earlier, compare or "")
    else:
        table.show(console, report, earlier, compare or "")


def check_files(options: argparse.Namespace, suite: str) -> None:
    """Exit before the measurement if a file cannot be read or written after it."""
    try:
        if options.compare:
            record.read(options.compare, suite)
        if options.json and not Path(options.json).absolute().parent.is_dir():
            raise OSError(f"--json {options.json}: there is no such folder")
    except (OSError, ValueError) as error:
        sys.exit(f"benchmarks: {error}")
