"""Reads the traces of a job and prints what was found. Imports no torch, because pyshmemrun calls it."""

from __future__ import annotations

import json
from pathlib import Path

from pyshmem.check.analysis import Analysis
from pyshmem.check.findings import Finding
from pyshmem.check.trace import read

FOUND = 3  # pyshmemrun's exit status if the program ended well and the checker has found something


def report(directory: Path, into: str | None = None) -> int:
    """Print the findings of the traces in ``directory``, write them to ``into`` as JSON, and return their number."""
    findings = list(Analysis(read(path) for path in sorted(directory.glob("trace-*"))).run())
    open_ones = [found for found in findings if not found.reason]
    for number, found in enumerate(open_ones, 1):
        print(f"pyshmemrun --check: {number}. {text(found)}", flush=True)
    quieted = len(findings) - len(open_ones)
    hidden = f", and {quieted} suppressed" if quieted else ""
    print(f"pyshmemrun --check: {len(open_ones) or 'no'} finding{'s' * (len(open_ones) != 1)}{hidden}", flush=True)
    if into:
        Path(into).write_text(json.dumps([found.as_json() for found in findings], indent=1) + "\n")
    return len(open_ones)


def text(found: Finding) -> str:
    where = f"\n    {found.where}" if found.where else ""
    return "".join([found.title, where, *(f"\n    {line}" for line in found.lines), f"\n    missing: {found.cure}"])
