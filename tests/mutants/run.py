"""Changes the code as the list of mutants says, one change at a time, and runs the tests that must fail then.

Run: .venv/bin/python tests/mutants/run.py [NAME ...]       all, or those whose names contain one of the words
     .venv/bin/python tests/mutants/run.py --unchanged ...  the tests of the mutants on the code as it is: they must pass
Prints one line for each mutant, and fails if one survives, does not apply or has tests that do not run. The output of the
tests is in build/mutants. Each changed file is restored at the end of its mutant, also after Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
LIBRARIES = (ROOT / "pyshmem" / "runtime" / "_native.abi3.so", ROOT / "pyshmem" / "capi" / "libpyshmem.so")
LOGS = ROOT / "build" / "mutants"
SECONDS = 240  # of the tests of a mutant, after which they hang; generous, machines are slow and shared
CAUGHT, SURVIVED = "caught", "SURVIVED"
FAULTS = {2: "interrupted", 3: "an internal error", 4: "a wrong command", 5: "no test of this name"}  # of pytest


class Unfit(Exception):
    """A mutant that cannot be tried."""


def pattern_of(text: str) -> re.Pattern[str]:
    """A pattern of the text, however it is broken into lines."""
    return re.compile(r"[\s\\]*".join(re.escape(token) for token in re.findall(r"\w+|\S", text)))


def place_of(mutant: Mutant) -> tuple[Path, str]:
    """The one file that has the mutant's text, once, and the changed content. Errors: Unfit."""
    pattern, found = pattern_of(mutant.old), []
    for path in sorted(ROOT.glob(mutant.files)):
        text = path.read_text()
        count = len(pattern.findall(text))
        found += [(path, pattern.sub(lambda _: mutant.new, text))] * count
    if len(found) != 1:
        raise Unfit(f"does not apply: its text is {len(found)} times in {mutant.files}")
    path, text = found[0]
    if path.suffix == ".py":
        try:
            compile(text, path, "exec")
        except SyntaxError as fault:
            raise Unfit(f"does not compile: {fault}") from None
    return path, text


@contextmanager
def changed(mutant: Mutant) -> Iterator[None]:
    """Change the file, and build the native module and the C library anew if it is of C; restore all."""
    path, text = place_of(mutant)
    files = {each: (each.read_bytes(), each.stat()) for each in (path, *LIBRARIES)}
    try:
        path.write_text(text)
        if path.suffix in (".c", ".h"):
            built = subprocess.run(
                [BIN / "python", "setup.py", "build_ext", "--inplace"], cwd=ROOT, capture_output=True, text=True
            )
            if built.returncode:
                raise Unfit(f"does not compile: {built.stderr[-500:]}")
        yield
    finally:
        for each, (content, stat) in files.items():
            if each.read_bytes() != content:
                each.unlink()  # a program that still runs keeps the library that it has mapped
                each.write_bytes(content)
                each.chmod(stat.st_mode)
            os.utime(each, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def command_of(tests: str) -> tuple[list[str], dict[str, str]]:
    """The command of a mutant's tests, and what it adds to the environment."""
    where, file, key = tests.split(maxsplit=2)
    pytest = ["-m", "pytest", "-q", "-x", "-k", key]
    if not where[0].isdecimal():
        return [str(BIN / "python"), *pytest, f"tests/{where}/test_{file}.py"], {}
    pes, _, node = where.partition("/")
    environment = {"PYSHMEM_NODE_SIZE": node, "PYSHMEM_FAR": "tcp"} if node else {}
    return [str(BIN / "pyshmemrun"), "-n", pes, *pytest, f"tests/pes/test_{file}.py"], environment


def outcome_of(name: str, tests: str) -> str:
    """Run the tests, and say what came of it. Errors: Unfit if they do not run."""
    command, environment = command_of(tests)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYSHMEM_TEST_ALL_CASES": "1", **environment}
    with open(LOGS / f"{name}.log", "w") as log:
        run = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            status = run.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"{CAUGHT} by the time-out"
        finally:
            end(run)
    if status in FAULTS:
        raise Unfit(f"its tests end with {FAULTS[status]}")
    return CAUGHT if status else SURVIVED


def end(run: subprocess.Popen[bytes]) -> None:
    """End a run of tests with all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if run.poll() is None:
            os.killpg(run.pid, number)
            try:
                run.wait(15)
            except subprocess.TimeoutExpired:
                continue


def tried(mutant: Mutant, unchanged: bool) -> tuple[str, bool]:
    """The outcome of a mutant, and whether it is as it must be."""
    try:
        if unchanged:
            place_of(mutant)
            passed = outcome_of(mutant.name, mutant.tests) == SURVIVED
            return ("passes" if passed else "FAILS without the change"), passed
        with changed(mutant):
            outcome = outcome_of(mutant.name, mutant.tests)
        return outcome, outcome != SURVIVED
    except Unfit as fault:
        return f"ERROR: {fault}", False


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, interrupt)
    LOGS.mkdir(parents=True, exist_ok=True)
    unchanged = "--unchanged" in words
    words = [word for word in words if word != "--unchanged"]
    chosen = [each for each in MUTANTS if not words or any(word in each.name for word in words)]
    wrong = 0
    for mutant in chosen:
        begun = time.monotonic()
        outcome, right = tried(mutant, unchanged)
        wrong += not right
        print(f"{mutant.name}: {outcome} ({time.monotonic() - begun:.0f} s: {mutant.tests})", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} mutants are as they must be")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted: all files are restored")
