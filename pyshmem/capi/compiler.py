"""oshcc and oshc++: the C or C++ compiler, with what a program needs of the C library.

PYSHMEM_CC and PYSHMEM_CXX name other compilers.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
_COMPILERS = {"oshcc": ("PYSHMEM_CC", "cc"), "oshc++": ("PYSHMEM_CXX", "c++")}
_SHOW = {"--show", "-show", "--showme"}  # ours, MPICH's and Sandia's, Open MPI's
_NO_LINK = {"-c", "-E", "-S", "-M", "-MM", "-fsyntax-only"}
HELP = """{name} ARGUMENTS: runs {command} with the paths of shmem.h and libpyshmem.so.

--show    print the command instead of running it; also -show and --showme
--prefix  print the folder that has include/, the library, pkgconfig/ and cmake/"""


def main(name: str, arguments: list[str]) -> int:
    """Run the compiler in place of this process. Returns only for the options above."""
    command = command_of(name, arguments)
    if arguments == ["--prefix"]:
        print(HERE)
    elif arguments in ([], ["-h"], ["--help"]):
        print(HELP.format(name=name, command=command[0]))
    elif _SHOW.intersection(arguments):
        print(shlex.join(command))
    else:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            variable = _COMPILERS[name][0]
            print(f"{name}: {variable}: got {command[0]}, and: {error.strerror}; expected a compiler", file=sys.stderr)
            return 127
    return 0


def command_of(name: str, arguments: list[str]) -> list[str]:
    """The command that oshcc or oshc++ runs: the header's folder first, the library last, for those that link."""
    variable, usual = _COMPILERS[name]
    given = [each for each in arguments if each not in _SHOW]
    command = [*shlex.split(os.environ.get(variable, "") or usual), f"-I{HERE / 'include'}", *given]
    if not _NO_LINK.intersection(given):
        command += [f"-L{HERE}", f"-Wl,-rpath,{HERE}", "-lpyshmem"]
    return command
