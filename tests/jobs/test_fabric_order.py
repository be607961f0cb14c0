"""What the fabric carries and requests over TCP, of which the test plays the target: neither passes the other where it must not."""

import pathlib
import socket
import struct
import sys
import threading

import numpy as np
import pytest
from far_peer import FLUSH, GET, PLACE, PUT, REPLY, SECONDS, Played
from pyshmem.runtime import _native
from pyshmem.transport.far.fabric import ORDER

PROVIDER = "tcp;ofi_rxm"
NBYTES = 64


def library():
    """MPICH's libfabric of this environment, or the system's."""
    own = pathlib.Path(sys.prefix, "lib", "mpich", "libfabric.so.1")
    path = str(own) if own.exists() else "libfabric.so.1"
    try:
        return path if PROVIDER in _native.fabric_providers(path)[2] else ""
    except OSError:
        return ""


LIBRARY = library()
pytestmark = pytest.mark.skipif(not LIBRARY, reason=f"no libfabric with {PROVIDER}")


class ByFabric(Played):
    """By the fabric, the memory of PE 1 is that of PE 0."""

    def __init__(self):
        super().__init__()
        _, *known = _native.fabric_open(LIBRARY, PROVIDER, "127.0.0.1", ORDER)
        _native.fabric_connect((None, tuple(known), None, None))
        _native.fabric_use(9, 0, 0)
        assert self.connect(8) == (PUT, 8)
        self.socket.recv(8, socket.MSG_WAITALL)
        self.source = np.arange(1, NBYTES + 1).astype(np.uint8)

    def start(self, call, *arguments):
        self.thread = threading.Thread(target=call, args=arguments)
        self.thread.start()

    def ended(self):
        self.thread.join(SECONDS)
        return not self.thread.is_alive()


@pytest.fixture
def played():
    playing = ByFabric()
    yield playing
    playing.close()


def test_without_a_fence_a_put_by_the_fabric_waits_for_no_request(played):
    """The request of the connection is not answered."""
    _native.far_put(PLACE + 128, played.source.ctypes.data, NBYTES)
    played.start(_native.far_quiet_pe, 1)
    played.socket.sendall(REPLY.pack(2, 0, 0))
    assert played.ended()
    assert (played.service.heap[128:192] == played.source).all() and not played.service.heap[192:].any()


def test_after_a_fence_a_put_by_the_fabric_waits_for_the_requests_before_it(played):
    _native.far_update_uint64(3, PLACE, 1)
    assert played.take()[0] == 5
    _native.far_fence()
    played.start(_native.far_put, PLACE + 128, played.source.ctypes.data, NBYTES)
    assert played.take() == (FLUSH, 0)
    assert not played.service.heap.any()
    played.socket.sendall(REPLY.pack(4, 0, 0))
    assert played.ended()
    _native.far_quiet_pe(1)
    assert (played.service.heap[128:192] == played.source).all()


def test_a_get_by_the_fabric_waits_for_all_requests_to_the_pe(played):
    found = np.zeros(NBYTES, np.uint8)
    _native.far_update_uint64(3, PLACE, 1)
    assert played.take()[0] == 5
    played.start(_native.far_get, found.ctypes.data, PLACE + 128, NBYTES)
    assert played.take() == (FLUSH, 0)
    played.service.heap[128:192] = 9
    played.socket.sendall(REPLY.pack(4, 0, 0))
    assert played.ended()
    assert (found == 9).all()


@pytest.mark.parametrize("nbytes", [NBYTES, 8192, 300_000])
def test_a_request_leaves_after_the_puts_by_the_fabric_are_in_place(nbytes, played):
    source = np.full(nbytes, 7, np.uint8)
    _native.far_put(PLACE + 128, source.ctypes.data, nbytes)
    source[:] = 0  # free again on return
    _native.far_update_uint64(3, PLACE, 1)
    assert played.take()[0] == 5
    assert (played.service.heap[128 : 128 + nbytes] == 7).all() and not played.service.heap[128 + nbytes :].any()


def test_words_and_large_data_take_the_ways_that_are_theirs(played):
    word = np.zeros(1, np.uint64)
    played.start(_native.far_get, word.ctypes.data, PLACE, 8)
    assert played.take() == (GET, 8)
    played.socket.sendall(REPLY.pack(3, 0, 8) + struct.pack("=Q", 5))
    assert played.ended()
    assert word[0] == 5
    played.service.heap[:] = 3
    found = np.zeros(1 << 20, np.uint8)
    _native.far_get(found.ctypes.data, PLACE, 1 << 20)
    assert (found == 3).all()
