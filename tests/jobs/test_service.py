"""The service thread, which executes the requests of far PEs: what it accepts, in what order, and what it does about faults."""

import ctypes
import errno
import os
import random
import resource
import select
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from far_peer import (
    ADD_UINT64, BYE, CHALLENGE, FETCH, FLUSH, GET, GET_STRIDED, HELLO, JOB, N_PES, POST, PUT, PUT_STRIDED, REPLY, REQUEST,
    SECONDS, TOKEN, UPDATE, Peer, Service, accepted, address_of, sip_hash,
)  # fmt: skip
from pyshmem.native import _native

SPINS = 500  # those of a PE with a core of its own


@pytest.fixture
def peer(service):
    connected = Peer(service.port)
    assert connected.reply() == (1, 0, b""), "the welcome has the number of the service's PE"
    yield connected
    connected.leave()


def in_child(program):
    """Run ``program`` in a process of its own, which waits then; (exit status, what it wrote to stderr)."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 2)
        signal.alarm(SECONDS)
        program()
        while True:
            signal.pause()
    os.close(writing)
    with os.fdopen(reading) as text:
        said = text.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def greeted():
    """A service in this process, and PE 1."""
    peer = Peer(Service().port)
    peer.reply()
    return peer


@pytest.mark.parametrize("nbytes", [1, 2, 4, 8, 13, 8192, 8193, 100000])
def test_a_put_is_in_place_when_its_acknowledgement_comes_and_a_get_reads_it(nbytes, service, peer):
    data = np.arange(nbytes, dtype=np.uint8).tobytes()
    peer.put(64, data, asks=1)
    assert peer.reply() == (2, 0, b"")
    assert service.heap[64 : 64 + nbytes].tobytes() == data
    assert not service.heap[:64].any() and not service.heap[64 + nbytes :].any()
    peer.send(GET, 64, nbytes)
    assert peer.reply() == (3, 0, data)


def test_requests_of_one_pe_are_executed_in_order_and_one_reply_completes_all_before_it(service, peer):
    for value in range(2000):
        peer.put(0, struct.pack("=Q", value))
        peer.send(UPDATE, 8, value=1, detail=ADD_UINT64)
    peer.send(FETCH, 8, detail=3)
    assert peer.reply() == (4002, 2000, b"")
    assert service.words[:2].tolist() == [1999, 2000]


def test_strided_requests_touch_their_items_alone(service, peer):
    peer.send(PUT_STRIDED, 0, 6, detail=2, value=8, payload=b"abcdef", asks=1)
    peer.reply()
    assert service.heap[:24].tobytes() == b"ab" + bytes(6) + b"cd" + bytes(6) + b"ef" + bytes(6)
    peer.send(GET_STRIDED, 0, 6, detail=2, value=8)
    assert peer.reply()[2] == b"abcdef"


@pytest.mark.parametrize(
    "greeting",
    [{"token": b"x" * 16}, {"token": TOKEN[:15] + b"x"}, {"job": 78}, {"magic": b"pyshmem\2"}, {"pe": 4}, {"pe": -1}],
    ids=str,
)
def test_a_wrong_greeting_is_hung_up_on_and_executes_nothing(greeting, service):
    stranger = Peer(service.port, **greeting)
    stranger.socket.setblocking(True)
    with suppress(OSError):  # it may have hung up already
        stranger.put(0, b"damage!!")
    assert stranger.bytes(1) == b""
    assert not service.heap.any()


def test_the_codes_of_greetings_are_siphash():
    assert sip_hash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5, "the vector of its authors"


def test_a_service_proves_itself_and_a_greeting_cannot_be_replayed(service):
    """A listener that has recorded a greeting sends it again: the service's nonce has changed."""
    recorded = Peer(service.port)
    assert recorded.target_is_known and recorded.reply() == (1, 0, b"")
    recorded.leave()
    thief = socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS)
    thief.sendall(HELLO.pack(b"pyshmem2", JOB, 1, N_PES, recorded.nonce))
    assert thief.recv(CHALLENGE.size, socket.MSG_WAITALL) != recorded.challenge
    thief.sendall(recorded.code + REQUEST.pack(PUT, 0, 0, 0, 8, 0, 0) + b"damage!!")
    with suppress(ConnectionResetError):
        assert thief.recv(1) == b""
    assert not service.heap.any()


