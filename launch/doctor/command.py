"""``pyshmem doctor``: what works between the PEs of this machine, and for what fails the setting to try."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module

from .. import PYSHMEMRUN, info

DESCRIPTION = """doctor prints what pyshmem info prints, and then examines this machine in jobs of a few PEs: every way to
map GPU memory, and put, get, signals, atomics, kernels, an all-reduce and matrix products between each pair of PEs,
with their results checked. For what fails it prints the setting to try. It takes less than two minutes. The output
is a report that an issue can carry. Exit status: 0, or 1 if something failed."""
MOST_PES, SECONDS, WAIT_SECONDS = 8, 100, 20
# of a job: what it examines, and what to try if it ends without an answer
PARTS = {
    "mapping": "PYSHMEM_PEER_MAP=ipc, or PYSHMEM_PEER_MAP=vmm",
    "calls": "PYSHMEM_HEAP=cpu, to see whether it is the GPU; PYSHMEM_PEER_MAP=none",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "pyshmem doctor", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "-n", "--np", type=int, metavar="PES", help="by default one for each GPU, at least 2, at most 8"
    )
    options = parser.parse_args(arguments)
    if info.show():
        print("doctor: nothing was examined: every job needs what is missing", flush=True)
        return 1
    failed, found = False, gpus()
    n = options.np or min(max(found, 2), MOST_PES)
    print(f"examined   by {n} PEs; a wait fails after {WAIT_SECONDS} s, a job after {SECONDS} s", flush=True)
    for part, advice in PARTS.items():
        if part == "mapping" and not found:
            print("mapping    GPU memory: ok  not examined: torch sees no GPU", flush=True)
            continue
        status = _job(n, part)
        if status not in (0, 1):
            print(
                f"\nFAILED: the job that examines {part} ended with status {status}, in the check above\n  try: {advice}"
            )
        failed |= status != 0
    print("doctor: something failed, see FAILED above" if failed else "doctor: all that was examined works", flush=True)
    return int(failed)


def gpus() -> int:
    """Return how many GPUs torch sees."""
    try:
        return int(import_module("torch").cuda.device_count())
    except ImportError:
        return 0


def _job(n: int, part: str) -> int:
    command = [*PYSHMEMRUN, "-n", str(n), "--timeout", str(SECONDS), "-m", "pyshmem.launch.doctor.examination", part]
    usual = {"PYSHMEM_WAIT_TIMEOUT": str(WAIT_SECONDS), "PYSHMEM_QUIET": "1"}
    environment = {**os.environ, **{name: os.environ.get(name) or text for name, text in usual.items()}}
    # not in the user's folder, which may have a package pyshmem that is not the installed one
    return subprocess.run(command, env=environment, cwd=sys.prefix, check=False).returncode
