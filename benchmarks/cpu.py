"""The command of the suites on the CPU heap: each library has a job of its own, and the rounds go from job to job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks import command, peers, record
from benchmarks.figures import Report
from benchmarks.jobs import ROOT, GroupsClock, JobError
from benchmarks.peers import Peer
from benchmarks.rows import Row

SHMEM4PY, MPI = "shmem4py", "mpi4py"
Clock = Callable[[list[Peer], argparse.Namespace, dict[str, Any]], Any]


def jobs(found: list[Peer], options: argparse.Namespace, facts: dict[str, Any]) -> GroupsClock:
    """Return the clock of rows whose operations are methods of the peers' modules."""

    def jobs_of(row: Row) -> list[tuple[Peer, int]]:
        n_pes = row.pes or options.n
        return [(peers.bound(peer, n_pes, not options.no_bind), n_pes) for peer in found]

    return GroupsClock([peer.name for peer in found], jobs_of, facts)


def main(
    suite: command.Suite,
    description: str | None,
    rivals: Sequence[str],
    arguments: list[str] | None = None,
    clock_of: Clock = jobs,
) -> int:
    """Measure pyshmem beside ``rivals``, as far as they are installed."""
    options = _parser(suite, description).parse_args(arguments)
    if options.list:
        return suite.print_list(options.only)
    command.check_files(options, suite.name)
    found, missing = _libraries(options, rivals)
    report = Report(suite.name, [peer.name for peer in found], options.n, record.facts(), missing=missing)
    return run(suite, clock_of(found, options, report.facts), options, report)


def run(suite: command.Suite, clock: Any, options: argparse.Namespace, report: Report) -> int:
    """Run a suite in jobs of its own. Return the exit status: 1 for a job that ends."""
    try:
        with clock.stack:
            return suite.run(clock, options, report)
    except JobError as error:
        print(f"python -m benchmarks.{suite.name}: {error}", file=sys.stderr)
        return 1


def _libraries(options: argparse.Namespace, rivals: Sequence[str]) -> tuple[list[Peer], dict[str, str]]:
    """The peers to measure, and why others are missing."""
    missing = {}
    found = [peers.pyshmem("pyshmem", str(ROOT), options.mpiexec)]
    if SHMEM4PY in rivals and not options.alone:
        peer = peers.shmem4py(options.shmem4py_python, options.oshrun)
        if peer:
            found.append(peer)
        else:
            missing[SHMEM4PY] = peers.INSTALL_SHMEM4PY
    if MPI in rivals and not options.alone:
        if find_spec("mpi4py"):
            found.append(peers.mpi4py(MPI, options.mpiexec))
        else:
            missing[MPI] = "not installed for this Python"
    return found, missing


def _parser(suite: command.Suite, description: str | None) -> argparse.ArgumentParser:
    parser = suite.parser(description)
    parser.add_argument("-n", type=_pes, default=2, help="PEs (2)")
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
