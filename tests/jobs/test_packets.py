"""Requests and replies as messages of MPI: what the service that polls does with packets, and how many may be under way.

A test plays MPI and the other PEs.
"""

import ctypes
import resource
import signal
import struct
import threading
import time

import numpy as np
import pytest
from far_peer import ADD_UINT64, FETCH, GET, N_PES, PUT, REPLY, REQUEST, UPDATE, Service
from pyshmem.runtime import _native
from surroundings import until
from test_service import in_child

REQUESTS, REPLIES = 16, 17  # tags
PACKET, PACKETS = (1 << 14) - 8, 8  # bytes of a packet's data; packets under way in one direction between two PEs
ANY, BYTE, COMM = -1, 21, 22
SHIFT = 48
HEAD = struct.Struct("=iI")
WORD = ctypes.POINTER(ctypes.c_uint64)
FLAG = ctypes.POINTER(ctypes.c_int)
BEGIN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, WORD
)
TEST = ctypes.CFUNCTYPE(ctypes.c_int, WORD, FLAG, ctypes.c_void_p)
IMPROBE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, FLAG, WORD, ctypes.c_void_p)
MRECV = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, WORD, ctypes.c_void_p)
BARRIER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)


class Mpi:
    """MPI of PE 0. A synchronous message that PE 0 sends to a PE of ``slow`` does not end.

    coming: (PE, tag, bytes) of the messages that PE 0 has not taken.  sent: (PE, tag, data, whether synchronous).
    """

    def __init__(self):
        self.coming, self.sent, self.slow, self.probed, self.code, self.met = [], [], set(), 0, 0, 0
        self._taken = {}
        self._functions = (
            *(BEGIN(self.irecv), BEGIN(self.isend), BEGIN(self.issend), TEST(self.test)),
            *(IMPROBE(self.improbe), MRECV(self.mrecv), BARRIER(self.barrier)),
        )
        calls = (ctypes.cast(each, ctypes.c_void_p).value for each in self._functions)
        _native.far_messages(*calls, BYTE, COMM, ANY, 0)

    def irecv(self, *words):
        raise AssertionError("no data go as messages of their own")

    def isend(self, data, nbytes, byte, pe, tag, comm, request, synchronous=False):
        pe_, size = HEAD.unpack(ctypes.string_at(data, HEAD.size))
        assert (pe_, size, byte, comm) == (0, nbytes - HEAD.size, BYTE, COMM)
        self.sent.append((pe, tag, ctypes.string_at(data + HEAD.size, size), synchronous))
        request[0] = pe if synchronous else 0
        return 0

    def issend(self, *words):
        return self.isend(*words, synchronous=True)

    def test(self, request, flag, status):
        flag[0] = request[0] not in self.slow
        return self.code

    def improbe(self, pe, tag, comm, flag, message, status):
        self.probed += 1
        found = next(
            (each for each in self.coming if each[0] in (pe, each[0] if pe == ANY else pe) and each[1] == tag), None
        )
        flag[0] = found is not None
        if found:
            self.coming.remove(found)
            message[0] = self.probed
            self._taken[self.probed] = found[2]
        return self.code

    def barrier(self, comm):
        self.met += 1
        return 0

    def mrecv(self, data, most, byte, message, status):
        taken = self._taken.pop(message[0])
        assert len(taken) <= most
        ctypes.memmove(data, taken, len(taken))
        return 0


