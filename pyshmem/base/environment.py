"""The environment variables. One table defines their parsers, defaults, SHMEM_INFO listing and documentation."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from pyshmem.base import site_defaults
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, refuse
from pyshmem.base.parsers import (
    MOST_BYTES,
    count,
    one_of,
    parse_far,
    parse_flag,
    parse_folder,
    parse_json,
    parse_seconds,
    parse_signal,
    parse_size,
    parse_writable,
    shown,
)

PAGE = 4096


class Variable(NamedTuple):
    """A row of the table. ``parse`` raises ValueError with a description of valid values."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    alias: str = ""


VARIABLES = {
    row.name: row
    for row in (
        Variable("SHMEM_VERSION", parse_flag, False, "print the version at start", "SMA_VERSION"),
        Variable("SHMEM_INFO", parse_flag, False, "print this table at start", "SMA_INFO"),
        Variable(
            "SHMEM_SYMMETRIC_SIZE",
            parse_size,
            None,
            "bytes of the symmetric heap of each PE: 512m, 2.5g",
            "SMA_SYMMETRIC_SIZE",
        ),
        Variable(
            "SHMEM_DEBUG",
            parse_flag,
            False,
            "compare collective calls across PEs; list what was never freed",
            "SMA_DEBUG",
        ),
        Variable("PYSHMEM_HEAP", one_of("cpu", "cuda"), None, "the default heap; cpu: there is no other heap"),
        Variable("PYSHMEM_DEVICE", count(1 << 16), None, "the GPU that this PE uses; unset: by its number on the host"),
        Variable(
            "PYSHMEM_PEER_MAP",
            one_of("auto", "vmm", "ipc", "none"),
            "auto",
            "how PEs map each other's GPU memory; none: they do not, and each PE is a node of its own",
        ),
        Variable(
            "PYSHMEM_HIP_MEMORY",
            one_of("auto", "coarse", "fine", "uncached"),
            "auto",
            "AMD GPUs: the kind of memory of the heap",
        ),
        Variable(
            "PYSHMEM_ALLOW_ARCH", parse_flag, False, "AMD GPUs: try one for which kernels have no fences of their own"
        ),
        Variable("PYSHMEM_WAIT_TIMEOUT", parse_seconds, 300.0, "seconds after which a wait times out; 0: never"),
        Variable(
            "PYSHMEM_WAIT_NOTICE", parse_seconds, 30.0, "seconds after which PE 0 says what it waits for; 0: never"
        ),
        Variable(
            "PYSHMEM_MAX_TEAMS",
            count(1 << 16),
            64,
            "the most teams that can exist at a time, with the two predefined ones",
        ),
        Variable(
            "PYSHMEM_SCRATCH",
            parse_size,
            None,
            "bytes of scratch memory for kernel collectives; unset: 128m on GPUs, 4m on the CPU",
        ),
        Variable("PYSHMEM_TUNING", str, None, "a file of pyshmem tune: which kernels collectives on a stream take"),
        Variable(
            "PYSHMEM_STAGING",
            parse_size,
            None,
            "bytes through which collectives pass private arrays; unset: 64m, used when needed on the CPU",
        ),
        Variable(
            "PYSHMEM_LOCAL_CACHE",
            parse_folder,
            None,
            "a folder of each node's disk, such as /tmp, for kernels that Triton has compiled; unset: Triton's",
        ),
        Variable("PYSHMEM_DUMP", parse_signal, None, "a signal, as SIGUSR1, for which a PE prints where it is"),
        Variable(
            "PYSHMEM_NODE_SIZE",
            count(1 << 31),
            0,
            "PEs of a pretended node: for tests of several nodes on one machine; 0: the machine's nodes",
        ),
        Variable(
            "PYSHMEM_INTERFACE",
            str,
            None,
            "the network interface for PEs of other nodes, such as eth0; unset: one that all nodes share",
        ),
        Variable(
            "PYSHMEM_FAR",
            parse_far,
            "auto",
            "what carries data to other nodes: tcp, or fabric; auto: a fabric of hardware if there is one, else tcp",
        ),
        Variable(
            "PYSHMEM_FABRIC",
            str,
            None,
            "the provider of libfabric, such as cxi or tcp;ofi_rxm; unset: the first fabric",
        ),
        Variable(
            "PYSHMEM_AMO",
            one_of("auto", "tcp", "fabric"),
            "auto",
            "what carries requests to other nodes, such as atomics: tcp, or a fabric's messages; auto: those of hardware",
        ),
        Variable("PYSHMEM_REPORT", parse_flag, False, "print the host, cores, NUMA node and GPU of each PE at start"),
        Variable("PYSHMEM_NVTX", parse_flag, False, "each host call is a range of NVTX or ROCTx, for profilers"),
        Variable("PYSHMEM_TRACE", parse_json, None, "the file for a timeline of the host calls of all PEs: out.json"),
        Variable(
            "PYSHMEM_TRACE_EVENTS", count(1 << 32), 1 << 20, "the most events of a PE in a timeline, of 64 bytes each"
        ),
        Variable("PYSHMEM_TRACE_TORCH", parse_flag, False, "timelines have the operators of torch, too"),
        Variable(
            "PYSHMEM_CHECK", parse_flag, True, "C programs: refuse PEs out of range and memory that is not symmetric"
        ),
        Variable(
            "PYSHMEM_SYMMETRIC_LIBS", str, None, "C programs: the libraries with symmetric static data, libx:liby"
        ),
        Variable(
            "PYSHMEM_C_START",
            one_of("auto", "python"),
            "auto",
            "C programs: python: Python opens the job; auto: only where something needs it",
        ),
        Variable("PYSHMEM_PYTHON", str, None, "C programs: the Python in which pyshmem is installed; pyshmemrun's own"),
        Variable("PYSHMEM_RACE_TRACES", parse_writable, None, "the directory for the traces of pyshmemrun --check"),
        Variable("PYSHMEM_SCHEDULE", str, None, "the seed of pyshmemrun --check=schedules"),
        Variable("PYSHMEM_QUIET", parse_flag, False, "print no notes: of a single PE, of Triton's interpreter"),
    )
}


