"""What processes read from torch's store, to which anybody may write: plain values, and nothing that is executed."""

import pickle
import random
from contextlib import suppress
from typing import NamedTuple

import pytest
import torch

from pyshmem.base import bootstrap
from pyshmem.start.census import Answer
from pyshmem.base.encoding import EncodingError, decode, encode
from pyshmem.base.errors import ArgumentError, LaunchError, WaitTimeoutError
from pyshmem.memory.mailbox import Place

PLACE = Place(7, "/dev/shm/pyshmem-mailbox-x", bytes(range(16)))
ANSWER = Answer(0, 0, "h", 1 << 200, 5, PLACE, 0, None, None, 4096, 0, "cpu", "", False)


class Marker:
    """Pickled, it makes a file where it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class Unknown(NamedTuple):
    number: int


@pytest.mark.parametrize("value", [
    None, True, False, 0, -1, 1 << 300, 0.1, float("inf"), "", "a\0\u20ac", b"", bytes(range(256)), [], (), set(), {3, 1},
    [1, [2, (3, None)], "list"], ("tuple",), (("error", "x"),), torch.float32, torch.uint64, PLACE, ANSWER, [ANSWER, PLACE],
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_values_come_back_with_their_types(value):
    found = decode(encode(value))
    assert found == value and type(found) is type(value)
    assert not isinstance(value, (list, tuple)) or [*map(type, found)] == [*map(type, value)]


@pytest.mark.parametrize("kind", [ArgumentError, LaunchError, WaitTimeoutError])
def test_errors_come_back_as_their_kind(kind):
    found = decode(encode(kind("init: PE 1: x: got y; expected z")))
    assert type(found) is kind and str(found) == "init: PE 1: x: got y; expected z"


@pytest.mark.parametrize("value", [object(), Unknown(3), {"a": 1}, lambda: 0, int, ValueError("x"), 1j])
def test_no_other_value_is_written(value):
    with pytest.raises(TypeError):
        encode(value)


ODD = [
    b"", b"x", b"{", b"{}", b"[]", b"[1]", b'["none", 1]', b'["bytes"]', b'["bytes", 3]', b'["bytes", "g"]', b"\xff\xfe",
    b'["dtype", "load"]', b'["dtype", "__name__"]', b'["dtype", "hub"]', b'["error", "SystemExit", "x"]', b'["error", "x"]',
    b'["error", [], "x"]', b'["Place", 1]', b'["Place", 1, 2, 3, 4]', b'["Unknown", 1]', b'["set", ["list"]]', b'[["list"]]',
    b"[" * 100_000, b'["list",' * 50_000, b"9" * 6000, b'{"__class__": "os.system"}', pickle.dumps([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("data", ODD, ids=lambda data: repr(data[:20]))
def test_what_is_no_message_is_refused(data):
    with pytest.raises(EncodingError):
        decode(data)


def test_messages_of_any_size_are_not_read(monkeypatch):
    monkeypatch.setattr("pyshmem.base.encoding._MOST", 10)
    assert decode(encode("12345678")) == "12345678"
    with pytest.raises(EncodingError, match="11 bytes"):
        decode(encode("123456789"))


def test_damaged_messages_are_refused_or_are_other_values():
    chance = random.Random(5)
    whole = encode([ANSWER, torch.float64, b"bytes", ArgumentError("text")])
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice(b'"[],{}0aN\\\xff\x00')
        with suppress(EncodingError):
            decode(bytes(data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data))


def test_processes_execute_nothing_that_others_write_to_the_store(tmp_path):
    """Before, whoever reached the store of torchrun could run code in every process of the job."""
    store = torch.distributed.HashStore()
    comm = bootstrap.StoreComm(store, 0, 1)
    comm._store.set("2/0", pickle.dumps(Marker(str(tmp_path / "executed"))))
    assert comm.allgather("first") == ["first"]
    comm._post = lambda mine: setattr(comm, "_round", comm._round + 1)  # another writes in its place
    with pytest.raises(LaunchError, match=r"init: PE \?: comm: got what process 0 has not written to torch's store"):
        comm.allgather("second")
    assert not (tmp_path / "executed").exists()
