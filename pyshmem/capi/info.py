"""shmem_info: what the C library says of itself, how programs are compiled with it, and all environment variables."""

from __future__ import annotations

import argparse
import ctypes
import shlex
import sys
from collections.abc import Sequence

from pyshmem.base import environment
from pyshmem.base.errors import ArgumentError
from pyshmem.c_names.constants import CONSTANTS
from pyshmem.c_names.rows import generics, names
from pyshmem.c_names.table import ROWS
from pyshmem.capi.compiler import HERE, command_of

DESCRIPTION = """shmem_info prints the version of OpenSHMEM, the names of the vendor, the library and its header, the command
that compiles a C program, and all environment variables with their values. It starts no job."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status: 1 if a variable has a value without meaning."""
    parser = argparse.ArgumentParser("shmem_info", description=DESCRIPTION)
    parser.parse_args(arguments)
    for title, text in _rows().items():
        print(f"{title:12} {text}")
    try:
        print(environment.listing({}))
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _rows() -> dict[str, str]:
    library, header = HERE / "libpyshmem.so", HERE / "include" / "shmem.h"
    called, (major, minor) = ctypes.CDLL(str(library)), (ctypes.c_int(), ctypes.c_int())
    name = ctypes.create_string_buffer(int(str(CONSTANTS["SHMEM_MAX_NAME_LEN"])))
    called.shmem_info_get_version(ctypes.byref(major), ctypes.byref(minor))
    called.shmem_info_get_name(name)
    return {
        "OpenSHMEM": f"{major.value}.{minor.value}",
        "vendor": name.value.decode(),
        "library": str(library),
        "header": f"{header}: {len(names(ROWS))} functions, {len(generics(ROWS))} generic names",
        "oshcc runs": shlex.join(command_of("oshcc", ["prog.c", "-o", "prog"])),
        "start": "pyshmemrun -n 4 ./prog",
    }