# read by C programs before there is Python to read a site's file
_OF_C = ("PYSHMEM_C_START", "PYSHMEM_PYTHON", "PYSHMEM_SYMMETRIC_LIBS")


def setting(name: str) -> tuple[str, str]:
    """Return the text that the variable has and where it is from, a variable or the site's file; "" and "" if unset.

    The user's variables win over the site's file. An empty text counts as unset: modulefiles blank variables so.
    Errors: ArgumentError for a file that cannot be used.
    """
    row = VARIABLES[name]
    for used in filter(None, (name, row.alias)):
        if os.environ.get(used):
            return os.environ[used], used
    path = site_defaults.path()
    try:
        text = site_defaults.defaults(path, VARIABLES.keys() - _OF_C).get(name, "")
    except ValueError as error:
        refuse(ArgumentError, "init", site_defaults.VARIABLE, repr(path), str(error))
    return text, path if text else ""


def read(name: str) -> Any:
    """Return the value of the variable, or its default. Errors: ArgumentError, which names the variable and its text."""
    row = VARIABLES[name]
    text, used = setting(name)
    if not text:
        return row.default
    try:
        return row.parse(text)
    except ValueError as error:
        named = used if used in (name, row.alias) else f"{name} of {used}"
        refuse(ArgumentError, "init", named, shown(text), str(error))


def check() -> None:
    """Read all variables. Errors: ArgumentError for one that has no meaning, also if nothing reads it in this job."""
    for name in VARIABLES:
        read(name)


def listing(settled: dict[str, str]) -> str:
    """Return the table of SHMEM_INFO. ``settled`` has the values that init chose, if they differ from the variables."""
    lines = ["Environment of pyshmem (value, variable, meaning):"]
    for name, row in VARIABLES.items():
        value, origin = settled.get(name, str(read(name))), setting(name)[1]
        site = "" if origin in ("", name, row.alias) else f" [from {origin}]"
        lines.append(f"  {value:>12}  {name:22} {row.help}{site}")
    return "\n".join(lines)


def misspelt() -> list[tuple[str, str]]:
    """Return the variables that are nearly one of ours, which is not set, with ours."""
    found = []
    for name in sorted(os.environ):
        if name.startswith(("SHMEM_", "PYSHMEM_")) and name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, 1, 0.85)
            if near and near[0] not in os.environ:
                found.append((name, near[0]))
    return found


def available_memory() -> int:
    """Return the bytes that this process may still allocate, within the limits of the machine and of its control group."""
    with open("/proc/meminfo") as meminfo:
        rows = dict(line.split(":", 1) for line in meminfo)
    free = int(rows["MemAvailable"].split()[0]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        if os.path.exists(limit) and os.path.exists(used):
            with open(limit) as most, open(used) as now:
                text = most.read().strip()
                if text.isdigit():
                    free = min(free, max(0, int(text) - int(now.read())))
    return free


def asked_bytes(argument: str | int | None) -> int | None:
    """Return the heap size of init's argument or else of SHMEM_SYMMETRIC_SIZE, in whole pages; None if neither is set."""
    asked = read("SHMEM_SYMMETRIC_SIZE") if argument is None else _argument_bytes(argument)
    return None if asked is None else -(-asked // PAGE) * PAGE


def heap_bytes(
    asked: int | None, node_pes: int, main: bool = True, free: int | None = None, host: str = "this machine"
) -> int:
    """Return the size in bytes of each PE's heap in CPU memory: ``asked``, or else 1 GiB or half of the free memory.

    main: whether it is the default heap. Beside a GPU heap, the requested size is that of the GPU heap, so the CPU heap
    gets at most its default size.
    free: the bytes that are free on ``host``.
    The memory is checked before it is reserved: if a reservation exceeds the limit of a control group, the operating
    system kills the process instead of returning an error.
    """
    free = available_memory() if free is None else free
    usual = min(1 << 30, free // (2 * node_pes)) // PAGE * PAGE
    if asked is None:
        return usual
    if not main:
        return min(asked, usual)
    require_memory("heap_size", asked, node_pes, free, host)
    return asked


def require_memory(argument: str, asked: int, node_pes: int, free: int, host: str) -> None:
    """Errors: HeapExhaustedError if so many bytes for each PE are more than a host has."""
    if asked * node_pes > free:
        got = f"{asked} bytes for each of {node_pes} PEs"
        refuse(HeapExhaustedError, "init", argument, got, f"at most {free} bytes in all, the free memory of {host}")


def _argument_bytes(asked: str | int) -> int:
    if isinstance(asked, str):
        try:
            return parse_size(asked)
        except ValueError as error:
            refuse(ArgumentError, "init", "heap_size", shown(asked), str(error))
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= MOST_BYTES:
        wants = "a number of bytes, 0 or more and below 2**64, or a text such as '512m'"
        refuse(ArgumentError, "init", "heap_size", shown(asked), wants)
    return asked
