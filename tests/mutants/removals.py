"""Takes each fence, quiet, wait, signal, lock and barrier out of the programs of examples, ports and pages, one at a time, and has
pyshmemrun --check report what then is not ordered.

Run: .venv/bin/python tests/mutants/removals.py [--pes N] [WORD ...]      all programs, or those whose names contain one of the words
Prints one line for each removal. If the checker is silent, the program runs under several seeds of --check=schedules: where
one of them gives another result, the checker has missed something. Fails if it has, or if it is not silent about a whole program.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
sys.path.append(str(ROOT / "tests" / "jobs"))
from jobs import warm  # noqa: E402
from test_doc_programs import LESSON, PROGRAMS  # noqa: E402

PAGES = ("README.md", *filter(LESSON.match, PROGRAMS), "howto.md")
ORDERS = re.compile(
    r"(shmem_)?(fence|quiet|pe_quiet|sync\w*|barrier\w*|wait_until\w*|signal_(wait_until|set|add)\w*|(put_signal\w*)|(un)?lock|"
    r"(set|clear)_lock)"
)
SMALLER = {  # as far as orders are concerned the same program
    "examples/heat.py": ("steps, stride = 600", "steps, stride = 20"),
    "examples/ports/bale_histogram.py": ("1000, 4096, 512", "1000, 512, 512"),
    "examples/ports/bale_index_gather.py": ("1000, 4096, 512", "1000, 512, 512"),
    "examples/ports/heat_c_names.py": ("n, steps = 64, 200", "n, steps = 64, 20"),
}
PES = {"examples/cholesky.py": 4}  # a mesh of 2 x 2; others run on those given
WRONG = ("howto.md/hang.py", "howto.md/forgotten.py")  # programs that hang, to show how to find out why
OWN = re.compile(
    r"\d+ (us|changes)|process \d+|error (at most )?[\d.e-]+|[\d.]+ (GB|tokens)/s"
)  # what differs from run to run
SEEDS, SECONDS = 4, 400
RUNS = 3  # of the checker: who takes a lock last, and so knows of all before, differs
ENVIRONMENT = {"PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "60"}


class Removal(NamedTuple):
    """``text`` is the program without the call ``what``; in its lines as before."""

    what: str
    text: str


def removals(text: str) -> Iterator[Removal]:
    """The program without each of its calls that order something. Of put_signal the put is left."""
    for call in (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        name = ast.unparse(call.value.func).split(".")[-1]  # type: ignore[attr-defined]
        if ORDERS.fullmatch(name):
            lines = text.splitlines(keepends=True)
            first, last = call.lineno - 1, call.end_lineno
            indent = lines[first][: call.col_offset]
            old = ast.unparse(call)
            new = _put(call.value) if "put_signal" in name else "pass"  # type: ignore[arg-type]
            lines[first:last] = [f"{indent}{new}\n", *["\n"] * (last - first - 1)]  # type: ignore[operator]
            yield Removal(f"{call.lineno}: {old}", "".join(lines))


def _put(call: ast.Call) -> str:
    """The put of a put_signal: its arguments without the signal's."""
    words = [ast.unparse(word) for word in call.args]
    name = ast.unparse(call.func)
    kept = [*words[:4], words[7]] if name.startswith("dev.") else [*words[:3], *words[6:]]
    kept += [f"{each.arg}={ast.unparse(each.value)}" for each in call.keywords]
    return f"{name.replace('put_signal', 'put')}({', '.join(kept)})"


def run(option: str, text: str, name: str, folder: Path, n_pes: int) -> tuple[int, str, str]:
    """The status, what was printed, and the errors of a program under an option of pyshmemrun."""
    (folder / name).write_text(text)
    command = [BIN / "pyshmemrun", *option.split(), "-n", str(n_pes), *warm(), name]
    variables = {**os.environ, **ENVIRONMENT}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, env=variables)
    except subprocess.TimeoutExpired:
        return 1, "", f"it has not ended after {SECONDS} s"
    return done.returncode, "\n".join(sorted(OWN.sub("", done.stdout).splitlines())), done.stderr


def outcome(removal: Removal, name: str, folder: Path, n_pes: int, printed: str) -> str:
    """What came of a removal. "MISSED" if a result has changed and nothing was reported."""
    for _ in range(RUNS):
        status, out, errors = run("--check", removal.text, name, folder, n_pes)
        found = re.findall(r"pyshmemrun --check: \d+\. (.*)", out)
        if found:
            return f"reported: {found[0]}" + f", {len(found)} in all" * (len(found) > 1)
    if status:
        return f"MISSED: the program fails: {errors[-200:]}"
    for seed in range(SEEDS):
        status, out, _ = run(f"--check=schedules --seed {seed}", removal.text, name, folder, n_pes)
        if status or out != printed:
            return f"MISSED: seed {seed} gives another result"
    return "silent: no seed gives another result"


def programs(words: list[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of what is tried."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))}
    pages = {f"{page}/{name}": text for page in PAGES for name, text in PROGRAMS[page].items()}
    for name, text in (files | pages).items():
        if name not in WRONG and (not words or any(word in name for word in words)):
            before, after = SMALLER.get(name, ("", ""))
            assert before in text, f"{name} has no {before}"
            yield name, text.replace(before, after) if before else text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pes", type=int, default=3)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    wrong = tried = 0
    for name, text in programs(given.words):
        n_pes = max(given.pes, PES.get(name, 0))
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for source in (ROOT / "examples").glob("*.c"):
                shutil.copy(source, folder)
            status, out, errors = run("--check", text, Path(name).name, folder, n_pes)
            if status or "check: no findings" not in out:
                wrong += 1
                print(f"{name}: NOT SILENT as it is: {out} {errors[-300:]}", flush=True)
            _, printed, _ = run("", text, Path(name).name, folder, n_pes)
            for removal in removals(text):
                came = outcome(removal, Path(name).name, folder, n_pes, printed)
                tried += 1
                wrong += came.startswith("MISSED")
                print(f"{name}:{removal.what}\n    {came}", flush=True)
    print(f"{tried} removals, {wrong} wrong")
    return bool(wrong) or not tried


if __name__ == "__main__":
    sys.exit(main())
