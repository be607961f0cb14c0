"""``pyshmem predict out.json``: how long the program of a timeline would take on another machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyshmem.timelines.prediction import Machine, Model, Prediction, best_of, predicted
from pyshmem.timelines.reading import read
from pyshmem.timelines.replay import Timeline
from pyshmem.timelines.report.units import positive, require_order, short
from pyshmem.timelines.runs import Window

DESCRIPTION = """Replay a timeline that pyshmemrun --trace has written with other links, cores or PEs, and print how long the
program would take. What is not given stays as it was. Each PE does as much as it did, whatever the number of PEs;
further ones do as those of the timeline. Of several timelines, of one machine, the fastest is the first."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    options = _options(arguments)
    try:
        files = [read(path) for path in options.timelines]
    except (OSError, ValueError) as error:
        print(f"pyshmem predict: {error}", file=sys.stderr)
        return 2
    machine = Machine(options.link_rate, options.latency, options.compute_rate, options.pes)
    timelines = [Timeline(calls, arrows) for calls, arrows, _ in files]
    windows: list[Window | None] = [(1e3 * begin, 1e3 * end) for begin, end in options.window or []]
    windows = windows or [None] * len(timelines)
    best = best_of(Model(each) for each in timelines)
    names = [f"{path}: " if len(timelines) > 1 else "" for path in options.timelines]
    found = [(name, predicted(each, machine, best, window))
             for name, each, window in zip(names, timelines, windows, strict=True)]  # fmt: skip
    for (_, each), timeline, window in zip(found, timelines, windows, strict=True):
        if window and each.recorded <= 0:
            got, whole = " ".join(f"{time / 1e3:g}" for time in window), _ms(timeline.end)
            print(
                f"pyshmem predict: --window: got {got}; wants times in which something ends, before {whole}",
                file=sys.stderr,
            )
            return 2
    _print(sorted(found, key=lambda pair: pair[1].time))
    if machine == Machine():
        print("what would differ? --compute-rate 2, --link-rate 100, --latency 2, --pes 8: see --help")
    for name, (_, _, notes) in zip(names, files, strict=True):
        for line in notes:
            print(name + line)
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("pyshmem predict", description=DESCRIPTION)
    parser.add_argument(
        "timelines", type=Path, metavar="out.json", nargs="+", help="of pyshmemrun --trace out.json: one, or several"
    )
    parser.add_argument(
        "--link-rate", type=positive, metavar="GB/S",
        help="of a put or a get of many bytes; on GPUs of all that a PE sends",
    )  # fmt: skip
    parser.add_argument("--latency", type=positive, metavar="US", help="of a put or a get of few bytes")
    parser.add_argument(
        "--compute-rate", type=positive, default=1.0, metavar="TIMES", help="how many times as fast it computes"
    )
    parser.add_argument("--pes", type=int, metavar="N", help="PEs, of which further ones do the same")
    parser.add_argument(
        "--window", nargs=2, type=float, metavar=("FROM", "TO"), action="append",
        help="only what was recorded between these times, in ms; once for each timeline",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.window and len(options.window) != len(options.timelines):
        parser.error(f"--window: got {len(options.window)}; wants one for each of {len(options.timelines)} timelines")
    for window in options.window or []:
        require_order(parser, window)
    if options.pes is not None and options.pes < 1:
        parser.error(f"--pes: got {options.pes}; wants 1 or more")
    return options


def _print(found: Sequence[tuple[str, Prediction]]) -> None:
    """Print the links, then the times. found: with what each line begins with."""
    for name, each in found:
        for route, links in each.links.items():
            rate = f" + bytes at {short(1e6 * links.rate, 'B/s')}" if links.rate != float("inf") else ""
            print(f"{name}{route} took {links.latency:.3g} us{rate}, each +- {100 * links.error:.0f} %")
    for name, each in found:
        print(f"{name}recorded {_ms(each.recorded)}, predicted {_ms(each.time)} +- {_ms(each.error)}")
    (least, low), (most, high) = (pick(found, key=lambda pair: pair[1].sent) for pick in (min, max))
    if low.sent < high.sent / 2:
        print(f"{least}{short(low.sent, 'B')} of what a PE sends have slices, of {most}{short(high.sent, 'B')}; "
              "a link changes nothing else")  # fmt: skip


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3f} ms"
