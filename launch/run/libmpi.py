"""Finds the MPI library that mpi4py loads in this interpreter, and makes mpi4py load that of the launcher.

If mpiexec and the library belong to different MPIs, the processes do not connect: n jobs of one PE each, or an abort.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .launchers import Found, LaunchError

# A name stands for an ABI: MPICH's and Intel's launchers start programs of either library.
SONAMES = {"mpich": "libmpi.so.12", "intelmpi": "libmpi.so.12", "openmpi": "libmpi.so.40"}
_DEBIANS = "libmpich.so.12"  # which mpi4py's wheel, linked with libmpi.so.12, cannot load under this name
CHOOSES = "MPI4PY_LIBMPI"  # the variable that names mpi4py's library
_CURE = "pip install mpich, an mpi4py built for it, or a link to it, DIR/libmpi.so.12, with LD_LIBRARY_PATH=DIR"
_SAID = {"openmpi": "Open MPI", "intelmpi": "Intel(R) MPI"}
# Run in a separate process, because the library stays loaded and UCX installs signal handlers.
PROBE = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(" ".join(MPI.Get_library_version().split("\\n")[0].split(",")[0].split()).strip("\\0"))
print(next((line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/libmpi" in line), MPI.__file__))
"""


class Library(NamedTuple):
    """An MPI library, as it describes itself."""

    version: str
    path: str

    @property
    def family(self) -> str:
        """A key of SONAMES. Cray's library and others count as MPICH's, whose ABI they have."""
        return next((family for family, said in _SAID.items() if said in self.version), "mpich")

    @property
    def kind(self) -> str:
        """The key of SRUN_MPI."""
        return "cray" if "CRAY" in self.version.upper() else self.family


def loaded(environment: Mapping[str, str]) -> Library | None:
    """The library that mpi4py loads under ``environment``; None without mpi4py, or if it finds no library."""
    return _loaded(tuple(sorted(environment.items())))


@cache
def _loaded(environment: tuple[tuple[str, str], ...]) -> Library | None:
    command = [sys.executable, "-c", PROBE]
    said = subprocess.run(command, capture_output=True, text=True, env=dict(environment), stdin=subprocess.DEVNULL)
    lines = said.stdout.splitlines()
    return Library(lines[-2], lines[-1]) if said.returncode == 0 and len(lines) >= 2 else None


def refuse_chosen(environment: Mapping[str, str]) -> None:
    """Errors: LaunchError if the user has chosen a library that mpi4py cannot load."""
    path = environment.get(CHOOSES)
    if path and not loaded(environment):
        wants = f"a library of MPI that the dynamic loader finds, such as libmpi.so.12, or no {CHOOSES}"
        wants = _CURE if os.path.basename(path).startswith(_DEBIANS) and os.path.exists(path) else wants
        raise LaunchError(
            f"{CHOOSES}: got {path}, which mpi4py cannot load: {_fault(path, environment)}; expected {wants}"
        )


def _fault(path: str, environment: Mapping[str, str]) -> str:
    """Why the dynamic loader, or else mpi4py, does not take a library; asked in a separate process."""
    command = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({path!r}).MPI_Init\n{PROBE}"]
    said = subprocess.run(command, capture_output=True, text=True, env=dict(environment), stdin=subprocess.DEVNULL)
    return said.stderr.strip().splitlines()[-1].partition(": ")[2] if said.stderr.strip() else "without a word"


def matching(found: Found, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that makes mpi4py load the MPI of ``found``; none if it already does, or without mpi4py.

    Errors: LaunchError if mpi4py loads another MPI, of another ABI, and no library of the right MPI is found.
    """
    refuse_chosen(environment)
    library = loaded(environment)
    if not found.row.family or (library and library.family == found.row.family):
        return {}
    if not {"MPI4PY_LIBMPI", "MPI4PY_MPIABI"} & environment.keys():  # keep the user's choice
        for path in _libraries(found):
            extra = {"MPI4PY_LIBMPI": path}  # with MPI4PY_MPIABI beside it, mpi4py would not load the path
            other = loaded({**environment, **extra})
            if other and other.family == found.row.family:
                return extra
    if not library:
        _refuse_debians(found)
        return {}  # a program that uses MPI reports the error
    if SONAMES[library.family] == SONAMES[found.row.family]:
        return {}
    raise LaunchError(f"--mpiexec: got {found.command[0]}, which is {found.version}, while mpi4py loads {library.version} "
                      f"from {library.path}; expected both from one MPI: name that MPI's mpiexec, or set MPI4PY_LIBMPI to "
                      f"a {SONAMES[found.row.family]} of {found.row.name}")  # fmt: skip


def _refuse_debians(found: Found) -> None:
    """Errors: LaunchError if the launcher is that of Debian's MPICH."""
    for folder in _folders(found) if found.row.family == "mpich" else ():
        if (folder / _DEBIANS).is_file():
            got = f"{found.command[0]}, whose library {folder / _DEBIANS} mpi4py does not find by this name"
            raise LaunchError(f"--mpiexec: got {got}; expected {_CURE}")


def _folders(found: Found) -> list[Path]:
    """Folders of libraries beside the launcher."""
    root = Path(os.path.realpath(shutil.which(found.command[0]) or found.command[0])).parent.parent
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    return [root / "lib", root / "lib64", root / "lib" / multiarch, root / "lib" / "release"]


def _libraries(found: Found) -> Iterator[str]:
    """Possible places of the launcher's library: beside the launcher, then the search path of the dynamic loader."""
    soname = SONAMES[found.row.family]
    for folder in _folders(found):
        if (folder / soname).is_file():
            yield str(folder / soname)
    yield soname
