"""What test_no_memory does in processes in which one allocation of the native module fails."""

import errno
import os
import signal
import socket
import struct
import threading
from contextlib import suppress

import numpy as np
from fabrics import PROVIDER
from far_peer import ADD_UINT64, PLACE, PUT, REPLY, REQUEST, Played, Service, address_of
from pyshmem.native import _native
from pyshmem.base import kernel_timeouts
from pyshmem.base.far import PIECE, SLOT_HEAD, SLOTS
from pyshmem.transport.far.fabric import ORDER
from standin_gpu import Gpu
from test_fabric_order import LIBRARY

LAST = 3  # the status of a process that has made no such allocation
MINE = 1 << 48  # the memory of this PE, as of a far one
PART = 8192
kept = []


def try_out(part, number, wanted, made):
    """Do ``part`` while that allocation fails, then again while none does, and end the process."""
    signal.alarm(60)
    wanted.value = number
    said = "nothing was lost"
    try:
        part()
    except MemoryError:
        said = "no memory"
    except OSError as error:
        lacks = error.errno in (errno.ENOMEM, errno.ENOBUFS) or os.strerror(errno.ENOMEM) in str(error)
        said = "no memory" if lacks else str(error)
    if made.value < number:
        os._exit(LAST)
    wanted.value = 0
    _native.far_close()
    part()
    _native.far_close()
    print(said, flush=True)
    os._exit(0)


def opening():
    """A service of a PE that is far to itself, with a GPU heap and a proxy."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)
    service = Service(addresses=(address_of(listener.getsockname()[1]), None, None, None), listener=listener)
    gpu, ring = Gpu(), np.zeros((SLOTS, SLOT_HEAD + PIECE), np.uint8)
    record = np.zeros(kernel_timeouts.WORDS, np.int64)
    kept.append((service, gpu, ring, record))
    service.open_gpu(gpu)
    _native.proxy_open(ring.ctypes.data, record.ctypes.data, 1)
    return service


def opening_a_fabric(messaging=0):
    service = opening()
    heap = np.zeros(PART, np.uint8)
    kept.append(heap)
    _, *known = _native.fabric_open(LIBRARY, PROVIDER, "127.0.0.1", ORDER, 0)
    _native.fabric_connect((tuple(known), None, None, None))
    mine = _native.fabric_register_gpu(heap.ctypes.data, 0, PART, 0, 0)
    _native.fabric_admit_gpu((mine,) * 4)
    _native.fabric_use(9, 0, messaging)
    return service


def calls(opened=opening):
    service = opened()
    source, found = np.arange(1, 40_001, dtype=np.uint64), np.zeros(40_000, np.uint64)
    at, to = source.ctypes.data, found.ctypes.data
    for index in range(100):  # held, but for the first
        _native.far_put(MINE + 8 * index, at + 8 * index, 8)
    _native.far_put(MINE + 800, at + 800, source.nbytes - 800)
    _native.far_put_signal(MINE, at, 8, MINE + (1 << 19), ADD_UINT64, 1)
    _native.far_quiet()
    assert (service.words[: source.size] == source).all() and service.words[1 << 16] == 1
    for index in range(100):
        _native.far_get_nbi(to + 8 * index, MINE + 8 * index, 8)
    _native.far_get(to + 800, MINE + 800, 8000)
    _native.far_quiet()
    assert (found[:1100] == source[:1100]).all()
    _native.far_get_strided(to, MINE + 8, 16, 8, 8, 1000)
    assert (found[:2000:2] == source[1:1001]).all()
    assert _native.far_fetch_uint64(3, MINE, 1) == 1


def calls_by_messages():
    calls(lambda: opening_a_fabric(1))


class Raised(Exception):
    pass


def a_get_that_an_exception_ends():
    """Its data come later, and must not be written."""

    waiting = []

    def handler(*_):
        if waiting:
            raise Raised

    def interrupt():
        """Once the request has come: the get waits for its reply, or has failed."""
        if playing.socket.recv(REQUEST.size, socket.MSG_WAITALL):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    playing = Played()
    assert playing.connect() == (PUT, 0)
    playing.socket.sendall(REPLY.pack(2, 0, 0))
    kept.append(playing)
    dest, late = np.zeros(3, np.uint64), REPLY.pack(3, 0, 24)
    signal.signal(signal.SIGUSR1, handler)
    interrupting = threading.Thread(target=interrupt, daemon=True)
    interrupting.start()
    with suppress(Raised):
        try:
            waiting.append(True)
            _native.far_get(dest.ctypes.data, PLACE, 24)
        finally:
            waiting.clear()
            playing.socket.shutdown(socket.SHUT_RD)  # the get may have failed without a request
            interrupting.join()
    playing.socket.sendall(late + b"x" * 24 + REPLY.pack(4, 0, 8) + struct.pack("=Q", 9))
    _native.far_get(dest.ctypes.data + 16, PLACE, 8)
    assert dest.tolist() == [0, 0, 9]
