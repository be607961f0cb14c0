"""``pyshmem COMMAND``: a row for each command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from pyshmem.version import __version__

# where each is, and what it does
COMMANDS = {
    "info": ("launch.info", "what is installed, what a job would use, and what is missing; the default"),
    "doctor": (
        "launch.doctor.command",
        "what works between the GPUs, or the processes, of this machine, and what to try where it fails",
    ),
    "taxes": ("timelines.report.taxes", "where the time of each PE went, by a timeline of pyshmemrun --trace"),
    "top": ("launch.top", "what the PEs of a running job do, once a second; without a job, those that run"),
    "tune": ("launch.tune", "measure the collectives and products of this machine's GPUs; later jobs use the result"),
    "bench": ("launch.bench", "the benchmarks: puts, gets, collectives, starts, operators, beside other libraries"),
}
OTHERS = (
    "pyshmemrun -n N PROGRAM starts a program on N PEs; oshcc compiles C programs, see shmem_info. Each has --help."
)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("pyshmem", epilog=OTHERS)
    parser.add_argument("--version", action="version", version=f"pyshmem {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text)
    if arguments and arguments[0] in COMMANDS:  # whose own parser reads the rest
        name, *rest = arguments
    else:
        name, rest = parser.parse_args(arguments).command or "info", []
    return int(import_module(f"pyshmem.{COMMANDS[name][0]}").main(rest))
