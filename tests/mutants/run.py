"""Changes the code as the list of mutants says, one change at a time, and runs the tests that must fail then.

Run: .venv/bin/python tests/mutants/run.py [-j N] [NAME ...]   all, or those whose names contain one of the words, N at a time
     .venv/bin/python tests/mutants/run.py --unchanged ...     the tests of the mutants on the code as it is: they must pass
Prints one line for each mutant, and fails if one survives, does not apply, does not compile or has tests that do not run. The
code is changed in copies of the tree, each with an environment of its own; the output of the tests is in build/mutants.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import NoReturn

from compiling import fault_of, first_error
from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = Path(sys.prefix)  # a folder of the tree
LIBRARIES = ("native/_native.abi3.so", "capi/libpyshmem.so")  # of the package
LOGS = ROOT / "build" / "mutants"
SECONDS = 240  # of the tests of a mutant, after which they hang; generous, machines are slow and shared
CAUGHT, SURVIVED, NO_PROGRAM = "caught", "SURVIVED", "DOES NOT COMPILE"
FAULTS = {2: "interrupted", 3: "an internal error", 4: "a wrong command", 5: "no test of this name"}  # of pytest

RUNNING: set[subprocess.Popen[bytes]] = set()
INTERRUPTED = Event()


class Unfit(Exception):
    """A mutant that cannot be tried."""


class NoProgram(Unfit):
    """A mutant that does not compile: any test would notice it."""


def copied(place: Path) -> Path:
    """Copy the tree to ``place``, with an environment of hard links whose package is the copy's."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT, place, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "wheelhouse", "_build"))
    environment = place / ENVIRONMENT.name
    shutil.copytree(ENVIRONMENT, environment, symlinks=True, copy_function=os.link)
    packages = next(environment.glob("lib/python*/site-packages"))
    if (packages / "pyshmem").is_dir():  # installed from a wheel, which has the files that its build has written
        (place / "pyshmem" / "launch").symlink_to("../launch")
        for path in (packages / "pyshmem").rglob("*"):
            ours = place / path.relative_to(packages)
            if path.is_file() and ours.parent.is_dir() and not ours.exists():
                shutil.copy2(path, ours)
        shutil.rmtree(packages / "pyshmem")
        (packages / "pyshmem").symlink_to(place / "pyshmem")
    for path in (*environment.glob("bin/*"), *packages.glob("*.pth"), *packages.glob("__editable__*.py")):
        if not path.is_symlink() and str(ROOT).encode() in (content := path.read_bytes()):
            mode = path.stat().st_mode
            path.unlink()  # this link alone
            path.write_bytes(content.replace(str(ROOT).encode(), str(place).encode()))
            path.chmod(mode)
    return place


def pattern_of(text: str) -> re.Pattern[str]:
    """A pattern of the text, however it is broken into lines."""
    return re.compile(r"[\s\\]*".join(re.escape(token) for token in re.findall(r"\w+|\S", text)))


def place_of(mutant: Mutant, root: Path = ROOT) -> tuple[Path, str]:
    """The one file that has the mutant's text, once, and the changed content. Errors: Unfit, NoProgram."""
    pattern, found = pattern_of(mutant.old), []
    for path in sorted({path for pattern in mutant.files.split() for path in root.glob(pattern)}):
        text = path.read_text()
        count = len(pattern.findall(text))
        found += [(path, pattern.sub(lambda _: mutant.new, text))] * count
    if len(found) != 1:
        raise Unfit(f"does not apply: its text is {len(found)} times in {mutant.files}")
    path, text = found[0]
    if fault := fault_of(path, text):
        raise NoProgram(fault)
    return path, text


