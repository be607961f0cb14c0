"""``pyshmem doctor``: what works between the PEs of this machine, and for what fails the setting to try."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from pyshmem.base import environment

from .. import PYSHMEMRUN, info
from . import memory_kinds, report
from .findings import Finding

DESCRIPTION = """doctor prints what pyshmem info prints, and then examines this machine in jobs of a few PEs: every way to
map GPU memory, and put, get, signals, atomics, kernels, an all-reduce and matrix products between each pair of PEs,
with their results checked. For what fails it prints the setting to try. On GPUs it also writes messages of 768 MiB
between all PEs, and times a signal and a barrier, on AMD GPUs in both kinds of memory. It takes less than four
minutes. --report writes all of it to a file that an issue can carry, without the names of this host and its user.
Exit status: 0, or 1 if something failed."""
MOST_PES, WAIT_SECONDS = 8, 20
WAITS = 5  # whose seconds a job may last
# of a job: what it examines, and what to try if it ends without an answer
PARTS = {
    "mapping": "PYSHMEM_PEER_MAP=ipc, or PYSHMEM_PEER_MAP=vmm",
    "calls": "PYSHMEM_HEAP=cpu, to see whether it is the GPU; PYSHMEM_PEER_MAP=none",
    "large": "PYSHMEM_PEER_MAP=ipc, and messages of less than 768 MiB; report this: iris#532",
}
ON_GPUS = ("mapping", "large")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = _options(arguments)
    if options.report:
        return report.write(options.report.resolve(), _again(options.np), options.add)
    if info.show():
        print("doctor: nothing was examined: every job needs what is missing", flush=True)
        return 1
    failed, found = False, gpus()
    n = options.np or min(max(found, 2), MOST_PES)
    wait = wait_seconds()
    limits = f"a wait fails after {wait} s, a job after {WAITS * wait} s" if wait else "no wait has a limit of time"
    print(f"examined   by {n} PEs; {limits}", flush=True)
    for part, advice in PARTS.items():
        if part in ON_GPUS and not found:
            print(f"{part:10} {Finding('GPU memory', '', '', skipped='torch sees no GPU')}", flush=True)
            continue
        status = _job(n, part)
        if status not in (0, 1):
            print(
                f"\nFAILED: the job that examines {part} ended with status {status}, in the check above\n  try: {advice}"
            )
        failed |= status != 0
    if found:
        for line in _timed(n):
            print(f"{'times':10} {line}", flush=True)
            failed |= "FAILED" in line
    print("doctor: something failed, see FAILED above" if failed else "doctor: all that was examined works", flush=True)
    return int(failed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "pyshmem doctor", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "-n", "--np", type=int, metavar="PES", help="by default one for each GPU, at least 2, at most 8"
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="write what is printed to FILE, without names")
    parser.add_argument(
        "--add", metavar="FILE", type=Path, nargs="+", default=[], help="with --report: add these files"
    )
    options = parser.parse_args(arguments)
    if missing := [str(each) for each in options.add if not each.is_file()]:
        parser.error(f"--add: got {missing[0]}, which is no file")
    if options.add and not options.report:
        parser.error("--add needs --report FILE")
    return options


def gpus() -> int:
    """Return how many GPUs torch sees."""
    try:
        return int(import_module("torch").cuda.device_count())
    except ImportError:
        return 0


def _again(n: int | None) -> list[str]:
    """The command line that does the same without a report."""
    return [sys.executable, "-m", "pyshmem", "doctor", *(["-n", str(n)] if n else [])]


def _timed(n: int) -> list[str]:
    """Time signals and barriers in each kind of memory that is right on the GPU. Return what is to be said of them."""
    found: dict[str, memory_kinds.Times] = {}
    failed = []
    with TemporaryDirectory(prefix="pyshmem-doctor-") as folder:
        for kind in kinds():
            path = Path(folder) / kind
            status = _job(
                n, "times", str(path), more={"PYSHMEM_HIP_MEMORY": kind} if kind in memory_kinds.KINDS else {}
            )
            if each := memory_kinds.read(path):
                found[kind] = each
            if status:
                failed.append(f"{kind}: FAILED: the job ended with status {status}")
    return memory_kinds.said(found, "coarse", shared(n)) + failed


def shared(n: int) -> bool:
    """Return whether some of n PEs share a GPU, as init places them."""
    return n > (gpus() if environment.read("PYSHMEM_DEVICE") is None else 1)


def wait_seconds() -> int:
    """Return the seconds after which a wait fails: the user's, or few, because what is examined is small. 0: never."""
    return ceil(environment.read("PYSHMEM_WAIT_TIMEOUT")) if os.environ.get("PYSHMEM_WAIT_TIMEOUT") else WAIT_SECONDS


def kinds() -> tuple[str, ...]:
    """Return the kinds of memory that a heap may have on this machine's GPUs."""
    from pyshmem.memory.gpu.mapping import COHERENT_WHEN_CACHED

    torch = import_module("torch")
    if not torch.version.hip:
        return ("GPU memory",)
    arch = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    return memory_kinds.KINDS if arch in COHERENT_WHEN_CACHED else ("uncached",)


def _job(n: int, part: str, *arguments: str, more: Mapping[str, str] | None = None) -> int:
    """Run a job of n PEs that examines a part. more: variables of its environment."""
    program = ["-m", "pyshmem.launch.doctor.examination", part, *arguments]
    wait = wait_seconds()
    command = [*PYSHMEMRUN, "-n", str(n), *(["--timeout", str(WAITS * wait)] if wait else []), *program]
    usual = {"PYSHMEM_WAIT_TIMEOUT": str(wait), "PYSHMEM_QUIET": "1"}
    variables = {**os.environ, **{name: os.environ.get(name) or text for name, text in usual.items()}, **(more or {})}
    # not in the user's folder, which may have a package pyshmem that is not the installed one
    return subprocess.run(command, env=variables, cwd=sys.prefix, check=False).returncode
