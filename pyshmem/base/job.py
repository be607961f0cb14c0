"""The state of the job in this process. init sets it, and the last finalize clears it.

Every other module may import this one; it imports none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm


class Job:
    """The state of the job, one object per process, named ``job``.

    ``inits`` counts the calls of init that have no matching finalize yet; 0 means not initialised.
    """

    __slots__ = (
        "comm", "debug", "device", "first", "generation", "host_cores", "host_pes", "host_rank", "hosts", "inits",
        "my_pe", "n_pes", "node_comm", "node_pes", "nodes", "on_one_host", "scratch", "size_setting", "spins",
        "staging", "statics", "thread_level", "timeout", "why_no_gpu",
    )  # fmt: skip

    def __init__(self) -> None:
        self.generation = 0
        self.clear()

    def clear(self) -> None:
        self.inits = 0
        self.my_pe = -1
        self.n_pes = 0
        self.comm: Comm | None = None
        self.node_comm: Comm | None = None
        self.node_pes: tuple[int, ...] = ()  # world PEs of this node; the index is the node rank
        self.nodes: tuple[int, ...] = ()  # the number of the node of each PE
        self.hosts: tuple[str, ...] = ()  # the host of each PE
        self.on_one_host = True  # whether all PEs are on one host, which may be divided into several nodes
        self.first = ("", 0)  # the host and the process of PE 0
        self.host_pes = self.host_cores = 1  # PEs on this host, and cores that they may use
        self.host_rank = 0  # of this PE among them
        self.thread_level = 0
        self.debug = False  # SHMEM_DEBUG
        self.why_no_gpu = ""  # the reason why there is no heap in GPU memory
        self.device = "cpu"  # the heap of allocations that name no device
        self.size_setting = "SHMEM_SYMMETRIC_SIZE, or pyshmemrun --heap-size"  # what sets the size of the heap
        self.scratch: int | None = None  # PYSHMEM_SCRATCH
        self.staging: int | None = None  # PYSHMEM_STAGING
        self.statics = 0  # bytes of the heap for the static data of a C program
        self.timeout = 300.0  # the most seconds that a wait lasts; 0: no limit
        self.spins = 0  # polls before a wait yields its core for the first time

    def set_spins(self) -> None:
        """Set ``spins``: many if every PE of the host has a core of its own, otherwise few.

        In a job of several nodes a wait yields earlier: what it waits for may be stored by this PE's service thread, which
        may need the core. See docs/performance.md.
        """
        most = 500 if len(set(self.nodes)) > 1 else 20000
        self.spins = most if self.host_pes <= self.host_cores else 50


job = Job()
