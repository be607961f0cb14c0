"""The environment variables: one table that is the parser, the listing of SHMEM_INFO and the documentation."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from pyshmem.runtime.errors import ArgumentError, HeapExhaustedError, refuse

PAGE = 4096
_SIZE = re.compile(r"\s*(?P<number>\d+\.?\d*|\.\d+)(?P<unit>[kmgt].*)?\s*", re.IGNORECASE | re.DOTALL)
_UNITS = {None: 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str) -> int:
    """Bytes of "20m", "3.1M", ".5g": ceil(number * unit); of the unit only the first letter counts (spec, Environment)."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError("a number of bytes not below 0, with a unit k, m, g or t if wanted, such as 512m")
    unit = match["unit"]
    exact = Decimal(match["number"]) * (1 << _UNITS[unit and unit[0].lower()])
    return int(exact.to_integral_value(rounding="ROUND_CEILING"))


def parse_flag(text: str) -> bool:
    """Set to anything but 0, no, off or nothing."""
    return text.strip().lower() not in ("", "0", "no", "off", "false")


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ValueError("seconds, 0 for no limit")
    return seconds


def parse_count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("a number, 0 or more")
    return int(text)


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words))
        return text

    return parse


class Variable(NamedTuple):
    """One row: ``parse`` raises ValueError with the words of what it wants."""

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
            "SHMEM_DEBUG", parse_flag, False, "compare allocations across PEs; list what was never freed", "SMA_DEBUG"
        ),
        Variable("PYSHMEM_HEAP", one_of("cpu", "cuda"), None, "the default heap; cpu: the only one"),
        Variable("PYSHMEM_DEVICE", parse_count, None, "which GPU this PE takes; unset: by its number on the node"),
        Variable("PYSHMEM_PEER_MAP", one_of("auto", "vmm", "ipc"), "auto", "how peers map GPU memory"),
        Variable(
            "PYSHMEM_HIP_MEMORY",
            one_of("auto", "coarse", "fine", "uncached"),
            "auto",
            "AMD: the kind of memory of the GPU heap",
        ),
        Variable("PYSHMEM_WAIT_TIMEOUT", parse_seconds, 300.0, "seconds after which a wait gives up; 0: never"),
        Variable(
            "PYSHMEM_MAX_TEAMS", parse_count, 64, "how many teams there may be at a time, the predefined two included"
        ),
        Variable(
            "PYSHMEM_SCRATCH",
            parse_size,
            None,
            "bytes of each heap that kernels' collectives use; unset: 128m of a GPU's, 4m of the CPU's",
        ),
        Variable("PYSHMEM_QUIET", parse_flag, False, "do not say that kernels run in Triton's interpreter"),
    )
}


def read(name: str) -> Any:
    """The variable's value, its default where it is unset. Errors: ArgumentError naming variable and text."""
    row = VARIABLES[name]
    used = name if name in os.environ or not row.alias else row.alias
    text = os.environ.get(used)
    if text is None:
        return row.default
    try:
        return row.parse(text)
    except ValueError as error:
        refuse(ArgumentError, "init", used, repr(text), str(error))


def listing(settled: dict[str, str]) -> str:
    """The table of SHMEM_INFO; ``settled`` gives what init made of a variable where that differs from its text."""
    lines = ["Environment of pyshmem (value, variable, meaning):"]
    for name, row in VARIABLES.items():
        value = settled.get(name, str(read(name)))
        lines.append(f"  {value:>12}  {name:22} {row.help}")
    return "\n".join(lines)


def available_memory() -> int:
    """Bytes this process may still get: of the machine, and of its control group where that has a limit."""
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
    """What init's argument, else SHMEM_SYMMETRIC_SIZE, asks for, in whole pages; None where neither does."""
    asked = read("SHMEM_SYMMETRIC_SIZE") if argument is None else _argument_bytes(argument)
    return None if asked is None else -(-asked // PAGE) * PAGE


def heap_bytes(asked: int | None, node_pes: int, main: bool = True) -> int:
    """Bytes of each PE's heap in CPU memory: those asked for, else 1 GiB or half of what memory allows.

    main: it is the default heap. Beside a GPU's, which the user's figure is about, it takes no more than if nobody asked.
    The memory check comes before any reservation: under a control group's limit a reservation that does not fit is
    answered by the kernel's kill, not by an error.
    """
    free = available_memory()
    usual = min(1 << 30, free // (2 * node_pes)) // PAGE * PAGE
    if asked is None:
        return usual
    if not main:
        return min(asked, usual)
    if asked * node_pes > free:
        refuse(
            HeapExhaustedError,
            "init",
            "heap_size",
            f"{asked} bytes for each of {node_pes} PEs",
            f"at most {free} bytes in all, which is what this machine has free",
        )
    return asked


def _argument_bytes(asked: str | int) -> int:
    if isinstance(asked, str):
        try:
            return parse_size(asked)
        except ValueError as error:
            refuse(ArgumentError, "init", "heap_size", repr(asked), str(error))
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        refuse(ArgumentError, "init", "heap_size", repr(asked), "bytes as an int not below 0, or text such as '512m'")
    return asked
