"""Timelines of what executes a call elsewhere: the service of a far PE and the proxy of kernels, with arrows from the caller."""

import json
import time
from collections import Counter

import pytest
from far_peer import ADD_UINT64, FLUSH, GET, POST, PUT, PUT_STRIDED, UPDATE, Peer, Service
from jobs import mpiexec
from pyshmem.native import _native
from pyshmem.base import far
from pyshmem.timelines import merging
from pyshmem.timelines.events import SENT, SERVICE, Event
from pyshmem.timelines.requests import executed
from surroundings import until
from test_arrows import joined
from test_proxy import kernel  # noqa: F401  a fixture
from trace_format import checked


class Recording:
    """Records the requests of this process, PE 0, until slices() gives them."""

    def __init__(self, folder, most=1000):
        self._path, parts = folder / "out.json", folder / "out.json.parts"
        parts.mkdir()
        notes = {"pe": 0, "n_pes": 1, "host": "h", "pid": 7, "clock": (0, 0, 0)}, {"end": 1}
        (parts / "pe-0.notes").write_text("".join(json.dumps(note) + "\n" for note in notes))
        _native.open_events(str(parts / "pe-0.events"), str(parts / "pe-0.requests"), most, [])

    def slices(self):
        """In order."""
        _native.close_events()
        merging.finish(self._path)
        self.metadata = json.loads(self._path.read_text())["metadata"]
        rows = checked(self._path)
        self.pairs = joined(self._path, rows)
        return sorted(rows, key=lambda row: row["ts"])


@pytest.fixture
def recording(tmp_path):
    yield Recording(tmp_path)
    _native.close_events()


@pytest.fixture
def service():
    serving = Service()
    yield serving
    serving.close()


def served(row):
    return row["name"], row["args"].get("bytes", 0), row["args"]["pe"]


def test_each_request_that_the_service_executes_is_a_slice_with_its_bytes_and_the_pe_that_sent_it(service, recording):
    peer, other = Peer(service.port), Peer(service.port, pe=3)
    assert peer.reply()[:2] == other.reply()[:2] == (1, 0)
    peer.put(64, b"a" * 100)
    peer.send(PUT_STRIDED, 4096, 6, detail=2, value=8, payload=b"abcdef")
    peer.send(UPDATE, 8, detail=ADD_UINT64, value=5)
    peer.send(POST, 16, value=7, cond=24)
    peer.put(8192, b"b" * 100_000)
    peer.send(GET, 8192, 100_000)
    peer.reply()
    peer.send(FLUSH, asks=1)
    peer.reply()
    other.put(0, b"c" * 8, asks=1)
    other.reply()
    rows = recording.slices()
    assert [served(row) for row in rows] == [
        ("service.put", 100, 1), ("service.iput", 6, 1), ("service.atomic", 0, 1), ("service.barrier", 0, 1),
        ("service.put", 100_000, 1), ("service.get", 100_000, 1), ("service.flush", 0, 1), ("service.put", 8, 3)]  # fmt: skip
    assert {row["cat"] for row in rows} == {"request"} and not recording.metadata["lost_events"]
    assert len({row["tid"] for row in rows}) == 2  # a track for each PE that is served
    peer.leave()
    other.leave()


def test_span_of_a_request_is_the_time_from_its_first_byte_to_its_last(service, recording):
    peer, payload, pause = Peer(service.port), b"y" * 100_000, 5_000_000
    peer.reply()
    before = time.monotonic_ns()
    peer.send(PUT, 4096, len(payload), asks=1, payload=payload[:50_000])
    assert until(lambda: service.heap[4096 + 49_999] == ord("y"))
    half = time.monotonic_ns()
    assert until(lambda: time.monotonic_ns() - half > pause)
    peer.socket.sendall(payload[50_000:])
    peer.reply()
    (row,) = recording.slices()
    assert pause <= row["dur"] * 1e3 <= time.monotonic_ns() - before
    peer.leave()


def test_requests_without_space_are_counted(service, tmp_path):
    recording, peer = Recording(tmp_path, most=4), Peer(service.port)
    peer.reply()
    for _ in range(10):
        peer.put(0, b"x" * 8, asks=1)
        peer.reply()
    assert len(recording.slices()) == 4 and recording.metadata["lost_events"] == {"0": 6}
    peer.leave()


def test_requests_of_kernels_are_slices_of_the_proxy_with_an_arrow_to_the_service(kernel, recording):
    add = far.ATOMICS["add", "uint64"]
    kernel.request(far.PUT, 64, payload=b"abcdefgh" * 100)
    assert kernel.request(far.GET, 64, 800) == b"abcdefgh" * 100
    kernel.request(far.UPDATE, 8, detail=add, value=5)
    assert kernel.request(far.FETCH, 8, 0, detail=add, value=1) == 5
    kernel.flush()
    rows = recording.slices()
    proxied = [row for row in rows if row["name"].startswith("proxy.")]
    assert [(row["name"], row["args"].get("bytes", 0), row["args"].get("pe")) for row in proxied] == [
        ("proxy.put", 800, 0), ("proxy.get", 800, 0), ("proxy.atomic", 0, 0), ("proxy.atomic_fetch", 0, 0),
        ("proxy.flush", 0, None)]  # fmt: skip
    pairs = [(sender["name"], there["name"]) for sender, there in recording.pairs]
    # the flush had nothing to ask for: the reply to the last request has acknowledged all
    assert pairs == [(f"proxy.{each}", f"service.{each}") for each in ("put", "get", "atomic", "atomic_fetch")]
    for sender, there in recording.pairs:  # a put may be executed later
        assert sender["ts"] <= there["ts"]
        answered = there["name"] in ("service.get", "service.atomic_fetch")
        assert not answered or there["ts"] <= sender["ts"] + sender["dur"]


