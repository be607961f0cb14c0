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
from pyshmem.runtime.errors import LaunchError, UnreachableError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyshmem.runtime.bootstrap import Comm

    Place = tuple[int, bytes]  # the id of a process, and the name of its socket

_SECONDS = 60.0
_SPARE = 64  # descriptors for the program, beside connections
_PIDFD_GETFD = 438  # the number is the same on all architectures; Python 3.10 has no wrapper
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def raise_limit() -> None:
    """Raise this process's limit of open descriptors to the most that the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def provide(far_pes: int) -> None:
    """Raise the limit so that this process can connect with that many PEs. Errors: LaunchError if the system forbids it."""
    raise_limit()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = len(os.listdir("/proc/self/fd")) + 2 * far_pes + _SPARE
    if limit != resource.RLIM_INFINITY and needed > limit:
        got = f"a hard limit of {limit} open files on {os.uname().nodename}"
        wants = f"{needed}, two of them for each of {far_pes} PEs of other nodes: raise it, see ulimit -Hn"
        refuse(LaunchError, "init", "RLIMIT_NOFILE", got, wants)


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


class Mailbox:
    """A socket at which other processes of the node reach this one. ``place`` is what they must know of it."""

    def __init__(self) -> None:
        """Errors: OSError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.settimeout(_SECONDS)
        self._socket.bind("\0pyshmem-" + secrets.token_hex(16))
        self.place: Place = os.getpid(), self._socket.getsockname()

    def close(self) -> None:
        self._socket.close()

    def send(self, fds: Sequence[int], place: Place) -> None:
        """Errors: OSError if no message from here reaches that process."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._socket.sendmsg([b"f"], ancillary, 0, place[1])

    def receive(self, count: int = 1) -> list[int]:
        """Return the ``count`` descriptors of the next message that has come. Errors: OSError."""
        space = socket.CMSG_SPACE(4 * count) + socket.CMSG_SPACE(_CREDENTIALS.size)
        _, ancillary, flags, _ = self._socket.recvmsg(1, space)
        got, sender = array.array("i"), -1
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                got.frombytes(data)
            elif kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(data)[1]
        if len(got) != count or sender != os.getuid():
            close_all(got.tolist())
            if flags & socket.MSG_CTRUNC and (hint := exhausted()):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE) + hint)
            raise OSError(0, "received a message without its descriptors, or from another user")
        return got.tolist()

    def reaches(self, place: Place) -> bool:
        """Send a byte there, which ``skip`` reads. Return whether it has been sent."""
        try:
            self._socket.sendto(b"?", place[1])
        except OSError:
            return False
        return True

    def skip(self) -> None:
        self._socket.recv(1)


def of_first(node: Comm, mailbox: Mailbox, places: Sequence[Place], create: Callable[[], int]) -> int:
    """Return the descriptor that ``create`` returns on the first PE of the node: a new one on the others.

    places: those of the node's PEs, by node rank. The first PE keeps its own open until all have returned.
    Collective over the node. Errors, on this PE only: OSError of create on all, DescriptorError.
    """
    if node.rank:
        pid, number, unreached, fault = node.bcast(None)
        if fault:
            raise OSError(*fault)
        try:
            return _fetch(_traceable(), pid, number) if node.rank in unreached else mailbox.receive()[0]
        except OSError as error:
            raise DescriptorError(error.errno, str(error)) from error
    told: tuple[int, int, list[int], tuple[int, str] | None] = -1, -1, [], None
    try:
        fd = create()
        told = os.getpid(), fd, [rank for rank in range(1, node.size) if not _sent(mailbox, fd, places[rank])], None
        if told[2]:
            _traceable()
    except OSError as error:
        told = -1, -1, [], (error.errno or 0, error.strerror or str(error))
        raise
    finally:
        node.bcast(told)
    return fd


def _sent(mailbox: Mailbox, fd: int, place: Place) -> bool:
    try:
        mailbox.send([fd], place)
    except OSError:
        return False
    return True


class Exchange:
    """Passes descriptors from each PE of a node to all. All methods but close are collective over the node."""

    def __init__(self, world: Comm, node: Comm) -> None:
        """Connect the PEs. Collective over ``world``. Errors: OSError, on all PEs."""
        self._node = node
        with together(world):
            self._mailbox = Mailbox()
        self._peers: list[Place] = node.allgather(self._mailbox.place)
        self.way = "sockets" if all(node.allgather(self._reaches_next())) else "pidfd_getfd"

    def close(self) -> None:
        self._mailbox.close()

    def swap(self, fd: int) -> list[int]:
        """Return a new descriptor for the ``fd`` of each PE, by node rank; this PE's own entry is -1.

        Errors: DescriptorError, on this PE only.
        """
        return [every[0] if every else -1 for every in self.swap_all([fd], [1] * self._node.size)]

    def swap_all(self, fds: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        """Return new descriptors for the ``fds`` of each PE, by node rank; this PE's own entry is empty.

        counts: how many each PE gives, at most 253.
        Errors: DescriptorError, on this PE only.
        """
        theirs: list[list[int]] = [[] for _ in counts]
        try:
            if self.way == "sockets":
                self._by_sockets(fds, counts, theirs)
            else:
                self._by_processes(fds, theirs)
        except OSError as error:
            close_all([fd for each in theirs for fd in each])
            raise DescriptorError(error.errno, str(error)) from error
        return theirs

    def _reaches_next(self) -> bool:
        """Return whether a byte reaches the socket of the next PE, which reads it at once."""
        size, rank = self._node.size, self._node.rank
        sent = self._mailbox.reaches(self._peers[(rank + 1) % size])
        if self._node.allgather(sent)[(rank - 1) % size]:
            self._mailbox.skip()
        return sent

    def _by_sockets(self, fds: Sequence[int], counts: Sequence[int], theirs: list[list[int]]) -> None:
        """Send in rounds: in round r to the PE of rank + r. A barrier after each round keeps the sockets' queues short."""
        size, rank = self._node.size, self._node.rank
        failure: OSError | None = None
        for step in range(1, size):
            sender = (rank - step) % size
            try:
                self._mailbox.send(fds, self._peers[(rank + step) % size])
                theirs[sender] = self._mailbox.receive(counts[sender])
            except OSError as error:
                failure = failure or error
            self._node.Barrier()
        if failure:
            raise failure

    def _by_processes(self, fds: Sequence[int], theirs: list[list[int]]) -> None:
        libc = _traceable()
        numbers = self._node.allgather(list(fds))
        failure: OSError | None = None
        for rank, (pid, _) in enumerate(self._peers):
            for number in numbers[rank] if rank != self._node.rank and not failure else ():
                try:
                    theirs[rank].append(_fetch(libc, pid, number))
                except OSError as error:
                    failure = error
        self._node.Barrier()  # no PE closes its descriptors before all have fetched them
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
