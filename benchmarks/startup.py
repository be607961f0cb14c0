"""What it takes to start: imports, init, a job from its start to its end by PEs, and what a PE holds by PEs.

Run, from a checkout with pyshmem built in it: python -m benchmarks.startup [--quick] [--full] [--only TEXT] [--json FILE]
Each sample is a new job. With more PEs than cores, times are those of the cores, which all PEs share: read the processor
time, the mappings and the memory of a PE instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks import peers
from benchmarks.command import Suite
from benchmarks.cpu import MPI, SHMEM4PY, main
from benchmarks.figures import Figure
from benchmarks.jobs import ANSWER_SECONDS, ROOT, JobError
from benchmarks.peers import Peer
from benchmarks.rows import Row
from benchmarks.runner import Contender, Effort

TORCH = "job that imports torch"
PES = {n: n > 4 for n in (1, 2, 4, 8, 16, 32, 64)}  # whether they are measured with --full only
SMALL_HEAP = {"SHMEM_SYMMETRIC_SIZE": "16m"}  # where what a PE holds is counted

TIMED = """
import time, {before}
start = time.perf_counter()
{timed}
print(time.perf_counter() - start, flush=True)
__import__("os")._exit(0)
"""
COUNTED = """
import time, torch
import pyshmem
start = time.process_time()
pyshmem.init()
took = time.process_time() - start
private = sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private")) * 1024
mappings = sum(1 for line in open("/proc/self/maps"))
pyshmem.barrier_all()
if pyshmem.my_pe() == 0:
    print(took, mappings, private, flush=True)
"""
PLACES = {"took": -3, "mappings": -2, "private": -1}  # of the numbers that COUNTED prints
# operation: by the peer's module, the program of each PE. It prints the figure, but "job" is timed from outside.
PROGRAMS: dict[str, dict[str, str]] = {
    "import_torch": {"pyshmem": TIMED.format(before="sys", timed="import torch")},
    "import_pyshmem": {"pyshmem": TIMED.format(before="torch", timed="import pyshmem")},
    "init": {"pyshmem": TIMED.format(before="torch, pyshmem", timed="pyshmem.init()")},
    "start_up": {
        "pyshmem": TIMED.format(before="torch", timed="import pyshmem; pyshmem.init()"),
        "shmem4py": TIMED.format(before="numpy", timed="from shmem4py import shmem"),
        "mpi_calls": TIMED.format(before="numpy", timed="from mpi4py import MPI"),
    },
    "job": {
        "pyshmem": "import pyshmem; pyshmem.init(); pyshmem.barrier_all(); pyshmem.finalize()",
        "shmem4py": "from shmem4py import shmem; shmem.barrier_all()",
        "mpi_calls": "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()",
    },
    **{name: {"pyshmem": COUNTED} for name in PLACES},
}


def pes(n: int) -> str:
    return f"{n} PE" if n == 1 else f"{n} PEs"


ROWS = (
    Row("Process", "import torch", "import_torch", rounds=3),
    Row("Process", "import pyshmem, after torch", "import_pyshmem", rounds=3),
    Row("Process", "init", "init", alias="osu_init", rounds=3),
    Row("Process", "start-up: import, init", "start_up", rounds=3),
    *(
        Row(
            "Job, start to end", f"job, {pes(n)}", "job", pes=n, ceiling=TORCH, alias="osu_hello", rounds=2, dense=dense
        )
        for n, dense in PES.items()
    ),
    *(
        Row("Processor time of init", f"init, {pes(n)}", "took", pes=n, rounds=1, dense=dense)
        for n, dense in PES.items()
    ),
    *(
        Row(f"A PE's {name}", f"{name}, {pes(n)}", operation, pes=n, unit=unit, rounds=1, dense=dense)
        for name, operation, unit in (("mappings", "mappings", "mappings"), ("private memory", "private", "B"))
        for n, dense in PES.items()
    ),
)
SUITE = Suite("startup", ROWS, full=Effort(0.0, 2, 3), quick=Effort(0.0, 2, 2), sweeps=True)


class ProcessClock:
    """Jobs that live for one sample each."""

    def __init__(self, found: list[Peer], options: argparse.Namespace, facts: dict[str, Any]) -> None:
        self.found, self.bind, self.stack = found, not options.no_bind, ExitStack()
        self.peers = [peer.name for peer in found]
        self.counted: dict[tuple[str, int], str] = {}  # what COUNTED printed: one job for three rows

    def prepare(self, row: Row, effort: Effort) -> list[Contender]:
        """Errors: JobError, also in the samples, if a job fails."""
        programs, n_pes = PROGRAMS[row.operation], row.pes or 1
        contenders = []
        for peer in self.found:
            program = programs.get(peer.module)
            if not program:
                continue
            names = {peer.name: program}
            if row.ceiling and peer is self.found[0]:
                names[row.ceiling] = "import torch"
            figures = {name: Figure(text) for name, text in names.items()}
            there = peers.bound(peer, n_pes, self.bind)
            contenders.append(Contender(peer.name, figures, partial(self._sample, there, row, names)))
        return contenders

    def release(self) -> None:
        """Do nothing: the jobs have ended."""

    def _sample(self, peer: Peer, row: Row, names: dict[str, str], turn: int) -> dict[str, float]:
        n_pes = row.pes or 1
        if row.operation == "job":
            return {name: run(peer, program, n_pes)[0] for name, program in names.items()}
        if row.operation not in PLACES:
            return {peer.name: number(run(peer, names[peer.name], n_pes)[1])}
        key = (peer.name, n_pes)
        self.counted[key] = self.counted.get(key) or run(peer, COUNTED, n_pes, SMALL_HEAP)[1]
        return {peer.name: number(self.counted[key], PLACES[row.operation])}


def run(peer: Peer, program: str, n_pes: int, environment: dict[str, str] | None = None) -> tuple[float, str]:
    """Run ``program`` as a job and return its seconds from start to end, and what it printed. Errors: JobError."""
    root = peer.path or str(ROOT)
    variables = {**os.environ, **peer.environment, **(environment or {}), "PYTHONPATH": root}
    begin = time.perf_counter()
    try:
        result = subprocess.run(
            peer.command(n_pes, "-c", program), cwd=root, env=variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS + 5 * n_pes,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise JobError(f"{peer.name}: {error}") from None
    taken = time.perf_counter() - begin
    if result.returncode:
        raise JobError(f"{peer.name}: a job of {n_pes} PEs:\n{result.stdout}{result.stderr}")
    return taken, result.stdout


def number(said: str, place: int = -1) -> float:
    """Errors: JobError if no number stands at ``place`` of the words."""
    try:
        return float(said.split()[place])
    except (IndexError, ValueError):
        raise JobError(f"no figure in what a job printed: {said!r}") from None


if __name__ == "__main__":
    sys.exit(main(SUITE, __doc__, (SHMEM4PY, MPI), clock_of=ProcessClock))
