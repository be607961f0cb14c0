"""Calls to far PEs that wait: signal handlers run, other threads and forked processes do not disturb. A test plays the far PE."""

import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
import threading
import time

import numpy as np
import pytest
from far_peer import (
    BY_CALLER, CHALLENGE, FLUSH, GET, HELLO, JOB, MAGIC, N_PES, PLACE, REPLY, SECONDS, TOKEN, Peer, Service, address_of, code_of,
)  # fmt: skip
from pyshmem.native import _native
from test_service import in_child

LARGE = 64 << 20  # more than sockets hold
GREETING = 2  # seconds that the service waits for a caller to greet


class Raised(Exception):
    pass


@pytest.fixture
def alarm(played):
    """alarm(handler, ready): the handler runs once, when PE 1 has got something of a call and ready() holds."""
    before = signal.getsignal(signal.SIGALRM)

    def set_handler(handler, ready=lambda: True):
        def ring(*_):
            if select.select([played.socket], [], [], 0)[0] and ready():
                handler()
            else:
                signal.setitimer(signal.ITIMER_REAL, 0.05)

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    yield set_handler
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def fail():
    raise Raised


CALLS = {
    "get": lambda dest: _native.far_get(dest, PLACE, 24),
    "strided get": lambda dest: _native.far_get_strided(dest, PLACE, 8, 8, 8, 3),
    "atomic": lambda dest: _native.far_fetch_uint64(0, PLACE),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_handler_ends_a_call_that_waits_and_what_comes_later_for_it_is_dropped(call, played, alarm):
    dest = np.zeros(3, np.uint64)
    alarm(fail)
    with pytest.raises(Raised):
        CALLS[call](dest.ctypes.data)
    _, nbytes = played.take()
    late = REPLY.pack(3, 7, nbytes) + b"x" * nbytes
    _native.far_get_nbi(dest.ctypes.data + 16, PLACE, 8)
    played.socket.sendall(late + REPLY.pack(4, 0, 8) + b"in time!")
    _native.far_quiet_pe(1)
    assert dest.tobytes() == bytes(16) + b"in time!"


def barrier(played):
    """A barrier of PEs 0 and 1, which PE 1 has entered first."""
    area, flag = played.service.base, 11 * 8  # the first flag between nodes
    played.service.words[flag] += 1
    number = int(played.service.words[flag])
    words = flag + 1 + 2 * (number & 1)  # PE 1 says which call it makes, see begin_rooted of team/team.c
    played.service.words[words : words + 2] = (number << 16) * 0x9E3779B97F4A7C15 % 2**64
    numbers = (np.array(each, np.int64).tobytes() for each in ([0, PLACE - area], [0, 1], [0, 1], [0]))
    assert _native.sync((area, 0, 0, 2, *numbers), 20.0, 50) == 0


def test_quiet_waits_for_a_put_and_not_for_the_messages_of_barriers(played):
    barrier(played)
    _native.far_quiet()  # nobody answers
    _native.far_put(PLACE + 8192, played.service.base, 8)  # request number 5
    barrier(played)
    ended = []
    quiet = threading.Thread(target=lambda: ended.append(_native.far_quiet()))
    quiet.start()
    quiet.join(0.05)
    assert not ended
    played.socket.sendall(REPLY.pack(5, 0, 0))
    quiet.join(SECONDS)
    assert ended


def test_a_call_that_is_ended_in_the_middle_of_its_data_writes_no_more_of_them(played, alarm):
    dest = np.zeros(100_000, np.uint8)
    played.socket.sendall(REPLY.pack(3, 0, 100_000) + b"x" * 50_000)
    alarm(fail, lambda: dest[49_999])
    with pytest.raises(Raised):
        _native.far_get(dest.ctypes.data, PLACE, 100_000)
    played.socket.sendall(b"x" * 50_000 + REPLY.pack(4, 5, 0))
    assert _native.far_fetch_uint64(0, PLACE) == 5
    assert dest[:50_000].all() and not dest[50_000:].any()


@pytest.mark.parametrize("call", [_native.far_quiet, lambda: _native.far_quiet_pe(1)], ids=["quiet", "pe_quiet"])
def test_a_handler_ends_a_quiet_and_the_next_one_completes(call, played, alarm):
    dest = np.zeros(1, np.uint64)
    _native.far_get_nbi(dest.ctypes.data, PLACE, 8)
    with pytest.raises(Raised):  # also where the handler runs before the call waits
        alarm(fail), call()
    played.socket.sendall(REPLY.pack(3, 0, 8) + struct.pack("=Q", 9))
    call()
    assert dest[0] == 9


def test_a_handler_may_call_the_same_pe_while_a_get_waits(played, alarm):
    found = []

    def handler():
        played.socket.sendall(REPLY.pack(3, 1, 0) + REPLY.pack(4, 2, 0))
        found.append(_native.far_fetch_uint64(0, PLACE))

    alarm(handler)
    assert _native.far_fetch_uint64(0, PLACE) == 1
    assert found == [2]


def test_a_handler_runs_while_a_request_does_not_fit_into_the_socket(played, alarm):
    """It cannot call that PE, and if it raises an exception, the connection has ended in the middle of a request."""
    source, said = np.zeros(LARGE, np.uint8), []

    def handler():
        try:
            _native.far_fetch_uint64(0, PLACE)
        except OSError as error:
            said.append(error.errno)
            fail()

    alarm(handler)
    with pytest.raises(Raised):
        _native.far_put(PLACE, source.ctypes.data, LARGE)
    assert said == [errno.EDEADLK]
    with pytest.raises(OSError, match="put to PE 1") as failure:
        _native.far_put(PLACE, source.ctypes.data, 8)
    assert failure.value.errno == errno.EINTR


def test_a_get_that_waits_delays_no_other_thread(played):
    """Their requests leave before any reply has come, and each finds its own data."""
    dest = np.zeros(4, np.uint64)
    threads = [threading.Thread(target=_native.far_get, args=(dest[i:].ctypes.data, PLACE, 8)) for i in range(4)]
    for each in threads:
        each.start()
    assert [played.take() for _ in threads] == [(GET, 8)] * 4
    played.socket.sendall(b"".join(REPLY.pack(3 + i, 0, 8) + struct.pack("=Q", 7) for i in range(4)))
    for each in threads:
        each.join(SECONDS)
    assert dest.tolist() == [7] * 4


def test_threads_that_wait_for_one_pe_all_end_when_its_connection_does(played):
    failures = []

    def get():
        try:
            _native.far_fetch_uint64(0, PLACE)
        except OSError as error:
            failures.append(error.errno)

    threads = [threading.Thread(target=get) for _ in range(4)]
    for each in threads:
        each.start()
    for _ in threads:
        played.take()
    played.socket.close()
    for each in threads:
        each.join(SECONDS)
    assert failures == [errno.ECONNRESET] * 4


def test_time_in_which_the_service_stands_still_is_none_that_a_stranger_has_let_pass():
    reading, writing = os.pipe()
    begun, begin = os.pipe()

    def program():
        service, known = Service(), None
        known = Peer(service.port, pe=2)
        known.reply()
        nonce, stranger = bytes(16), socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS)
        stranger.sendall(HELLO.pack(MAGIC, JOB, 1, N_PES, nonce))
        service_nonce, _ = CHALLENGE.unpack(stranger.recv(CHALLENGE.size, socket.MSG_WAITALL))
        os.write(begin, b"%d\n" % os.getpid())
        os.read(reading, 1)  # now it has stood still
        known.send(FLUSH, asks=1)  # and goes round
        known.reply()
        stranger.sendall(struct.pack("=Q", code_of(BY_CALLER, nonce, service_nonce, 0, 1, TOKEN, JOB)))
        os._exit(stranger.recv(REPLY.size, socket.MSG_WAITALL) != REPLY.pack(1, 0, 0))

    def stop():
        child = int(os.read(begun, 100))
        os.kill(child, signal.SIGSTOP)
        time.sleep(GREETING)
        os.kill(child, signal.SIGCONT)
        os.write(writing, b"1")

    stopping = threading.Thread(target=stop)
    stopping.start()
    assert in_child(program) == (0, "")
    stopping.join()
    for each in (reading, writing, begun, begin):
        os.close(each)


