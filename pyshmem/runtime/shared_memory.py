"""One shared range of CPU memory for all PEs of a node, a segment of fixed stride for each, behind no name.

The range is a memfd: it lives as long as somebody has it mapped or open, so whatever ends the job, a kill included, leaves
nothing behind. Its descriptor goes from the node's first PE to the others over an abstract socket.
"""

from __future__ import annotations

import mmap
import os
import secrets
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

_CONNECT_SECONDS = 60.0


class Segment:
    """The mapping of the whole range in this process; ``memory`` is the buffer, ``slot`` * ``stride`` where ours begins."""

    def __init__(self, node: MPI.Intracomm, stride: int) -> None:
        """Collective over the node. Raises the same OSError on every PE where any of them lacks the memory."""
        self.stride = stride
        self.slot = node.rank
        error: OSError | None = None
        fd = -1
        try:
            fd = _shared_descriptor(node, stride * node.size)
            os.posix_fallocate(
                fd, self.slot * stride, stride
            )  # now, by its owner: near its core, and never a bus error later
            self.memory = mmap.mmap(fd, stride * node.size)
        except OSError as failure:
            error = failure
        finally:
            if fd >= 0:
                os.close(fd)
        failures = [failure for failure in node.allgather(error and (error.errno, str(error))) if failure]
        if failures:
            raise OSError(*failures[0])

    def discard(self) -> None:
        """Give this PE's pages back at once. The addresses stay mapped while a tensor of the caller still refers to them."""
        self.memory.madvise(mmap.MADV_REMOVE, self.slot * self.stride, self.stride)


def _shared_descriptor(node: MPI.Intracomm, nbytes: int) -> int:
    if node.rank:
        return _receive(node.bcast(None))
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind("\0pyshmem-" + secrets.token_hex(16))
        server.listen(node.size)
        server.settimeout(_CONNECT_SECONDS)
        fd = os.memfd_create("pyshmem-heap", os.MFD_CLOEXEC)
        os.ftruncate(fd, nbytes)
    except OSError:
        node.bcast("")
        raise
    with server:
        node.bcast(server.getsockname())
        sent = 1
        while sent < node.size:
            connection, _ = server.accept()
            with connection:
                if _peer_uid(connection) == os.getuid():
                    socket.send_fds(connection, [b"h"], [fd])
                    sent += 1
    return fd


def _receive(address: bytes | str) -> int:
    if not address:
        raise OSError(0, "the first PE of the node could not create the shared memory")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_CONNECT_SECONDS)
        client.connect(address)
        if _peer_uid(client) != os.getuid():
            raise OSError(0, "the socket of the shared memory belongs to another user")
        _, fds, _, _ = socket.recv_fds(client, 1, 1)
    if not fds:
        raise OSError(0, "no descriptor of the shared memory came over the socket")
    return fds[0]


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])
