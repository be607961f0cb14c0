"""Decides whether there is a heap in GPU memory, chooses the GPU and opens the heap. All PEs decide alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pyshmem.base import environment, interpreter
from pyshmem.base.agreement import DescriptorError, gather, together
from pyshmem.base.bootstrap import StoreComm
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, LaunchError, ShmemError, UnreachableError, refuse
from pyshmem.base.job import job
from pyshmem.memory.descriptors import refuse_descriptors
from pyshmem.memory.gpu.driver import Driver, DriverError
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.gpu.mapping import Choice, choose
from pyshmem.memory.heap import heaps
from pyshmem.start import nodes
from pyshmem.start.requirements import version_of_any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyshmem.base.bootstrap import Comm

ARCHS = ("nvidia", "gfx90a", "gfx942", "gfx950")
_OTHER_ARCHS = {  # the first that fits; what stands against it
    "gfx908": "MI100: Triton from 3.6 compiles for it; its waits and caches are not those that kernels here rely on",
    "gfx1250": "Triton from 3.6 compiles for it; kernels here have no fences for its caches",
    "gfx94": "a forerunner of MI300: Triton 3.6 and 3.7 do not compile for it",
    "gfx1": "RDNA: Triton from 3.6 compiles for it, with waves of 32; kernels here have no fences for its caches",
}
# of a GPU, versions of Triton that compile wrongly for it, with their build tag; what is known
_WRONG_TRITONS = {
    "gfx950": (r"3\.7\.\d+\+amd", "AMD's own build of it compiles loops wrongly for this GPU: aiter PR 4163"),
}
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


def find(world: Comm) -> Driver:
    """Choose this PE's GPU. PEs of a node whose GPUs cannot access each other become nodes of their own. Collective over
    ``world``.

    Errors, on all PEs: LaunchError, ArgumentError, HeapExhaustedError; UnreachableError in a job without MPI.
    """
    index, problem = _device()
    for found in world.allgather(problem):
        if found:
            refuse(LaunchError, "init", "PYSHMEM_DEVICE", found, "a GPU that torch sees")
    try:
        with together(world):
            torch.cuda.set_device(index)
            torch.empty(1, device=f"cuda:{index}")  # creates the context for the driver's calls
            driver = Driver("hip" if torch.version.hip else "cuda", index)
        _divide(driver, world)
    except (DriverError, OSError, RuntimeError) as error:
        _refuse_driver(error)
    return driver


def open_heap(driver: Driver, world: Comm, node: Comm, asked_bytes: int | None) -> None:
    """Map the heaps of the node. Collective over ``world``.

    asked_bytes: the most bytes of each PE; None means all memory of the GPU, or 1 GiB if the heap cannot grow.
    Errors, on all PEs: ArgumentError, HeapExhaustedError.
    """
    try:
        properties = torch.cuda.get_device_properties(driver.device)
        gpu.arch = arch_of(driver)
        _require_arch(world, gpu.arch)
        gpu.chiplets = driver.chiplets()
        kinds = set(world.allgather((gpu.arch, gpu.shared)))
        gpu.reduces = not gpu.shared and len(kinds) == 1
        gpu.in_turn = driver.takes_turns()
        choice = _choice(driver, world, gpu.arch)
        cap = _cap(world, node, choice, asked_bytes, properties.total_memory)
        gpu.open(driver, world, node, job.node_pes, cap, choice)
    except DescriptorError as error:
        refuse_descriptors(error)
    except (DriverError, OSError, RuntimeError) as error:
        _refuse_driver(error)
    heaps["cuda"] = gpu


def arch_of(driver: Driver) -> str:
    """Return "nvidia", or the architecture of AMD's GPU, such as gfx942."""
    properties = torch.cuda.get_device_properties(driver.device)
    return getattr(properties, "gcnArchName", "").split(":")[0] if driver.vendor == "hip" else "nvidia"


def refused(arch: str) -> str:
    """Return what stands against a GPU: the kernels' order of memory is not written for it, or Triton is wrong; or ""."""
    if arch in _WRONG_TRITONS:
        pattern, text = _WRONG_TRITONS[arch]
        found = version_of_any("triton")
        return f"Triton {found}: {text}" if re.match(pattern, found) else ""
    if arch in ARCHS:
        return ""
    return next((text for name, text in _OTHER_ARCHS.items() if arch.startswith(name)), "unknown here")


