"""What pyshmemrun --check costs: whole programs with and without it, their start and the reading of the records included.

Run: .venv/bin/python tests/mutants/prices.py [--pes N] [WORD ...]      the programs of examples whose names contain one of the words
Prints a row for each: seconds without and with --check, the least of three jobs, their ratio, and the memory that pyshmemrun
takes with --check, the records included, against the heaps of all PEs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from removals import BIN, ENVIRONMENT, ROOT, warm

ROUNDS, HEAP = 3, 64 << 20


def price(option: list[str], program: Path, n_pes: int) -> tuple[float, int]:
    """The seconds of a job, and the bytes that pyshmemrun has held at most: its own memory and the files of records."""
    with TemporaryDirectory() as scratch:
        variables = {**os.environ, **ENVIRONMENT, "SHMEM_SYMMETRIC_SIZE": str(HEAP), "TMPDIR": scratch}
        command = [BIN / "pyshmemrun", *option, "-n", str(n_pes), *warm(), program]
        begin, most = time.perf_counter(), 0
        with subprocess.Popen(
            command, env=variables, cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as job:
            while job.poll() is None:
                most = max(most, held(job.pid) + sum(each.stat().st_size for each in Path(scratch).rglob("trace-*")))
                time.sleep(0.02)
        seconds = time.perf_counter() - begin
    assert job.returncode == 0, f"{program.name} under {option}: {job.returncode}"
    return seconds, most


def held(pid: int) -> int:
    """The memory that a process has now, 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, IndexError, ProcessLookupError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pes", type=int, default=2)
    parser.add_argument("words", nargs="*", default=["ports/"])
    given = parser.parse_args()
    for program in sorted((ROOT / "examples").rglob("*.py")):
        if any(word in str(program) for word in given.words):
            rows = [[price(option, program, given.pes) for _ in range(ROUNDS)] for option in ([], ["--check"])]
            without, with_check = (min(seconds for seconds, _ in row) for row in rows)
            memory = min(most for _, most in rows[1]) - min(most for _, most in rows[0])
            share = memory / (given.pes * HEAP)
            name = program.relative_to(ROOT)
            print(
                f"| `{name}` | {without:.1f} s | {with_check:.1f} s | {with_check / without:.1f} | {share:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
