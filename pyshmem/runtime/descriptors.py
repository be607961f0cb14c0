"""File descriptors passed between the processes of a node: from the first PE to all, or from each PE to all.

They travel over abstract sockets (SCM_RIGHTS). Where sockets do not reach, as between containers that have a network
namespace each, a PE fetches them from the other process (pidfd_getfd). That needs one process-id namespace and the
permission to trace.
"""

from __future__ import annotations

import array
import ctypes
import os
import secrets
import socket
import struct
from typing import TYPE_CHECKING, NoReturn

from pyshmem.runtime.agreement import DescriptorError, together
from pyshmem.runtime.errors import UnreachableError, refuse

if TYPE_CHECKING:
    from mpi4py import MPI

_SECONDS = 60.0
_PIDFD_GETFD = 438  # the same number on all architectures; Python 3.10 has no wrapper
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Exchange:
    """The PEs of a node, ready to pass descriptors. Collective over the node, as are its methods."""

    def __init__(self, world: MPI.Intracomm, node: MPI.Intracomm) -> None:
        """Collective over ``world``. Errors: OSError, on every PE alike."""
        self._node = node
        with together(world):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.settimeout(_SECONDS)
            self._socket.bind("\0pyshmem-" + secrets.token_hex(16))
        self._peers: list[tuple[int, bytes]] = node.allgather((os.getpid(), self._socket.getsockname()))
        self.way = "sockets" if all(node.allgather(self._reaches_next())) else "pidfd_getfd"

    def close(self) -> None:
        self._socket.close()

    def swap(self, fd: int) -> list[int]:
        """Everybody's descriptor by slot, new ones of this process, our own place -1.

        Errors: DescriptorError, on this PE alone.
        """
        fds = [-1] * self._node.size
        try:
            self._by_sockets(fd, fds) if self.way == "sockets" else self._by_processes(fd, fds)
        except OSError as error:
            close_all(fds)
            raise DescriptorError(error.errno, str(error)) from error
        return fds

    def give(self, fd: int) -> int:
        """The first PE's descriptor: ``fd`` itself there, a new one of this process on the others.

        Errors: DescriptorError, on this PE alone.
        """
        try:
            return self._given_by_socket(fd) if self.way == "sockets" else self._given_by_process(fd)
        except OSError as error:
            raise DescriptorError(error.errno, str(error)) from error

    def _given_by_socket(self, fd: int) -> int:
        if self._node.rank:
            return self._receive()
        for slot in range(1, self._node.size):
            self._send(fd, slot)
        return fd

    def _given_by_process(self, fd: int) -> int:
        libc = _traceable()
        number, failure = self._node.bcast(fd), None
        try:
            fd = _fetch(libc, self._peers[0][0], number) if self._node.rank else fd
        except OSError as error:
            failure = error
        self._node.Barrier()  # nobody closes before all have fetched
        if failure:
            raise failure
        return fd

    def _send(self, fd: int, slot: int) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self._socket.sendmsg([b"f"], ancillary, 0, self._peers[slot][1])

    def _reaches_next(self) -> bool:
        """Whether a byte gets to the next PE's socket. Read there at once, so no queue fills."""
        size, slot = self._node.size, self._node.rank
        try:
            self._socket.sendto(b"?", self._peers[(slot + 1) % size][1])
            sent = True
        except OSError:
            sent = False
        if self._node.allgather(sent)[(slot - 1) % size]:
            self._socket.recv(1)
        return sent

    def _by_sockets(self, fd: int, fds: list[int]) -> None:
        """Rounds: in round r each PE gives to the one r further, with a barrier between, so that no queue fills."""
        size, slot = self._node.size, self._node.rank
        failure: OSError | None = None
        for step in range(1, size):
            try:
                self._send(fd, (slot + step) % size)
                fds[(slot - step) % size] = self._receive()
            except OSError as error:
                failure = failure or error
            self._node.Barrier()
        if failure:
            raise failure

    def _receive(self) -> int:
        space = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        _, ancillary, _, _ = self._socket.recvmsg(1, space)
        got, sender = -1, -1
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                got = array.array("i", data)[0]
            elif kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(data)[1]
        if got < 0 or sender != os.getuid():
            close_all([got])
            raise OSError(0, "a message without a descriptor, or from another user")
        return got

    def _by_processes(self, fd: int, fds: list[int]) -> None:
        libc = _traceable()
        numbers = self._node.allgather(fd)
        failure: OSError | None = None
        for slot, (pid, _) in enumerate(self._peers):
            if slot != self._node.rank and not failure:
                try:
                    fds[slot] = _fetch(libc, pid, numbers[slot])
                except OSError as error:
                    failure = error
        self._node.Barrier()  # nobody closes before all have fetched
        if failure:
            raise failure


def _traceable() -> ctypes.CDLL:
    """The C library, once other processes of this user may fetch descriptors from this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANYBODY), 0, 0, 0)  # where Yama guards; elsewhere it answers EINVAL
    return libc


def _fetch(libc: ctypes.CDLL, pid: int, number: int) -> int:
    process = os.pidfd_open(pid)
    try:
        fd = int(libc.syscall(_PIDFD_GETFD, process, number, 0))
    finally:
        os.close(process)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"pidfd_getfd from process {pid}: {os.strerror(ctypes.get_errno())}")
    return fd


def close_all(fds: list[int]) -> None:
    """Close those that are open."""
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def refuse_descriptors(error: DescriptorError) -> NoReturn:
    """Word that the PEs of this node cannot pass descriptors."""
    wants = (
        "processes of one user, in one network namespace, or in one process-id namespace with the permission to trace"
    )
    refuse(UnreachableError, "init", "comm", f"PEs of a node that cannot share memory: {error}", wants)
