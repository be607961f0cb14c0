"""What each PE of a job of ``pyshmem doctor`` runs: ``python -m pyshmem.launch.doctor.examination mapping`` or ``calls``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from mpi4py import MPI

import pyshmem as shmem
from pyshmem.base import environment, interpreter
from pyshmem.base.errors import ShmemError

from . import device_checks, mapping_checks
from .findings import Finding, gathered


def mapping(world: Any) -> Iterator[Finding]:
    """Examine every way to map GPU memory, by the driver alone."""
    import torch

    from pyshmem.memory.gpu.driver import Driver
    from pyshmem.start.gpu import arch_of

    index = _device(world)
    if index is None:
        yield Finding("GPU memory", "", "", skipped="not every PE has a GPU")
        return
    torch.cuda.set_device(index)
    torch.empty(1, device=f"cuda:{index}")  # creates the context for the driver's calls
    driver = Driver("hip" if torch.version.hip else "cuda", index)
    yield from device_checks.examine(driver, world, arch_of(driver))
    yield from mapping_checks.examine(driver, world)


def _device(world: Any) -> int | None:
    """Return the index of this PE's GPU, None if not every PE has one."""
    import torch

    if not all(world.allgather(torch.cuda.is_available() and not interpreter.active())):
        return None
    asked = environment.read("PYSHMEM_DEVICE")
    return int(world.rank % torch.cuda.device_count() if asked is None else asked)


def calls(world: Any) -> Iterator[Finding]:
    """Examine calls of the API on the default heap."""
    shmem.init()
    from . import call_checks

    heap = shmem.zeros(1).device.type
    checks = call_checks.CHECKS | (call_checks.ON_GPUS if heap == "cuda" else {})
    for name, (check, advice) in checks.items():
        try:
            faults = list(filter(None, check()))
        except (ShmemError, RuntimeError, ValueError, OSError) as error:
            faults = [f"{type(error).__name__}: {error}"]
        every = world.allgather(faults)
        found = [f"PE {pe}: {fault}" for pe, theirs in enumerate(every) for fault in theirs]
        yield Finding(name, "; ".join(found), advice, f"{heap} heap, {world.size} x {world.size} PEs")


def large(world: Any) -> Iterator[Finding]:
    """Examine large messages, where all GPUs have the memory for them."""
    from . import large_checks

    check = f"messages of {large_checks.BYTES >> 20} MiB"
    index = _device(world)
    if not all(world.allgather(index is not None and large_checks.room(index, world.size))):
        yield Finding(check, "", "", skipped=f"expected {large_checks.heap_bytes(world.size) >> 30} GiB of each GPU")
        return
    shmem.init(heap_size=large_checks.heap_bytes(world.size), device="cuda")
    faults = "; ".join(filter(None, large_checks.large()))
    yield gathered(world, check, "PYSHMEM_PEER_MAP=ipc, and smaller messages; report this: iris#532", faults)


def times(world: Any, path: str) -> Iterator[Finding]:
    """Time signals and barriers, and write the times to ``path``."""
    shmem.init()
    from . import memory_kinds, timing

    found = timing.times()
    if world.rank == 0:
        memory_kinds.written(path, found)
    yield from ()


PARTS: dict[str, Callable[..., Iterator[Finding]]] = {
    "mapping": mapping,
    "calls": calls,
    "large": large,
    "times": times,
}


def main(part: str, *arguments: str) -> int:
    """Print each finding on PE 0, and return 1 if there is a fault."""
    return told(part, MPI.COMM_WORLD, PARTS[part](MPI.COMM_WORLD, *arguments))


def told(part: str, world: Any, findings: Iterator[Finding]) -> int:
    """Print each finding on PE 0 as it comes, and return 1 if there is a fault."""
    failed = False
    for number, found in enumerate(findings):
        if world.rank == 0:
            print(f"{part if not number else '':10} {found}", flush=True)
        failed |= bool(found.fault)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
