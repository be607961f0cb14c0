"""The route to the CPU memory of far PEs, those on other nodes, whose service threads execute requests.

Requests travel over TCP, and so do data, unless a fabric carries those of puts and gets, see fabric. The calls are in
far/calls.h, the connections in far/link.h, and what executes requests in far/execute.h.

A put returns once its data are on their way, and quiet waits until they are in place. Gets and fetching atomics return with
the data. The requests of one PE to another are executed in order; the native functions order what the fabric carries.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch

from pyshmem.base.agreement import gather, together
from pyshmem.base.errors import ArgumentError, HeapExhaustedError, ShmemError, UnreachableError, refuse
from pyshmem.base.far import ATOMICS as NUMBERS
from pyshmem.base.far import OPERATORS
from pyshmem.base.job import job
from pyshmem.diagnosis.host_timeouts import called, refuse_timeout
from pyshmem.memory import descriptors
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import default
from pyshmem.memory.words import native
from pyshmem.native import _native
from pyshmem.transport.far import interfaces
from pyshmem.transport.far.fabric import fabric
from pyshmem.transport.far.proxy import proxy
from pyshmem.transport.route import Route, atomics_of

_WHY = {  # by errno, beside those of the system
    errno.EACCES: "it refused this PE's greeting",
    errno.EKEYREJECTED: "it has not proved that it belongs to this job",
    errno.ENOMEM: "this PE has no memory for what comes back of it",
    errno.EINTR: "an exception of a signal handler has ended a call in the middle of a request",
}
_BACKLOG = 4096  # connections that wait; the system may allow fewer
_LARGEST = 32  # bytes of an element, a complex long double


def _fetch_by(operator: str, dtype: torch.dtype) -> Callable[..., Any]:
    return partial(native("far_fetch", dtype), OPERATORS.index(operator))


def _update_by(operator: str, dtype: torch.dtype) -> Callable[..., Any]:
    return partial(native("far_update", dtype), OPERATORS.index(operator))


class Far(Route):
    """The route to the CPU memory of far PEs."""

    put = store = staticmethod(_native.far_put)
    get = staticmethod(_native.far_get)
    put_strided = staticmethod(_native.far_put_strided)
    get_strided = staticmethod(_native.far_get_strided)
    settle_pe = staticmethod(_native.far_quiet_pe)
    atomics = atomics_of(_fetch_by, _update_by)
    _signals = {"set": atomics["set"][torch.uint64], "add": atomics["add"][torch.uint64]}  # noqa: RUF012
    _details = {name: NUMBERS[name, "uint64"] for name in ("set", "add")}  # noqa: RUF012

    def __init__(self) -> None:
        self._thread = threading.local()
        self._held: list[Any] = []  # the targets of non-blocking gets

    def get_nbi(self, dest: int, place: int, nbytes: int, ctx: Any, private: Any) -> None:
        self._held.append(private)
        _native.far_get_nbi(dest, place, nbytes)

    def fetch(self, place: int, nbytes: int) -> int:
        if not hasattr(self._thread, "landing"):
            self._thread.landing = np.empty(_LARGEST // 8, np.uint64)
            self._thread.address = self._thread.landing.ctypes.data
        address: int = self._thread.address
        _native.far_get(address, place, nbytes)
        return address

    def signal(self, update: str, place: int, value: int) -> None:
        self._signals[update](place, value)

    def put_signal(self, place: int, source: int, nbytes: int, home: Route, update: str, word: int, value: int) -> None:
        if home is self:
            _native.far_put_signal(place, source, nbytes, word, self._details[update], value)
        else:
            super().put_signal(place, source, nbytes, home, update, word, value)

    def order(self) -> None:
        """Send the requests of this PE's kernels. Later operations on the same PE take effect after what is sent."""
        if proxy.memory:
            proxy.drain(default())
        _native.far_fence()

    def settle(self, ctx: Any = None) -> None:
        """Wait until every request has been executed, also those of other contexts and of kernels that have ended."""
        if proxy.memory:
            proxy.drain(default())
        held, self._held = self._held, []
        try:
            _native.far_quiet()
        except BaseException:  # of a signal handler, say: data may still come
            self._held += held
            raise

    drain = settle


def open_service() -> None:
    """Start the service thread. Collective over the job, whose heaps are open.

    Errors: UnreachableError, ArgumentError, LaunchError, OSError.
    """
    assert job.comm is not None
    wishes = fabric.agree()
    listener, addresses, places = _listen()
    token, number = job.comm.bcast((secrets.token_bytes(16), secrets.randbits(64)))
    known = tuple(places[pe] if pe in cpu.far_deltas else None for pe in range(job.n_pes))
    whole = cpu.base, cpu.size + cpu.system_bytes
    _native.far_open(
        *(job.my_pe, job.n_pes, *whole, job.timeout, job.spins, number, token),
        *(listener, _refuse, known, tuple(map(os.fsencode, job.hosts))),
    )  # fmt: skip
    try:
        fabric.open(*wishes, addresses)
    except ShmemError:
        close_service()
        raise


def close_service() -> None:
    """Stop the service thread. Every PE has completed its requests and then passed a barrier."""
    _native.far_close()
    fabric.close()
    proxy.close()


def _listen() -> tuple[int, list[str], list[bytes]]:
    """Return this PE's listening socket, and the address of each PE and of its socket. Collective over the job."""
    assert job.comm is not None
    offers = gather(job.comm, _offer)
    addresses = ["127.0.0.1"] * job.n_pes if job.on_one_host else interfaces.choose(offers, job.hosts)
    with together(job.comm):
        listener = socket.create_server((addresses[job.my_pe], 0), backlog=_BACKLOG)
        listener.setblocking(False)
    ports = job.comm.allgather(listener.getsockname()[1])
    return listener.detach(), addresses, [_sockaddr(*each) for each in zip(addresses, ports, strict=True)]


def _offer() -> list[interfaces.Interface]:
    """Return the interfaces that this PE may use. Errors: ArgumentError, LaunchError."""
    descriptors.provide(len(cpu.far_deltas))
    return [] if job.on_one_host else interfaces.offered()


def _sockaddr(address: str, port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton(address))


def _refuse(routine: str, pe: int, number: int) -> NoReturn:
    """Report a failed request, by the program's call.

    Errors: ArgumentError, HeapExhaustedError, UnreachableError, WaitTimeoutError.
    """
    routine = called() or routine
    who = f"PE {pe} on {job.hosts[pe]}"
    if number == errno.ETIMEDOUT:
        refuse_timeout(routine, "pe", f"no answer from {who}", "one that can be reached", [])
    if number == errno.ECHILD:
        got = f"{who}, in a process that was forked from PE {job.my_pe}"
        refuse(UnreachableError, routine, "pe", got, "the process that called init: a fork has no connections")
    if number == errno.EDEADLK:
        got = f"{who}, in a signal handler that has interrupted a request to it"
        refuse(UnreachableError, routine, "pe", got, "this call after that request")
    if number == errno.ENOBUFS:
        got = f"{who}, and no memory for a request to it, which has not been sent"
        refuse(HeapExhaustedError, routine, "pe", got, "memory of this process for what the request needs")
    if number == errno.EBADR:
        got = f"an atomic on {who}, at an address that is not aligned to the size of the word"
        refuse(ArgumentError, routine, "target", got, "an aligned one")
    why = _WHY.get(number) or os.strerror(number)
    refuse(UnreachableError, routine, "pe", f"{who}, whose connection has ended: {why}", "a PE that is running")


cpu.far = Far()