def test_a_listener_that_does_not_know_the_token_learns_nothing_and_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service = Service(addresses=(None, address_of(listener.getsockname()[1]), None, None))
        heard = []

        def listen():
            connection, said = accepted(listener, 1, token=b"x" * 16)
            heard.append(said)
            connection.close()

        playing = threading.Thread(target=listen)
        playing.start()
        with pytest.raises(OSError, match="put to PE 1") as failure:
            _native.far_put(2 << 48, service.base, 8)
        playing.join()
        service.close()
    assert failure.value.errno == errno.EKEYREJECTED
    assert len(heard[0]) == HELLO.size and TOKEN not in heard[0]


def test_a_pe_that_was_hung_up_on_for_its_late_greeting_greets_again():
    """It has not run for a while, say. A service hangs up after 2 seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        service = Service(addresses=(None, address_of(listener.getsockname()[1]), None, None))
        putting = threading.Thread(target=_native.far_put, args=(2 << 48, service.base, 8))
        putting.start()
        late, _ = listener.accept()
        time.sleep(2.01)
        late.close()
        connection, _ = accepted(listener, 1)
        assert REQUEST.unpack(connection.recv(REQUEST.size, socket.MSG_WAITALL))[0] == PUT
        putting.join(SECONDS)
        assert not putting.is_alive()
        service.close()
        connection.close()


def test_the_last_word_may_be_of_4_bytes(service, peer):
    peer.send(FETCH, (1 << 20) - 4, detail=3 * 16 + 2, value=5)
    assert peer.reply() == (2, 0, b"") and service.heap[-4] == 5


def test_a_stranger_that_says_nothing_is_hung_up_on_and_does_not_delay_others(service, peer):
    silent = socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS)
    peer.put(0, b"12345678", asks=1)
    assert peer.reply()[0] == 2
    assert silent.recv(1) == b""


@pytest.mark.parametrize(
    "op, offset, nbytes, fields",
    [
        (PUT, (1 << 20) - 4, 8, {"payload": bytes(8)}),
        (GET, 1 << 20, 1, {}),
        (GET, 1 << 63, 8, {}),
        (GET, 8, 2**64 - 8, {}),
        (PUT_STRIDED, 0, 16, {"detail": 8, "value": 1 << 20, "payload": bytes(16)}),
        (PUT_STRIDED, 0, 0, {}),
        (FETCH, 0, 0, {"detail": 15}),
        (UPDATE, 0, 0, {"detail": 200 * 16}),
        (POST, 8, 0, {"cond": 1 << 20}),
        (UPDATE, (1 << 20) - 4, 0, {"detail": 3}),
        (FLUSH, 1 << 47, 0, {}),
        (BYE, 1 << 47, 0, {}),
        (99, 0, 0, {}),
    ],
)
def test_a_request_outside_the_heap_or_unknown_ends_the_pe_with_a_message(op, offset, nbytes, fields):
    status, said = in_child(lambda: greeted().send(op, offset, nbytes, **fields))
    assert (status, said) == (1, "PE 0: invalid request from PE 1\n")


@pytest.mark.parametrize(
    "op, offset, detail",
    [(FETCH, 4, 3), (UPDATE, 1, 3), (FETCH, 2, 2), (UPDATE, 1023, 5), (FETCH, 12, 16 + 3)],
    ids=str,
)
def test_an_atomic_of_a_word_that_is_not_aligned_is_answered_and_not_performed(op, offset, detail, service, peer):
    peer.send(op, offset, detail=detail, value=7)
    assert REPLY.unpack(peer.bytes(REPLY.size)) == (2, 0, 2**64 - 1)
    peer.send(FETCH, 8, detail=3)
    assert peer.reply() == (3, 0, b"")
    assert not service.heap.any()


def test_a_pe_that_ends_without_a_goodbye_ends_this_one_with_a_message():
    status, said = in_child(lambda: greeted().socket.close())
    assert (status, said) == (1, "PE 0: lost PE 1 on host1, whose connection has ended\n")


def test_a_pe_that_does_not_read_its_replies_delays_nobody_and_loses_nothing(service, peer):
    """Its socket is full: 40 MB of replies wait."""
    other = Peer(service.port, pe=2)
    other.reply()
    service.words[:] = np.arange(1 << 17)
    for _ in range(40):
        peer.send(GET, 0, 1 << 20)
    for turn in range(100):
        other.put(0, struct.pack("=Q", turn), asks=1)
        assert other.reply()[0] == 2 + turn
    for turn in range(40):
        executed, _, data = peer.reply()
        assert executed == 2 + turn and data[8:] == service.heap[8:].tobytes()
    other.leave()


def test_acknowledgements_that_nobody_reads_do_not_stop_requests(service, peer):
    for value in range(50000):
        peer.put(0, struct.pack("=Q", value), asks=1)
    peer.send(FLUSH, asks=1)
    last = b""
    while len(last) < 50001 * REPLY.size:
        last += peer.bytes(50001 * REPLY.size - len(last))
    assert REPLY.unpack(last[-REPLY.size :])[0] == 50002
    assert service.words[0] == 49999


def processor_time(seconds):
    """The share of a processor that this process uses while the test does nothing for ``seconds``."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    time.sleep(seconds)
    after, passed = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begun
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / passed


