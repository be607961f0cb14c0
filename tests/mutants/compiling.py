"""Whether a changed file compiles: a mutant that does not is noticed by any test, and so says nothing of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

NATIVE = "native"  # the folder of all C files
MODULE, LIBRARY = "module.c", "shmem/libpyshmem.c"  # the units there: the C files in the folder of LIBRARY belong to it
# gcc before 14 only warns of a function that there is not, and the module then does not load
CHECKED = ("-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-Werror=implicit-function-declaration")
DEFINED = '-DPYSHMEM_VERSION=""'


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
    """Compile the unit of the file, without code, in a folder of links where this one file is another."""
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    native = next(each for each in path.parents if each.name == NATIVE)
    with tempfile.TemporaryDirectory() as name:
        for source in native.rglob("*.[ch]"):
            link = Path(name, NATIVE, source.relative_to(native))
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)
        if (include := native.parent / "capi").is_dir():
            Path(name, include.name).symlink_to(include)
        changed = Path(name, NATIVE, path.relative_to(native))
        changed.unlink()
        changed.write_text(text)
        unit = LIBRARY if path.parent.name == Path(LIBRARY).parent.name else MODULE
        command = [
            *compiler.split(),
            *CHECKED,
            DEFINED,
            "-I",
            sysconfig.get_path("include"),
            str(Path(name, NATIVE, unit)),
        ]
        checked = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        return "" if checked.returncode == 0 else first_error(checked.stderr).replace(f"{name}/", "")


def first_error(said: str) -> str:
    """The line of a compiler's output that names the fault, or the end of the output."""
    return next((line for line in said.splitlines() if "error:" in line), said[-500:])
