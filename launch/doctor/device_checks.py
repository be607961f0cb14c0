"""What `pyshmem doctor` examines of each GPU and of HIP's settings: architecture, chiplets, queues and graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyshmem.base import environment
from pyshmem.memory.gpu.driver import Driver
from pyshmem.start.gpu import ARCHS, refused

from .findings import Finding, gathered
from .graph_checks import early_children

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm

FEWEST_QUEUES = 4  # of a priority, HIP's own number: all sides of operators have as many streams
OF_CHIPLETS = ("gfx942", "gfx950")
MOST_CHIPLETS = 8


def examine(driver: Driver, world: Comm, arch: str) -> Iterator[Finding]:
    """Yield what is found, the same on all PEs. arch: of this PE's GPU."""
    text = "" if environment.read("PYSHMEM_ALLOW_ARCH") else refused(arch)
    other = "the Triton of torch for ROCm" if arch in ARCHS else f"{', '.join(ARCHS[1:])} or an NVIDIA GPU"
    advice = f"PYSHMEM_ALLOW_ARCH=1, which nobody has tried; PYSHMEM_HEAP=cpu; {other}"
    yield gathered(world, "architecture", advice, f"init refuses a {arch} ({text})" if text else "", arch)
    if driver.vendor == "hip":
        yield _chiplets(driver, world, arch)
        yield _queues(world)
        yield _graphs(driver, world)


def _chiplets(driver: Driver, world: Comm, arch: str) -> Finding:
    """Whether the driver knows how many chiplets there are, and says the same on all PEs."""
    number, fault = driver.known_chiplets(), ""
    every = world.allgather(number)
    if arch in OF_CHIPLETS and not 1 <= number <= MOST_CHIPLETS:
        fault = f"the driver says {number} chiplets of a {arch}; expected 1 to {MOST_CHIPLETS}"
    elif 0 not in every and number != every[0]:
        fault = f"{number} chiplets, {every[0]} on PE 0"
    advice = (
        "a newer ROCm, or one partition mode for all GPUs (amd-smi set --compute-partition); results are right without, "
        "but tiles that share operands do not share a cache"
    )
    return gathered(world, "chiplets", advice, fault, str(number))


def _queues(world: Comm) -> Finding:
    """Whether kernels that wait for each other have hardware queues enough, which execute in order."""
    text = os.environ.get("GPU_MAX_HW_QUEUES", "")
    few = text and (not text.isdigit() or int(text) < FEWEST_QUEUES)
    fault = f"GPU_MAX_HW_QUEUES is {text}: a kernel may stand behind one that waits for it" if few else ""
    advice = "unset GPU_MAX_HW_QUEUES, for which pyshmem then sets 8, or set it to 8 on all PEs"
    return gathered(world, "queues", advice, fault, f"GPU_MAX_HW_QUEUES={text or 'unset'}")


def _graphs(driver: Driver, world: Comm) -> Finding:
    """Whether a graph's nodes wait for the one before them. pyshmem replays nothing on HIP, but programs may."""
    advice = (
        "DEBUG_HIP_FORCE_GRAPH_QUEUES=8 for graphs of your own, with DEBUG_HIP_GRAPH_CLASSIC_PATH unset, or a newer ROCm; "
        "pyshmem enqueues its operators here, and is right"
    )
    note = f"all children of a node wait for it, HIP {driver.version}; pyshmem still enqueues its operators"
    return gathered(world, "graphs", advice, early_children(driver), note)