def sleeps(share=0.01):
    """It does once it has done what it had to do, which other programs may delay."""
    return any(processor_time(0.5) < share for _ in range(10))


def test_a_service_that_cannot_reply_sleeps_although_requests_wait(service, peer):
    """The connection is full in both directions: of replies that nobody reads, and of requests that it must not take."""
    for _ in range(40):
        peer.send(GET, 0, 1 << 20)
    waiting = memoryview((REQUEST.pack(PUT, 0, 0, 0, 8, 0, 0) + struct.pack("=Q", 7)) * 300_000)
    writable = select.poll()
    writable.register(peer.socket, select.POLLOUT)
    peer.socket.setblocking(False)
    while waiting and writable.poll(500):
        with suppress(BlockingIOError):
            waiting = waiting[peer.socket.send(waiting) :]
    assert sleeps()
    peer.socket.setblocking(True)
    for turn in range(40):
        assert peer.reply()[0] == 2 + turn
    peer.socket.sendall(waiting)
    peer.send(FLUSH, asks=1)
    assert peer.reply()[0] == 300_042 and service.words[0] == 7


def test_an_idle_service_uses_no_processor_time(service, peer):
    assert sleeps()


@pytest.fixture
def spacious():
    """A service whose PE has a core of its own: a call that waits executes requests in the service's place."""
    threads = set(os.listdir("/proc/self/task"))
    opened = Service(spins=SPINS)
    (opened.thread,) = set(os.listdir("/proc/self/task")) - threads
    yield opened
    opened.close()


def wait_for(service, value):
    """Wait until word 0 is at least ``value``."""
    _native.wait_uint64(service.base, 3, value, float(SECONDS), SPINS)


def slices(thread):
    """How often a thread has been given a core."""
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[2])


def test_a_call_that_waits_executes_requests_and_the_service_sleeps_on(spacious):
    """Not all of them, since another program may take its core."""
    peer = Peer(spacious.port)
    peer.reply()
    waiting = threading.Thread(target=wait_for, args=(spacious, 1))
    waiting.start()
    begun = time.monotonic()
    while True:
        before = slices(spacious.thread)
        for _ in range(20):  # it may not have gone to sleep yet before the first
            peer.send(FETCH, 8, detail=3)
            peer.reply()
        if slices(spacious.thread) == before:
            break
        assert time.monotonic() - begun < SECONDS
    peer.put(0, struct.pack("=Q", 1))
    waiting.join()
    peer.leave()


