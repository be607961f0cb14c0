"""A far PE that a test plays by hand: the protocol of pyshmem/runtime/_links.h over a socket; and a service that it talks to."""

import mmap
import socket
import struct

import numpy as np
from pyshmem.runtime import _native

PUT, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH, BYE = range(1, 10)
ADD_UINT64 = 3 * 16 + 3
GPU = 1 << 47  # of an offset: it is in the GPU heap
TOKEN, JOB, N_PES = b"0123456789abcdef", 77, 4
REQUEST, REPLY = struct.Struct("=HHIQQQQ"), struct.Struct("=QQQ")


class Service:
    """PE 0, which serves a heap of 1 MiB. The other PEs are played by the test, or are other services.

    polls: it has no socket and polls MPI, which is loaded; with naps if it is "with naps".
    """

    def __init__(self, me=0, addresses=(None,) * N_PES, listener=None, timeout=20.0, refuse=None, polls=""):
        number = -1
        if not polls:
            listener = listener or socket.create_server(("127.0.0.1", 0), backlog=16)
            self.port = listener.getsockname()[1]
            listener.setblocking(False)
            number = listener.detach()
        self._map = mmap.mmap(-1, 1 << 20)
        self.heap = np.frombuffer(self._map, np.uint8)
        self.words = self.heap.view(np.uint64)
        self.base = self.heap.ctypes.data
        hosts = tuple(f"host{pe}".encode() for pe in range(N_PES))
        _native.far_open(
            *(me, N_PES, self.base, 1 << 20, timeout, 50, JOB, TOKEN, number),
            *(refuse or self.refuse, addresses, hosts, polls == "with naps"),
        )

    @staticmethod
    def refuse(routine, pe, number):
        raise OSError(number, f"{routine} to PE {pe}")

    def open_gpu(self, gpu):
        """Serve the memory of a stand-in too, see standin_gpu."""
        _native.far_open_gpu(*gpu.arguments())

    def close(self):
        _native.far_close()


class Peer:
    """PE ``pe`` of the job, which has a connection to the service at ``port``."""

    def __init__(self, port, pe=1, token=TOKEN, job=JOB, magic=b"pyshmem1"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as PEs do
        self.socket.sendall(struct.pack("=8s16sQii", magic, token, job, pe, N_PES))

    def send(self, op, offset=0, nbytes=0, *, asks=0, detail=0, value=0, cond=0, payload=b""):
        self.socket.sendall(REQUEST.pack(op, asks, detail, offset, nbytes, value, cond) + payload)

    def put(self, offset, payload, asks=0):
        self.send(PUT, offset, len(payload), asks=asks, payload=payload)

    def bytes(self, count):
        """``count`` bytes of the connection; fewer at its end."""
        got = b""
        while len(got) < count:
            try:
                more = self.socket.recv(count - len(got))
            except ConnectionResetError:
                more = b""
            if not more:
                break
            got += more
        return got

    def reply(self):
        """(requests executed, value, data)"""
        executed, value, nbytes = REPLY.unpack(self.bytes(REPLY.size))
        return executed, value, self.bytes(nbytes)

    def leave(self):
        self.send(BYE)
        self.socket.close()
