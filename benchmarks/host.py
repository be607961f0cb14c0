"""The host calls of pyshmem beside those of its peers, on the PEs of this node.

Run, from a checkout with pyshmem built in it: python -m benchmarks.host [--quick] [--only TEXT] [--json FILE] [-n PES]
Prints a table of each library's times, the ratios, and the goals with whether they are met. No test depends on them.
On a busy machine rows that wait for another PE mean little: see the spreads.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import command, peers, record
from benchmarks.figures import Report
from benchmarks.jobs import Job, JobError, JobsClock
from benchmarks.peers import Peer
from benchmarks.rows import KIB, MIB, Goal, Row, all_reduce, once, others, times
from benchmarks.runner import Effort
from benchmarks.table import OTHER

ROOT = Path(__file__).parents[1]
SIZES = (8, 64, KIB, 8 * KIB, 64 * KIB, MIB, 8 * MIB)
COLLECTIVE_SIZES = (8, 64 * KIB, 8 * MIB)
MEMCPY = "memcpy"
HALF, NO_SLOWER = (times(0.5, "shmem4py"),), (times(1, "shmem4py"),)
AMOS = (
    "set", "inc", "add", "and", "or", "xor", "fetch", "swap", "compare_swap",
    "fetch_inc", "fetch_add", "fetch_and", "fetch_or", "fetch_xor",
)  # fmt: skip


def _copy_goals(nbytes: int) -> tuple[Goal, ...]:
    return HALF if nbytes <= 64 * KIB else (times(1.05, MEMCPY),) if nbytes == 8 * MIB else ()


ROWS = (
    *(Row("RMA", "put", "put", n, bus=once, goals=_copy_goals(n), ceiling=MEMCPY) for n in SIZES),
    *(Row("RMA", "get", "get", n, bus=once, goals=_copy_goals(n), ceiling=MEMCPY) for n in SIZES),
    *(Row("RMA", "put_nbi, quiet", "put_nbi_quiet", n, bus=once, ceiling=MEMCPY) for n in (8, 64 * KIB)),
    Row("RMA", "p", "p"),
    Row("RMA", "g", "g"),
    *(Row("AMO", f"atomic_{name}", f"atomic_{name}", goals=HALF) for name in AMOS),
    Row("Ordering", "quiet", "quiet"),
    Row("Ordering", "fence", "fence"),
    Row("Waiting", "test, holds", "test"),
    Row("Waiting", "wait_until, holds", "wait_until"),
    Row("Waiting", "ping-pong: p", "ping_pong_p", steps=2, goals=HALF),
    Row("Waiting", "ping-pong: put", "ping_pong_put", steps=2, goals=HALF),
    Row("Waiting", "ping-pong: atomic_set", "ping_pong_atomic_set", steps=2, goals=HALF),
    *(Row("Waiting", "ping-pong: put_signal", "ping_pong_put_signal", n, steps=2, bus=once) for n in (8, 64 * KIB)),
    Row("Collective", "barrier_all", "barrier_all", goals=NO_SLOWER),
    Row("Collective", "sync_all", "sync_all"),
    *(
        Row("Collective", name, name, n, bus=bus, goals=HALF if n == 8 else NO_SLOWER)
        for name, bus in (
            ("broadcast", once),
            ("fcollect", others),
            ("alltoall", others),
            ("sum_reduce", all_reduce),
        )
        for n in COLLECTIVE_SIZES
    ),
    Row("Memory", "malloc, free", "malloc_free", KIB),
    Row("Process", "start-up", "start_up", goals=(Goal(1.0, "", "< 1 s"),), rounds=5),
    Row("Process", "heap metadata", "metadata", goals=(Goal(100.0, "", "< 100 B"),), unit="B", rounds=5),
)
SUITE = command.Suite("host", ROWS, full=Effort(0.002, 25, 101), quick=Effort(0.001, 7, 15))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        return SUITE.print_list(options.only)
    command.check_files(options)
    found, missing = _libraries(options)
    report = Report(SUITE.name, [peer.name for peer in found], options.n, record.facts(), missing=missing)
    try:
        with ExitStack() as stack:
            jobs = []
            for peer in found:
                jobs.append(Job(peer, options.n))
                stack.callback(jobs[-1].close)
            report.facts |= {job.peer.name: {**job.facts, "command": " ".join(job.command)} for job in jobs}
            return SUITE.run(JobsClock(jobs), options, report)
    except JobError as error:
        print(f"python -m benchmarks.host: {error}", file=sys.stderr)
        return 1


def _libraries(options: argparse.Namespace) -> tuple[list[Peer], dict[str, str]]:
    """The peers to measure, and why others are missing."""
    bind, missing = not options.no_bind, {}
    found = [peers.pyshmem("pyshmem", str(ROOT), options.mpiexec, options.n, bind)]
    if not options.alone:
        peer = peers.shmem4py(options.shmem4py_python, options.oshrun, options.n, bind)
        if peer:
            found.append(peer)
        else:
            missing["shmem4py"] = peers.INSTALL_SHMEM4PY
    if options.against:
        found.append(peers.pyshmem(OTHER, str(Path(options.against).resolve()), options.mpiexec, options.n, bind))
    return found, missing


def _parser() -> argparse.ArgumentParser:
    parser = SUITE.parser(__doc__)
    parser.add_argument("-n", type=_pes, default=2, help="PEs (2)")
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
