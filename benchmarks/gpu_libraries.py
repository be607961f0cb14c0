"""Calls on GPU heaps beside NVSHMEM (nvshmem4py) and Iris: each library in a job of its own, on the same GPUs.

Run, from a checkout with pyshmem built in it: python -m benchmarks.gpu_libraries [--quick] [--only TEXT ...] [--json FILE]
The rounds go from job to job, and all results are checked. Calls from Python are timed by the host: as many as take some
milliseconds, and then one wait for the GPU. In kernels, PEs make a call many times in one launch. NVSHMEM has no calls in
Triton kernels without its device library, and Iris no put from Python without its copy engines. Libraries are optional:
pip install nvshmem4py-cu13 (or -cu12), pip install tokenspeed-iris.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from benchmarks import command, cpu, peers, record
from benchmarks.figures import Report
from benchmarks.in_job import NO_FIGURES
from benchmarks.jobs import ROOT, GroupsClock
from benchmarks.peers import Peer
from benchmarks.rows import KIB, MIB, Row, all_reduce, once, others, shares
from benchmarks.runner import Effort

PYSHMEM, NVSHMEM, IRIS = "pyshmem", "NVSHMEM", "Iris"
LIBRARIES = {NVSHMEM: ("nvshmem", "gpu_nvshmem"), IRIS: ("iris", "gpu_iris")}  # the module to import, that in peers/
TURNS = 501  # in a kernel; odd, so that Triton compiles nothing anew
SIZES = (4 * KIB, 256 * KIB, 16 * MIB)

ROWS = (
    *(Row("From Python", "put", "put", n, bus=once) for n in (8, *SIZES, 128 * MIB)),
    *(
        Row("From Python", name, name, n, bus=bus)
        for name, bus in (("all_reduce", all_reduce), ("fcollect", others), ("alltoall", shares), ("broadcast", once))
        for n in SIZES
    ),
    Row("From Python", "barrier", "barrier"),
    *(
        Row("In a kernel", name, operation, n, (TURNS,), steps=TURNS, bus=once)
        for name, operation in (("store of tiles", "tile_store"), ("load of tiles", "tile_load"))
        for n in SIZES
    ),
    Row("In a kernel", "atomic_fetch_add", "fetch_add", parameters=(TURNS,), steps=TURNS),
    Row("In a kernel", "flag, one way", "ping_pong", parameters=(TURNS,), steps=2 * TURNS),
)
SUITE = command.Suite("gpu_libraries", ROWS, full=Effort(0.01, 7, 15), quick=Effort(0.004, 3, 5), sweeps=True)


def found(mpiexec: str, gpus: int) -> tuple[list[Peer], dict[str, str]]:
    """The peers to measure, and why others are missing."""
    launcher = [mpiexec, "-bind-to", "none"]
    measured, missing = [Peer(PYSHMEM, "gpu_pyshmem", sys.executable, launcher, str(ROOT))], {}
    for name, (module, peer) in LIBRARIES.items():
        if not gpus:
            missing[name] = "there is no GPU"
        elif not find_spec(module):
            missing[name] = "not installed"
        else:
            measured.append(Peer(name, peer, sys.executable, launcher))
    return measured, missing


def main(arguments: list[str] | None = None) -> int:
    parser = SUITE.parser(__doc__)
    parser.add_argument("-n", type=int, default=2, help="PEs (2)")
    parser.add_argument("--mpiexec", metavar="PATH", help="MPICH's (the one beside this Python, or of the PATH)")
    options = parser.parse_args(arguments)
    if options.list:
        return SUITE.print_list(options.only)
    command.check_files(options, SUITE.name)
    import torch

    gpus = torch.cuda.device_count()
    measured, missing = found(peers.find(options.mpiexec), gpus)
    measured = measured[:1] if options.alone else measured
    report = Report(SUITE.name, [peer.name for peer in measured], options.n, record.facts(), missing=missing)
    if not gpus:
        report.no_figures = NO_FIGURES
    clock = GroupsClock(report.peers, lambda row: [(peer, options.n) for peer in measured], report.facts)
    return cpu.run(SUITE, clock, options, report)


if __name__ == "__main__":
    sys.exit(main())