class Peer:
    """PE ``pe``, which sends packets to PE 0 and reads what PE 0 sends with ``tag``."""

    def __init__(self, mpi, pe, tag=REQUESTS, answers=REPLIES):
        self.mpi, self.pe, self.tag, self.answers, self.read = mpi, pe, tag, answers, b""

    def send(self, data):
        for first in range(0, len(data), PACKET):
            part = data[first : first + PACKET]
            self.mpi.coming.append((self.pe, self.tag, HEAD.pack(self.pe, len(part)) + part))

    def request(self, op, offset=0, nbytes=0, *, asks=0, detail=0, value=0, payload=b""):
        self.send(REQUEST.pack(op, asks, detail, offset, nbytes, value, 0) + payload)

    def take(self, count):
        """Wait for ``count`` bytes."""

        def here():
            return b"".join(data for pe, tag, data, _ in self.mpi.sent if (pe, tag) == (self.pe, self.answers))

        assert until(lambda: len(here()) >= len(self.read) + count)
        got = here()[len(self.read) :][:count]
        self.read += got
        return got

    def reply(self):
        executed, value, nbytes = REPLY.unpack(self.take(REPLY.size))
        return executed, value, self.take(nbytes)

    def backlog(self):
        """How many packets PE 0 has not taken."""
        return sum(each[:2] == (self.pe, self.tag) for each in self.mpi.coming)


def rounds(mpi, count=3):
    """Let the service look for packets so often."""
    before = mpi.probed
    assert until(lambda: mpi.probed >= before + count * N_PES)


@pytest.fixture
def mpi():
    playing = Mpi()
    yield playing
    _native.far_messages()


@pytest.fixture
def service(mpi, request):
    """The service of PE 0. A parameter: its time-out."""
    timeout = getattr(request, "param", 20.0)
    running = Service(addresses=(None, b"", b"", b""), polls="always", timeout=timeout)
    yield running
    mpi.slow.clear()
    running.close()


@pytest.mark.parametrize("nbytes", [1, 8, 13, 8192, 8193, 3 * PACKET + 5])
def test_a_put_is_in_place_when_its_acknowledgement_comes_and_a_get_reads_it(nbytes, mpi, service):
    peer, data = Peer(mpi, 1), np.arange(nbytes).astype(np.uint8).tobytes()
    peer.request(PUT, 64, nbytes, payload=data, asks=1)
    assert peer.reply() == (1, 0, b"")
    assert service.heap[64 : 64 + nbytes].tobytes() == data
    assert not service.heap[:64].any() and not service.heap[64 + nbytes :].any()
    peer.request(GET, 64, nbytes)
    assert peer.reply() == (2, 0, data)


def test_requests_are_those_of_their_sender_in_its_order_wherever_packets_end(mpi, service):
    peers = [Peer(mpi, pe) for pe in (1, 2, 3)]
    for value in range(600):  # 600 requests of 48 and 40 bytes: packets of 16 KiB end within requests
        for peer in peers:
            offset = 16 * peer.pe
            put = REQUEST.pack(PUT, 0, 0, offset, 8, 0, 0) + struct.pack("=Q", value)
            peer.stream = getattr(peer, "stream", b"") + put + REQUEST.pack(UPDATE, 0, ADD_UINT64, offset + 8, 0, 1, 0)
    for peer in peers:
        peer.send(peer.stream)
        peer.request(FETCH, 16 * peer.pe + 8, detail=3)
    for peer in peers:
        assert peer.reply() == (1201, 600, b"")
    assert service.words[2:8].tolist() == [599, 600] * 3


def test_a_pe_that_takes_no_replies_has_to_wait_and_delays_nobody_and_loses_nothing(mpi, service):
    """Its packets stay with MPI, which bounds them, see the synchronous ones."""
    slow, other = Peer(mpi, 1), Peer(mpi, 2)
    mpi.slow.add(1)
    service.words[:1024] = np.arange(1024)
    for _ in range(100):
        slow.request(GET, 0, 8192)
    rounds(mpi)
    assert slow.backlog() > 50, "each of its replies takes half a packet"
    for turn in range(1, 21):
        other.request(PUT, 1 << 16, 8, payload=struct.pack("=Q", turn), asks=1)
        assert other.reply() == (turn, 0, b"")
    assert slow.backlog() > 50
    mpi.slow.clear()
    data = service.heap[:8192].tobytes()
    for turn in range(1, 101):
        assert slow.reply() == (turn, 0, data)


