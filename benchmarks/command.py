"""The command line of all suites: their common options, and the way from rows to table and JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import record, table
from benchmarks.figures import Report
from benchmarks.rows import Row, select
from benchmarks.runner import Clock, Effort, measure


@dataclass(frozen=True)
class Suite:
    """Rows under one command. Its module makes the clock and calls ``run``."""

    name: str
    rows: Sequence[Row]
    full: Effort
    quick: Effort

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}", description=(description or "").split("\n", 1)[0]
        )
        parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
        parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows with a TEXT in group, name or bytes")
        parser.add_argument("--list", action="store_true", help="print the rows and exit")
        parser.add_argument("--alone", action="store_true", help="without peers")
        parser.add_argument("--json", metavar="FILE", help="write every sample to FILE")
        parser.add_argument("--compare", metavar="FILE", help="print the ratio to an earlier run's --json FILE")
        return parser

    def print_list(self, only: Sequence[str] | None) -> int:
        print("\n".join(f"{row.group}: {row.key}" for row in select(self.rows, only)))
        return 0

    def run(self, clock: Clock, options: argparse.Namespace, report: Report, speaks: bool = True) -> int:
        """Measure the selected rows, print and write them. In a job all PEs call this, and one of them prints."""
        rows = select(self.rows, options.only, report.n_pes)
        effort = self.quick if options.quick else self.full
        with Console(stderr=True, quiet=not speaks).status("") as status:
            for number, row in enumerate(rows, 1):
                status.update(f"{number} of {len(rows)}: {row.key}")
                report.results[row] = measure(row, clock, effort)
        if speaks:
            publish(report, options)
        return int(report.wrong)


def publish(report: Report, options: argparse.Namespace) -> None:
    """Print the report, beside the earlier run where there is one, and write its JSON."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    table.describe(console, report)
    if options.compare:
        found, earlier = record.read(options.compare)
        if (found["suite"], found["n_pes"]) != (report.suite, report.n_pes):
            console.print(f"{options.compare} was measured with {found['suite']} on {found['n_pes']} PEs", style="red")
        table.show(console, report, earlier, options.compare)
    else:
        table.show(console, report)
    if options.json:
        record.write(options.json, report)


def check_files(options: argparse.Namespace) -> None:
    """Exit before the measurement if a file cannot be read or written after it."""
    try:
        if options.compare:
            record.read(options.compare)
        if options.json and not Path(options.json).absolute().parent.is_dir():
            raise OSError(f"--json {options.json}: there is no such folder")
    except (OSError, ValueError) as error:
        sys.exit(f"benchmarks: {error}")
