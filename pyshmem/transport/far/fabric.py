"""What carries the data of puts and gets between nodes: a fabric, through libfabric, or TCP. Requests travel over TCP.

``auto`` takes providers of hardware only. Before a provider is used, a PE of each node writes to one of each other node and
reads back, and PE 0 finds out whether the provider says that data are in place when they are not. See _fabric.h.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pyshmem.runtime import _native
from pyshmem.runtime.agreement import gather
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.runtime.environment import read
from pyshmem.runtime.errors import ArgumentError, LaunchError, ShmemError, grouped, listed, refuse
from pyshmem.runtime.job import job

FABRICS = ("cxi", "verbs", "efa", "psm3", "opx")  # providers of hardware, in the order of choice
_BY_ADDRESS = ("tcp", "net", "sockets", "udp")  # providers that need the address of the network interface
_TURNS, _WORDS = 10, 8  # messages of the self-test, and the words of 8 bytes of each
_STILL_MS = 20
_NEVER = (1 << 64) - 1
_LEAST_OF_WORDS = 9  # bytes: other providers may store a word of up to 8 in parts


class Fabric:
    """What this job uses. One per process, named ``fabric``.

    name: "tcp", or "fabric".  why: the reason, for SHMEM_INFO.
    """

    def __init__(self) -> None:
        self.name, self.why = "tcp", ""
        self._path = self._provider = self._what = ""
        self._mine: Any = None  # what the other PEs are told after a step
        self._kept: Any = None  # what the self-test reads into

    def agree(self) -> tuple[str, str]:
        """Return PYSHMEM_FAR and PYSHMEM_FABRIC. Collective over the job. Errors, on all PEs: ArgumentError."""
        assert job.comm is not None
        names = ("PYSHMEM_FAR", "PYSHMEM_FABRIC")
        answers = gather(job.comm, lambda: [read(name) or "" for name in names])
        for number, name in enumerate(names):
            wishes = grouped({pe: answer[number] for pe, answer in enumerate(answers)})
            if len(wishes) > 1:
                got = " and ".join(f"{wish or 'nothing'} on {listed(pes)}" for wish, pes in wishes.items())
                refuse(ArgumentError, "init", name, got, "one value on all PEs")
        wish, provider = answers[0]
        return wish, provider

    def open(self, wish: str, provider: str, addresses: list[str]) -> None:
        """Use a fabric if ``wish`` allows it and it passes. The services of all PEs run. Collective over the job.

        Errors, on all PEs: LaunchError if it was requested and cannot be used.
        """
        if wish == "tcp":
            self.why = "requested"
        elif wish == "auto" and not provider and job.on_one_host and read("PYSHMEM_NODE_SIZE"):
            self.why = "the nodes are pretended"
        else:
            self._open(wish, provider, addresses)

    def close(self) -> None:
        self.name, self.why, self._mine, self._kept = "tcp", "", None, None

    def _open(self, wish: str, provider: str, addresses: list[str]) -> None:
        assert job.comm is not None
        every: list[Any] = []
        steps = (
            lambda: self._choose(provider),
            lambda: self._register(addresses[job.my_pe]),
            lambda: self._connect(every),
            self._test,
        )
        reason = ""
        for step in steps:
            reason = _first_reason(step)
            if reason:
                break
            every = job.comm.allgather(self._mine)
            if step is steps[0] and len(set(every)) > 1:
                reason = f"PEs have different ones: {', '.join(sorted({str(each) for each in every}))}"
                break
        if reason and wish == "fabric":
            refuse(LaunchError, "init", "PYSHMEM_FAR", f"fabric, but {reason}", "a fabric that all nodes share, or tcp")
        if reason:
            self.why = reason
            if hasattr(_native, "fabric_use"):
                _native.fabric_use(_NEVER, 0)
        else:
            self.name, self.why = "fabric", self._what
            _native.fabric_use(1 if self._what.split(";")[0].split(",")[0] in FABRICS else _LEAST_OF_WORDS, 0)

    def _choose(self, provider: str) -> None:
        """Find the library and the provider. Errors: OSError."""
        if not hasattr(_native, "fabric_open"):
            raise OSError("pyshmem was built where libfabric's headers are not")
        self._path = library()
        major, minor, names = _native.fabric_providers(self._path)
        chosen = provider or next((name for each in FABRICS for name in names if name.split(";")[0] == each), "")
        if chosen not in names:
            offered = ", ".join(dict.fromkeys(names)) or "nothing"
            raise OSError(f"libfabric {major}.{minor} offers {offered}, and no {provider or 'fabric'}")
        self._provider = chosen
        self._what = self._mine = f"{chosen}, libfabric {major}.{minor}"

    def _register(self, address: str) -> None:
        """Open endpoints and register the heap. Errors: OSError."""
        node = address if self._provider.split(";")[0] in _BY_ADDRESS else ""
        try:
            _, *self._mine = _native.fabric_open(self._path, self._provider, node)
        except OSError as error:
            limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            locked = f" (ulimit -l: {limit} bytes may be locked)" if "fi_mr_reg" in str(error) and limit >= 0 else ""
            raise OSError(f"{error}{locked}") from error

    def _connect(self, every: list[Any]) -> None:
        known = tuple(tuple(each) if pe in cpu.far_deltas else None for pe, each in enumerate(every))
        _native.fabric_connect(known)

    def _test(self) -> None:
        """Let the first PE of each node exchange messages with those of all others. Errors: OSError, ShmemError."""
        _native.fabric_use(1, 1)
        sent, found = self._kept = np.zeros((2, _WORDS), np.uint64)
        region = job.nodes[job.my_pe] * sent.nbytes  # of the target's heap, for this node
        if job.nodes.index(job.nodes[job.my_pe]) != job.my_pe or region + sent.nbytes > cpu.size:
            return
        firsts = [pe for pe in cpu.far_deltas if job.nodes.index(job.nodes[pe]) == pe]
        for pe in firsts:
            place = cpu.base + cpu.far_deltas[pe] + region
            for turn in range(_TURNS):
                sent[:] = np.arange(1, _WORDS + 1) * (turn + 1) if turn < _TURNS - 1 else 0
                _native.far_put(place, sent.ctypes.data, sent.nbytes)
                _native.far_quiet()
                _native.far_get(found.ctypes.data, place, found.nbytes)
                if (found != sent).any():
                    raise OSError(f"{self._what} does not bring back what was written to PE {pe}")
        if job.my_pe == 0:
            truthful = _native.fabric_trial(place, _STILL_MS, 7)
            _native.far_put(place, sent.ctypes.data, 8)
            _native.far_quiet()
            if not truthful:
                raise OSError(f"{self._what} says that data are in place before they are")


def library() -> str:
    """Return the libfabric that this process has loaded, such as MPI's, or the name of the system's."""
    found = re.search(r"\S*/libfabric\.so\S*", Path("/proc/self/maps").read_text())
    return found[0] if found else "libfabric.so.1"


def _first_reason(step: Callable[[], None]) -> str:
    """Take a step on all PEs. Return why it has failed on the first of those on which it has; "" if on none."""
    assert job.comm is not None
    mine = ""
    try:
        step()
    except (OSError, ShmemError) as error:
        mine = str(error) or type(error).__name__
    return next((f"on PE {pe} {reason}" for pe, reason in enumerate(job.comm.allgather(mine)) if reason), "")


fabric = Fabric()
