"""Data of requests that come and go as messages of MPI: what the service does before a message has ended, and after. A test plays MPI."""

import ctypes

import pytest
from far_peer import FLUSH, GET, GPU, PUT, REQUEST, Peer, Service
from pyshmem.runtime import _native
from pyshmem.runtime.far import LARGE as FEWEST
from standin_gpu import Gpu
from test_service import in_child

BY_MPI, BYTE, COMM = 1, 21, 22
LARGE = FEWEST["mixed"]
WORD = 8 * 1000  # an offset that no data are at
BEGIN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_uint64),
)  # fmt: skip
TEST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)


class Messages:
    """MPI whose messages end when a test says so. begun: (PE, tag, data or address, bytes) of each, in order.

    asked: how often the service has asked whether a message has ended.
    """

    def __init__(self):
        self.begun, self.ended, self.code, self.asked = [], set(), 0, 0
        self._functions = BEGIN(self.irecv), BEGIN(self.isend), TEST(self.test)
        receive, send, test = (ctypes.cast(each, ctypes.c_void_p).value for each in self._functions)
        _native.far_messages(receive, send, 0, test, 0, 0, 0, BYTE, COMM, -1, 0)

    def isend(self, data, nbytes, byte, pe, tag, comm, request):
        return self._begin((pe, tag, ctypes.string_at(data, nbytes), nbytes), byte, comm, request)

    def irecv(self, data, nbytes, byte, pe, tag, comm, request):
        return self._begin((pe, tag, data, nbytes), byte, comm, request)

    def _begin(self, message, byte, comm, request):
        assert (byte, comm) == (BYTE, COMM)
        self.begun.append(message)
        request[0] = len(self.begun)
        return 0

    def test(self, request, flag, status):
        self.asked += 1
        flag[0] = request[0] - 1 in self.ended
        return self.code

    def arrive(self, number, data):
        """Let message ``number`` bring its data."""
        _, _, address, nbytes = self.begun[number]
        ctypes.memmove(address, data, nbytes)
        self.ended.add(number)


@pytest.fixture
def messages(service):
    playing = Messages()
    yield playing
    _native.far_messages()


@pytest.fixture
def peers(service, messages):
    connected = [Peer(service.port, pe) for pe in (1, 2)]
    for each in connected:
        each.reply()
    yield connected
    for each in connected:
        each.leave()


def until(reached, other):
    """Wait while the service goes round: it executes a later request of another PE again and again."""
    for _ in range(10_000):
        if reached():
            return
        other.send(FLUSH, asks=1)
        other.reply()
    raise AssertionError("the service has not got there")


def begun(messages, count, other):
    """Wait until so many messages have begun."""
    until(lambda: len(messages.begun) >= count, other)


def test_what_follows_a_message_waits_for_it_and_other_pes_do_not(peers, messages, service):
    peer, other = peers
    large, flag = REQUEST.pack(PUT, 1, BY_MPI, 0, LARGE, 0, 0), REQUEST.pack(PUT, 0, 0, WORD + LARGE, 8, 0, 0)
    peer.socket.sendall(large + flag + b"the flag")  # both come at once
    begun(messages, 1, other)
    peer.send(FLUSH, asks=1)  # and this one while the message is under way
    asked = messages.asked
    until(lambda: messages.asked >= asked + 3, other)  # between two questions the service looks at the socket
    assert messages.begun == [(1, PUT, service.base, LARGE)]
    other.put(WORD + LARGE + 8, b"no delay", asks=1)
    other.reply()
    assert service.heap[WORD + LARGE :][:16].tobytes() == bytes(8) + b"no delay"
    messages.arrive(0, b"x" * LARGE)
    assert [peer.reply()[0] for _ in range(2)] == [2, 4]
    assert service.heap[:LARGE].tobytes() == b"x" * LARGE and service.heap[WORD + LARGE :][:8].tobytes() == b"the flag"


def test_a_get_is_acknowledged_after_its_message(peers, messages, service):
    peer, other = peers
    service.heap[:LARGE] = 7
    peer.send(GET, 0, LARGE, detail=BY_MPI)
    peer.send(GET, 0, 8)
    begun(messages, 1, other)
    assert messages.begun == [(1, GET, bytes([7]) * LARGE, LARGE)]
    messages.ended.add(0)
    assert [peer.reply(), peer.reply()] == [(2, 0, b""), (3, 0, bytes([7]) * 8)]


def test_messages_for_the_gpu_come_one_after_the_other(peers, messages, service):
    """They pass through one buffer."""
    gpu = Gpu()
    service.open_gpu(gpu)
    for number, each in enumerate(peers):
        each.send(PUT, GPU + number * LARGE, LARGE, detail=BY_MPI, asks=1)
    third = Peer(service.port, 3)
    third.reply()
    begun(messages, 1, third)
    for _ in range(20):  # the service goes round
        third.send(FLUSH, asks=1)
        third.reply()
    assert len(messages.begun) == 1
    first = messages.begun[0][0]
    messages.arrive(0, bytes([first]) * LARGE)
    begun(messages, 2, third)
    messages.arrive(1, bytes([3 - first]) * LARGE)
    for each in peers:
        assert each.reply()[0] == 2
    assert gpu.heap[: 2 * LARGE].tobytes() == b"\1" * LARGE + b"\2" * LARGE
    third.leave()


def test_a_pe_that_is_lost_in_the_middle_of_a_message_ends_this_pe():
    def program():
        kept.append((Service(), Messages()))
        peer = Peer(kept[0][0].port)
        peer.reply()
        peer.send(PUT, 0, LARGE, detail=BY_MPI)
        peer.socket.close()

    kept = []
    status, said = in_child(program)
    assert status == 1 and said.startswith("PE 0: lost PE 1 on host1")


@pytest.mark.parametrize("nbytes, with_mpi", [(LARGE, False), (0, True), (1 << 21, True)])
def test_a_message_that_cannot_be_is_an_invalid_request(nbytes, with_mpi):
    kept = []

    def program():
        kept.append((Service(), Messages() if with_mpi else None))
        kept.append(Peer(kept[0][0].port))
        kept[1].reply()
        kept[1].send(PUT, 0, nbytes, detail=BY_MPI)

    status, said = in_child(program)
    assert status == 1 and said.startswith("PE 0: invalid request from PE 1\n")
