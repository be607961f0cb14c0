"""The host calls of pyshmem between nodes beside Sandia OpenSHMEM, mpi4py and plain sockets: pretended nodes, and hosts made
of namespaces.

Run, from a checkout with pyshmem built in it: python -m benchmarks.nodes [--quick] [--only TEXT ...] [--json FILE]
--sandia LIBRARY measures Sandia OpenSHMEM too: the path of its libsma.so, see docs/clusters.md.
PE 0 acts on PE 1, which sleeps, computes in Python or waits in C; mpi4py's target is always inside MPI. Hosts need root.
Each group of rows has its jobs, which are alive at the same time. All data between nodes go over TCP, those of MPI and of
libfabric too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks import command, cpu, peers, record
from benchmarks.figures import Report
from benchmarks.jobs import GroupsClock
from benchmarks.peers import Peer
from benchmarks.peers.case import FLOOD
from benchmarks.rows import KIB, MIB, Row, once
from benchmarks.runner import Effort

ROOT = Path(__file__).parents[1]
HOSTS = ROOT / "tests" / "nodes" / "hosts.sh"
MPI, TCP, ALONE, SANDIA = "mpi4py", "TCP", "one-node job", "Sandia"
FABRIC = "pyshmem, fabric"  # PYSHMEM_FAR
PRETENDED, HOST, NEAR, BARRIER = "Pretended nodes", "Two hosts", "Near", "Barrier"
STATES = ("in a wait", "asleep", "in Python")  # of the target
SMALL = ("put", "get", "p", "g", "atomic_fetch_add")
# mpi4py's data must not take the shared memory of this machine
OVER_TCP = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
OF_SANDIA = {"SHMEM_OFI_PROVIDER": "tcp;ofi_rxm", "SHMEM_SYMMETRIC_SIZE": "64M"}
# a mount namespace of its own keeps the hosts of this job apart from others; hosts.sh removes them, with what still runs
# there, when the shell ends, which alone holds the other end of its standard input
IN_HOSTS = f"""mount -t tmpfs hosts /run
mkfifo /run/alive
{HOSTS} up 2 < /run/alive > /run/up &
exec 9> /run/alive
until grep -q up /run/up; do sleep 0.02; done
{HOSTS} enter 0 "$@" 9>&-
exit $?"""


def _far(place: str) -> Iterator[Row]:
    for state in STATES:
        for name in SMALL:
            yield Row(place, f"{place}: {name}, target {state}", "far", 8, (name, state))
        for name in ("put", "get"):
            yield Row(place, f"{place}: {name}, target {state}", "far", 4 * MIB, (name, state), bus=once)
        for name in ("iput", "iget"):
            yield Row(place, f"{place}: {name} of every second word, target {state}", "far", 4 * KIB, (name, state))
    yield Row(place, f"{place}: flood of puts", "far", 8, ("flood", STATES[0]), steps=FLOOD)
    for n in (8, 4 * MIB):  # to a target that sees the data, which quiet of other libraries may not wait for
        yield Row(place, f"{place}: put_signal, round trip", "ping_pong_put_signal", n)
    yield Row(place, f"{place}: idle, of a core", "idle", unit="s/s", rounds=5)


ROWS = (
    *_far(PRETENDED),
    *_far(HOST),
    *(Row(NEAR, f"near {name}", name, n) for name in ("put", "get") for n in (8, 8192)),
    *(Row(NEAR, f"near {name}", name) for name in ("p", "g", "atomic_fetch_add", "quiet", "fence")),
    Row(NEAR, "near ping-pong: p", "ping_pong_p", steps=2),
    *(Row(f"{BARRIER} of {n} nodes", f"barrier_all, {n} nodes", "barrier_all") for n in (2, 4, 8, 16, 32)),
)
SUITE = command.Suite("nodes", ROWS, full=Effort(3e-4, 9, 21, 9), quick=Effort(3e-4, 5, 9, 9))


def _jobs(row: Row, mpiexec: str, sandia: str) -> Iterator[tuple[Peer, int]]:
    """Yield the peers of a row's group, with the PEs of each."""
    group = row.group

    def peer(name: str, module: str, launcher: list[str], **environment: str) -> Peer:
        return Peer(name, module, sys.executable, launcher, environment=environment)

    here = [mpiexec, "-bind-to", "none"]
    if group == NEAR:
        yield peer("pyshmem", "pyshmem", here, PYSHMEM_NODE_SIZE="2"), 4
        yield peer(ALONE, "pyshmem", here), 4
    elif group == HOST:
        launcher = ["unshare", "--mount", "sh", "-ec", IN_HOSTS, "hosts", *here]
        launcher += ["-launcher", "rsh", "-launcher-exec", str(HOSTS.with_name("rsh.sh"))]
        launcher += ["-hosts", "10.77.0.1,10.77.0.2", "-ppn", "1", "-iface", "eth0"]
        yield peer("pyshmem", "nodes", launcher, **OVER_TCP, PYSHMEM_FAR="tcp"), 2
        yield peer(FABRIC, "nodes", launcher, **OVER_TCP, PYSHMEM_FAR="fabric", PYSHMEM_FABRIC="tcp;ofi_rxm"), 2
        if sandia:
            yield peer(SANDIA, "sandia", launcher, **OVER_TCP, **OF_SANDIA, BENCHMARKS_SANDIA=sandia), 2
        yield peer(MPI, "mpi_calls", launcher, **OVER_TCP), 2
        yield peer(TCP, "tcp", launcher, **OVER_TCP, BENCHMARKS_ADDRESS="10.77.0.2"), 2
    else:
        n_pes = 2 if group == PRETENDED else int(group.split()[2])
        yield peer("pyshmem", "nodes", here, PYSHMEM_NODE_SIZE="1", SHMEM_SYMMETRIC_SIZE="64m"), n_pes
        yield peer(MPI, "mpi_calls", here, **OVER_TCP, FI_TCP_IFACE="lo"), n_pes
        if group == PRETENDED:
            yield peer(TCP, "tcp", here, **OVER_TCP, FI_TCP_IFACE="lo", BENCHMARKS_ADDRESS="127.0.0.1"), 2


def _lacks(row: Row) -> str:
    return f"{HOSTS.name} {lacks}" if row.group == HOST and (lacks := _no_hosts()) else ""


@cache
def _no_hosts() -> str:
    """What this machine lacks to make hosts."""
    return subprocess.run([HOSTS, "check"], check=False, capture_output=True, text=True).stderr.strip()


def main(arguments: list[str] | None = None) -> int:
    parser = SUITE.parser(__doc__)
    parser.add_argument("--mpiexec", metavar="PATH", help="MPICH's (the one beside this Python, or of the PATH)")
    parser.add_argument("--sandia", metavar="LIBRARY", default="", help="the path of Sandia OpenSHMEM's libsma.so")
    options = parser.parse_args(arguments)
    if options.list:
        return SUITE.print_list(options.only)
    command.check_files(options, SUITE.name)
    mpiexec = peers.find(options.mpiexec)
    report = Report(SUITE.name, ["pyshmem", FABRIC, SANDIA, MPI, TCP, ALONE], 2, record.facts())
    clock = GroupsClock(report.peers, lambda row: _jobs(row, mpiexec, options.sandia), report.facts, _lacks)
    return cpu.run(SUITE, clock, options, report)


if __name__ == "__main__":
    sys.exit(main())
