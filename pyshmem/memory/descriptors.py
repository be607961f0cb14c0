"""Passes file descriptors between the processes of a node, from the first PE to all PEs or from each PE to all PEs.

Descriptors are sent to mailboxes. If the PEs cannot reach each other's, as in containers that do not share /dev/shm, a PE
fetches the descriptors from the other process (pidfd_getfd). That requires a common process-id namespace and permission to
trace. No PE waits for one that is late but in a collective call of the node: what has been sent is there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from typing import TYPE_CHECKING, NoReturn

from pyshmem.base.agreement import DescriptorError
from pyshmem.base.errors import LaunchError, UnreachableError, refuse
from pyshmem.memory.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyshmem.base.bootstrap import Comm
    from pyshmem.memory.mailbox import Place

_SPARE = 64  # descriptors for the program, beside connections
_AT_ONCE = 8  # messages to a mailbox: fewer than its queue may be limited to (net.unix.max_dgram_qlen)
_PIDFD_GETFD = 438  # the number is the same on all architectures; Python 3.10 has no wrapper
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1
_libc = ctypes.CDLL(None, use_errno=True)


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


def of_first(node: Comm, mailbox: Mailbox, places: Sequence[Place], create: Callable[[], int]) -> int:
    """Return the descriptor that ``create`` returns on the first PE of the node: a new one on the others.

    places: those of the node's PEs, by node rank. The first PE keeps its own open until all have returned.
    Collective over the node. Errors, on this PE only: OSError of create on all, DescriptorError.
    """
    if node.rank:
        number, faults, fault = node.bcast(None)
        if fault:
            raise OSError(*fault)
        return _gathered(mailbox, places, {0: [number]}, {0: faults[node.rank]})[0][0]
    told: tuple[int, list[str], tuple[int, str] | None] = -1, [], None
    try:
        fd = create()
        told = fd, [_fault_of(mailbox, [fd], places, rank, 0) for rank in range(node.size)], None
    except OSError as error:
        told = -1, [], (error.errno or 0, error.strerror or str(error))
        raise
    finally:
        node.bcast(told)
    return fd


class Exchange:
    """Passes descriptors from each PE of a node to all. All methods are collective over the node."""

    def __init__(self, node: Comm) -> None:
        self._node = node

    def swap(self, fd: int) -> list[int]:
        """Return a new descriptor for the ``fd`` of each PE, by node rank; this PE's own entry is -1.

        Errors: DescriptorError, on this PE only.
        """
        return [every[0] if every else -1 for every in self.swap_all([fd])]

    def swap_all(self, fds: Sequence[int]) -> list[list[int]]:
        """Return new descriptors for the ``fds`` of each PE, by node rank; this PE's own entry is empty.

        fds: at most 253.
        Errors: DescriptorError, on this PE only.
        """
        size, rank = self._node.size, self._node.rank
        theirs: list[list[int]] = [[] for _ in range(size)]
        if size == 1:
            return theirs
        failure: OSError | None = None
        fetched = False
        with Mailbox() as mailbox:
            places, numbers = zip(*self._node.allgather((mailbox.place, list(fds))), strict=True)
            for first in range(1, size, _AT_ONCE):
                steps = range(first, min(first + _AT_ONCE, size))
                sent = [_fault_of(mailbox, fds, places, (rank + step) % size, rank) for step in steps]
                every = self._node.allgather(sent)
                senders = {(rank - step) % size: step - first for step in steps}
                fetched |= any(map(any, every))
                try:
                    wanted = {sender: numbers[sender] for sender in senders}
                    faults = {sender: every[sender][at] for sender, at in senders.items()}
                    for sender, found in _gathered(mailbox, places, wanted, faults).items():
                        theirs[sender] = found
                except DescriptorError as error:
                    failure = failure or error
        if fetched:
            self._node.Barrier()  # no PE closes its descriptors before all have fetched them
        if failure:
            close_all([fd for each in theirs for fd in each])
            raise failure
        return theirs


def _fault_of(mailbox: Mailbox, fds: Sequence[int], places: Sequence[Place], to: int, rank: int) -> str:
    """Send descriptors. Return why they do not reach that PE, which fetches them then; "" if they do."""
    try:
        if fds and to != rank:
            mailbox.send(fds, places[to], rank)
    except OSError as error:
        _traceable()
        return str(error) or type(error).__name__
    return ""


def _gathered(
    mailbox: Mailbox, places: Sequence[Place], numbers: Mapping[int, Sequence[int]], faults: Mapping[int, str]
) -> dict[int, list[int]]:
    """Return new descriptors for those of some PEs, by node rank: received, or fetched where there was a fault.

    numbers: the descriptors, as those PEs have them. Errors: DescriptorError.
    """
    found: dict[int, list[int]] = {}
    try:
        found |= mailbox.receive({rank: len(fds) for rank, fds in numbers.items() if fds and not faults[rank]})
        for rank, fds in numbers.items():
            for number in fds if faults[rank] else ():
                found.setdefault(rank, []).append(_fetch(places[rank].pid, number, faults[rank]))
    except OSError as error:
        close_all([fd for each in found.values() for fd in each])
        hint = exhausted() if error.errno == errno.EMFILE else ""
        raise DescriptorError(error.errno, f"{error}{hint}") from error
    return found


def _traceable() -> None:
    """Let other processes of this user fetch descriptors from this one."""
    _libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANYBODY), 0, 0, 0)  # needed under Yama; elsewhere it fails with EINVAL


def _fetch(pid: int, number: int, fault: str) -> int:
    """Return a new descriptor for one of another process. fault: why it has not been sent. Errors: OSError."""
    process = os.pidfd_open(pid)
    try:
        fd = int(_libc.syscall(_PIDFD_GETFD, process, number, 0))
    finally:
        os.close(process)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{fault}; pidfd_getfd from process {pid}: {os.strerror(code)}")
    return fd


def close_all(fds: list[int]) -> None:
    """Close the descriptors that are not -1."""
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def refuse_descriptors(error: DescriptorError) -> NoReturn:
    """Report that the PEs of this node cannot pass descriptors. Errors: UnreachableError."""
    wants = (
        "processes of one user that share /dev/shm, or a process-id namespace with the permission to trace each other"
    )
    refuse(UnreachableError, "init", "comm", f"PEs of a node that cannot share memory: {error}", wants)
