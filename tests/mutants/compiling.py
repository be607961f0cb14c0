"""Whether a changed file compiles: a mutant that does not is noticed by any test, and so says nothing of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

UNITS = {"runtime": "_native.c", "capi": "libpyshmem.c"}  # what is compiled with the headers of a room
# gcc before 14 only warns of a function that there is not, and the module then does not load
CHECKED = ("-std=gnu11", "-fsyntax-only", "-Werror=implicit-function-declaration", '-DPYSHMEM_VERSION=""')


def fault_of(path: Path, text: str) -> str:
    """What a compiler says of the file if its content is ``text``. Empty if it compiles, or is of no language known here."""
    if path.suffix == ".py":
        try:
            compile(text, path, "exec")
        except SyntaxError as fault:
            return str(fault)
    if path.suffix in (".c", ".h"):
        return _fault_of_c(path, text)
    return ""


def _fault_of_c(path: Path, text: str) -> str:
    """Compile the unit of the file's room, without code, in a folder of links where this one file is another."""
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    with tempfile.TemporaryDirectory() as name:
        rooms = {path.parent, *(path.parent.parent / each for each in UNITS)}
        sources = (each for room in rooms for pattern in ("*.c", "*.h", "include") for each in room.glob(pattern))
        for source in sources:
            link = Path(name, source.parent.name, source.name)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(source)
        changed = Path(name, path.parent.name, path.name)
        changed.unlink()
        changed.write_text(text)
        unit = changed.with_name(UNITS.get(changed.parent.name, path.name))
        command = [*compiler.split(), *CHECKED, "-I", sysconfig.get_path("include"), str(unit)]
        checked = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        return "" if checked.returncode == 0 else first_error(checked.stderr).replace(f"{name}/", "")


def first_error(said: str) -> str:
    """The line of a compiler's output that names the fault, or the end of the output."""
    return next((line for line in said.splitlines() if "error:" in line), said[-500:])
