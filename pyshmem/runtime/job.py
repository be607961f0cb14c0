"""This process's place in the job: who it is, who its peers are. Filled by init, emptied by the last finalize.

A leaf: every other module may look here, and this one looks nowhere.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI


class Job:
    """One per process, named ``job``. ``inits`` counts init calls not yet matched by finalize; 0 means not initialised."""

    __slots__ = (
        "comm",
        "debug",
        "device",
        "generation",
        "inits",
        "my_pe",
        "n_pes",
        "node_comm",
        "node_pes",
        "scratch",
        "spins",
        "thread_level",
        "timeout",
        "why_no_gpu",
    )

    def __init__(self) -> None:
        self.generation = 0
        self.clear()

    def clear(self) -> None:
        self.inits = 0
        self.my_pe = -1
        self.n_pes = 0
        self.comm: MPI.Intracomm | None = None
        self.node_comm: MPI.Intracomm | None = None
        self.node_pes: range = range(0)  # world PEs of this node; index = slot in the node's heaps
        self.thread_level = 0
        self.debug = False  # SHMEM_DEBUG
        self.why_no_gpu = ""  # why no heap in GPU memory is open
        self.device = "cpu"  # which heap allocations take that name none
        self.scratch: int | None = None  # PYSHMEM_SCRATCH
        self.timeout = 300.0  # seconds a wait may last; 0: no limit
        self.spins = 0  # polls before a wait first yields its core

    def set_spins(self) -> None:
        """Spin long where every PE of the node has a core of its own, else yield early. Collective over the node."""
        assert self.node_comm is not None
        cores = set().union(*self.node_comm.allgather(os.sched_getaffinity(0)))  # each may be bound to one of them
        self.spins = 20000 if len(self.node_pes) <= len(cores) else 50


job = Job()
