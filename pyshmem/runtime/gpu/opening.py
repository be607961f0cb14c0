"""Whether there is a heap in GPU memory, on which GPU, and its opening: the same answer on every PE."""

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
    from mpi4py import MPI

_IPC_BYTES = 1 << 30  # of a heap behind IPC handles, which cannot grow, where nobody says how large


def decide(answers: list[tuple[str | None, str]]) -> str:
    """The kind of the default heap, "cpu" or "cuda", from what each PE wishes and why it has no GPU, "" where it has one.

    job.why_no_gpu says why it is not the GPU's.  Errors: LaunchError where any PE wished for a GPU and one lacks it.
    """
    for pe, (_, reason) in enumerate(answers):
        if reason and any(wish == "cuda" for wish, _ in answers):
            refuse(LaunchError, "init", "device", f"'cuda', but on PE {pe} {reason}", "a GPU for every PE")
        if reason:
            job.why_no_gpu = reason if pe == job.my_pe else f"on PE {pe} {reason}"
            return "cpu"
    return "cuda"


def why_not(wish: str | None) -> str:
    """Why this PE has no heap in GPU memory, "" where it can."""
    if wish == "cpu":
        return "init or PYSHMEM_HEAP asked for the CPU's alone"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    if interpreter.active():
        return f"{interpreter.VARIABLE}=1 has kernels interpreted, on CPU memory"
    return ""


def open_heap(world: MPI.Intracomm, node: MPI.Intracomm, asked_bytes: int | None) -> None:
    """Take a GPU and map the node's heaps there. Collective over ``world``.

    asked_bytes: the most of each PE; None: all of the GPU's memory, or 1 GiB where the heap cannot grow.
    Errors on every PE alike: LaunchError, ArgumentError, UnreachableError, HeapExhaustedError.
    """
    index, problem = _device()
    for words in world.allgather(problem):
        if words:
            refuse(LaunchError, "init", "PYSHMEM_DEVICE", words, "a GPU that torch sees")
    vendor = "hip" if torch.version.hip else "cuda"
    try:
        with together(world):
            torch.cuda.set_device(index)
            properties = torch.cuda.get_device_properties(index)
            torch.empty(1, device=f"cuda:{index}")  # makes the context, which the driver's calls are in
            driver = Driver(vendor, index)
            own = driver.bus_id()
        _require_access(driver, world, node, own)
        gpu.arch = getattr(properties, "gcnArchName", "").split(":")[0] if vendor == "hip" else "nvidia"
        places = set(world.allgather((gpu.arch, gpu.shared)))
        gpu.reduces = not gpu.shared and len(places) == 1
        choice = _choice(driver, world, gpu.arch)
        cap = _cap(world, node, choice, asked_bytes, properties.total_memory)
        gpu.open(driver, world, node, job.node_pes, cap, choice)
    except DescriptorError as error:
        refuse_descriptors(error)
    except (DriverError, OSError, RuntimeError) as error:
        if isinstance(error, ShmemError):
            raise
        wants = "less, by heap_size or SHMEM_SYMMETRIC_SIZE, another PYSHMEM_PEER_MAP, or PYSHMEM_HEAP=cpu"
        refuse(HeapExhaustedError, "init", "heap", f"from the GPU's driver: {error}", wants)
    heaps["cuda"] = gpu


def _device() -> tuple[int, str]:
    """This PE's GPU, as torch counts, and what is wrong with it."""
    count, asked = torch.cuda.device_count(), environment.read("PYSHMEM_DEVICE")
    if asked is None:
        return list(job.node_pes).index(job.my_pe) % count, ""
    return asked, "" if asked < count else f"{asked} on PE {job.my_pe}, which has {count}"


def _require_access(driver: Driver, world: MPI.Intracomm, node: MPI.Intracomm, own: str) -> None:
    every = node.allgather(own)
    missing = []
    with together(world):
        missing = [peer for peer in every if driver.reaches(peer) is False]
    gpu.shared = len(set(every)) < len(every)
    for pairs in world.allgather([(own, peer) for peer in missing]):
        if pairs:
            one, other = pairs[0]
            wants = "GPUs with peer access, or PYSHMEM_HEAP=cpu"
            refuse(UnreachableError, "init", "device", f"the GPU {one}, which cannot load from {other}", wants)


def _choice(driver: Driver, world: MPI.Intracomm, arch: str) -> Choice:
    """One way for all: IPC where any PE needs it."""
    try:
        mine: Any = choose(driver, arch, environment.read("PYSHMEM_PEER_MAP"), environment.read("PYSHMEM_HIP_MEMORY"))
    except (ValueError, DriverError) as error:
        mine = str(error)
    every = world.allgather(mine)
    for each in every:
        if isinstance(each, str):
            refuse(ArgumentError, "init", "PYSHMEM_PEER_MAP", each, "auto, or a way that the driver has")
    if any(each.way != mine.way for each in every):
        mine = next(each for each in every if each.way == "ipc")
    return Choice(*mine)


def _cap(world: MPI.Intracomm, node: MPI.Intracomm, choice: Choice, asked: int | None, total: int) -> int:
    """Bytes of a PE's heap, at most: the least of all PEs'."""
    if asked is None and choice.way == "vmm":
        return int(min(world.allgather(total)))
    if asked is None:
        free, _ = torch.cuda.mem_get_info()
        return int(min(world.allgather(min(_IPC_BYTES, free // (2 * node.size))))) // 4096 * 4096
    return asked