def itself():
    """PE 0, which reaches itself through its service, with a connection and two strangers that say nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = "127.0.0.1", listener.getsockname()[1]
    service = Service(addresses=(address_of(address[1]), None, None, None), listener=listener)
    service.port = address[1]
    _native.far_update_uint64(3, 1 << 48, 1)
    _native.far_quiet()
    return service, [socket.create_connection(address, timeout=SECONDS) for _ in range(2)]


def test_pe_quiet_of_one_thread_leaves_the_puts_of_others_whole():
    """It asks for an answer on the connection on which they are being written."""

    def program():
        service, _ = itself()
        source = np.arange(1 << 16, dtype=np.uint64)

        def puts(first):
            for index in range(first, 8192, 2):
                _native.far_put((1 << 48) + 64 + 8 * index, source[index:].ctypes.data, 8)
                _native.far_put((1 << 48) + (1 << 19), source.ctypes.data, 1 << 14)  # in several parts

        threads = [threading.Thread(target=puts, args=(first,)) for first in (0, 1)]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            _native.far_quiet_pe(0)
        _native.far_quiet_pe(0)
        os._exit(not (service.words[8 : 8 + 8192] == source[:8192]).all())

    assert in_child(program) == (0, "")


def cloned():
    """As os.fork, by the system's call, so that no handler closes anything in the child."""
    return ctypes.CDLL(None).syscall({"x86_64": 56, "aarch64": 220}[platform.machine()], signal.SIGCHLD, 0, 0, 0, 0)


@pytest.mark.parametrize("fork", [os.fork, cloned], ids=["fork", "clone"])
def test_a_forked_process_keeps_no_connection_alive_and_its_calls_are_refused(fork):
    """epoll would go on reporting connections that the parent has ended, and memory would be freed twice."""

    def program():
        service, strangers = itself()
        held, hold = os.pipe()
        if not fork():
            for each in strangers:
                each.close()
            try:
                if fork is os.fork:
                    _native.far_update_uint64(3, 1 << 48, 1)
            except OSError as error:
                os.write(2, f"{error.errno == errno.ECHILD}\n".encode())
            os.close(hold)
            os.read(held, 1)  # until the parent has ended
            os._exit(0)
        peer = Peer(service.port, pe=2)
        peer.reply()
        for each in strangers:
            assert each.recv(1) == b""  # after two seconds without a greeting
        for turn in range(20):  # rounds of the service
            peer.send(FLUSH, asks=1)
            assert peer.reply()[0] == 2 + turn
        peer.leave()
        _native.far_update_uint64(3, 1 << 48, 1)
        _native.far_quiet()
        os.write(2, f"{service.words[0]}\n".encode())
        service.close()
        os._exit(0)

    status, said = in_child(program)
    assert status == 0 and sorted(said.split()) == ["2", "True"][: 2 - (fork is cloned)]
