"""``pyshmem predict out.json``: how long the program of a timeline would take on another machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyshmem.timelines.prediction import Machine, predicted
from pyshmem.timelines.replay import Timeline
from pyshmem.timelines.taxes import read

from .units import short

DESCRIPTION = """Replay a timeline that pyshmemrun --trace has written with other links, cores or PEs, and print how long the
program would take. What is not given stays as it was. Each PE does as much as it did, whatever the number of PEs;
further ones do as those of the timeline."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("pyshmem predict", description=DESCRIPTION)
    parser.add_argument("timeline", type=Path, metavar="out.json", help="of pyshmemrun --trace out.json")
    parser.add_argument("--link-rate", type=_positive, metavar="GB/S", help="of a put or a get of many bytes")
    parser.add_argument("--latency", type=_positive, metavar="US", help="of a put or a get of few bytes")
    parser.add_argument(
        "--compute-rate", type=_positive, default=1.0, metavar="TIMES", help="how many times as fast it computes"
    )
    parser.add_argument("--pes", type=int, metavar="N", help="PEs, of which further ones do the same")
    options = parser.parse_args(arguments)
    if options.pes is not None and options.pes < 1:
        parser.error(f"--pes: got {options.pes}; wants 1 or more")
    try:
        calls, arrows, notes = read(options.timeline)
    except (OSError, ValueError) as error:
        print(f"pyshmem predict: {error}", file=sys.stderr)
        return 2
    machine = Machine(options.link_rate, options.latency, options.compute_rate, options.pes)
    found = predicted(Timeline(calls, arrows), machine)
    if found.links:
        rate = short(1e6 * found.links.rate, "B/s") if found.links.rate != float("inf") else "any rate"
        print(
            f"puts and gets took {found.links.latency:.3g} us + bytes at {rate}, each +- {100 * found.links.error:.0f} %"
        )
    print(f"recorded {found.recorded / 1e3:.3f} ms, predicted {found.time / 1e3:.3f} ms +- {found.error / 1e3:.3f} ms")
    if machine == Machine():
        print("what would differ? --compute-rate 2, --link-rate 100, --latency 2, --pes 8: see --help")
    for line in notes:
        print(line)
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}; wants a number above 0")
    return value
