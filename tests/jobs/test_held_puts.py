"""Small puts to a far PE that follow each other at once: one message has many of them, none is lost, and none passes another call."""

import os
import pathlib
import shutil
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from far_peer import (
    ADD_UINT64, FETCH, FLUSH, GET, PLACE, PUT, PUT_STRIDED, REPLY, REQUEST, SECONDS, UPDATE, Peer,
)  # fmt: skip
from pyshmem.native import _native

WITH_DATA = (PUT, PUT_STRIDED)


def put(values):
    """Put each of them to its own word."""
    words = np.array(values, np.uint64)
    at = words.ctypes.data  # what follows takes little time between two puts
    for place in range(0, words.nbytes, 8):
        _native.far_put(PLACE + place, at + place, 8)


def take(played, count):
    """The next requests of PE 0: (operation, offset, the first word of the data)."""
    found, stream = [], played.socket.makefile("rb")
    for _ in range(count):
        op, _, _, offset, nbytes, _, _ = REQUEST.unpack(stream.read(REQUEST.size))
        data = stream.read(nbytes) if op in WITH_DATA else b""
        found.append((op, offset, struct.unpack("=Q", data[:8])[0] if data else None))
    return found


def puts(values):
    return [(PUT, 8 * index, value) for index, value in enumerate(values)]


def test_they_arrive_in_order_although_no_call_follows(played):
    put(range(1000))
    assert take(played, 1000) == puts(range(1000))


COUNTING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
int messages;
ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
    ssize_t (*next)(int, const struct msghdr *, int) = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    __atomic_add_fetch(&messages, 1, __ATOMIC_RELAXED);
    return next(fd, m, flags);
}
"""
COUNTED = """
import ctypes
import sys
sys.path.append(sys.argv[1])
from far_peer import (
    ADD_UINT64, FETCH, FLUSH, GET, PLACE, PUT, PUT_STRIDED, REPLY, REQUEST, SECONDS, UPDATE, Peer, Played,
)  # fmt: skip
from test_held_puts import put, puts, take

playing = Played()
playing.connect()
messages = ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[2]), "messages")
before = messages.value
put(range(1000))
assert take(playing, 1000) == puts(range(1000))
print(messages.value - before)
"""


def test_one_message_has_many_of_them(tmp_path):
    (tmp_path / "counting.c").write_text(COUNTING)
    library = tmp_path / "counting.so"
    subprocess.run(
        [shutil.which("cc") or "gcc", "-shared", "-fPIC", tmp_path / "counting.c", "-o", library, "-ldl"], check=True
    )
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, pathlib.Path(__file__).parent, library],
        env={**os.environ, "LD_PRELOAD": preloaded},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and 0 < int(done.stdout) < 500, done.stdout + done.stderr


WORDS = np.zeros(128, np.uint64)
AT = WORDS.ctypes.data
FOLLOWERS = {
    "update": (UPDATE, lambda: _native.far_update_uint64(3, PLACE, 1)),
    "fetch": (FETCH, lambda: _native.far_fetch_uint64(3, PLACE, 1)),
    "get": (GET, lambda: _native.far_get(AT, PLACE, 8)),
    "get_nbi": (GET, lambda: _native.far_get_nbi(AT, PLACE, 8)),
    "put of 1 KiB": (PUT, lambda: _native.far_put(PLACE, AT, 1024)),
    "strided put": (PUT_STRIDED, lambda: _native.far_put_strided(PLACE, AT, 16, 8, 8, 2)),
    "put_signal": (PUT, lambda: _native.far_put_signal(PLACE, AT, 8, PLACE, ADD_UINT64, 1)),
    "quiet": (FLUSH, _native.far_quiet),
}


@pytest.mark.parametrize("call", FOLLOWERS)
@pytest.mark.parametrize("count", [2, 5, 200])
def test_a_call_to_the_same_pe_does_not_pass_them(count, call, played):
    op, follow = FOLLOWERS[call]

    def act():
        put(range(count))
        follow()

    acting = threading.Thread(target=act)
    acting.start()
    found = take(played, count + 1)
    assert found[:-1] == puts(range(count)) and found[-1][0] == op
    data = bytes(8) if op == GET else b""
    played.socket.sendall(REPLY.pack(3 + count, 0, len(data)) + data)
    acting.join(SECONDS)
    assert not acting.is_alive()


def test_quiet_completes_those_that_are_held(played):
    """Its reply completes all: the one that the first of them asks for does not."""

    def act():
        put(range(50))
        _native.far_quiet()

    acting = threading.Thread(target=act)
    acting.start()
    assert [op for op, _, _ in take(played, 51)] == [PUT] * 50 + [FLUSH]
    played.socket.sendall(REPLY.pack(3, 0, 0))
    acting.join(0.1)
    assert acting.is_alive()
    played.socket.sendall(REPLY.pack(53, 0, 0))
    acting.join(SECONDS)
    assert not acting.is_alive()


def test_a_pe_that_reads_nothing_holds_up_neither_the_service_nor_any_put(played):
    """They are more than sockets hold, so the call waits, and what is held waits in the service."""
    count = 400_000
    flood = threading.Thread(target=put, args=(range(count),))
    flood.start()
    peer = Peer(played.service.port, pe=2)
    assert peer.reply()[0] == 1
    for turn in range(50):
        peer.put(0, turn.to_bytes(8, "little"), asks=1)
        assert peer.reply() == (2 + turn, 0, b"")
    assert take(played, count) == puts(range(count))
    flood.join(SECONDS)
    assert not flood.is_alive()
    peer.leave()


def test_a_connection_that_ends_fails_the_next_call_and_drops_what_is_held(played):
    put(range(3))
    played.socket.close()
    with pytest.raises(OSError, match=r"(put|quiet) to PE 1"):
        for _ in range(100_000):
            put(range(3))
            _native.far_quiet()
