"""A socket at which other processes of this user on this node pass file descriptors (SCM_RIGHTS) to this one.

Its name lies in a folder that nobody else may enter, and is there only as long as one step of the PEs takes. The sender sees
to it that the folder is this user's alone, so that no descriptor goes to anybody else. A message begins with the key of
its mailbox, which is new each time, and the rank of its sender; what does not is dropped.
"""

from __future__ import annotations

import array
import errno
import os
import secrets
import socket
import stat
import struct
import tempfile
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from pyshmem.base.encoding import passed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "pyshmem-mailbox-"  # of the folder, by which pyshmemrun finds those of killed processes
SHARED = "/dev/shm"  # of one node, which MPI wants to be common to its processes, as TMPDIR may not be
_NAME = "s"
_SECONDS = 60.0
_KEY = 16  # bytes
_RANK = struct.Struct("<i")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@passed
class Place(NamedTuple):
    """What other processes must know of a mailbox. folder: "" if there is none, and nobody reaches it."""

    pid: int
    folder: str
    key: bytes


class Mailbox:
    """The socket. ``place`` is for those that send to it.

    Without a folder, or without a descriptor left for it, it is reached by nobody and reaches nobody.
    """

    def __init__(self) -> None:
        folder = ""
        self._fault: OSError | None = None
        self._undo = ExitStack()
        try:
            self._socket = self._undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            folder = self._bind()
        except OSError as error:
            self._fault = error
        self.place = Place(os.getpid(), folder, secrets.token_bytes(_KEY))

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket, which drops what nobody has received, and remove its name."""
        self._undo.close()

    def send(self, fds: Sequence[int], place: Place, rank: int = 0) -> None:
        """Send descriptors. rank: of this PE. Errors: OSError if no message from here reaches that process."""
        if self._fault:
            raise self._fault
        if not place.folder:
            raise FileNotFoundError(errno.ENOENT, f"process {place.pid} has no socket")
        self._socket.settimeout(_SECONDS)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        folder = _opened(place.folder)
        try:
            self._socket.sendmsg([place.key, _RANK.pack(rank)], ancillary, 0, _address(folder))
        finally:
            os.close(folder)

    def receive(self, wanted: Mapping[int, int]) -> dict[int, list[int]]:
        """Return the descriptors of a message from each of some senders. Other messages are dropped.

        wanted: how many, by the rank of the sender.
        Errors: OSError, also after a minute.
        """
        found: dict[int, list[int]] = {}
        until = time.monotonic() + _SECONDS
        try:
            while len(found) < len(wanted):
                self._socket.settimeout(max(0.001, until - time.monotonic()))
                rank, fds = self._next(max(wanted.values()))
                if rank in wanted and rank not in found:
                    found[rank] = fds
                    _require(len(fds) == wanted[rank])
                else:
                    _close(fds)
                if time.monotonic() > until:
                    raise TimeoutError
        except OSError as error:
            for fds in found.values():
                _close(fds)
            if isinstance(error, TimeoutError):
                late = ", ".join(str(rank) for rank in sorted(wanted.keys() - found.keys()))
                raise OSError(errno.ETIMEDOUT, f"no descriptors from node rank {late} in {_SECONDS:g} s") from None
            raise
        return found

    def _next(self, count: int) -> tuple[int, list[int]]:
        """Return the sender and the descriptors of the next message, at most ``count``; -1 if it is not for this mailbox."""
        space = socket.CMSG_SPACE(4 * count) + socket.CMSG_SPACE(_CREDENTIALS.size)
        text, ancillary, _, _ = self._socket.recvmsg(_KEY + _RANK.size + 1, space)
        got, sender = array.array("i"), -1
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                got.frombytes(data[: len(data) // 4 * 4])
            elif kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(data)[1]
        ours = len(text) == _KEY + _RANK.size and secrets.compare_digest(text[:_KEY], self.place.key)
        return _RANK.unpack(text[_KEY:])[0] if ours and sender == os.getuid() else -1, got.tolist()

    def _bind(self) -> str:
        """Give the socket a name in a new folder. Return the folder. Errors: OSError."""
        for parent in (SHARED, os.environ.get("TMPDIR") or "/tmp"):
            try:
                folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
                self._undo.callback(_remove, folder)
                own = _opened(folder)  # as long as the mailbox is: so pyshmemrun sees that it is in use
                self._undo.callback(os.close, own)
                self._socket.bind(_address(own))
                self._undo.callback(_unlink, folder)
                # of an unnamed socket, this would make an abstract name, which every user sees
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                return folder
            except OSError as error:
                fault = error
        raise fault


def _opened(folder: str) -> int:
    """Return a descriptor of a folder that is this user's alone. Errors: OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    state = os.fstat(fd)
    if state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
        os.close(fd)
        raise PermissionError(errno.EPERM, f"others may enter {folder}, or it is another user's")
    return fd


def _address(folder: int) -> str:
    """Return the name of the socket in an open folder, however long the folder's own name is: a socket's has 108 bytes."""
    return f"/proc/self/fd/{folder}/{_NAME}"


def _unlink(folder: str) -> None:
    with suppress(FileNotFoundError):  # what cleans the disk was there
        os.unlink(os.path.join(folder, _NAME))


def _remove(folder: str) -> None:
    with suppress(FileNotFoundError):
        os.rmdir(folder)


def _require(complete: bool) -> None:
    """Errors: OSError if the system has kept descriptors back."""
    if not complete:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