def _require_arch(world: Comm, arch: str) -> None:
    """Errors, on all PEs: LaunchError if something stands against the GPU of some PE."""
    allowed = all(gather(world, lambda: bool(environment.read("PYSHMEM_ALLOW_ARCH"))))
    for pe, (found, text) in enumerate(world.allgather((arch, refused(arch)))):
        if text and not allowed:
            got = f"a {found} on PE {pe} ({text})"
            wants = "the Triton of torch for ROCm" if found in ARCHS else f"{', '.join(ARCHS[1:])} or an NVIDIA GPU"
            wants += "; PYSHMEM_ALLOW_ARCH=1 tries it, PYSHMEM_HEAP=cpu does without"
            refuse(LaunchError, "init", "device", got, wants)


def _refuse_driver(error: Exception) -> NoReturn:
    if isinstance(error, ShmemError):
        raise error
    wants = "a smaller heap_size or SHMEM_SYMMETRIC_SIZE, another PYSHMEM_PEER_MAP, or PYSHMEM_HEAP=cpu"
    refuse(HeapExhaustedError, "init", "heap", f"an error of the GPU driver: {error}", wants)


def _device() -> tuple[int, str]:
    """Return the index of this PE's GPU, as torch counts, and a description of its fault, or ""."""
    count, asked = torch.cuda.device_count(), environment.read("PYSHMEM_DEVICE")
    if asked is None:
        return job.host_rank % count, ""
    return asked, "" if asked < count else f"{asked} on PE {job.my_pe}, which has {count} GPUs"


def _divide(driver: Driver, world: Comm) -> None:
    """Divide this node into the groups of PEs whose GPUs all access each other: what is near is mapped."""
    assert job.node_comm is not None
    with together(world):
        own = driver.bus_id()
    every = job.node_comm.allgather(own)
    apart: list[str] = []
    with together(world):
        apart = [peer for peer in every if driver.reaches(peer) is False]
    alone = gather(world, lambda: bool(environment.read("PYSHMEM_PEER_MAP") == "none"))[job.my_pe]
    group = groups(job.node_comm.allgather((own, apart, alone)))
    gpu.divided = any(world.allgather(max(group) > 0))
    if gpu.divided:
        if isinstance(world, StoreComm):
            got = f"GPUs that cannot all access each other: {', '.join(sorted(set(every)))}"
            wants = "GPUs with peer access, a start by MPI, or PYSHMEM_HEAP=cpu"
            refuse(UnreachableError, "init", "device", got, wants)
        nodes.divide(world, group[job.node_comm.rank])
    mine = driver.device, tuple(driver.bus_ids), driver.uuid()
    gpu.shared = shared(list(zip(job.hosts, world.allgather(mine), strict=True)))


def shared(pes: Sequence[tuple[Any, tuple[int, tuple[str, ...], str]]]) -> bool:
    """Return whether two PEs use one GPU.

    Bus ids tell GPUs apart, and partitions of an AMD GPU too, or not. UUIDs do, where the driver has them, and ordinals
    where all PEs of a host see the same devices.

    pes: of each, its host, the ordinal of its GPU, the bus ids of all devices that it sees, and the GPU's UUID.
    """
    lists: dict[Any, set[tuple[str, ...]]] = {}
    for host, (_, bus_ids, _) in pes:
        lists.setdefault(host, set()).add(bus_ids)
    used = {
        (host, bus_ids[device], uuid, device if len(lists[host]) == 1 else -1) for host, (device, bus_ids, uuid) in pes
    }
    return len(used) < len(pes)


def groups(pes: Sequence[tuple[str, Sequence[str], bool]]) -> list[int]:
    """Return the group of each PE of a node. Each joins the first whose members' GPUs and its own access each other.

    pes: of each, its GPU, the GPUs that this one cannot access, and whether the PE is to be alone.
    """
    found: list[list[int]] = []

    def fits(pe: int, members: list[int]) -> bool:
        own, apart, alone = pes[pe]
        others = [pes[member] for member in members]
        return not alone and not any(away or other in apart or own in theirs for other, theirs, away in others)

    for pe in range(len(pes)):
        members = next((members for members in found if fits(pe, members)), None)
        if members is None:
            found.append(members := [])
        members.append(pe)
    return [next(number for number, members in enumerate(found) if pe in members) for pe in range(len(pes))]


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
    if gpu.divided:
        mine = Choice(*mine)._replace(why=f"{mine.why}; PEs that do not map each other's are nodes of their own")
    return Choice(*mine)


def _cap(world: Comm, node: Comm, choice: Choice, asked: int | None, total: int) -> int:
    """Return the most bytes of a PE's heap, the same for all PEs."""
    if asked is None and choice.way == "vmm":
        return int(min(world.allgather(total)))
    if asked is None:
        free, _ = torch.cuda.mem_get_info()
        return int(min(world.allgather(min(_IPC_BYTES, free // (2 * node.size))))) // 4096 * 4096
    return asked
