"""What the fabric carries and requests over TCP, of which the test plays the target: neither passes the other where it must not."""

import pathlib
import socket
import struct
import sys
import threading

import numpy as np
import pytest
from fabrics import PROVIDER
from far_peer import FLUSH, GET, GPU, PLACE, PUT, REPLY, SECONDS, Played
from pyshmem.native import _native
from pyshmem.transport.far.fabric import ORDER

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
        _, *known = _native.fabric_open(LIBRARY, PROVIDER, "127.0.0.1", ORDER, 0)
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


PART, REST = 8192, 40_000  # of a GPU heap: its first part, and that by which it grows


@pytest.fixture
def memory(played):
    """A GPU heap of which all PEs have registered two parts. CPU memory stands for it, which libfabric takes as kind 0."""
    played.socket.sendall(REPLY.pack(2, 0, 0))  # a get waits for the requests before it
    heap = np.zeros(PART + REST + 1000, np.uint8)
    for first, nbytes in ((0, PART), (PART, REST)):
        known = _native.fabric_register_gpu(heap.ctypes.data, first, nbytes, 0, 0)
        _native.fabric_admit_gpu((known,) * 4)
    return heap


@pytest.mark.parametrize("first, nbytes", [(0, PART), (5, 64), (PART - 3, 100), (100, PART + REST - 100), (PART, 9)])
def test_gpu_memory_that_is_registered_is_written_and_read_without_a_request(first, nbytes, played, memory):
    source, found = (np.arange(nbytes) % 251 + 1).astype(np.uint8), np.zeros(nbytes, np.uint8)
    _native.far_put(PLACE + GPU + first, source.ctypes.data, nbytes)
    _native.far_get(found.ctypes.data, PLACE + GPU + first, nbytes)
    assert (found == source).all() and (memory[first : first + nbytes] == source).all()
    assert not memory[:first].any() and not memory[first + nbytes :].any() and not played.service.heap.any()


@pytest.mark.parametrize("nbytes", [64, PART + 500])
def test_gpu_memory_of_this_pe_is_neither_copied_nor_free_before_it_has_been_read(nbytes, played, memory):
    """The processor may not read it: libfabric does. It spans two parts."""
    first = PART - 20
    memory[first : first + nbytes] = 7
    at = memory.ctypes.data + first
    assert _native.fabric_takes(at, PLACE, nbytes) and not _native.fabric_takes(
        played.source.ctypes.data, PLACE, nbytes
    )
    _native.far_put(PLACE + 128, at, nbytes)
    memory[first : first + nbytes] = 0
    _native.far_get(at, PLACE + 128, nbytes)
    assert (memory[first : first + nbytes] == 7).all() and not memory[first + nbytes :].any()


@pytest.mark.parametrize("last, forgotten", [(PART + REST, False), (PART, True)], ids=["grown", "forgotten"])
def test_gpu_memory_that_some_pe_has_not_registered_is_reached_by_requests(last, forgotten, played, memory):
    if forgotten:
        _native.fabric_admit_gpu(None)
    played.start(_native.far_put, PLACE + GPU + last - 10, played.source.ctypes.data, NBYTES)
    assert played.take() == (PUT, NBYTES)
    assert played.ended() and not memory.any()
    assert not _native.fabric_takes(memory.ctypes.data, PLACE + GPU + last - 10, NBYTES)


@pytest.mark.parametrize("kind", [1, 2], ids=["cuda", "rocr"])
def test_a_provider_without_gpus_refuses_their_memory(kind, played):
    heap = np.zeros(PART, np.uint8)
    with pytest.raises(OSError, match=r"takes no GPU memory \(FI_HMEM\)|fi_mr_regattr: "):
        _native.fabric_register_gpu(heap.ctypes.data, 0, PART, kind, 0)
    assert not _native.fabric_takes(heap.ctypes.data, PLACE, 64)
