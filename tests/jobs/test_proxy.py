"""The proxy, which executes the requests of kernels on GPUs: what it does in what order, and about faults. A test plays the kernel.

The far PE of these requests is this process itself: its service has a connection to itself.
"""

import errno
import socket
import struct
import threading

import numpy as np
import pytest
from far_peer import GET, N_PES, REPLY, REQUEST, SECONDS, Service, accepted, address_of
from pyshmem.native import _native
from pyshmem.base import comparisons, far, kernel_timeouts
from pyshmem.base.far import DONE, FREE, PIECE, READY, SLOT_HEAD, SLOTS
from test_service import sleeps

CODE = kernel_timeouts.CODES["request"]
REPLIES = (far.GET, far.GET_STRIDED, far.FETCH)


class Kernel:
    """Writes requests as pyshmem.device.arch.gpu.requests does. Tickets count from 0."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.played = socket.create_server(("127.0.0.1", 0))  # PE 2, which a test may play
        self.refusing = socket.socket()  # nobody listens at the address of PE 3, and nobody else gets it
        self.refusing.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (listener, self.played, self.refusing)]
        known = (address_of(ports[0]), None, *map(address_of, ports[1:]))
        self.service = Service(addresses=known, listener=listener)
        self.heap = self.service.heap
        self.ring = np.zeros((SLOTS, SLOT_HEAD + PIECE), np.uint8)
        self.record = np.zeros(kernel_timeouts.WORDS, np.int64)
        self.tickets = 0
        _native.proxy_open(self.ring.ctypes.data, self.record.ctypes.data, CODE)

    def word(self, ticket, number):
        return self.ring.ctypes.data + ticket % SLOTS * (SLOT_HEAD + PIECE) + 8 * number

    def wait(self, ticket, number, value):
        """As a kernel waits: no longer than a limit."""
        _native.wait_int64(self.word(ticket, number), comparisons.GE, value, float(SECONDS), 50)

    def take(self):
        ticket, self.tickets = self.tickets, self.tickets + 1
        self.wait(ticket, FREE, ticket + 1 - SLOTS)
        return ticket

    def write(self, ticket, op, offset=0, nbytes=0, *, pe=0, payload=b"", **fields):
        """Everything of a request but that it is ready."""
        nbytes = nbytes or len(payload)
        words = {far.OP: op, far.PLACE: (pe + 1 << far.SHIFT) + offset, far.NBYTES: nbytes}
        words |= {getattr(far, name.upper()): value for name, value in fields.items()}
        for number in (far.DETAIL, far.VALUE, far.COND):
            words.setdefault(number, 0)
        for number, value in words.items():
            _native.set_uint64(self.word(ticket, number), value)
        self.ring[ticket % SLOTS, SLOT_HEAD : SLOT_HEAD + len(payload)] = np.frombuffer(payload, np.uint8)

    def ready(self, ticket):
        _native.set_int64(self.word(ticket, READY), ticket + 1)

    def request(self, *arguments, **fields):
        """Make a request, and return its reply: data, or what an atomic has found."""
        ticket = self.take()
        self.write(ticket, *arguments, **fields)
        self.ready(ticket)
        if arguments[0] not in REPLIES:
            return None
        self.wait(ticket, DONE, ticket + 1)
        nbytes = arguments[2] if arguments[0] != far.FETCH else 0
        data = self.ring[ticket % SLOTS, SLOT_HEAD : SLOT_HEAD + nbytes].tobytes()
        found = _native.fetch_uint64(self.word(ticket, far.RESULT))
        _native.set_int64(self.word(ticket, FREE), ticket + 1)
        return data if nbytes else found

    def flush(self):
        ticket = self.take()
        self.write(ticket, far.FLUSH)
        self.ready(ticket)
        self.wait(ticket, FREE, ticket + 1)

    def failure(self):
        """The text of the error that the host raises, and no record from now on."""
        _native.wait_int64(self.record.ctypes.data, comparisons.NE, 0, float(SECONDS), 50)
        text = kernel_timeouts.describe_record(self.record.tolist())
        self.record[:] = 0
        return text


@pytest.fixture
def kernel():
    playing = Kernel()
    yield playing
    playing.service.close()
    playing.played.close()
    playing.refusing.close()


def test_every_request_does_what_the_call_of_the_host_does(kernel):
    add, fetch = far.ATOMICS["add", "uint64"], far.ATOMICS["compare_swap", "uint64"]
    kernel.request(far.PUT, 64, payload=b"abcdefgh" * 1000)
    assert kernel.request(far.GET, 64, 8000) == b"abcdefgh" * 1000
    kernel.request(far.PUT_STRIDED, 10000, payload=b"abcdef", detail=2, value=8)
    assert kernel.request(far.GET, 10000, 18) == b"ab" + bytes(6) + b"cd" + bytes(6) + b"ef"
    assert kernel.request(far.GET_STRIDED, 10000, 6, detail=2, value=8) == b"abcdef"
    kernel.request(far.UPDATE, 8, detail=add, value=5)
    assert kernel.request(far.FETCH, 8, 0, detail=fetch, cond=5, value=9) == 5
    kernel.request(far.UPDATE, 8, detail=add, value=1)
    kernel.flush()
    assert kernel.service.words[1] == 10 and not kernel.record.any()


def test_requests_are_executed_in_the_order_of_tickets_not_of_their_ends(kernel):
    first, second = kernel.take(), kernel.take()
    kernel.write(second, far.PUT, 0, payload=struct.pack("=Q", 2))
    kernel.ready(second)
    kernel.write(first, far.PUT, 0, payload=struct.pack("=Q", 1))
    kernel.ready(first)
    kernel.flush()
    assert kernel.service.words[0] == 2


def test_a_flush_ends_after_all_earlier_requests_are_in_place(kernel):
    """The data take longer than the flush would."""
    for turn in range(1, 11):
        for place in range(12):
            kernel.request(far.PUT, place % 4 * PIECE, payload=bytes([turn]) * PIECE)
        kernel.flush()
        assert kernel.heap[-1] == turn and (kernel.heap == turn).all()


def played(kernel):
    """The connection of the proxy to PE 2, which is welcome."""
    return accepted(kernel.played, 2)[0]


def test_a_slot_is_not_free_before_its_data_are_sent(kernel):
    """The data of free slots are written over before each look at what PE 2 got: it reads less than is sent."""
    for number in range(SLOTS):
        kernel.request(far.PUT, 0, pe=2, payload=bytes([number + 1]) * PIECE)
    connection = played(kernel)
    arrived = connection.makefile("rb")
    for number in range(SLOTS):
        for slot in range(SLOTS):
            if _native.fetch_int64(kernel.word(slot, FREE)) > slot:
                kernel.ring[slot, SLOT_HEAD:] = 0
        assert arrived.read(REQUEST.size + PIECE)[REQUEST.size :] == bytes([number + 1]) * PIECE
    arrived.close()
    connection.close()


def test_gets_are_asked_for_before_the_data_of_the_first_have_come_and_end_in_order(kernel):
    """Each with data of its own; the request behind them waits for all."""
    for place in range(8):
        ticket = kernel.take()
        kernel.write(ticket, far.GET, 8 * place, PIECE, pe=2)
        kernel.ready(ticket)
    last = kernel.take()
    kernel.write(last, far.PUT, 0, pe=0, payload=b"the last")
    kernel.ready(last)
    connection = played(kernel)
    asked = [REQUEST.unpack(connection.recv(REQUEST.size, socket.MSG_WAITALL)) for _ in range(8)]
    assert [(op, offset, nbytes) for op, _, _, offset, nbytes, _, _ in asked] == [(GET, 8 * i, PIECE) for i in range(8)]
    for place in range(8):
        assert _native.fetch_int64(kernel.word(place, DONE)) == 0
        assert _native.fetch_int64(kernel.word(last, FREE)) == 0
        connection.sendall(REPLY.pack(place + 2, 0, PIECE) + bytes([place + 1]) * PIECE)
        kernel.wait(place, DONE, place + 1)
        assert (kernel.ring[place, SLOT_HEAD:] == place + 1).all()
    kernel.wait(last, FREE, last + 1)
    connection.close()


def test_a_lost_connection_ends_every_get_that_waits_for_it(kernel):
    for _ in range(3):
        ticket = kernel.take()
        kernel.write(ticket, far.GET, 0, PIECE, pe=2)
        kernel.ready(ticket)
    connection = played(kernel)
    connection.recv(3 * REQUEST.size, socket.MSG_WAITALL)
    connection.sendall(REPLY.pack(2, 0, PIECE) + bytes(PIECE // 2))
    connection.close()
    kernel.wait(2, DONE, 3)
    assert "for world PE 2, on another node" in kernel.failure()


def test_gets_of_more_than_the_ring_holds_are_all_right(kernel):
    kernel.heap[:] = np.arange(1 << 20) // 4096
    for turn in range(5 * SLOTS):
        offset = turn * 4096
        assert kernel.request(far.GET, offset, 4096) == bytes([turn % 256]) * 4096


def test_a_slot_with_a_reply_is_not_free_before_the_kernel_has_read_it(kernel):
    kernel.request(far.PUT, 0, payload=b"reply is")
    ticket = kernel.take()
    kernel.write(ticket, far.GET, 0, 8)
    kernel.ready(ticket)
    kernel.wait(ticket, DONE, ticket + 1)
    assert _native.fetch_int64(kernel.word(ticket, FREE)) <= ticket


def fill_ring(kernel):
    """A put of 7 into each of as many words as the ring has slots. None can be sent before the first is ready, the last."""
    tickets = [kernel.take() for _ in range(SLOTS)]
    for ticket in tickets:
        kernel.write(ticket, far.PUT, 8 * ticket, payload=struct.pack("=Q", 7))
    for ticket in reversed(tickets):
        kernel.ready(ticket)


def test_drain_returns_after_every_request_of_kernels_that_have_ended(kernel):
    fill_ring(kernel)
    _native.proxy_drain()
    _native.far_quiet()
    assert kernel.service.words[:SLOTS].tolist() == [7] * SLOTS


def test_after_stop_the_ring_is_not_read_any_more_and_what_was_drained_has_been_sent(kernel):
    fill_ring(kernel)
    _native.proxy_drain()
    _native.proxy_stop()
    kernel.ready(kernel.take())  # nobody takes this one
    _native.far_quiet()
    assert kernel.service.words[:SLOTS].tolist() == [7] * SLOTS
    assert _native.fetch_int64(kernel.word(SLOTS, FREE)) <= SLOTS


@pytest.mark.parametrize(
    "op, fields",
    [
        (far.PUT, {"pe": 1, "payload": b"a near one"}),
        (far.PUT, {"pe": N_PES, "payload": b"no such PE"}),
        (far.PUT, {"nbytes": PIECE + 1}),
        (far.PUT_STRIDED, {"nbytes": 8, "detail": 0}),
        (far.POST, {"nbytes": 8}),
        (99, {}),
    ],
)
def test_a_request_that_no_kernel_makes_is_an_error_and_ends_and_the_next_are_executed(op, fields, kernel):
    kernel.request(op, 0, **fields)
    pe = fields.get("pe", 0)
    said = f"got error {errno.EINVAL} (Invalid argument) for world PE {pe}, on another node; expected a PE that can be reached"
    assert kernel.failure() == f"kernel: request: PE 0: pe: {said}"
    kernel.request(far.PUT, 0, payload=b"the next")
    kernel.flush()
    assert kernel.heap[:8].tobytes() == b"the next" and not kernel.heap[8:].any()


def test_a_pe_that_cannot_be_reached_is_named_and_no_kernel_waits_for_it(kernel):
    for _ in range(2):  # the second fails as the first, without another attempt
        assert kernel.request(far.GET, 0, 8, pe=3) is not None
        assert f"error {errno.ECONNREFUSED} (Connection refused) for world PE 3" in kernel.failure()
    kernel.request(far.PUT, 0, payload=b"the next", pe=0)
    assert kernel.request(far.GET, 0, 8, pe=0) == b"the next"


def test_threads_of_the_host_may_make_calls_meanwhile(kernel):
    word, detail = 1 << far.SHIFT, far.ATOMICS["add", "uint64"]

    def count():
        for _ in range(500):
            _native.far_update_uint64(3, word, 1)

    threads = [threading.Thread(target=count) for _ in range(2)]
    for each in threads:
        each.start()
    for _ in range(500):
        kernel.request(far.UPDATE, 0, detail=detail, value=1)
    for each in threads:
        each.join()
    kernel.flush()
    assert kernel.service.words[0] == 1500


def test_an_idle_proxy_uses_hardly_any_processor_time(kernel):
    kernel.flush()
    assert sleeps(0.02)  # it looks more and more rarely
