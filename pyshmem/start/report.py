"""The table of pyshmemrun's --report: where each PE is, and which cores, NUMA node and GPU it uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import torch

from pyshmem.base.job import job
from pyshmem.memory.gpu.heap import gpu

_TITLES = ("PE", "host", "cores", "NUMA node", "GPU")
_NODES = Path("/sys/devices/system/node")


def row() -> tuple[str, ...]:
    """Return this PE's row. The heaps are open, so that the GPU is chosen."""
    cores = os.sched_getaffinity(0)
    name = f"{torch.cuda.get_device_properties(gpu.index).name}, {gpu.driver.bus_id()}" if gpu.size else "none"
    return str(job.my_pe), os.uname().nodename, ranges(cores), ranges(numa_nodes(cores)) or "unknown", name


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the table as text, in columns."""
    lines = [_TITLES, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def numa_nodes(cores: set[int], folder: Path = _NODES) -> set[int]:
    """Return the NUMA nodes that have these cores; none if the system does not tell."""
    lists = {int(path.parent.name.removeprefix("node")): path for path in folder.glob("node[0-9]*/cpulist")}
    return {node for node, path in lists.items() if cores & members(path.read_text())}


def members(text: str) -> set[int]:
    """Return the numbers of a list such as 0-3,8."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Return a list such as 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
