"""Timelines of copies on streams, with a stand-in for a GPU whose copies begin and end at known times."""

import json
import struct
import time
from types import SimpleNamespace

import pytest
from pyshmem.native import _native
from pyshmem.timelines import merging
from pyshmem.timelines.streams import Copies
from test_arrows import joined
from trace_format import checked

START, RATE, WARM = 10**12, 10, 1000  # ns; bytes a ns; ns of a copy of nothing
LOOKS = 99  # the stream of looks at words
MINE, THEIRS = 1 << 20, 3 << 20  # where the heaps of PE 4 and PE 5 are, each of 1 MiB


class Gpu:
    """Each stream does its work in order, from when it was asked for. An event passes as the work before it has ended."""

    def __init__(self):
        self.now, self.busy, self.capturing = START, {}, False
        self.driver, self.near = Driver(self), SimpleNamespace(_look_stream=LOOKS, _stream_of=lambda raw: raw)
        self.near.put = self.near.get = self.near._copy = "a route"
        self.deltas, self.system, self.system_bytes, self.size = (
            {4: 0, 5: THEIRS - MINE},
            MINE,
            1 << 16,
            (1 << 20) - (1 << 16),
        )
        self.done = []

    def work(self, stream, ns):
        self.busy[stream] = max(self.now, self.busy.get(stream, 0)) + ns


class Driver:
    def __init__(self, gpu):
        self._gpu = gpu

    def copy(self, dest, source, nbytes, stream):
        self._gpu.work(stream, WARM + nbytes // RATE)
        self._gpu.done.append((dest, source, nbytes, stream))


class Event:
    def __init__(self, gpu):
        self._gpu = gpu

    def record(self, stream):
        self._gpu.work(stream, 0)
        self.time = self._gpu.busy[stream]

    def query(self):
        return self.time <= self._gpu.now

    def synchronize(self):
        self._gpu.now = max(self._gpu.now, self.time) + 20  # the host sees it a little later

    def elapsed_time(self, end):
        """In ms, as a float of 4 bytes."""
        return struct.unpack("f", struct.pack("f", (end.time - self.time) / 1e6))[0]


class Timing:
    own = 0

    def __init__(self, gpu):
        self._gpu, self.events = gpu, 0

    def now(self):
        self._gpu.now += 1
        return self._gpu.now

    def event(self):
        self.events += 1
        return Event(self._gpu)

    def captures(self):
        return self._gpu.capturing

    def finish(self):
        self._gpu.now = max(self._gpu.now, *self._gpu.busy.values())


@pytest.fixture
def gpu():
    return Gpu()


@pytest.fixture
def timing(gpu):
    return Timing(gpu)


def rows(data):
    return [struct.unpack_from("<2q2Q2qi2I2BH", data, at) for at in range(0, len(data), 64)]


def test_copies_have_their_times_bytes_stream_and_pe(gpu, timing):
    copies = Copies(gpu, 100, timing)
    copies.open()
    wanted, end = [], {}
    for number in range(20):
        stream, nbytes, to = 7 + number % 2, 10_000 * (number + 1), (MINE, THEIRS)[number % 3 == 0]
        gpu.driver.copy(to + 70_000, MINE + 70_000, nbytes, stream)
        begin = max(gpu.busy[stream] - WARM - nbytes // RATE, end.get(stream, 0))
        end[stream] = begin + WARM + nbytes // RATE
        wanted.append((begin, end[stream], nbytes, number % 2, 5 if number % 3 == 0 else -1))
    data, lost, error = copies.drain(3)
    found = rows(data)
    assert len(gpu.done) == 20 and lost == 0
    assert [(row[2], row[8], row[6]) for row in found] == [each[2:] for each in wanted]
    for row, (begin, stop, *_) in zip(found, wanted, strict=True):
        assert abs(row[0] - begin) <= error <= 30 and abs(row[1] - stop) <= error
    assert all((row[4], row[7], row[11]) == (number, 3, 0xFFFD) for number, row in enumerate(found, 1))
    assert "copy" not in vars(gpu.driver) and gpu.near.put == gpu.near.get == "a route"


def test_times_are_as_exact_after_an_hour(gpu, timing):
    copies = Copies(gpu, 100, timing)
    copies.open()
    for _ in range(2):
        gpu.driver.copy(MINE, THEIRS, 100_000, 7)
        gpu.now += 3600 * 10**9
    data, _, error = copies.drain(1)
    late = rows(data)[1]
    assert abs(late[0] - (gpu.busy[7] - WARM - 10_000)) <= error <= 30 and abs(late[1] - late[0] - WARM - 10_000) <= 2


def test_looks_at_words_and_copies_of_graphs_are_left_out_and_those_without_space_are_counted(gpu, timing):
    copies = Copies(gpu, 3, timing)
    copies.open()
    gpu.driver.copy(MINE, THEIRS, 8, LOOKS)
    gpu.capturing = True
    gpu.driver.copy(MINE, THEIRS, 8, 7)
    gpu.capturing = False
    for _ in range(5):
        gpu.driver.copy(MINE, THEIRS, 8, 7)
    data, lost, _ = copies.drain(1)
    assert len(gpu.done) == 7 and len(rows(data)) == 3 and lost == 2


def test_events_of_copies_that_have_ended_serve_again(gpu, timing):
    copies = Copies(gpu, 10_000, timing)
    copies.open()
    for _ in range(2000):
        gpu.driver.copy(MINE, THEIRS, 8, 7)
        gpu.now += 2 * WARM
    assert len(rows(copies.drain(1)[0])) == 2000
    assert timing.events < 600


def test_an_arrow_goes_from_the_call_to_its_copies(gpu, timing, tmp_path):
    parts = tmp_path / "out.json.parts"
    parts.mkdir()
    names = {"shmem.put": 1, "shmem.fcollect_on_stream": 2, "shmem.quiet": 3, "copy": 4}
    notes = [{"pe": 0, "n_pes": 1, "host": "h", "pid": 7, "clock": (0, 0, 0)}, {"end": 1},
             *({"name": (number, name)} for name, number in names.items())]  # fmt: skip
    (parts / "pe-0.notes").write_text("".join(json.dumps(note) + "\n" for note in notes))
    _native.open_events(str(parts / "pe-0.events"), str(parts / "pe-0.requests"), 100, [])
    gpu.now = time.monotonic_ns()
    copies = Copies(gpu, 100, timing)
    copies.open()
    for name, count in (("shmem.put", 1), ("shmem.quiet", 0), ("shmem.fcollect_on_stream", 3)):
        event = _native.begin_event(names[name], 0, -1, 0, 0, 0, 0, 0, 0)
        for _ in range(count):
            gpu.driver.copy(THEIRS, MINE, 5000, 7)
        _native.end_event(event, False)
    (parts / "pe-0.kernels").write_bytes(copies.drain(names["copy"])[0])
    _native.close_events()
    merging.finish(tmp_path / "out.json")
    slices = checked(tmp_path / "out.json")
    pairs = joined(tmp_path / "out.json", slices)
    assert [(call["name"], there["name"], there["args"]["bytes"]) for call, there in pairs] == [
        ("shmem.put", "copy", 5000), *[("shmem.fcollect_on_stream", "copy", 5000)] * 3]  # fmt: skip
    assert {there["args"]["pe"] for _, there in pairs} == {5} and {there["cat"] for _, there in pairs} == {"copy"}
