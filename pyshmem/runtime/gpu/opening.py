"""Decides whether there is a heap in GPU memory, chooses the GPU and opens the heap. All PEs decide alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pyshmem.runtime import environment, interpreter
from pyshmem.runtime.agreement import DescriptorError, together
from pyshmem.runtime.descriptors import refuse_descriptors
from pyshmem.runtime.errors import ArgumentError, HeapExhaustedError, LaunchError, ShmemError, UnreachableError, refuse
from pyshmem.runtime.gpu.driver import Driver, DriverError
from pyshmem.runtime.gpu.heap import gpu
from pyshmem.runtime.gpu.mapping import Choice, choose
from pyshmem.runtime.heap import heaps
from pyshmem.runtime.job import job

if TYPE_CHECKING:
    from pyshmem.runtime.bootstrap import Comm

_IPC_BYTES = 1 << 30  # the default size of a heap with IPC handles, which cannot grow


def decide(answers: list[tuple[str | None, str]]) -> str:
    """Return the device of the default heap, "cpu" or "cuda". If it is "cpu", set job.why_no_gpu.

    answers: the wish of each PE, and the reason why it has no GPU, which is "" if it has one.
    Errors: LaunchError if one PE wishes for a GPU and one PE has none.
    """
    for pe, (_, reason) in enumerate(answers):
        if reason and any(wish == "cuda" for wish, _ in answers):
            refuse(LaunchError, "init", "device", f"'cuda', but on PE {pe} {reason}", "a GPU for every PE")
        if reason:
            job.why_no_gpu = reason if pe == job.my_pe else f"on PE {pe} {reason}"
            return "cpu"
    return "cuda"


def why_not(wish: str | None) -> str:
    """Return the reason why this PE has no heap in GPU memory; "" if it can have one."""
    if wish == "cpu":
        return "init or PYSHMEM_HEAP selected the CPU heap only"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    if interpreter.active():
        return f"{interpreter.VARIABLE}=1 selects the interpreter, which uses CPU memory"
    return ""


def open_heap(world: Comm, node: Comm, asked_bytes: int | None) -> None:
    """Choose a GPU and map the heaps of the node. Collective over ``world``.

    asked_bytes: the most bytes of each PE; None means all memory of the GPU, or 1 GiB if the heap cannot grow.
    Errors, on all PEs: LaunchError, ArgumentError, UnreachableError, HeapExhaustedError.
    """
    index, problem = _device()
    for found in world.allgather(problem):
        if found:
            refuse(LaunchError, "init", "PYSHMEM_DEVICE", found, "a GPU that torch sees")
    vendor = "hip" if torch.version.hip else "cuda"
    try:
        with together(world):
            torch.cuda.set_device(index)
            properties = torch.cuda.get_device_properties(index)
            torch.empty(1, device=f"cuda:{index}")  # creates the context for the driver's calls
            driver = Driver(vendor, index)
            own = driver.bus_id()
        _require_access(driver, world, node, own)
        gpu.arch = getattr(properties, "gcnArchName", "").split(":")[0] if vendor == "hip" else "nvidia"
        kinds = set(world.allgather((gpu.arch, gpu.shared)))
        gpu.reduces = not gpu.shared and len(kinds) == 1
        gpu.in_turn = driver.takes_turns()
        choice = _choice(driver, world, gpu.arch)
        cap = _cap(world, node, choice, asked_bytes, properties.total_memory)
        gpu.open(driver, world, node, job.node_pes, cap, choice)
    except DescriptorError as error:
        refuse_descriptors(error)
    except (DriverError, OSError, RuntimeError) as error:
        if isinstance(error, ShmemError):
            raise
        wants = "a smaller heap_size or SHMEM_SYMMETRIC_SIZE, another PYSHMEM_PEER_MAP, or PYSHMEM_HEAP=cpu"
        refuse(HeapExhaustedError, "init", "heap", f"an error of the GPU driver: {error}", wants)
    heaps["cuda"] = gpu


def _device() -> tuple[int, str]:
    """Return the index of this PE's GPU, as torch counts, and a description of its fault, or ""."""
    count, asked = torch.cuda.device_count(), environment.read("PYSHMEM_DEVICE")
    if asked is None:
        return job.host_rank % count, ""
    return asked, "" if asked < count else f"{asked} on PE {job.my_pe}, which has {count} GPUs"


def _require_access(driver: Driver, world: Comm, node: Comm, own: str) -> None:
    every = node.allgather(own)
    missing = []
    with together(world):
        missing = [peer for peer in every if driver.reaches(peer) is False]
    gpus = list(zip(job.hosts, world.allgather(own), strict=True))
    gpu.shared = len(set(gpus)) < len(gpus)
    for pairs in world.allgather([(own, peer) for peer in missing]):
        if pairs:
            one, other = pairs[0]
            wants = "GPUs with peer access, or PYSHMEM_HEAP=cpu"
            refuse(UnreachableError, "init", "device", f"the GPU {one}, which cannot load from {other}", wants)


def _choice(driver: Driver, world: Comm, arch: str) -> Choice:
    """Choose one method for all PEs: IPC if any PE needs it."""
    try:
        mine: Any = choose(driver, arch, environment.read("PYSHMEM_PEER_MAP"), environment.read("PYSHMEM_HIP_MEMORY"))
    except (ValueError, DriverError) as error:
        mine = str(error)
    every = world.allgather(mine)
    for each in every:
        if isinstance(each, str):
            refuse(ArgumentError, "init", "PYSHMEM_PEER_MAP", each, "auto, or a method that the driver supports")
    if any(each.way != mine.way for each in every):
        mine = next(each for each in every if each.way == "ipc")
    return Choice(*mine)


def _cap(world: Comm, node: Comm, choice: Choice, asked: int | None, total: int) -> int:
    """Return the most bytes of a PE's heap, the same for all PEs."""
    if asked is None and choice.way == "vmm":
        return int(min(world.allgather(total)))
    if asked is None:
        free, _ = torch.cuda.mem_get_info()
        return int(min(world.allgather(min(_IPC_BYTES, free // (2 * node.size))))) // 4096 * 4096
    return asked
