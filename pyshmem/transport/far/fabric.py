"""What carries puts, gets and requests between nodes: a fabric, through libfabric, or TCP. See native/far/.

``auto`` takes providers of hardware only. Before a provider is used, a PE of each node writes to one of each other node and
reads back, PE 0 finds out whether the provider says that data are in place when they are not, and requests are answered.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyshmem.base.agreement import gather
from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, LaunchError, ShmemError, grouped, listed, refuse
from pyshmem.base.far import OPERATORS, SHIFT
from pyshmem.base.job import job
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import Heap
from pyshmem.native import _native
from pyshmem.transport.far.libfabric import FABRICS, library

_BY_ADDRESS = ("tcp", "net", "sockets", "udp")  # providers that need the address of the network interface
_TURNS, _WORDS = 10, 8  # messages of the self-test, and the words of 8 bytes of each
_STILL_MS = 20
_SENDS_IN_ORDER = 1 << 8  # FI_ORDER_SAS
ORDER = _SENDS_IN_ORDER | 1 << 7  # what a provider may promise of messages; FI_ORDER_SAW: they follow writes
_DIRECT = "registered"
_NEVER = (1 << 64) - 1
_LEAST_OF_WORDS = 9  # bytes: other providers may store a word of up to 8 in parts


class Fabric:
    """What this job uses. One per process, named ``fabric``.

    name: "tcp", or "fabric".  why: the reason, for SHMEM_INFO.  requests: what carries these, "tcp" or "fabric".
    gpu: how it reaches GPU memory, for SHMEM_INFO; "" without any.
    """

    def __init__(self) -> None:
        self.name, self.why, self.requests, self.gpu = "tcp", "", "tcp", ""
        self._path = self._provider = self._what = self._why_not = ""
        self._mine: Any = None  # what the other PEs are told after a step
        self._kept: Any = None  # what the self-test reads into

    def agree(self) -> tuple[str, str, str]:
        """Return PYSHMEM_FAR, _FABRIC and _AMO. Collective over the job. Errors, on all PEs: ArgumentError."""
        assert job.comm is not None
        names = ("PYSHMEM_FAR", "PYSHMEM_FABRIC", "PYSHMEM_AMO")
        answers = gather(job.comm, lambda: [read(name) or "" for name in names])
        for number, name in enumerate(names):
            wishes = grouped({pe: answer[number] for pe, answer in enumerate(answers)})
            if len(wishes) > 1:
                got = " and ".join(f"{wish or 'nothing'} on {listed(pes)}" for wish, pes in wishes.items())
                refuse(ArgumentError, "init", name, got, "one value on all PEs")
        wish, provider, requests = answers[0]
        return wish, provider, requests

    def open(self, wish: str, provider: str, requests: str, addresses: list[str]) -> None:
        """Use a fabric if ``wish`` allows it and it passes, and for requests if ``requests`` does. Collective over the job.

        The services of all PEs run.

        Errors, on all PEs: LaunchError if it was requested and cannot be used.
        """
        if wish == "tcp":
            self.why = "requested"
        elif wish == "auto" and not provider and job.on_one_host and read("PYSHMEM_NODE_SIZE"):
            self.why = "the nodes are pretended"
        else:
            self._open(wish, provider, requests, addresses)
        if requests == "fabric" and self.requests == "tcp":
            why = self._why_not or f"PYSHMEM_FAR is {self.name}: {self.why}"
            refuse(LaunchError, "init", "PYSHMEM_AMO", f"fabric, but {why}", "tcp, or auto")

    def close(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _open(self, wish: str, provider: str, requests: str, addresses: list[str]) -> None:
        assert job.comm is not None
        every: list[Any] = []
        steps = (
            lambda: self._choose(provider),
            lambda: self._register(addresses[job.my_pe]),
            lambda: self._connect(every),
            self._test,
            lambda: self._use(requests, every, trial=True),
            self._test_requests,
        )
        reason = ""
        for step in steps:
            reason = _first_reason(step)
            if reason:
                break
            every = job.comm.allgather(self._mine)
            if step is steps[0] and len(set(every)) > 1:
                fabrics = grouped(dict(enumerate(every))).items()
                reason = (
                    f"PEs have different fabrics: {' and '.join(f'{what} on {listed(pes)}' for what, pes in fabrics)}"
                )
                break
        if reason and wish == "fabric":
            refuse(LaunchError, "init", "PYSHMEM_FAR", f"fabric, but {reason}", "a fabric that all nodes share, or tcp")
        if reason:
            self.why, self.requests = reason, "tcp"
            _native.fabric_use(_NEVER, 0, 0)
        else:
            self.name, self.why = "fabric", self._what
            self._use(requests, every, trial=False)

    def _use(self, requests: str, every: list[Any], *, trial: bool) -> None:
        """Let the fabric carry data and, if they stay in order on all PEs, requests."""
        least = 1 if self._hardware or trial else _LEAST_OF_WORDS
        ordered = all(each[0] & _SENDS_IN_ORDER for each in every)
        if not ordered:
            self._why_not = f"{self._what} does not keep messages in order"
        alone = self._hardware and not gpu.size  # GPU data in messages of 8 KiB are slower than over TCP
        if ordered and (requests == "fabric" or (requests == "auto" and alone)):
            self.requests = "fabric"
        _native.fabric_use(least, int(trial), int(self.requests == "fabric"))

    @property
    def _hardware(self) -> bool:
        return self._provider.split(";")[0] in FABRICS

    def _choose(self, provider: str) -> None:
        """Find the library and the provider. Errors: OSError."""
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
            self._mine = _native.fabric_open(self._path, self._provider, node, ORDER, int(gpu.size > 0))
        except OSError as error:
            limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            locked = f" (ulimit -l: {limit} bytes may be locked)" if "fi_mr_reg" in str(error) and limit >= 0 else ""
            raise OSError(f"{error}{locked}") from error

    def _connect(self, every: list[Any]) -> None:
        known = tuple(tuple(each[1:]) if pe in cpu.far_deltas else None for pe, each in enumerate(every))
        _native.fabric_connect(known)
        _native.fabric_use(1, 1, 0)  # before the others' tests, which may begin sooner than this PE's

    def _test(self) -> None:
        """Let the first PE of each node exchange messages with those of all others. Errors: OSError, ShmemError."""
        self._exchange(cpu)
        sent = self._kept[0]
        if job.my_pe == 0 and sent.nbytes <= cpu.size:
            place = next(self._places(cpu, sent.nbytes))
            truthful = _native.fabric_trial(place, _STILL_MS, 7)
            _native.far_put(place, sent.ctypes.data, 8)
            _native.far_quiet()
            if not truthful:
                raise OSError(f"{self._what} says that data are in place before they are")

    def _exchange(self, heap: Heap) -> None:
        """Write to memory of other nodes and read it back. It has zeros in the end. Errors: OSError, ShmemError."""
        sent, found = self._kept = np.zeros((2, _WORDS), np.uint64)
        for place in self._places(heap, sent.nbytes):
            for turn in range(_TURNS):
                sent[:] = np.arange(1, _WORDS + 1) * (turn + 1) if turn < _TURNS - 1 else 0
                _native.far_put(place, sent.ctypes.data, sent.nbytes)
                _native.far_quiet()
                _native.far_get(found.ctypes.data, place, found.nbytes)
                if (found != sent).any():
                    raise OSError(f"{self._what} does not bring back what was written to PE {_pe_of(place)}")

    def share(self, first: int, end: int, iface: int) -> None:
        """Register a part of the GPU heap: puts and gets then go there directly. Collective over the job.

        first, end: bytes from the start of the heap. iface: libfabric's number of this kind of memory.
        """
        if self.name != "fabric" or (first and self.gpu != _DIRECT):
            return
        assert job.comm is not None
        every: list[Any] = []

        def admit() -> None:
            _native.fabric_admit_gpu(tuple(every))
            if not first:
                self._exchange(gpu)

        def register() -> None:
            self._mine = _native.fabric_register_gpu(gpu.system, first, end - first, iface, gpu.index)

        reason = _first_reason(register)
        if not reason:
            every = job.comm.allgather(self._mine)
            reason = _first_reason(admit)
        if reason and not first:
            _native.fabric_admit_gpu(None)
        self.gpu = f"through pinned CPU memory: {reason}" if reason else _DIRECT

    def _test_requests(self) -> None:
        """Let the same PEs exchange requests, if the fabric carries them. Errors: OSError, ShmemError."""
        add, update = (getattr(_native, f"far_{name}_uint64") for name in ("fetch", "update"))
        number = OPERATORS.index("add")
        for place in self._places(cpu, 8) if self.requests == "fabric" else ():
            for turn in range(_TURNS):
                update(number, place, 1)
                if add(number, place, 1) != 2 * turn + 1:
                    raise OSError(f"{self._what} does not keep requests to PE {_pe_of(place)} in order")
            _native.far_put(place, self._kept[0].ctypes.data, 8)
            _native.far_quiet()

    def _places(self, heap: Heap, nbytes: int) -> Iterator[int]:
        """Yield this node's memory on the first PE of each other node, if this PE is the first of its node."""
        region = job.nodes[job.my_pe] * nbytes
        if job.nodes.index(job.nodes[job.my_pe]) == job.my_pe and region + nbytes <= heap.size:
            for pe, delta in heap.far_deltas.items():
                if job.nodes.index(job.nodes[pe]) == pe:
                    yield heap.base + delta + region


def _pe_of(place: int) -> int:
    return (place >> SHIFT) - 1


def _first_reason(step: Callable[[], None]) -> str:
    """Take a step on all PEs. Return why it has failed on the first of those on which it has; "" if on none."""
    assert job.comm is not None
    mine = ""
    try:
        step()
    except (OSError, ShmemError) as error:
        mine = str(error) or type(error).__name__
    except MemoryError:
        mine = "there is no memory"
    return next((f"on PE {pe} {reason}" for pe, reason in enumerate(job.comm.allgather(mine)) if reason), "")


fabric = Fabric()
