"""Passes file descriptors between the processes of a node, from the first PE to all PEs or from each PE to all PEs.

Descriptors are sent over abstract sockets (SCM_RIGHTS). If the PEs cannot reach each other's sockets, as in containers
with separate network namespaces, a PE fetches the descriptors from the other process (pidfd_getfd). That requires a
common process-id namespace and permission to trace.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import resource
import secrets
import socket
import struct
from typing import TYPE_CHECKING, NoReturn

from pyshmem.runtime.agreement import DescriptorError, together
from pyshmem.runtime.errors import UnreachableError, refuse

if TYPE_CHECKING:
    from pyshmem.runtime.bootstrap import Comm

_SECONDS = 60.0
_PIDFD_GETFD = 438  # the number is the same on all architectures; Python 3.10 has no wrapper
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def raise_limit() -> None:
    """Raise this process's limit of open descriptors to the most that the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def exhausted() -> str:
    """Return a hint if this process cannot open another descriptor; otherwise ""."""
    try:
        os.close(os.open("/", os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.EMFILE:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            return (
                f"; this process has as many open files as it may, {limit}: raise the hard limit (ulimit -Hn, nofile)"
            )
    return ""


class Exchange:
    """Passes descriptors between the PEs of a node. All methods but close are collective over the node."""

    def __init__(self, world: Comm, node: Comm) -> None:
        """Connect the PEs. Collective over ``world``. Errors: OSError, on all PEs."""
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
        """Return a new descriptor for the ``fd`` of each PE, by node rank; this PE's own entry is -1.

        Errors: DescriptorError, on this PE only.
        """
        fds = [-1] * self._node.size
        try:
            self._by_sockets(fd, fds) if self.way == "sockets" else self._by_processes(fd, fds)
        except OSError as error:
            close_all(fds)
            raise DescriptorError(error.errno, str(error)) from error
        return fds

    def give(self, fd: int) -> int:
        """Return the first PE's descriptor: ``fd`` itself on that PE, a new descriptor for it on the others.

        Errors: DescriptorError, on this PE only.
        """
        try:
            return self._given_by_socket(fd) if self.way == "sockets" else self._given_by_process(fd)
        except OSError as error:
            raise DescriptorError(error.errno, str(error)) from error

    def _given_by_socket(self, fd: int) -> int:
        if self._node.rank:
            return self._receive()
        for rank in range(1, self._node.size):
            self._send(fd, rank)
        return fd

    def _given_by_process(self, fd: int) -> int:
        libc = _traceable()
        number, failure = self._node.bcast(fd), None
        try:
            fd = _fetch(libc, self._peers[0][0], number) if self._node.rank else fd
        except OSError as error:
            failure = error
        self._node.Barrier()  # no PE closes its descriptor before all have fetched it
        if failure:
            raise failure
        return fd

    def _send(self, fd: int, rank: int) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self._socket.sendmsg([b"f"], ancillary, 0, self._peers[rank][1])

    def _reaches_next(self) -> bool:
        """Return whether a byte reaches the socket of the next PE, which reads it at once."""
        size, rank = self._node.size, self._node.rank
        try:
            self._socket.sendto(b"?", self._peers[(rank + 1) % size][1])
            sent = True
        except OSError:
            sent = False
        if self._node.allgather(sent)[(rank - 1) % size]:
            self._socket.recv(1)
        return sent

    def _by_sockets(self, fd: int, fds: list[int]) -> None:
        """In round r each PE sends to the PE of rank + r. A barrier after each round keeps the sockets' queues short."""
        size, rank = self._node.size, self._node.rank
        failure: OSError | None = None
        for step in range(1, size):
            try:
                self._send(fd, (rank + step) % size)
                fds[(rank - step) % size] = self._receive()
            except OSError as error:
                failure = failure or error
            self._node.Barrier()
        if failure:
            raise failure

    def _receive(self) -> int:
        space = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        _, ancillary, flags, _ = self._socket.recvmsg(1, space)
        got, sender = -1, -1
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                got = array.array("i", data)[0]
            elif kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(data)[1]
        if got < 0 or sender != os.getuid():
            close_all([got])
            if flags & socket.MSG_CTRUNC and (hint := exhausted()):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE) + hint)
            raise OSError(0, "received a message without a descriptor, or from another user")
        return got

    def _by_processes(self, fd: int, fds: list[int]) -> None:
        libc = _traceable()
        numbers = self._node.allgather(fd)
        failure: OSError | None = None
        for rank, (pid, _) in enumerate(self._peers):
            if rank != self._node.rank and not failure:
                try:
                    fds[rank] = _fetch(libc, pid, numbers[rank])
                except OSError as error:
                    failure = error
        self._node.Barrier()  # no PE closes its descriptor before all have fetched it
        if failure:
            raise failure


def _traceable() -> ctypes.CDLL:
    """Let other processes of this user fetch descriptors from this one, and return the C library."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANYBODY), 0, 0, 0)  # needed under Yama; elsewhere it fails with EINVAL
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
    """Close the descriptors that are not -1."""
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def refuse_descriptors(error: DescriptorError) -> NoReturn:
    """Report that the PEs of this node cannot pass descriptors. Errors: UnreachableError."""
    wants = (
        "processes of one user, in one network namespace, or in one process-id namespace with the permission to trace"
    )
    refuse(UnreachableError, "init", "comm", f"PEs of a node that cannot share memory: {error}", wants)