def waits_among_requests(service):
    """Requests come as waits begin and end. What comes as one ends is for the service, which has to be woken then."""
    chance = random.Random(7)
    peer = Peer(service.port)
    peer.reply()
    for turn in range(1, 301):
        waiting = threading.Thread(target=wait_for, args=(service, turn))
        waiting.start()
        for part in (
            REQUEST.pack(PUT, 0, 0, 0, 8, 0, 0) + struct.pack("=Q", turn),
            REQUEST.pack(FETCH, 0, 3, 0, 0, 0, 0),
        ):
            peer.socket.sendall(part)
            for _ in range(chance.choice((0, 0, 100, 3000))):
                pass
        assert peer.reply()[1] == turn
        waiting.join()
        peer.send(FETCH, 8, detail=3)
        peer.reply()
    peer.leave()


def test_a_request_is_executed_whenever_waits_begin_and_end(spacious):
    waits_among_requests(spacious)


def test_a_request_is_executed_although_waits_lose_their_core_and_sleep():
    """Another process stops this one again and again, as other programs would that run on its cores."""

    def program():
        me = os.getpid()
        reading, writing = os.pipe()
        disturbing = os.fork()
        if not disturbing:
            os.close(writing)
            with suppress(ProcessLookupError):  # it has failed
                while not select.select([reading], [], [], 0.005)[0]:
                    os.kill(me, signal.SIGSTOP)
                    time.sleep(0.001)
                    os.kill(me, signal.SIGCONT)
            os._exit(0)
        service = Service(spins=SPINS)
        waits_among_requests(service)
        os.close(writing)  # killed, the other process might leave this one stopped
        os.waitpid(disturbing, 0)
        os._exit(0)

    assert in_child(program) == (0, "")


def test_requests_are_executed_while_a_handler_runs_in_a_wait(spacious):
    peer = Peer(spacious.port)
    peer.reply()

    def handler(*_):
        peer.send(FETCH, 8, detail=3)
        peer.reply()
        spacious.words[0] = 1

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    wait_for(spacious, 1)
    signal.signal(signal.SIGALRM, before)
    peer.leave()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_without_descriptors_a_service_sleeps_and_then_admits_who_waits():
    def program():
        service = Service()
        strangers = [socket.socket() for _ in range(20)]
        peer = socket.socket()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (peer.fileno() + 5, hard))
        for each in (*strangers, peer):
            each.connect(("127.0.0.1", service.port))
        os.write(2, f"{sleeps(0.2)}\n".encode())
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for each in (*strangers, peer):
            each.close()
        peer = Peer(service.port)
        os.write(2, f"{peer.reply()[0]}\n".encode())
        os._exit(0)

    assert in_child(program) == (0, "True\n1\n")


def test_strangers_take_few_descriptors_and_delay_no_greeting(service):
    before = descriptors()
    strangers = [socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) for _ in range(200)]
    peer = Peer(service.port)
    assert peer.reply() == (1, 0, b"")
    assert descriptors() - before - len(strangers) < 80
    peer.leave()
    for each in strangers:
        each.close()


def test_a_pe_ends_although_another_thread_holds_the_lock_of_stdout():
    libc = ctypes.CDLL(None)

    def program():
        for name in ("stdout", "stderr"):
            libc.flockfile(ctypes.c_void_p.in_dll(libc, name))
        greeted().socket.close()

    assert in_child(program) == (1, "PE 0: lost PE 1 on host1, whose connection has ended\n")


def test_an_open_that_fails_keeps_nothing_and_the_next_one_succeeds():
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)  # a number that no descriptor has
    before = descriptors()
    with pytest.raises(OSError):
        _native.far_open(0, N_PES, 4096, 0, 1.0, 50, JOB, TOKEN, reading, None, (None,) * N_PES, (b"",) * N_PES)
    with pytest.raises(IndexError):
        _native.far_open(0, N_PES, 4096, 0, 1.0, 50, JOB, TOKEN, reading, None, (), (b"",) * N_PES)
    assert descriptors() == before
    service = Service()
    Peer(service.port).reply()
    service.close()