@contextmanager
def changed(mutant: Mutant, root: Path) -> Iterator[None]:
    """Change the file, and build the native module and the C library anew if it is of C; restore all."""
    path, text = place_of(mutant, root)
    files = {
        each: (each.read_bytes(), each.stat()) for each in (path, *(root / "pyshmem" / name for name in LIBRARIES))
    }
    try:
        path.write_text(text)
        if path.suffix in (".c", ".h"):
            build = [root / ENVIRONMENT.name / "bin" / "python", "setup.py", "build_ext", "--inplace"]
            built = subprocess.run(build, cwd=root, capture_output=True, text=True)
            if built.returncode < 0:
                raise Unfit(f"its build was ended by signal {-built.returncode}")
            if built.returncode:
                raise NoProgram(first_error(built.stderr))
        yield
    finally:
        for each, (content, stat) in files.items():
            if each.read_bytes() != content:
                each.unlink()  # a program that still runs keeps the library that it has mapped
                each.write_bytes(content)
                each.chmod(stat.st_mode)
            os.utime(each, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def command_of(tests: str, root: Path = ROOT) -> tuple[list[str], dict[str, str]]:
    """The command of a mutant's tests, and what it adds to the environment."""
    where, file, key = tests.split(maxsplit=2)
    programs, pytest = root / ENVIRONMENT.name / "bin", ["-m", "pytest", "-q", "-x", "-k", key]
    if not where[0].isdecimal():
        return [str(programs / "python"), *pytest, f"tests/{where}/test_{file}.py"], {}
    pes, _, node = where.partition("/")
    environment = {"PYSHMEM_NODE_SIZE": node, "PYSHMEM_FAR": "tcp"} if node else {}
    return [str(programs / "pyshmemrun"), "-n", pes, *pytest, f"tests/pes/test_{file}.py"], environment


def outcome_of(name: str, tests: str, root: Path) -> str:
    """Run the tests, and say what came of it. Errors: Unfit if they do not run."""
    command, environment = command_of(tests, root)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYSHMEM_TEST_ALL_CASES": "1", **environment}
    with open(LOGS / f"{name}.log", "w") as log:
        run = subprocess.Popen(
            command, cwd=root, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        RUNNING.add(run)
        try:
            status = run.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"{CAUGHT} by the time-out"
        finally:
            end(run)
            RUNNING.discard(run)
    if INTERRUPTED.is_set():
        status = 2
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


def tried(mutant: Mutant, unchanged: bool, root: Path) -> tuple[str, bool]:
    """The outcome of a mutant, and whether it is as it must be."""
    try:
        if unchanged:
            place_of(mutant, root)
            passed = outcome_of(mutant.name, mutant.tests, root) == SURVIVED
            return ("passes" if passed else "FAILS without the change"), passed
        with changed(mutant, root):
            outcome = outcome_of(mutant.name, mutant.tests, root)
        return outcome, outcome != SURVIVED
    except NoProgram as fault:
        return f"{NO_PROGRAM}: {fault}", False
    except Unfit as fault:
        return f"ERROR: {fault}", False


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="try N mutants at a time")
    parser.add_argument("--unchanged", action="store_true", help="run the tests on the code as it is")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a word of names of mutants")
    options = parser.parse_args(words)
    chosen = [each for each in MUTANTS if not options.names or any(word in each.name for word in options.names)]
    signal.signal(signal.SIGTERM, interrupt)
    LOGS.mkdir(parents=True, exist_ok=True)
    copies = [LOGS / f"copy-{number}" for number in range(options.jobs)]
    made: set[Path] = set()  # of earlier runs, none is taken
    free: SimpleQueue[Path] = SimpleQueue()
    for root in copies:
        free.put(root)

    def right(mutant: Mutant) -> bool:
        """Try a mutant in a copy that no other one uses, and print what came of it. Return whether that is as it must be."""
        root = free.get()
        if root not in made:
            made.add(copied(root))
        begun = time.monotonic()
        outcome, right = tried(mutant, options.unchanged, root)
        print(f"{mutant.name}: {outcome} ({time.monotonic() - begun:.0f} s: {mutant.tests})", flush=True)
        free.put(root)
        return right

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            count = sum(pool.map(right, chosen))
        except KeyboardInterrupt:
            INTERRUPTED.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for run in [*RUNNING]:
                end(run)
            raise
    for root in copies:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{count} of {len(chosen)} mutants are as they must be")
    return 0 if chosen and count == len(chosen) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
