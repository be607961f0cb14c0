"""A far PE that a test plays by hand: the protocol of pyshmem/native/far/protocol.h over a socket; and a service that it talks to."""

import mmap
import secrets
import socket
import struct
import threading

import numpy as np
from pyshmem.base import layout
from pyshmem.native import _native

PUT, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH, BYE = layout.numbers(
    "PUT", "GET", "PUT_STRIDED", "GET_STRIDED", "UPDATE", "FETCH", "POST", "FLUSH", "BYE"
)
ADD_UINT64 = 3 * 16 + 3
GPU = layout.number("FAR_GPU")  # of an offset: it is in the GPU heap
PLACE = 2 << layout.number("FAR_SHIFT")  # the memory of PE 1
SECONDS = 60  # for an answer; machines are slow and shared
TOKEN, JOB, N_PES = b"0123456789abcdef", 77, 4
REQUEST, REPLY = layout.format_of("request_t"), layout.format_of("reply_t")
HELLO, CHALLENGE = struct.Struct("=8sQii16s"), struct.Struct("=16sQ")
MAGIC = b"pyshmem" + bytes([layout.number("PROTOCOL_VERSION")])
BY_CALLER, BY_SERVICE = 1, 2
SIP_STATE = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def sip_hash(key, data):
    """SipHash-2-4, after its authors' paper."""
    most = (1 << 64) - 1
    halves = struct.unpack("=QQ", key)
    v = [half ^ each for half, each in zip(halves * 2, SIP_STATE, strict=True)]

    def rounds(count):
        for _ in range(count):
            for a, b, left, turned in ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32)):
                v[a] = v[a] + v[b] & most
                v[b] = (v[b] << left | v[b] >> 64 - left) & most ^ v[a]
                v[a] = (v[a] << turned | v[a] >> 64 - turned) & most

    whole = data + bytes(-len(data) % 8 or 8)
    whole = whole[:-1] + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("=Q", whole):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def code_of(side, caller_nonce, service_nonce, target, pe, token=TOKEN, job=JOB):
    return sip_hash(token, struct.pack("=Q16s16sQQQ", side, caller_nonce, service_nonce, target, pe, job))


class Service:
    """PE 0, which serves a heap of 1 MiB. The other PEs are played by the test, or are other services."""

    def __init__(self, me=0, addresses=(None,) * N_PES, listener=None, timeout=float(SECONDS), refuse=None, spins=50):
        listener = listener or socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = listener.getsockname()[1]
        listener.setblocking(False)
        self._map = mmap.mmap(-1, 1 << 20)
        self.heap = np.frombuffer(self._map, np.uint8)
        self.words = self.heap.view(np.uint64)
        self.base = self.heap.ctypes.data
        hosts = tuple(f"host{pe}".encode() for pe in range(N_PES))
        _native.far_open(
            *(me, N_PES, self.base, 1 << 20, timeout, spins, JOB, TOKEN, listener.detach()),
            *(refuse or self.refuse, addresses, hosts),
        )

    @staticmethod
    def refuse(routine, pe, number):
        raise OSError(number, f"{routine} to PE {pe}")

    def open_gpu(self, gpu):
        """Serve the memory of a stand-in too, see standin_gpu."""
        code, self.first_calls = gpu.open()
        assert code == 0

    def close(self):
        _native.far_close()


def address_of(port):
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))


def accepted(listener, me, token=TOKEN):
    """The connection of a PE to the PE ``me`` that the test plays at ``listener``, and what it has sent."""
    connection, _ = listener.accept()
    connection.settimeout(SECONDS)
    hello, nonce = connection.recv(HELLO.size, socket.MSG_WAITALL), secrets.token_bytes(16)
    _, job, pe, _, caller_nonce = HELLO.unpack(hello)
    connection.sendall(CHALLENGE.pack(nonce, code_of(BY_SERVICE, caller_nonce, nonce, me, pe, token, job)))
    code = connection.recv(8, socket.MSG_WAITALL)
    if code == struct.pack("=Q", code_of(BY_CALLER, caller_nonce, nonce, me, pe, token, job)):
        connection.sendall(REPLY.pack(1, me, 0))
    return connection, hello + code


class Played:
    """This process is PE 0, and the test plays PE 1, of which PE 0 has a connection once it has put ``nbytes`` there."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS)
        self.service = Service(addresses=(None, address_of(self._listener.getsockname()[1]), None, None))

    def connect(self, nbytes=0):
        """The first request, as take returns it."""
        connecting = threading.Thread(target=_native.far_put, args=(PLACE, self.service.base, nbytes))
        connecting.start()
        self.socket, _ = accepted(self._listener, 1)
        connecting.join()
        return self.take()

    def take(self):
        """The operation and the bytes of the next request of PE 0."""
        op, _, _, _, nbytes, _, _ = REQUEST.unpack(self.socket.recv(REQUEST.size, socket.MSG_WAITALL))
        return op, nbytes

    def close(self):
        self.service.close()
        self.socket.close()
        self._listener.close()


class Peer:
    """PE ``pe`` of the job, which has a connection to the service at ``port``."""

    def __init__(self, port, pe=1, token=TOKEN, job=JOB, magic=MAGIC, nonce=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as PEs do
        self.nonce = secrets.token_bytes(16) if nonce is None else nonce
        self.socket.sendall(HELLO.pack(magic, job, pe, N_PES, self.nonce))
        self.challenge = self.bytes(CHALLENGE.size)
        if len(self.challenge) == CHALLENGE.size:
            nonce, code = CHALLENGE.unpack(self.challenge)
            self.target_is_known = code == code_of(BY_SERVICE, self.nonce, nonce, 0, pe, token, job)
            self.code = struct.pack("=Q", code_of(BY_CALLER, self.nonce, nonce, 0, pe, token, job))
            self.socket.sendall(self.code)

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
