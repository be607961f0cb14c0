"""The nodes of the job: which PEs share memory, and on which host each PE is."""

from __future__ import annotations

import os
from typing import Any

from pyshmem.runtime import environment
from pyshmem.runtime.agreement import gather
from pyshmem.runtime.errors import ArgumentError, refuse
from pyshmem.runtime.job import job

MOST_PES, MOST_NODE_PES, MOST_NODES = 32766, 1024, 2048  # of a job of several nodes: see _links.h and _barriers.h


def find(mpi: Any, comm: Any) -> None:
    """Set the job's node and hosts. Collective over ``comm``. Errors: ArgumentError, LaunchError, on all PEs alike."""
    sizes = gather(comm, lambda: environment.read("PYSHMEM_NODE_SIZE"))
    if len(set(sizes)) > 1:
        refuse(ArgumentError, "init", "PYSHMEM_NODE_SIZE", "different values", "one value on all PEs")
    host = comm.Split_type(mpi.COMM_TYPE_SHARED, comm.rank)
    node: Any = host.Split(mpi.COMM_WORLD.rank // sizes[0], comm.rank) if sizes[0] else host.Dup()
    job.node_comm = node
    job.on_one_host, job.host_pes, job.host_rank = host.size == comm.size, host.size, host.rank
    job.host_cores = len(set().union(*host.allgather(os.sched_getaffinity(0))))  # each PE may be bound to one core
    host.Free()
    job.hosts = tuple(comm.allgather(os.uname().nodename))
    _number(comm)


def divide(comm: Any, group: int) -> None:
    """Divide this node: its PEs of one ``group`` remain a node. Collective over ``comm``. Errors: ArgumentError."""
    whole: Any = job.node_comm
    job.node_comm = whole.Split(group, comm.rank)
    whole.Free()
    _number(comm)


def _number(comm: Any) -> None:
    """Set the job's nodes from the communicator of each. Errors: ArgumentError, on all PEs alike."""
    assert job.node_comm is not None
    leaders = comm.allgather(job.node_comm.bcast(comm.rank))
    numbers = {leader: number for number, leader in enumerate(sorted(set(leaders)))}
    job.nodes = tuple(numbers[leader] for leader in leaders)
    job.node_pes = tuple(pe for pe in range(comm.size) if job.nodes[pe] == job.nodes[comm.rank])
    most = max(job.nodes.count(number) for number in set(job.nodes))
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
