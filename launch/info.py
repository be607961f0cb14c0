"""``pyshmem info``: what is installed, what a job would use, and what is missing, with how to get it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from glob import glob
from importlib import import_module
from importlib.util import find_spec
from itertools import permutations
from typing import Any

from pyshmem.base import environment, interpreter, site_defaults
from pyshmem.base.errors import ArgumentError
from pyshmem.start import requirements
from pyshmem.version import OPENSHMEM, __version__

from . import WITHOUT_TORCH
from .run import libmpi
from .run.launchers import LaunchError, candidates

DESCRIPTION = """info prints the versions, MPI and its launcher, cores and memory, GPUs and their links, the memory that
heaps would use and why, and what is missing. Exit status: 0, or 1 if something that every job needs is missing."""
# Run in a process of its own: MPI is initialised once per process, and may abort it.
ABILITIES = f"""{WITHOUT_TORCH}
from mpi4py import MPI
print(*MPI.Get_version(), ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")[MPI.Query_thread()])
from pyshmem.transport.far.libfabric import description
print(description())
"""
PREFIXES = ("SHMEM_", "SMA_", "PYSHMEM_", "MPI4PY_", "TRITON_")
OPTIONAL = {  # packages that no job needs, and what does
    "rich": "pyshmem taxes, top and bench",
    "matplotlib": "the pictures of pyshmem taxes and bench",
}
AMD_DEVICE = "/dev/kfd"  # through which ROCm reaches all GPUs
GIB = 1 << 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "pyshmem info", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.parse_args(arguments)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # pyshmem info | head
    return 1 if show() else 0


def show() -> list[str]:
    """Print all sections, and return what is missing that every job needs."""
    missing: list[str] = []
    for title, describe in SECTIONS.items():
        for line in describe(missing):
            print(f"{title:10} {line}", flush=True)
            title = ""
    missing = list(dict.fromkeys(missing))  # several sections may say the same
    for number, line in enumerate([*missing, *_optional()] or ["nothing"]):
        print(f"{'' if number else 'missing':10} {line}", flush=True)
    return missing


def _optional() -> list[str]:
    """Return the packages that some commands lack, with how to get them."""
    return [f"{name}, for {use}: pip install {name}" for name, use in OPTIONAL.items() if not find_spec(name)]


def _versions(missing: list[str]) -> Iterator[str]:
    folder = os.path.dirname(requirements.__file__).removesuffix("/start")
    yield f"{__version__}, OpenSHMEM {OPENSHMEM[0]}.{OPENSHMEM[1]}, in {folder}"
    yield requirements.versions()
    try:
        requirements.check_alone()
        requirements.check()
        requirements.check_built()
    except ImportError as error:
        missing.append(str(error))


def _mpi(missing: list[str]) -> Iterator[str]:
    library = libmpi.loaded(os.environ)
    if library is None:
        yield "no library that mpi4py can load"
        try:
            libmpi.refuse_chosen(os.environ)
        except LaunchError as error:
            missing.append(str(error))
            return
        missing.append(
            "an MPI: pip install mpich, or load the module of your cluster's MPI and see MPI4PY_LIBMPI in mpi4py's manual"
        )
        return
    yield f"{library.version}, in {library.path}"
    said = subprocess.run(
        [sys.executable, "-c", ABILITIES], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        cwd=sys.prefix,  # the user's folder may have a package pyshmem that is not the installed one
    )  # fmt: skip
    if said.returncode:
        yield f"MPI_Init fails: {(said.stderr.strip() or 'without a word').splitlines()[-1]}"
        missing.append("an MPI that can start one process by itself: see the line above")
        return
    versions, fabric = said.stdout.splitlines()[-2:]
    major, minor, level = versions.split()
    yield f"MPI {major}.{minor}, threads: {level}"
    yield fabric


def _launcher(missing: list[str]) -> Iterator[str]:
    faults = []
    for found in candidates("auto"):
        try:
            extra = libmpi.matching(found, os.environ)
        except LaunchError as fault:
            faults.append(str(fault))
            continue
        yield " ".join(
            (*found.command, f"({found.version})", *(f"with {name}={value}" for name, value in extra.items()))
        )
        return
    yield "none that fits the library"
    missing.append(faults[0] if faults else "a launcher: pip install mpich, or name one with pyshmemrun --mpiexec PATH")


def _machine(missing: list[str]) -> Iterator[str]:
    cores, free = len(os.sched_getaffinity(0)), environment.available_memory()
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield f"{platform.node()}: {system}, {cores} cores, {free / GIB:.1f} GiB free"
    heap = environment.heap_bytes(None, cores)
    yield f"heap in CPU memory: {heap / GIB:.2f} GiB for each of {cores} PEs; SHMEM_SYMMETRIC_SIZE changes it"


def _gpus(missing: list[str]) -> Iterator[str]:
    try:
        torch = import_module("torch")
    except ImportError:
        yield "unknown without torch"
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        makers = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
        built = " and ".join(f"{name} {release}" for name, release in makers.items() if release) or "CPUs only"
        yield f"none that torch sees (torch is built for {built}): kernels run in Triton's interpreter"
        closed = [path for path in glob(AMD_DEVICE) if not os.access(path, os.R_OK | os.W_OK)]
        if closed:
            yield f"no access to {', '.join(closed)}: this user must be in the groups of AMD's devices, render and video"
        return
    for index in range(count):
        device = torch.cuda.get_device_properties(index)
        arch = device.gcnArchName if torch.version.hip else f"sm_{device.major}{device.minor}"
        yield f"{index}: {device.name}, {device.total_memory / GIB:.0f} GiB, {arch}"
    if torch.version.hip:
        yield _rocm(torch.version.hip)
    apart = [f"{a}-{b}" for a, b in permutations(range(count), 2) if not torch.cuda.can_device_access_peer(a, b)]
    yield f"peer access: {'no: ' + ', '.join(apart) if apart else 'all to all'}"
    yield from _links()
    yield _mapping(torch)


def _rocm(built: str) -> str:
    """Which libamdhip64 pyshmem calls: the one that torch has loaded."""
    from pyshmem.memory.gpu.driver import default_library

    return f"torch is built for ROCm {built}; its library is {default_library('hip')}"


def _links() -> Iterator[str]:
    """What the vendor's tool says of the links between GPUs."""
    for command in (["nvidia-smi", "topo", "-m"], ["rocm-smi", "--showtopotype"]):
        if shutil.which(command[0]):
            said = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            yield from (line for line in said.stdout.splitlines() if line.lstrip("\t ").startswith("GPU"))


def _mapping(torch: Any) -> str:
    """The mapping that init would choose on the first GPU."""
    from pyshmem.memory.gpu.driver import Driver
    from pyshmem.memory.gpu.mapping import choose

    vendor = "hip" if torch.version.hip else "cuda"
    wishes = environment.read("PYSHMEM_PEER_MAP"), environment.read("PYSHMEM_HIP_MEMORY")
    try:
        torch.empty(1, device="cuda:0")  # creates the context for the driver's calls
        arch = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0] if vendor == "hip" else "nvidia"
        found = choose(Driver(vendor, 0), arch, *wishes)
    except (ValueError, OSError, RuntimeError) as error:
        return f"heap in GPU memory: none: {error}"
    way = "virtual memory" if found.way == "vmm" else "IPC handles"
    return f"heap in GPU memory: mapped by {way} ({found.way}): {found.why}"


def _variables(missing: list[str]) -> Iterator[str]:
    own = interpreter.VARIABLE if interpreter.chosen_here else ""
    names = [name for name in sorted(os.environ) if name.startswith(PREFIXES) and name != own]
    yield ", ".join(f"{name}={os.environ[name]}" for name in names) or "none of pyshmem's, mpi4py's or Triton's is set"
    try:
        rows = [(name, *environment.setting(name)) for name in environment.VARIABLES]
    except ArgumentError as error:
        missing.append(str(error))
        return
    path = site_defaults.path()
    texts = [f"{name}={text}" for name, text, origin in rows if text and origin == path]
    if texts:
        yield f"from {path}: {', '.join(texts)}"


SECTIONS: dict[str, Callable[[list[str]], Iterator[str]]] = {
    "pyshmem": _versions,
    "MPI": _mpi,
    "launcher": _launcher,
    "machine": _machine,
    "GPUs": _gpus,
    "variables": _variables,
}
