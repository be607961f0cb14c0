"""The nodes of the job: which PEs share memory, and on which host each PE is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, cast

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.base.job import job

if TYPE_CHECKING:
    from pyshmem.start.census import Answer

MOST_PES, MOST_NODE_PES, MOST_NODES = 32766, 1024, 2048  # of a job of several nodes: see far/protocol.h and team/team.h


def find(comm: Any, answers: Sequence[Answer]) -> None:
    """Set the job's node and hosts. Collective over ``comm``; job.node_comm has the PEs of the host.

    Errors: ArgumentError, on all PEs alike.
    """
    sizes = {answer.node_size for answer in answers}
    if len(sizes) > 1:
        refuse(ArgumentError, "init", "PYSHMEM_NODE_SIZE", "different values", "one value on all PEs")
    size, host, mine = sizes.pop(), cast(Any, job.node_comm), answers[comm.rank]
    here = [answer for answer in answers if answer.leader == mine.leader]
    job.on_one_host, job.host_pes, job.host_rank = len(here) == comm.size, len(here), host.rank
    job.host_cores = reduce(or_, (answer.cores for answer in here)).bit_count()  # each PE may be bound to one core
    job.hosts = tuple(answer.host for answer in answers)
    if size:
        job.node_comm = host.Split(mine.world // size, comm.rank)
        host.Free()
    _number(comm, [(answer.leader, answer.world // size if size else 0) for answer in answers])


def divide(comm: Any, group: int) -> None:
    """Divide this node: its PEs of one ``group`` remain a node. Collective over ``comm``. Errors: ArgumentError."""
    whole: Any = job.node_comm
    job.node_comm = whole.Split(group, comm.rank)
    whole.Free()
    _number(comm, comm.allgather((job.nodes[comm.rank], group)))


def _number(comm: Any, keys: Sequence[Hashable]) -> None:
    """Set the job's nodes: PEs of equal keys share one. Errors: ArgumentError, on all PEs alike."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    job.nodes = tuple(numbers[key] for key in keys)
    job.node_pes = tuple(pe for pe in range(comm.size) if job.nodes[pe] == job.nodes[comm.rank])
    most = max(Counter(job.nodes).values())
    if len(numbers) > 1 and (comm.size > MOST_PES or most > MOST_NODE_PES or len(numbers) > MOST_NODES):
        got = f"{comm.size} PEs on {len(numbers)} nodes, up to {most} on one"
        wants = f"at most {MOST_PES} PEs, {MOST_NODES} nodes and {MOST_NODE_PES} PEs on each"
        refuse(ArgumentError, "init", "comm", got, wants)


def shared_team() -> tuple[int, int, int]:
    """Return (first PE, stride, size) of TEAM_SHARED.

    These are all PEs of the node if their numbers have equal distances. Otherwise the node's PEs form several such teams,
    as long as possible from the lowest PE on, because a team has a stride.
    """
    pes = list(job.node_pes)
    while True:
        stride = pes[1] - pes[0] if len(pes) > 1 else 1
        size = next((i for i in range(1, len(pes)) if pes[i] - pes[i - 1] != stride), len(pes))
        if job.my_pe in pes[:size]:
            return pes[0], stride, size
        pes = pes[size:]
