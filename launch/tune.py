"""``pyshmem tune``: measures this machine's GPUs, and writes tables that later jobs on such GPUs use by themselves."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from . import PYSHMEMRUN
from .bench import with_suites
from .doctor.command import gpus

DESCRIPTION = """tune measures which kernel, or copy engine, collectives on a stream are fastest with at each size, on two
GPUs and on all of this machine, and which tile order products of bfloat16 are fastest with. It writes two files for
this kind of GPU in the user's cache folder, from where init and ops read them: collectives_ARCH.json and
orders_ARCH_bfloat16.json. Without them, pyshmem uses tables of other GPUs, or estimates."""
SHAPES = 256  # products whose tile orders are measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "pyshmem tune", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-n", "--np", type=int, metavar="PES", help="by default one for each GPU")
    parser.add_argument("--orders", type=int, default=SHAPES, metavar="SHAPES", help=f"products; by default {SHAPES}")
    options = parser.parse_args(arguments)
    here = gpus()
    n = options.np or here
    if not 2 <= n <= here:
        print(f"pyshmem tune: {n} PEs on {here} GPUs; it needs 2 GPUs or more, and one for each PE", file=sys.stderr)
        return 1
    for pes in sorted({2, n}):  # the tables of pairs and of larger teams
        orders = options.orders if pes == n else 0
        command = [*PYSHMEMRUN, "-n", str(pes), "-m", "benchmarks.tune", "--orders", str(orders)]
        status = subprocess.run(command, env=with_suites(), check=False).returncode
        if status:
            return status
    return 0