def test_gets_of_kernels_that_wait_at_once_lie_beside_each_other(kernel, recording):
    tickets = [kernel.take() for _ in range(3)]
    for ticket in tickets:
        kernel.write(ticket, far.GET, 0, 200_000)
    for ticket in reversed(tickets):
        kernel.ready(ticket)
    kernel.wait(tickets[-1], far.DONE, tickets[-1] + 1)
    kernel.request(far.FETCH, 8, 0, detail=far.ATOMICS["add", "uint64"])  # the service has recorded what was before it
    rows = [row for row in recording.slices() if row["name"] == "proxy.get"]
    assert [row["args"]["bytes"] for row in rows] == [200_000] * 3
    assert [there["name"] for _, there in recording.pairs].count(
        "service.get"
    ) == 3  # recording.slices has checked that no slices of a track overlap


def test_a_call_that_sends_several_requests_has_an_arrow_to_each_and_one_to_several_pes_has_none():
    def sent(pe, last, more=0):
        return (pe + 1) << 48 | more << 32 | last

    def event(pe, to, track=0, value=0, before=0, flags=0):
        return Event(pe, 10, 20, 0, 0, value, before, to, "shmem.put", 1, 0, flags, track)

    call = event(0, 1, before=sent(1, 5, 2), flags=SENT)
    wait = event(0, -1, before=sent(1, 5))  # not marked: what a word was
    other = event(2, 1, before=sent(1, 4), flags=SENT)
    requests = [event(1, pe, SERVICE, value) for pe in (0, 2) for value in (2, 3, 4, 5, 6)]
    assert [*executed([call, wait, other, *requests])] == [
        *((call, each) for each in requests[1:4]),
        (other, requests[7]),
    ]


PROGRAM = """
import random
import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton

@triton.jit
def send(ctx, data, flag, pe):
    dev.put_signal(ctx, data, data, 16, flag, 1, dev.SIGNAL_ADD, pe)

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
data, flags = shmem.zeros(1 << 16, dtype=torch.int32), shmem.zeros(n, dtype=torch.uint64)
plan, ctx = random.Random(3), shmem.device_context()
own = np.ones(1 << 16, np.int32)
with shmem.trace("out.json"):
    shmem.barrier_all()  # all PEs record from here on
    for _ in range(40):
        source, target, how, size = plan.randrange(n), plan.randrange(n), plan.randrange(6), plan.choice([1, 100, 50_000])
        if source != me or target == me:
            continue
        if how == 0:
            shmem.put(data, own, target, size=size)
        elif how == 1:
            shmem.get(own, data, target, size=size)
        elif how == 2:
            shmem.put_signal(data, own, target, flags[me : me + 1], 1, shmem.SIGNAL.ADD, size=size)
        elif how == 3:
            shmem.atomic_inc(flags[me : me + 1], target)
        elif how == 4:
            shmem.atomic_fetch_inc(flags[me : me + 1], target)
        else:
            send[(1,)](ctx, data, flags[me : me + 1], target)
    shmem.barrier_all()
"""


def test_each_call_on_a_far_pe_has_an_arrow_to_the_request_that_the_far_service_executed(tmp_path):
    environment = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp"}
    status, _, errors = mpiexec(3, PROGRAM, tmp_path=tmp_path, environment=environment)
    assert status == 0, errors
    slices = checked(tmp_path / "out.json")
    pairs = [(call, there) for call, there in joined(tmp_path / "out.json", slices) if there["cat"] == "request"]
    kinds = {"put": ["put"], "get": ["get"], "put_signal": ["put", "atomic"], "atomic_inc": ["atomic"],
             "atomic_fetch_inc": ["atomic"]}  # fmt: skip
    found = Counter()
    for call, there in pairs:
        if call["cat"] == "meet":
            continue
        name = call["name"].rpartition(".")[2]
        assert call["args"]["pe"] == there["pid"] and there["args"]["pe"] == call["pid"]
        assert there["name"].removeprefix("service.").removesuffix("_fetch") in kinds[name]
        assert there["ts"] >= call["ts"]
        if there["name"] in ("service.put", "service.get"):
            assert there["args"]["bytes"] == call["args"]["bytes"]
        if name in ("get", "atomic_fetch_inc"):
            assert there["ts"] <= call["ts"] + call["dur"]
        found[call["pid"], call["ts"]] += 1
    calls = [each for each in slices if each["name"].rpartition(".")[2] in kinds and each["cat"] != "request"]
    assert len(calls) > 10 and any(each["name"].startswith("dev.") for each in calls)
    wanted = {(each["pid"], each["ts"]): len(kinds[each["name"].rpartition(".")[2]]) for each in calls}
    assert found == wanted
