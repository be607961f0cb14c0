"""Reads the traces of a job and prints what was found. Imports no torch, because pyshmemrun calls it."""

from __future__ import annotations

import json
from pathlib import Path

from pyshmem.check.analyse.analysis import Analysis
from pyshmem.check.analyse.findings import Finding
from pyshmem.check.trace import Reading


def report(directory: Path, into: str | None = None, everything: bool = False) -> int:
    """Print the findings of the traces in ``directory``, write them to ``into`` as JSON, and return their number.

    everything: those inside pyshmem's own operators too, of which a user's program can change nothing.
    """
    findings = list(Analysis(Reading(path) for path in sorted(directory.glob("trace-*"))).run())
    unsuppressed = [found for found in findings if not found.reason]
    counted = [found for found in unsuppressed if everything or not found.inside]
    for number, found in enumerate(counted, 1):
        print(f"pyshmemrun --check: {number}. {text(found)}", flush=True)
    line = f"{len(counted) or 'no'} finding{'s' * (len(counted) != 1)}"
    if suppressed := len(findings) - len(unsuppressed):
        line += f", and {suppressed} suppressed"
    if inside := len(unsuppressed) - len(counted):
        line += f"; {inside} between lines of pyshmem's operators, which --check=all prints"
    print(f"pyshmemrun --check: {line}", flush=True)
    if into:
        Path(into).write_text(json.dumps([found.as_json() for found in findings], indent=1) + "\n")
    return len(counted)


def text(found: Finding) -> str:
    where = f"\n    {found.where}" if found.where else ""
    return "".join([found.title, where, *(f"\n    {line}" for line in found.lines), f"\n    missing: {found.cure}"])
