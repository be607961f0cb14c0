"""Compiles the C and C++ programs of other projects' OpenSHMEM suites with oshcc and oshc++ as they are, runs each, and prints a table.

Run: python tests/suites/run.py FOLDER ... [--pes 1 2 3 4] [--library]     `make test-c-suites SUITES=FOLDER` does it.
A program is a .c or .cpp file with shmem.h and main. One that needs other files is linked with those that its line in EXTRA names.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

JOBS = Path(__file__).resolve().parents[1] / "jobs"
BIN = Path(sys.executable).parent
SECONDS = 300  # of one run; machines are slow and shared
# Calls main of a program that is compiled as a library, in a process that has imported torch already: starts are most of the time.
CALLER = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
words = [word.encode() for word in sys.argv[1:]]
status = library.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
ctypes.CDLL(None).fflush(None)
sys.exit(status & 255)
"""
COMPILERS = {".c": "oshcc", ".cpp": "oshc++"}
# of Sandia's suite; its C++ programs then call deprecated names for types for which the standard has none
DEFINED = {".c": ("-DENABLE_DEPRECATED_TESTS",)}
KERNELS = ("stencil", "p2p", "transpose", "transpose_a2a")  # the parallel research kernels
COMMON = ("../../common/SHMEM_bail_out.c", "../../common/wtime.c")
EXTRA = {  # the files that a program needs beside its own
    "mt_lock": ("mt_lock_test.c",),
    "isx": ("pcg_basic.c", "timer.c"),
    **dict.fromkeys(KERNELS, COMMON),
}
CHOICES = ("-I../../include", "-DRADIUS=2", "-DDOUBLE=1", "-DSTAR=1", "-DSPLITFENCE=0", "-DSYNCHRONOUS=1")
OPTIONS = {"isx": ("-DSCALING_OPTION=1",), **dict.fromkeys(KERNELS, CHOICES)}  # what their makefiles choose
HEAPS = {"isx": "1100m"}
ARGUMENTS = {
    "isx": ["1048576", "/dev/null"],
    "bigget": ["-s", "1"],
    "spam": ["-l", "500"],
    "stencil": ["10", "200"],
    "p2p": ["10", "400", "400"],
    "transpose": ["10", "240"],
    "transpose_a2a": ["10", "240"],
}


def programs(folders: list[str]) -> list[Path]:
    """The files that include shmem.h and have a main function, or are completed by others."""
    found = [path for folder in folders for path in sorted(Path(folder).rglob("*.c*")) if path.suffix in COMPILERS]
    texts = {path: path.read_text(errors="replace") for path in found}
    return [path for path in found if "shmem" in texts[path] and (re.search(r"\bmain\s*\(", texts[path]) or path.stem in EXTRA)
            and not any(path.name in names for names in EXTRA.values())]  # fmt: skip


def compiled(path: Path, target: Path, library: bool) -> str:
    """Compile a program; the compiler's errors, or ""."""
    include = sorted({str(each.parent.resolve()) for each in path.parents[1].rglob("*.h")})
    options = [*OPTIONS.get(path.stem, ()), *(["-fPIC", "-shared", "-Wl,-Bsymbolic"] if library else [])]
    more = EXTRA.get(path.stem, ())
    command = [
        str(BIN / COMPILERS[path.suffix]),
        "-w",
        "-O1",
        *DEFINED.get(path.suffix, ()),
        *options,
        *(f"-I{each}" for each in include),
    ]
    command += [path.name, *more, "-o", str(target), "-lm", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=path.parent)
    return done.stderr or "the compiler has failed" if done.returncode else ""


def run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """(what the table says, the end of the output) of a run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", cwd=folder, env=environment, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return "time-out", ""
    return (
        ("ok", "") if done.returncode == 0 else (f"status {done.returncode}", done.stdout[-400:] + done.stderr[-800:])
    )


def results(path: Path, pes: list[int], folder: Path, library: bool) -> tuple[list[str], str]:
    """The columns of a program's row, and what is to be said about its failures."""
    target = folder / f"{path.stem}-{abs(hash(path))}.so"
    errors = compiled(path, target, library)
    if errors:
        return ["no compile"] * len(pes), errors[:600]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PMI_", "OMPI_"))}
    # small: 8 PEs, and two programs at once
    environment.setdefault("SHMEM_SYMMETRIC_SIZE", HEAPS.get(path.stem, "256m"))
    environment |= {"PYSHMEM_QUIET": "1", "PYSHMEM_SYMMETRIC_LIBS": target.name, "PYSHMEM_PYTHON": sys.executable}
    start = [*warm(), str(folder / "caller.py")] if library else []
    columns, said = [], ""
    for n in pes:
        command = [str(BIN / "mpiexec"), "-n", str(n), *start, str(target), *ARGUMENTS.get(path.stem, [])]
        column, text = run(command, folder, environment)
        columns.append(column)
        said = said or (text and f"on {n} PEs: {text}")
    return columns, said


def warm() -> list[str]:
    sys.path.insert(0, str(JOBS))
    from jobs import warm

    return warm()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--pes", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--library", action="store_true", help="run programs as libraries, which start 2 s earlier")
    options = parser.parse_args()
    found, failures = programs(options.folders), 0
    if options.library:
        warm()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        (folder / "caller.py").write_text(CALLER)
        print(f"{'':40}" + "".join(f"{f'{n} PEs':>12}" for n in options.pes), flush=True)
        rows = pool.map(lambda path: results(path, options.pes, folder, options.library), found)
        for path, (columns, said) in zip(found, rows, strict=True):
            failures += any(column != "ok" for column in columns)
            print(f"{path.stem[:39]:40}" + "".join(f"{column:>12}" for column in columns), flush=True)
            if said:
                print("    " + said.strip().replace("\n", "\n    "), flush=True)
    print(f"{len(found)} programs, {failures} with failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
