"""Which MPI library mpi4py loads in this interpreter, and how to make it load the launcher's.

Where mpiexec and the library are of different MPIs, the processes do not find each other: n jobs of one PE, or an abort.
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

SONAMES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}
# In a process of its own: the library stays loaded where it was asked, and UCX installs signal handlers as it is loaded.
PROBE = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(" ".join(MPI.Get_library_version().split("\\n")[0].split(",")[0].split()).strip("\\0"))
print(next((line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/libmpi" in line), MPI.__file__))
"""


class Library(NamedTuple):
    """An MPI library, by its own account."""

    version: str
    path: str

    @property
    def family(self) -> str:
        """MPICH's ABI is that of Intel's, Cray's and others' libraries too."""
        return "openmpi" if "Open MPI" in self.version else "mpich"

    @property
    def kind(self) -> str:
        """As SRUN_MPI calls it."""
        return "cray" if "CRAY" in self.version.upper() else self.family


def loaded(environment: Mapping[str, str]) -> Library | None:
    """What mpi4py loads under ``environment``; None where there is no mpi4py, or no library that it can load."""
    return _loaded(tuple(sorted(environment.items())))


@cache
def _loaded(environment: tuple[tuple[str, str], ...]) -> Library | None:
    command = [sys.executable, "-c", PROBE]
    said = subprocess.run(command, capture_output=True, text=True, env=dict(environment), stdin=subprocess.DEVNULL)
    lines = said.stdout.splitlines()
    return Library(lines[-2], lines[-1]) if said.returncode == 0 and len(lines) >= 2 else None


def matching(found: Found, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make mpi4py load the MPI of ``found``; none where it does, or where there is no mpi4py.

    Errors: LaunchError where mpi4py loads another MPI and no library of the right one is found.
    """
    library = loaded(environment)
    if not found.row.family or (library and library.family == found.row.family):
        return {}
    if "MPI4PY_LIBMPI" not in environment:  # the user's own choice stands
        for path in _libraries(found):
            extra = {"MPI4PY_MPIABI": found.row.family, "MPI4PY_LIBMPI": path}
            other = loaded({**environment, **extra})
            if other and other.family == found.row.family:
                return extra
    if not library:
        return {}  # the program will say so, if it uses MPI
    raise LaunchError(f"--mpiexec: got {found.command[0]}, which is {found.version}, while mpi4py loads {library.version} "
                      f"from {library.path}; wants both of one MPI: name that MPI's mpiexec, or set MPI4PY_LIBMPI to "
                      f"a {SONAMES[found.row.family]} of {found.row.name}")  # fmt: skip


def _libraries(found: Found) -> Iterator[str]:
    """Where the launcher's own library may be: beside it, then wherever the dynamic loader looks."""
    soname = SONAMES[found.row.family]
    root = Path(os.path.realpath(shutil.which(found.command[0]) or found.command[0])).parent.parent
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for folder in (root / "lib", root / "lib64", root / "lib" / multiarch, root / "lib" / "release"):
        if (folder / soname).is_file():
            yield str(folder / soname)
    yield soname
