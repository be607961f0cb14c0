"""Files that only resemble a timeline: one line says so, whatever the file has; the same for what PEs have left of one."""

import json
import random
import shutil
import struct

import pytest
from pyshmem.timelines.report import taxes as command

from pyshmem.timelines import merging, reading, taxes
from pyshmem.timelines.taxes import Call

METADATA = {
    "lost_events": {},
    "lost_because": {},
    "unfinished_pes": [],
    "missing_pes": [],
    "clock_error_us": {"0": 0.5, "1": None},
}


def timeline():
    """A small timeline that has everything: calls of two PEs, meetings, waits, arrows, kernels, bytes read again."""
    rows = []
    for pe in (0, 1):
        for number, (name, kind, args) in enumerate([
            ("shmem.put", "put", {"bytes": 80, "pe": 1 - pe, "route": "near"}),
            ("shmem.barrier_all", "meet", {"team": "world"}),
            ("shmem.wait_until", "wait", {"ended_by": 1 - pe}),
            ("shmem.ops.gemm", "operator", {"plan": "fused", "read_again_within": 3, "read_again": {"torch.add": 5}}),
            ("a kernel [of/mine]", "kernel", {}),
        ]):  # fmt: skip
            rows.append(
                {
                    "name": name,
                    "cat": kind,
                    "ph": "X",
                    "pid": pe,
                    "tid": 0,
                    "ts": 10.0 * number,
                    "dur": 8.0,
                    "args": args,
                }
            )
        rows.append({"name": "ends the wait", "cat": "arrow", "ph": "s", "id": pe, "pid": 1 - pe, "tid": 0, "ts": 7.0})
        rows.append(
            {"name": "ends the wait", "cat": "arrow", "ph": "f", "id": pe, "pid": pe, "tid": 0, "ts": 27.0, "bp": "e"}
        )
    return {"displayTimeUnit": "ns", "metadata": dict(METADATA), "traceEvents": rows}


def report(path, capsys):
    """The status of the command for a file, and its lines. It does not raise."""
    status = command.main([str(path)])
    return status, capsys.readouterr().err.splitlines()


def test_a_whole_timeline_is_read_with_names_as_they_are(tmp_path, capsys):
    path = tmp_path / "out.json"
    path.write_text(json.dumps(timeline()))
    assert command.main([str(path)]) == 0
    assert "a kernel [of/mine]" in capsys.readouterr().out


NO_TIMELINES = {
    "empty": "", "text": "x", "list": "[]", "deep lists": "[" * 100_000, "deep objects": '{"a":' * 100_000, "number": "9" * 5000,
    "nothing": "{}", "no rows": '{"traceEvents": 3, "metadata": {}}', "bytes": b"\xff\xfe\x00",
    "deep rows": '{"metadata": ' + "[" * 3000 + "]" * 3000 + ', "traceEvents": [3]}',
}  # fmt: skip


@pytest.mark.parametrize("name", NO_TIMELINES)
def test_what_is_no_timeline_is_refused_in_one_line(name, tmp_path, capsys):
    path, content = tmp_path / "out.json", NO_TIMELINES[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    status, lines = report(path, capsys)
    assert status == 2 and len(lines) == 1
    assert all(line.endswith("; expected a timeline that pyshmemrun --trace has written") for line in lines), lines


ODD = [
    None,
    True,
    -1,
    3,
    1 << 70,
    1e300,
    1.5,
    "",
    "x",
    "\x1b[2J",
    [],
    [1],
    {},
    {"a": "b"},
    float("nan"),
    float("inf"),
    10**4000,
]


def places(value, path=()):
    """Every place in a structure of JSON."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def damaged(chance):
    """A timeline in which something has another value, or is missing."""
    whole = timeline()
    for _ in range(chance.randint(1, 3)):
        *above, last = chance.choice([each for each in places(whole) if each])
        inner = whole
        for key in above:
            inner = inner[key]
        if chance.random() < 0.2:
            del inner[last]
        else:
            inner[last] = chance.choice(ODD)
    return whole


@pytest.mark.parametrize("seed", range(8))
def test_a_timeline_with_other_values_is_read_or_refused_in_one_line(seed, tmp_path, capsys):
    chance, path = random.Random(seed), tmp_path / "out.json"
    for turn in range(60):
        path.write_text(json.dumps(damaged(chance)))
        status, lines = report(path, capsys)
        assert status in (0, 2), (turn, lines)
        assert len(lines) == bool(status), (turn, lines)
        assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("seed", range(4))
def test_a_timeline_with_other_bytes_is_read_or_refused_in_one_line(seed, tmp_path, capsys):
    chance, path, whole = random.Random(seed), tmp_path / "out.json", json.dumps(timeline()).encode()
    for turn in range(60):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randint(0, len(data))] if turn % 3 == 0 else data)
        status, lines = report(path, capsys)
        assert status in (0, 2) and len(lines) == bool(status), (turn, lines)


def test_names_are_shown_without_what_a_terminal_obeys(tmp_path):
    whole, path = timeline(), tmp_path / "out.json"
    whole["traceEvents"][0]["name"] = "a\x1b]0;b\x07"
    path.write_text(json.dumps(whole))
    assert reading.read(path)[0][0].name == "a?]0;b?"


def test_a_long_chain_of_pes_that_wait_for_the_next_has_causes():
    pes = 3000
    calls = [Call(0.0, 10.0 + pe, pe, 0, "shmem.wait_until", "wait", "", (pe + 1) % pes) for pe in range(pes)]
    assert sum(taxes.divided(calls[:1200]).waited[0].values()) > 0


@pytest.mark.parametrize("seed", range(6))
def test_what_pes_have_left_may_be_damaged(seed, tmp_path):
    """A line of their notes that is none ends them, as one that a full disk has cut."""
    chance, path = random.Random(seed), tmp_path / "out.json"
    lines = [
        json.dumps(each)
        for each in (
            {"pe": 0, "n_pes": 1, "host": "h", "pid": 3}, {"name": [1, "shmem.put"]}, {"clock": [5, 0, 0]},
            {"kernels": [2, None, ["full"]]}, {"clock": [9, 0, 0]}, {"end": True},
        )
    ]  # fmt: skip
    rows = [struct.pack("<2q2Q2qi2I2BH", 5, 9, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0) for _ in range(5)]
    for turn in range(40):
        folder = merging.parts_of(path)
        folder.mkdir()
        notes = bytearray("\n".join(lines).encode())
        events = bytearray(struct.pack("<4Q", 5, 64, 0, 1).ljust(4096, b"\0") + b"".join(rows))
        for data in (notes, events):
            for _ in range(chance.randint(0, 3)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        events[chance.randrange(24)] ^= 1 << chance.randrange(8)
        if turn % 4 == 0:
            notes += b'\n{"clock": ' + b"[" * 100_000
        (folder / "pe-0.notes").write_bytes(notes)
        (folder / "pe-0.events").write_bytes(events)
        merging.finish(path, whole=False)
        reading.read(path)
        path.unlink()
        shutil.rmtree(folder, ignore_errors=True)
