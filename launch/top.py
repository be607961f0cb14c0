"""``pyshmem top JOB``: what the PEs of a running job do, once a second."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from pyshmem.base.activity import Counts
from pyshmem.timelines.report.units import short

from .running import Job, Unfound, find, jobs

DESCRIPTION = """Show what each PE of a running job does on this machine, once a second: calls and bytes to near and to far
PEs, the time it waits and in which call, meetings, the use of its heap, requests of far PEs. Without JOB, list the jobs."""
NS = 1e9


class Rates(NamedTuple):
    """What a PE did between two looks, per second; bytes in use and of both heaps; and what it waits for now."""

    pe: int
    state: str  # running, ended, or gone: ended without finalize
    near_calls: float
    far_calls: float
    near_bytes: float
    far_bytes: float
    meetings: float
    waits: float
    waiting: float  # the part of the time
    heap_used: int
    heap_bytes: int
    gpu_heap_used: int
    gpu_heap_bytes: int
    served: float
    served_bytes: float
    now: str  # the call that waits and its line; "" if none waits
    now_seconds: float


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("pyshmem top", description=DESCRIPTION)
    parser.add_argument("job", type=int, nargs="?", metavar="JOB",
                        help="its number in the list, or a process of it: of a PE, or of pyshmemrun")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="look for one interval, and end")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each look")
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks; 1")
    options = parser.parse_args(arguments)
    if options.job is None:
        return _list(options.json)
    try:
        job = find(options.job)
    except Unfound as error:
        print(f"pyshmem top: {error}", file=sys.stderr)
        return 2
    looks = _looks(job, options.interval)
    try:
        if options.json:
            for rates in looks:
                print(
                    json.dumps({"job": job.name, "pes": job.n_pes, "rows": [each._asdict() for each in rates]}),
                    flush=True,
                )
                if options.once:
                    break
            return 0
        return _show(job, looks, options.once)
    except KeyboardInterrupt:
        return 0
    finally:
        looks.close()


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"got {text}; expected 0.01 to 3600")
    return value


def _list(as_json: bool) -> int:
    every = jobs()
    if as_json:
        rows = [{"job": job.name, "host": job.host, "program": job.program(), "pes": job.n_pes,
                 "here": [each.pe for each in job.pes]} for job in every]  # fmt: skip
        print(json.dumps(rows))
        return 0
    for job in every:
        print(f"{job.name:>8}  {job.program()}, {_place(job)}")
    if not every:
        print("no job of this user runs on this machine")
    return 0


def _place(job: Job) -> str:
    """How many PEs the job has, and which of them are here."""
    if len(job.pes) == job.n_pes:
        return f"{job.n_pes} PE{'s' * (job.n_pes > 1)}"
    here, groups = [each.pe for each in job.pes], list[list[int]]()
    for pe in here:
        if groups and groups[-1][-1] == pe - 1:
            groups[-1].append(pe)
        else:
            groups.append([pe])
    spans = ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in groups)
    return f"{job.n_pes} PEs, of which this machine has {len(here)}: {spans}"


def _looks(job: Job, interval: float) -> Generator[list[Rates], None, None]:
    """The rates of each interval, while a PE runs. The PEs take the time of their waits meanwhile."""
    try:
        for each in job.pes:
            each.watch(True)
        time.sleep(0.001)  # so that a wait under way has a beginning
        before, then = [each.counts() for each in job.pes], time.monotonic_ns()
        going = True
        while going:
            time.sleep(interval)
            states = [each.state() for each in job.pes]
            going = "running" in states
            after, now = [each.counts() for each in job.pes], time.monotonic_ns()
            every = zip(job.pes, states, before, after, strict=True)
            yield [_rates(each.pe, state, early, late, then, now) for each, state, early, late in every]
            before, then = after, now
            for each in job.pes:
                each.watch(True)  # another who watched may have ended
    finally:
        for each in job.pes:
            each.watch(False)


def _rates(pe: int, state: str, before: Counts, after: Counts, then: int, now: int) -> Rates:
    """The rates between two looks, at ``then`` and ``now``."""
    seconds = (now - then) / NS

    def rate(late: int, early: int) -> float:
        return max(0, late - early) / seconds  # finalize, and the next init, count from 0 again

    waits_now = state == "running" and after.since > 0
    waited = rate(_waited(after, now if waits_now else 0), _waited(before, then)) / NS
    return Rates(
        pe=pe, state=state,
        near_calls=rate(after.calls[0], before.calls[0]), far_calls=rate(after.calls[1], before.calls[1]),
        near_bytes=rate(after.bytes[0], before.bytes[0]), far_bytes=rate(after.bytes[1], before.bytes[1]),
        meetings=rate(after.meetings, before.meetings), waits=rate(after.waits, before.waits),
        waiting=min(1.0, max(0.0, waited)), heap_used=after.used[0], heap_bytes=after.size[0], gpu_heap_used=after.used[1],
        gpu_heap_bytes=after.size[1], served=rate(after.served, before.served),
        served_bytes=rate(after.served_bytes, before.served_bytes),
        now=(after.where or "a wait") if waits_now else "",
        now_seconds=max(0.0, (now - after.since) / NS) if waits_now else 0.0,
    )  # fmt: skip


def _waited(counts: Counts, now: int) -> int:
    """Nanoseconds of waits until now, with the present one."""
    return counts.waited + (max(0, now - counts.since) if counts.since else 0)


def _show(job: Job, looks: Iterator[list[Rates]], once: bool) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        print("pyshmem top: rich is missing: pip install rich, or use --json", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False)
    title = f"{job.program()}, job {job.name}: {_place(job)}"
    states: list[str] = []
    if once or not sys.stdout.isatty():
        for rates in looks:
            states = [each.state for each in rates]
            console.print(_table(title, rates))
            if once:
                break
    else:
        with Live(console=console, auto_refresh=False) as live:
            for rates in looks:
                states = [each.state for each in rates]
                live.update(_table(title, rates), refresh=True)
    if states and "running" not in states:
        gone = sum(state == "gone" for state in states)
        console.print(f"the job has ended{f', {gone} of its PEs here without finalize' if gone else ''}")
    return 0


def _table(title: str, rates: Sequence[Rates]) -> Any:
    from rich.table import Table

    far = any(each.far_calls or each.served for each in rates)
    gpu = any(each.gpu_heap_bytes for each in rates)
    table = Table(title=title, title_justify="left")
    columns = [("PE", lambda each: str(each.pe)),
               ("calls/s", lambda each: short(each.near_calls)), ("bytes/s", lambda each: short(each.near_bytes)),
               *((("far calls/s", lambda each: short(each.far_calls)), ("far bytes/s", lambda each: short(each.far_bytes)),
                  ("requests/s", lambda each: short(each.served)),
                  ("their bytes/s", lambda each: short(each.served_bytes)))
                 if far else ()),
               ("meetings/s", lambda each: short(each.meetings)), ("waits/s", lambda each: short(each.waits)),
               ("waiting", lambda each: f"{100 * each.waiting:.0f}%"),
               ("heap", lambda each: _share(each.heap_used, each.heap_bytes)),
               *((("GPU heap", lambda each: _share(each.gpu_heap_used, each.gpu_heap_bytes)),) if gpu else ()),
               ("now", _now)]  # fmt: skip
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "now" else "right")
    for each in rates:
        table.add_row(*(cell(each) for _, cell in columns))
    return table


def _now(rates: Rates) -> str:
    if rates.state != "running":
        return "has ended" if rates.state == "ended" else "ended without finalize"
    return f"{rates.now}, {rates.now_seconds:.1f} s" if rates.now_seconds >= 0.05 else rates.now


def _share(used: int, size: int) -> str:
    return f"{_binary(used)} of {_binary(size)}" if size else "-"


def _binary(nbytes: float) -> str:
    """Such as "8.1 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    raise AssertionError
