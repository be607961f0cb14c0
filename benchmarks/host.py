"""The host calls of pyshmem and of its peers, side by side, on the PEs of this node.

Run, from a checkout with pyshmem built in it: python -m benchmarks.host [--quick] [--only TEXT] [--json FILE] [-n PES]
Prints a table: each library's times, the ratios, the goals and whether they are met. Reaching them is not tested.
On a busy machine rows that wait for another PE mean little: see the spreads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks import peers
from benchmarks.jobs import Job, JobError
from benchmarks.peers import Peer
from benchmarks.rows import ROWS, Row
from benchmarks.runner import FULL, QUICK, Figure, measure
from benchmarks.table import as_json, show

ROOT = Path(__file__).parents[1]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    rows = [row for row in ROWS if not options.only or any(text in f"{row.group} {row.key}" for text in options.only)]
    if options.list:
        print("\n".join(f"{row.group}: {row.key}" for row in rows))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 180)
    libraries = _libraries(options, console)
    load = os.getloadavg()[0]
    results: dict[Row, dict[str, Figure]] = {}
    try:
        with ExitStack() as stack, Console(stderr=True).status("starting the jobs") as status:
            jobs = []
            for peer in libraries:
                jobs.append(Job(peer, options.n))
                stack.callback(jobs[-1].close)
            settings = {job.peer.name: {**job.facts, "command": " ".join(job.command)} for job in jobs}
            for row in rows:
                status.update(f"{len(results) + 1} of {len(rows)}: {row.key}")
                results[row] = measure(row, jobs, QUICK if options.quick else FULL)
    except JobError as error:
        print(f"python -m benchmarks.host: {error}", file=sys.stderr)
        return 1
    for name, facts in settings.items():
        described = "; ".join(f"{key}: {value}" for key, value in facts.items())
        console.print(f"{name}: {described}", highlight=False, markup=False)
    console.print(f"{len(os.sched_getaffinity(0))} cores; load average before: {load:.1f}", highlight=False)
    names = [peer.name for peer in libraries]
    show(console, results, names, options.n)
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(results, names, options.n, settings), indent=1) + "\n")
    return int(any(figures["pyshmem"].wrong for figures in results.values()))


def _libraries(options: argparse.Namespace, console: Console) -> list[Peer]:
    bind = not options.no_bind
    found = [peers.pyshmem("pyshmem", str(ROOT), options.mpiexec, options.n, bind)]
    if not options.alone:
        other = peers.shmem4py(options.shmem4py_python, options.oshrun, options.n, bind)
        if other:
            found.append(other)
        else:
            console.print(peers.INSTALL_SHMEM4PY, highlight=False, markup=False)
    if options.against:
        found.append(peers.pyshmem("other", str(Path(options.against).resolve()), options.mpiexec, options.n, bind))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host", description=__doc__.split("\n", 1)[0])
    parser.add_argument("-n", type=_pes, default=2, help="PEs (2)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose group, name or bytes contain a TEXT")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    parser.add_argument("--json", metavar="FILE", help="write every sample there too")
    parser.add_argument("--alone", action="store_true", help="without shmem4py")
    parser.add_argument("--against", metavar="CHECKOUT", help="measure another checkout of pyshmem, built, too")
    parser.add_argument(
        "--shmem4py-python", metavar="PATH", help="Python that has shmem4py ($SHMEM4PY_PYTHON, or this one)"
    )
    parser.add_argument("--mpiexec", metavar="PATH", help="for pyshmem (the one beside this Python, or of the PATH)")
    parser.add_argument("--oshrun", metavar="PATH", help="for shmem4py (that of the PATH)")
    parser.add_argument("--no-bind", action="store_true", help="let PEs move between cores")
    return parser


def _pes(text: str) -> int:
    if int(text) < 2:
        raise argparse.ArgumentTypeError("at least 2 PEs")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
