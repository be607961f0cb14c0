"""What carries requests, replies and data between nodes: TCP, messages of MPI, or TCP with messages for large data.

TCP wakes the service thread of the target, whereas MPI moves nothing unless a thread polls. So by default requests travel
over TCP, and MPI, which may be much faster on the fabric of a cluster, is polled only while the data of a large request
travel. With PYSHMEM_FAR=mpi, MPI carries everything, and the service always polls. See _messages.h, _wire.h and _polling.h.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np

from pyshmem.runtime import _native
from pyshmem.runtime.agreement import gather
from pyshmem.runtime.bootstrap import StoreComm
from pyshmem.runtime.cpu_heap import cpu
from pyshmem.runtime.environment import read
from pyshmem.runtime.errors import ArgumentError, LaunchError, ShmemError, grouped, listed, refuse
from pyshmem.runtime.far import LARGE
from pyshmem.runtime.job import job

_CALLS = tuple(f"MPI_{name}" for name in ("Irecv", "Isend", "Issend", "Test", "Improbe", "Mrecv", "Barrier"))
_MULTIPLE = 3  # MPI_THREAD_MULTIPLE
_PROBE = 1 << 20  # bytes of each measured put
_ROUNDS = 5
_MARGIN = 0.8  # messages are chosen if they take less than this part of the time over TCP


class Carrier:
    """What this job uses. One per process, named ``carrier``.

    name: "tcp", "mixed" or "mpi".  why: the reason, for SHMEM_INFO.
    """

    def __init__(self) -> None:
        self.name, self.why = "tcp", ""
        self._comm: Any = None

    def agree(self) -> str:
        """Return PYSHMEM_FAR. Collective over the job. Errors, on all PEs: ArgumentError, LaunchError."""
        assert job.comm is not None
        answers = gather(job.comm, lambda: (read("PYSHMEM_FAR"), _no_messages()))
        wishes = grouped({pe: wish for pe, (wish, _) in enumerate(answers)})
        if len(wishes) > 1:
            got = " and ".join(f"{wish} on {listed(pes)}" for wish, pes in wishes.items())
            refuse(ArgumentError, "init", "PYSHMEM_FAR", got, "one value on all PEs")
        wish = answers[0][0]
        lacks = next((f"on PE {pe} {reason}" for pe, (_, reason) in enumerate(answers) if reason), "")
        if wish in LARGE and lacks:
            refuse(LaunchError, "init", "PYSHMEM_FAR", f"{wish}, but {lacks}", "MPI with THREAD_MULTIPLE, or tcp")
        self.name, self.why = "tcp", "requested" if wish == "tcp" else lacks
        if wish == "auto" and not lacks and job.on_one_host and read("PYSHMEM_NODE_SIZE"):
            self.why = "the nodes are pretended"
        return "tcp" if self.why else str(wish)

    def load(self, wish: str) -> None:
        """Find the functions of MPI if ``wish`` needs them, before the services start. Collective over the job."""
        if wish == "tcp":
            return
        from mpi4py import MPI

        assert job.comm is not None
        self._comm = job.comm.Dup()  # type: ignore[attr-defined]
        handles = (MPI._handleof(each) % (1 << 64) for each in (MPI.BYTE, self._comm))
        _native.far_messages(*_functions(), *handles, MPI.ANY_SOURCE, job.my_pe)

    def choose(self, wish: str) -> None:
        """Choose the carrier if ``agree`` has not. The services of all PEs run. Collective over the job."""
        if wish == "tcp":
            return
        assert job.comm is not None
        job.comm.Barrier()
        self.name, self.why = (wish, "requested") if wish in LARGE else job.comm.bcast(_compare())
        _native.far_use_messages(LARGE.get(self.name, 0))

    def close(self) -> None:
        """Release the communicator. The service has ended. Collective over the job.

        All PEs meet, because MPI moves the last messages of this PE only in its calls.
        """
        if self._comm is not None:
            assert job.comm is not None
            job.comm.Barrier()
            _native.far_messages()
            self._comm.Free()
        self.name, self.why, self._comm = "tcp", "", None


def _functions() -> list[int | None]:
    """Return the addresses of _CALLS in the library that mpi4py has loaded. Errors: AttributeError, OSError."""
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)
    return [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _CALLS]


def _no_messages() -> str:
    """Return why data cannot travel as messages; "" if they can."""
    if isinstance(job.comm, StoreComm):
        return "there is no MPI"
    from mpi4py import MPI

    if MPI.Query_thread() < _MULTIPLE:
        return "MPI has no THREAD_MULTIPLE"
    try:
        _functions()
    except (AttributeError, OSError) as error:
        return f"MPI's functions are not found: {error}"
    return ""


def _compare() -> tuple[str, str]:
    """Return the faster carrier from PE 0 to the first far PE, and the times. Other PEs return at once.

    The data are zeros, and so is the memory to which they are put.
    """
    nbytes = min(_PROBE, cpu.size)
    if job.my_pe or nbytes < LARGE["mixed"]:
        return "tcp", f"the heap has only {nbytes} bytes"
    source = np.zeros(nbytes, np.uint8)
    place = cpu.base + cpu.far_deltas[min(cpu.far_deltas)]
    try:
        tcp, messages = (_seconds(least, place, source) for least in (0, LARGE["mixed"]))
    except ShmemError as error:  # the first call to that PE will raise it
        return "tcp", f"not measured: {error}"
    name = "mixed" if messages < _MARGIN * tcp else "tcp"
    return name, f"{nbytes} bytes take {messages * 1e3:.2f} ms by MPI and {tcp * 1e3:.2f} ms over TCP"


def _seconds(least: int, place: int, source: np.ndarray) -> float:
    """Return the shortest time of a put, after a put that connects."""
    _native.far_use_messages(least)
    times = []
    for _ in range(_ROUNDS + 1):
        begun = time.perf_counter()
        _native.far_put(place, source.ctypes.data, source.nbytes)
        _native.far_quiet()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


carrier = Carrier()
