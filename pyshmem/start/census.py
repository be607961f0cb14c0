"""What each PE says of itself when the job starts. All PEs learn it in one exchange, and decide alike from then on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from pyshmem.base import environment
from pyshmem.base.agreement import gather
from pyshmem.base.encoding import passed
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis import ranges
from pyshmem.memory.areas import pool
from pyshmem.memory.mailbox import Mailbox, Place
from pyshmem.start import gpu as opening
from pyshmem.start import local_cache

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm


@passed
class Answer(NamedTuple):
    """What one PE says."""

    world: int  # its number in MPI's world
    leader: int  # the lowest PE of its host
    host: str
    cores: int  # a bit for each core that it may use
    free: int  # bytes of memory that its host has
    place: Place  # of its mailbox
    node_size: int  # PYSHMEM_NODE_SIZE
    heap_size: int | None
    scratch: int | None
    staging: int | None
    statics: int  # bytes of a C program's static data
    wish: str | None  # the default heap
    why_no_gpu: str
    report: bool


def take(
    world: int, comm: Comm, host: Comm, heap_size: int | str | None, device: str | None
) -> tuple[list[Answer], Mailbox]:
    """Return the answers of all PEs, and this PE's mailbox. Collective over ``comm``.

    world: this PE's number in MPI's world.  host: the PEs of this host.
    Errors: ArgumentError, UnreachableError, on all PEs alike.
    """
    leader = host.bcast(comm.rank)
    boxes: list[Mailbox] = []

    def answer() -> Answer:
        settings = _settings(heap_size, device)
        boxes.append(Mailbox())
        cores = sum(1 << core for core in os.sched_getaffinity(0))
        name, free = os.uname().nodename, environment.available_memory()
        return Answer(world, leader, name, cores, free, boxes[0].place, *settings)

    try:
        return gather(comm, answer), boxes[0]
    except BaseException:
        for box in boxes:
            box.close()
        raise


def _settings(heap_size: int | str | None, device: str | None) -> tuple[Any, ...]:
    """Return the answers that the user's arguments and variables give."""
    job.timeout = environment.read("PYSHMEM_WAIT_TIMEOUT")
    job.debug = environment.read("SHMEM_DEBUG")
    if heap_size is not None:
        job.size_setting = "heap_size of init, which overrides SHMEM_SYMMETRIC_SIZE"
    environment.check()  # here, so that all PEs refuse what one has
    ranges.check()
    local_cache.settle()
    pool.open(environment.read("PYSHMEM_MAX_TEAMS"))
    wish = device or environment.read("PYSHMEM_HEAP")
    sizes = environment.asked_bytes(heap_size), environment.read("PYSHMEM_SCRATCH"), environment.read("PYSHMEM_STAGING")
    return (
        environment.read("PYSHMEM_NODE_SIZE"),
        *sizes,
        job.statics,
        wish,
        opening.why_not(wish),
        environment.read("PYSHMEM_REPORT"),
    )


def one_size(argument: str, asked: list[int | None]) -> int | None:
    """Return the size that all PEs ask for. Errors: ArgumentError if they differ."""
    low, high = (each(asked, key=lambda nbytes: -1 if nbytes is None else nbytes) for each in (min, max))
    if low != high:
        got = f"{'no size on one PE' if low is None else f'{low} bytes on one PE'} and {high} bytes on another"
        refuse(ArgumentError, "init", argument, got, "one size on all PEs")
    return low


def heap_bytes(answers: list[Answer]) -> int:
    """Return the bytes of each PE's heap in CPU memory, which is the same on all PEs.

    Errors: ArgumentError, HeapExhaustedError.
    """
    asked = one_size("heap_size", [each.heap_size for each in answers])
    # by leader: PEs, free bytes, which they read at different times, and name
    hosts: dict[int, tuple[int, int, str]] = {}
    for each in answers:
        pes, free, _ = hosts.get(each.leader, (0, each.free, ""))
        hosts[each.leader] = pes + 1, min(free, each.free), each.host
    for name, extra in (("PYSHMEM_SCRATCH", job.scratch), ("PYSHMEM_STAGING", job.staging)):
        for pes, free, host in hosts.values():
            environment.require_memory(name, extra or 0, pes, free, host)
    return min(
        environment.heap_bytes(asked, pes, job.device == "cpu", free - pes * (job.scratch or 0), host)
        for pes, free, host in hosts.values()
    )
