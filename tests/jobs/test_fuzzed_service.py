"""The service among strangers that send anything: no write outside the heap, and the PEs of the job are served meanwhile."""

import os
import random
import resource
import signal
import socket
import statistics
import time
from contextlib import suppress

import pytest
from far_peer import (
    BY_CALLER, CHALLENGE, FETCH, GPU, HELLO, JOB, MAGIC, N_PES, REQUEST, SECONDS, TOKEN, Peer, Service, code_of,
)  # fmt: skip
from standin_gpu import Gpu
from test_service import in_child


def stranger(chance, port):
    """A connection that has said something wrong, and perhaps waits for more."""
    sent = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    hello = HELLO.pack(MAGIC, JOB, chance.randrange(N_PES), N_PES, chance.randbytes(16))
    kind = chance.randrange(4)
    with suppress(ConnectionError):
        if kind == 0:
            sent.sendall(chance.randbytes(chance.choice([1, 39, 40, 41, 48, 5000, 70_000])))
        elif kind == 1:
            sent.sendall(hello[: chance.randrange(len(hello))])
        elif kind == 2:  # what follows belongs to the code, and then to requests
            sent.sendall(hello + chance.randbytes(chance.choice([1, 8, 1000, 70_000])))
        else:  # a slow one
            for byte in hello[:5]:
                sent.sendall(bytes([byte]))
    return sent


STRANGERS, QUIET = 1000, 300


def strangers_of(chance, port, done):
    """Play all strangers, in a process of their own. Some leave soon, and the others stay until the end."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = []
    for _ in range(STRANGERS):
        held.append(stranger(chance, port))
        if not chance.randrange(8):
            held.pop(chance.randrange(len(held))).close()
    os.write(done, b"all")
    signal.pause()


def took(peer, number):
    """The seconds of a put and of its acknowledgement, which is the answer to request ``number`` of PE 1."""
    begun = time.perf_counter()
    peer.put(64, number.to_bytes(8, "little"), asks=1)
    assert peer.reply() == (number, 0, b"")
    return time.perf_counter() - begun


@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_strangers_change_nothing_and_every_put_of_a_pe_meanwhile_arrives(seed, capsys):
    """Its times are printed and not tested: with two cores they are those of three threads that share these."""
    service = Service(listener=socket.create_server(("127.0.0.1", 0), backlog=4096))
    peer, quiet, among = Peer(service.port), [], []
    assert peer.reply() == (1, 0, b"")
    for turn in range(QUIET):
        quiet.append(took(peer, 2 + turn))
    done, writing = os.pipe()
    os.set_blocking(done, False)
    crowd = os.fork()
    if not crowd:
        try:
            strangers_of(random.Random(seed), service.port, writing)
        finally:
            os._exit(1)
    os.close(writing)
    come = None
    while come is None:
        among.append(took(peer, 2 + QUIET + len(among)))
        if len(among) % 500 == 1 and not os.fork():
            os._exit(0)
        with suppress(BlockingIOError):
            come = os.read(done, 3)
    os.close(done)
    assert come == b"all", "the strangers have ended"
    other = Peer(service.port, pe=2)
    assert other.reply() == (1, 0, b""), "a PE that greets now is welcome"
    for each in (peer, other):
        each.leave()
    os.kill(crowd, signal.SIGKILL)
    os.waitpid(crowd, 0)
    assert service.words[8] == 1 + QUIET + len(among)
    service.words[8] = 0
    assert not service.heap.any()
    service.close()
    alone, meanwhile = (1e6 * statistics.median(each) for each in (quiet, among))
    with capsys.disabled():
        print(f"\na put and its answer: {alone:.0f} us alone, {meanwhile:.0f} us among {STRANGERS} strangers")


def wild(chance):
    """A request of which each field is sensible, at a limit, or random."""
    limits = (0, 1, 8, 8192, 8193, (1 << 20) - 8, 1 << 20, GPU, GPU + (1 << 20), 1 << 48, (1 << 63) - 8, (1 << 64) - 8)
    field = lambda bits: chance.choice([chance.choice(limits), chance.getrandbits(bits), 8 * chance.randrange(64)])  # noqa: E731
    numbers = [chance.choice([chance.randrange(12), FETCH]), chance.randrange(2), field(8), field(21), field(14)]
    bits = (16, 16, 32, 64, 64)
    fields = [number % (1 << width) for number, width in zip(numbers, bits, strict=True)]
    return REQUEST.pack(*fields, field(14) % (1 << 64), field(21) % (1 << 64)) + bytes(fields[4] % 20_000)


@pytest.mark.parametrize("with_gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize("first", range(0, 24, 8))
def test_a_pe_that_sends_any_requests_reaches_only_the_heap(first, with_gpu):
    """They are executed, or end this PE with a message, if it does not end by itself meanwhile; they never crash it."""

    def program():
        service = Service()
        if with_gpu:
            service.open_gpu(Gpu())
        chance = random.Random(first + seed)
        peer = Peer(service.port)
        peer.reply()
        peer.socket.settimeout(0.2)
        with suppress(OSError):  # it does not read, so in the end nothing more can be sent
            for _ in range(200):
                peer.socket.sendall(wild(chance))
        os._exit(0)

    for seed in range(8):
        status, said = in_child(program)
        invalid = said == "PE 0: invalid request from PE 1\n"
        assert status in (0, int(invalid)) and (invalid or not said), (first + seed, status, said)


def test_a_greeting_may_come_in_any_parts(service):
    nonce = bytes(16)
    slow = socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS)
    slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in HELLO.pack(MAGIC, JOB, 1, N_PES, nonce):
        slow.sendall(bytes([byte]))
    service_nonce, _ = CHALLENGE.unpack(slow.recv(CHALLENGE.size, socket.MSG_WAITALL))
    for byte in code_of(BY_CALLER, nonce, service_nonce, 0, 1, TOKEN, JOB).to_bytes(8, "little"):
        slow.sendall(bytes([byte]))
    assert slow.recv(24, socket.MSG_WAITALL)[:8] == (1).to_bytes(8, "little")
    slow.sendall(REQUEST.pack(9, 0, 0, 0, 0, 0, 0))  # BYE
    slow.close()