def test_so_few_packets_are_under_way_and_one_of_so_many_is_synchronous(mpi, service):
    """An end of a synchronous one says that the receiver has taken it, so that MPI need not keep what nobody takes."""
    slow = Peer(mpi, 1)
    mpi.slow.add(1)
    slow.request(GET, 0, 40 * PACKET)
    assert until(lambda: len(mpi.sent) == 2 * PACKETS - 1)
    rounds(mpi)
    eager = [False] * (PACKETS - 1)
    assert [each[3] for each in mpi.sent] == [*eager, True, *eager]
    mpi.slow.clear()
    assert slow.reply()[0] == 1
    assert [number % PACKETS for number, each in enumerate(mpi.sent) if each[3]] == [PACKETS - 1] * (
        len(mpi.sent) // PACKETS
    )


@pytest.mark.parametrize("service", [2.0], indirect=True)
def test_a_call_whose_packets_nobody_takes_reads_replies_meanwhile_and_names_the_pe_in_the_end(mpi, service):
    """The target does not take requests while it cannot reply."""
    target, source = Peer(mpi, 1, REPLIES, REQUESTS), np.arange(20 * PACKET, dtype=np.uint8)
    mpi.slow.add(1)
    found = np.zeros(2, np.uint64)
    _native.far_get_nbi(found.ctypes.data, 2 << SHIFT, 16)
    target.send(REPLY.pack(1, 0, 16) + struct.pack("=QQ", 5, 6))
    with pytest.raises(TimeoutError, match="put to PE 1"):
        _native.far_put(2 << SHIFT, source.ctypes.data, source.nbytes)
    assert found.tolist() == [5, 6] and len(mpi.sent) == 2 * PACKETS - 1


def test_a_service_that_ends_before_mpi_has_its_replies_first(mpi, service):
    """Open MPI's MPI_Finalize waits for a synchronous packet, such as a reply, that nobody takes."""
    target = Peer(mpi, 1, REPLIES, REQUESTS)
    _native.far_put(2 << SHIFT, service.base, 8)
    ending = threading.Thread(target=_native.far_end_polling)
    ending.start()
    rounds(mpi, 20)
    assert not mpi.met
    target.send(REPLY.pack(1, 0, 0))
    ending.join(60)
    assert mpi.met == 1 and not ending.is_alive()


def test_an_invalid_request_ends_the_pe_with_a_message():
    kept = []

    def program():
        kept.append((Mpi(), Service(addresses=(None, b"", b"", b""), polls="always")))
        Peer(kept[0][0], 1).request(GET, 1 << 20, 1)

    status, said = in_child(program)
    assert status == -signal.SIGKILL and said.startswith("PE 0: invalid request from PE 1\n")


def test_a_failure_of_mpi_ends_the_pe_with_a_message():
    kept = []

    def program():
        kept.append((Mpi(), Service(addresses=(None, b"", b"", b""), polls="always")))
        kept[0][0].code = 15

    status, said = in_child(program)
    assert status == -signal.SIGKILL and said == "PE 0: MPI has failed to receive requests\n"


@pytest.mark.parametrize("waits", ["", "a reply that nobody takes"])
def test_a_service_that_naps_uses_hardly_any_processor_time_when_nothing_moves(waits, mpi):
    service, peer = Service(addresses=(None, b"", b"", b""), polls="with naps"), Peer(mpi, 1)
    if waits:
        mpi.slow.add(1)
        peer.request(GET, 0, 40 * PACKET)
        assert until(lambda: len(mpi.sent) == 2 * PACKETS - 1)
    time.sleep(0.5)  # from 0.2 s on it looks every 2 ms
    before, probed = resource.getrusage(resource.RUSAGE_SELF), mpi.probed
    time.sleep(1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert mpi.probed - probed <= 600 * (N_PES if waits else 1)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.2
    mpi.slow.clear()
    peer.request(PUT, 0, 8, payload=b"12345678", asks=1)
    assert until(lambda: bytes(service.heap[:8]) == b"12345678")
    service.close()
