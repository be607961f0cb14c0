"""What pyshmemrun --check costs: whole programs with and without it, their start and the reading of the records included.

Run: .venv/bin/python tests/mutants/prices.py [--pes N] [WORD ...]      the programs of examples and pages whose names contain one of
                                                                        the words
     .venv/bin/python tests/mutants/prices.py --loops [WORD ...]        the loops of loops.py whose names contain one of the words
     .venv/bin/python tests/mutants/prices.py --words                   the memory for words that are written one by one

Of a program it prints seconds without and with --check, the least of three jobs, their ratio, the memory that pyshmemrun takes
with --check, the records included, against the heaps of all PEs, and without the start: the processor's time of all PEs from init
on without --check, with it, and for the analysis of its records, and the ratio of both to the first. Of a loop: the processor's time of a turn without
--check, with it, and for the analysis of its records, and the ratio of both to the first. Of words: bytes for each byte written.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

from pyshmem.check.analyse.analysis import Analysis
from pyshmem.check.trace import Reading
from removals import BIN, ENVIRONMENT, ROOT, programs, warm

ROUNDS, HEAP = 3, 64 << 20
LOOPS = Path(__file__).with_name("loops.py")


def price(option: list[str], name: str, text: str, n_pes: int) -> tuple[float, int]:
    """The seconds of a job, and the bytes that pyshmemrun has held at most: its own memory and the files of records."""
    with TemporaryDirectory() as scratch:
        program = written(name, text, scratch)
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
    assert job.returncode == 0, f"{name} under {option}: {job.returncode}"
    return seconds, most


def spent(name: str, text: str, n_pes: int) -> tuple[float, float, float]:
    """The processor's seconds of all PEs from init on, with their records, and of the analysis."""
    plain, recorded, read = [], [], []
    for _ in range(ROUNDS):
        plain.append(_from_init(name, text, n_pes))
        with TemporaryDirectory() as directory:
            recorded.append(_from_init(name, text, n_pes, directory))
            begin = time.process_time()
            Analysis(map(Reading, sorted(Path(directory).glob("trace-*")))).run()
            read.append(time.process_time() - begin)
    return min(plain), min(recorded), min(read)


def _from_init(name: str, text: str, n_pes: int, directory: str = "") -> float:
    with TemporaryDirectory() as scratch:
        program = written(name, text, scratch)
        seconds = Path(scratch) / "seconds"
        variables = {**os.environ, **ENVIRONMENT, "SECONDS_FROM_INIT": str(seconds)}
        variables |= {"PYSHMEM_RACE_TRACES": directory} if directory else {}
        command = [BIN / "pyshmemrun", "-n", str(n_pes), *warm(), LOOPS.with_name("from_init.py"), program]
        subprocess.run(command, env=variables, cwd=scratch, capture_output=True, check=True)
        return sum(map(float, seconds.read_text().split()))


def written(name: str, text: str, scratch: str) -> Path:
    program = Path(scratch) / Path(name).name
    program.write_text(text)
    for source in (ROOT / "examples").glob("*.c"):
        shutil.copy(source, scratch)
    return program


def held(pid: int) -> int:
    """The memory that a process has now, 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, IndexError, ProcessLookupError):
        return 0


def seconds(name: str, turns: int, directory: str = "") -> float:
    """The processor's time of the turns of a loop, whose records go to the directory if there is one."""
    variables = {**os.environ, **ENVIRONMENT, **({"PYSHMEM_RACE_TRACES": directory} if directory else {})}
    command = [BIN / "pyshmemrun", "-n", "2", *warm(), LOOPS, name, str(turns)]
    return float(subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout)


def loop(name: str) -> None:
    turns = 20 if name.startswith("kernel") else 10_000
    plain = min(seconds(name, turns) for _ in range(ROUNDS)) / turns
    rows = []
    for _ in range(ROUNDS):
        with TemporaryDirectory() as directory:
            recorded = seconds(name, turns, directory) / turns
            begin = time.process_time()
            Analysis(map(Reading, sorted(Path(directory).glob("trace-*")))).run()
            rows.append((recorded, (time.process_time() - begin) / turns))
    recorded, read = (min(row[i] for row in rows) for i in range(2))
    us = " | ".join(f"{1e6 * each:.1f} us" for each in (plain, recorded, read))
    print(f"| {name} | {us} | {(recorded + read) / plain:.1f} |", flush=True)


def words(after: str, count: int = 1 << 15) -> None:
    """Words of 8 bytes that PE 0 writes to PE 1 by ``p``, one after the other: after each nothing, a fence, or a signal too."""
    flag = 8 * count
    here: list[tuple[object, ...]] = [(0, "init", 0, 0, 2), (0, "site", 1, "program.py", 1, "main")]
    for i in range(count):
        here.append((3 * i, "put", 1, "p", 0, 1, [(8 * i, 8 * i + 8)], [], False, i))
        here += [(3 * i + 1, "fence", 1, 0)] if after else []
        here += [(3 * i + 2, "amo", 1, "atomic_inc", 0, 1, flag, 8, "add", 1, None, 8)] if after == "signals" else []
    there = [(0, "init", 0, 1, 2), (3 * count, "wait", 0, [(flag, 8, True, 3, 1)], "wait_until")]
    analysis = Analysis([here, there])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    analysis.run()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    print(f"| words {after and 'with'} {after} | {held / (8 * count):.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pes", type=int, default=2)
    parser.add_argument("--loops", action="store_true")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.words:
        for after in ("", "fences", "signals"):
            words(after)
        return
    if given.loops:
        names = re.findall(r'^        "(.+?)": ', LOOPS.read_text(), re.M)
        for name in names:
            if not given.names or any(word in name for word in given.names):
                loop(name)
        return
    for name, text in programs(given.names):
        rows = [[price(option, name, text, given.pes) for _ in range(ROUNDS)] for option in ([], ["--check"])]
        without, checked = (min(seconds for seconds, _ in row) for row in rows)
        memory = min(most for _, most in rows[1]) - min(most for _, most in rows[0])
        own, recorded, read = spent(name, text, given.pes)
        times = f"{without:.1f} s | {checked:.1f} s | {checked / without:.1f} | {memory / (given.pes * HEAP):.2f}"
        print(
            f"| `{name}` | {times} | {own:.2f} s | {recorded:.2f} s | {read:.2f} s | {(recorded + read) / own:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
