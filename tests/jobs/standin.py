"""Builds and drives the stand-in for AMD's libamdhip64, standin.c. Imported by tests, and by the jobs they start."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import NamedTuple

OPENED = []  # the copies of the library that this process has loaded
SOURCE = pathlib.Path(__file__).with_name("standin.c")
HEAD = f'''
import atexit, ctypes, os, sys, traceback
from mpi4py import MPI
node = MPI.COMM_WORLD
me, n = node.rank, node.size
def end(*error):
    traceback.print_exception(*error)
    sys.stderr.flush()
    node.Abort(1)
sys.excepthook = end
atexit.register(lambda: errors_left() and (print("the driver has kept an error", file=sys.stderr), node.Abort(1)))
sys.path.insert(0, {str(SOURCE.parent)!r})
from standin import Ledger, Standin, contents, errors_left, open_descriptors
from pyshmem.memory.gpu.driver import COARSE, EXTENDED, FINE, PINNED, UNCACHED, Driver, DriverError
from pyshmem.memory.gpu import mapping as mapping_module
from pyshmem.memory.gpu.mapping import IpcMapping, VmmMapping
MIB = 1 << 20
def put(address, value):
    """Store an 8-byte word there by the driver."""
    word = ctypes.c_uint64(value)
    driver.copy(address, ctypes.addressof(word), 8, 0)
def get(address):
    return int.from_bytes(contents(address, 8), "little")
'''


class Ledger(NamedTuple):
    """What is held of the driver, and how often a call was wrong in a way that the real one does not notice."""

    handles: int = 0
    pieces: int = 0
    ranges: int = 0
    blocks: int = 0
    opened: int = 0
    graphs: int = 0
    misuses: int = 0


class Call(NamedTuple):
    name: str
    values: dict
    code: int


class Alone:
    """A node of one PE, for tests that need no other process."""

    rank, size = 0, 1

    def allgather(self, value):
        return [value]

    def Barrier(self):
        pass


class Standin:
    """One copy of the library, with a state of its own. ``path`` is what a Driver is given."""

    def __init__(self, built, version="7.14", devices="0", vmm=True, **others):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="standin-", dir=pathlib.Path(built).parent))
        self.path = str(shutil.copy(built, self.folder / "libamdhip64.so"))
        major, minor = version.split(".")
        settings = {
            "STANDIN_LOG": str(self.folder / "log"),
            "STANDIN_DEVICES": devices,
            "STANDIN_VERSION": str(int(major) * 10000000 + int(minor) * 100000),
            "STANDIN_NO_VMM": "0" if vmm else "1",
            **{f"STANDIN_{name.upper()}": str(value) for name, value in others.items()},
        }
        os.environ.update(settings)
        self.library = ctypes.CDLL(self.path)  # which reads them once, now
        OPENED.append(self.library)
        for name in settings:
            del os.environ[name]

    def fail(self, name, nth=1, code=999):
        """Let the nth call of this function, counted from now, fail. Counting begins anew, which nth=0 does too."""
        self.library.standin_fail(name.encode(), nth, code)

    def lose(self):
        """Let all copies to and from virtual memory from now on do nothing, and say nothing."""
        self.library.standin_lose()

    def ledger(self):
        counts = (ctypes.c_int * 7)()
        self.library.standin_ledger(counts)
        return Ledger(*counts)

    def calls(self):
        """All calls so far."""
        lines = (self.folder / f"log.{os.getpid()}").read_text().splitlines()
        return [_call(line) for line in lines if not line.startswith("misuse: ")]

    def names(self, since=0):
        return [call.name for call in self.calls()[since:]]

    def misuses(self):
        lines = (self.folder / f"log.{os.getpid()}").read_text().splitlines()
        return [line for line in lines if line.startswith("misuse: ")]


def _call(line):
    text, code = line.rsplit(" -> ", 1)
    name, *pairs = text.split()
    values = dict(pair.split("=", 1) for pair in pairs)
    return Call(name, {key: _number(value) for key, value in values.items()}, int(code))


def _number(text):
    return 0 if text == "(nil)" else int(text, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", text) else text


def errors_left():
    """In how many threads a copy of the library keeps the error of a call. The copies are forgotten."""
    left = sum(each.standin_errors_left() for each in OPENED)
    OPENED.clear()
    return left


def build(folder):
    path = folder / "libamdhip64.so"
    flags = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-shared", "-fPIC")
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", path, SOURCE], check=True, timeout=100)
    return path


def contents(address, nbytes):
    return ctypes.string_at(address, nbytes)


def open_descriptors():
    """What this process has open, by number and target."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the listing's own
    return found
