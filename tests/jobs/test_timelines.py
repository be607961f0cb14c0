"""Timelines: one file of all PEs, arrows between the right calls, clocks, and files that open whatever happens to a PE."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jobs import mpiexec, python
from launching import PYSHMEMRUN
from pyshmem.device.arch.rules import code_of
from pyshmem.base.kernel_timeouts import ROUTINES
from pyshmem.timelines import merging
from pyshmem.timelines.arrows import joined
from pyshmem.timelines.events import ADD, BEFORE, HOST, MULTIPROCESSORS, SET, SPAN, WAITS, WORD, Event, plain
from pyshmem.timelines.rings import ROW, settled
from pyshmem.timelines.taxes import call_of, divided
from trace_format import checked

PROGRAM = """
import random
import time
import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from pyshmem.host import rma
from pyshmem.base.job import job
from pyshmem.timelines.clocks import compared

@triton.jit
def pass_on(ctx, data, flags):
    flag = flags + tl.program_id(0)
    if dev.my_pe(ctx) > 0:
        dev.signal_wait_until(ctx, flag, dev.CMP_EQ, 7)
    span = dev.trace_begin(ctx, "to the next PE")
    dev.put_signal(ctx, data, data, 16, flag, 7, dev.SIGNAL_SET, (dev.my_pe(ctx) + 1) % dev.n_pes(ctx))
    dev.trace_end(ctx, span)
    dev.barrier_all(ctx)

@triton.jit
def beyond(ctx, data):
    span = dev.trace_begin(ctx, "of a name that is too long")

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
passed = shmem.zeros(2, dtype=torch.uint64)
flags, data = shmem.zeros(n, dtype=torch.uint64), shmem.zeros(64, dtype=torch.int32)
team = shmem.TEAM_WORLD.split_strided(0, 1, n)
context = team.create_ctx()
plan = random.Random(7)
sent = [[0] * n for _ in range(n)]
with shmem.trace("out.json"):
    for _ in range(60):  # who sends to whom, by which call: each value of a flag is of one message
        source, target, how = plan.randrange(n), plan.randrange(n), plan.randrange(4)
        sent[source][target] += 1
        value = sent[source][target]
        if me == source:
            flag = flags[source : source + 1]
            if how == 0:
                shmem.put_signal(data, data, target, flag, value, shmem.SIGNAL.SET, size=value)
            elif how == 1:
                shmem.signal_add(flag, 1, target, context)
            elif how == 2:
                shmem.p(flag, value, pe=target)
            else:
                shmem.atomic_inc(flag, target)
        if me == target:
            shmem.wait_until(flags[source : source + 1], ">=", value)
    pass_on[(2,)](shmem.device_context(), data, passed)
    shmem.get(data[8:], data, 0, size=8)
    shmem.put(data, np.ones(8, np.int32), 0)
    shmem.iput(data, source=data[:9], pe=0, tst=2, sst=3)
    shmem.atomic_fetch(source=data[:1], pe=0)
    team.sync()
    try:
        shmem.get(data, data, n)
    except shmem.OutOfRangeError:
        pass
try:
    beyond[(1,)](shmem.device_context(), data)
except Exception as error:
    assert "trace_begin" in str(error) and "24 bytes" in str(error), error
else:
    raise AssertionError("a name of 26 bytes")
assert shmem.put is rma.put
hosts = ["a", "a", "b"]
away, clock = 5_000_000_000, time.monotonic_ns
_, ahead, error = compared(job.comm, hosts, clock if me < 2 else lambda: clock() + away)
assert abs(ahead - (away if me == 2 else 0)) <= error and (error > 0) == (me == 2), (ahead, error)
shmem.barrier_all()
"""


def read(path):
    checked(path)
    found = json.loads(path.read_text())
    rows = found["traceEvents"]
    return found["metadata"], [row for row in rows if row["ph"] == "X"], [row for row in rows if row["ph"] in "sf"]


@pytest.fixture(scope="module")
def timeline(tmp_path_factory):
    """Of messages between three PEs."""
    folder = tmp_path_factory.mktemp("timeline")
    status, _, err = mpiexec(3, PROGRAM, tmp_path=folder)
    assert status == 0, err
    assert not (folder / "out.json.parts").exists()
    return read(folder / "out.json")


def at(calls, arrow):
    """The innermost call in which an arrow begins or ends."""
    inside = [call for call in calls if (call["pid"], call["tid"]) == (arrow["pid"], arrow["tid"])
              and call["ts"] <= arrow["ts"] <= call["ts"] + call["dur"]]  # fmt: skip
    return max(inside, key=lambda call: call["ts"])


def test_each_wait_has_an_arrow_from_the_call_that_sent_its_message(timeline):
    _, calls, arrows = timeline
    pairs = {}
    for arrow in arrows:
        pairs.setdefault(arrow["id"], {})[arrow["ph"]] = at(calls, arrow)
    assert len(pairs) == sum(call["cat"] == "wait" for call in calls) == 60 + 4
    of_kernels = [pairs.pop(key) for key, pair in [*pairs.items()] if pair["f"]["name"] == "dev.signal_wait_until"]
    for pair in of_kernels:
        assert (
            pair["s"]["name"] == "dev.put_signal"
            and pair["f"]["pid"] == pair["s"]["pid"] + 1 == pair["s"]["args"]["pe"]
        )
        assert (
            pair["f"]["args"]["word"] == pair["s"]["args"]["word"] and pair["f"]["args"]["ended_by"] == pair["s"]["pid"]
        )
    assert len(of_kernels) == 4
    added = {}
    for pair in sorted(pairs.values(), key=lambda pair: pair["s"]["ts"]):
        source, wait = pair["s"], pair["f"]
        key = source["pid"], source["args"]["pe"]
        added[key] = value = added.get(key, 0) + 1  # the messages of two PEs, in their order
        assert source["args"].get("set", value) == value
        assert wait["args"]["waits_for"] == f">= {value}" and wait["pid"] == source["args"]["pe"]
        assert wait["args"]["word"] == source["args"]["word"]
        assert source["ts"] <= wait["ts"] + wait["dur"]


def test_calls_say_bytes_pe_route_team_and_failures(timeline):
    metadata, calls, _ = timeline
    by_name = {}
    for call in calls:
        by_name.setdefault(call["name"], []).append(call)
    puts = by_name["shmem.put"]
    assert [(call["args"]["bytes"], call["args"]["pe"], call["args"]["route"]) for call in puts] == [
        (32, 0, "near")
    ] * 3
    assert all(call["args"]["bytes"] == 4 * call["args"]["set"] for call in by_name["shmem.put_signal"])
    assert {call["args"]["team"] for call in by_name["shmem.Team.sync"]} == {"0:1:3"}
    there = {"pe": 0, "route": "near"}
    failed = {"bytes": 256, "pe": 3, "route": "near", "failed": True}
    gets = sorted((call["args"] for call in by_name["shmem.get"]), key=len)
    assert gets == [{"bytes": 32, **there}] * 3 + [failed] * 3
    assert [call["args"] for call in by_name["shmem.iput"]] == [{"bytes": 12, **there}] * 3
    assert [call["args"] for call in by_name["shmem.atomic_fetch"]] == [{"bytes": 4, **there}] * 3
    assert "shmem.my_pe" not in by_name
    assert metadata["pes"] == 3 and metadata["events"] == len(calls)
    assert metadata["clock_error_us"] == {"0": 0, "1": 0, "2": 0} and not metadata["lost_events"]


def test_the_file_says_where_the_time_of_each_pe_went(timeline):
    metadata, calls, _ = timeline
    parts = divided([call_of(call) for call in calls]).parts
    assert metadata["taxes_us"] == {str(pe): own for pe, own in parts.items()}
    assert len(parts) == 3 and all(own["waits"] > 0 and own["computing"] > 0 for own in parts.values())


def test_kernels_have_their_programs_and_these_their_device_calls_within_them(timeline):
    _, calls, _ = timeline
    for pe in range(3):
        own = [call for call in calls if call["pid"] == pe and call["tid"] % 4 == 1]
        (kernel,) = (call for call in own if call["cat"] == "kernel")
        programs = [call for call in own if call["cat"] == "program"]
        assert kernel["name"] == "pass_on"
        assert [call["args"]["program"] for call in programs] == ["0, 0, 0", "1, 0, 0"]
        for number, program in enumerate(programs):
            end = program["ts"] + program["dur"]
            assert kernel["ts"] <= program["ts"] and end <= kernel["ts"] + kernel["dur"]
            within = [call for call in own if call["name"].startswith("dev.") and program["ts"] <= call["ts"] <= end]
            assert [call["name"] for call in within] == ["dev.signal_wait_until"] * (pe > 0) + [
                "dev.put_signal",
                "dev.barrier_all",
            ]
            (span,) = (call for call in own if call["cat"] == "span" and program["ts"] <= call["ts"] <= end)
            assert span["name"] == "to the next PE" and span["ts"] <= within[-2]["ts"]
            assert within[-2]["ts"] + within[-2]["dur"] <= span["ts"] + span["dur"] <= within[-1]["ts"]
            assert within[-2]["args"]["bytes"] == 64 and within[-2]["args"]["set"] == 7
            assert within[-1]["args"]["team"] == f"0:1:3 in program {number}, 0, 0"


def test_spans_of_hosts_with_other_clocks_are_where_they_were_within_the_error(tmp_path):
    """PE 1's clock is 5 ms ahead at first and 6 ms at the end, of a second; one of its calls never ends."""
    folder = tmp_path / "out.json.parts"
    folder.mkdir()
    start, second, error = 10**12, 10**9, 40_000
    spans = [(100_000, 900_000, 1), (500_000_000, 510_000_000, 2), (900_000_000, 0, 1)]  # begin, end, name
    for pe, ahead in enumerate([(0, 0), (5_000_000, 6_000_000)]):

        def here(time, ahead=ahead):
            return start + time + ahead[0] + (ahead[1] - ahead[0]) * time // second

        clocks = [(here(time), there, pe * error) for time, there in zip((0, second), ahead, strict=True)]
        notes = [{"pe": pe, "n_pes": 2, "host": f"h{pe}", "pid": 7}, *({"clock": clock} for clock in clocks),
                 {"name": (1, "shmem.put")}, {"name": (2, "shmem.get")}, {"end": 1}]  # fmt: skip
        (folder / f"pe-{pe}.notes").write_text("".join(json.dumps(note) + "\n" for note in notes))
        rows = [struct.pack("<2q2Q2qi2I2BH", here(begin), end and here(end), 0, 0, 0, 0, -1, name, 7, 0, 0, 0)
                for begin, end, name in spans]  # fmt: skip
        (folder / f"pe-{pe}.events").write_bytes(struct.pack("<2Q", 3, 64).ljust(4096, b"\0") + b"".join(rows))
    merging.finish(tmp_path / "out.json")
    metadata, calls, _ = read(tmp_path / "out.json")
    assert metadata["clock_error_us"] == {"0": 0, "1": 40}
    first = min(call["ts"] for call in calls)
    for pe in range(2):
        own = sorted((call for call in calls if call["pid"] == pe), key=lambda call: call["ts"])
        for call, (begin, end, name) in zip(own, spans, strict=True):
            assert abs(call["ts"] - first - (begin - 100_000) / 1e3) <= 40
            assert not end or abs(call["dur"] - (end - begin) / 1e3) <= 40
            assert call["args"].get("unfinished", False) is (not end)
            assert call["name"] == ("shmem.put", "shmem.get")[name - 1]


def of_gpu(begin, end, name, program, op=0, track=5, words=(0, 0, 0)):
    """A row of the ring, as a compiled kernel writes it."""
    place, value, before = words
    return struct.pack("<2q2Q2qi2I2BH", begin, end, 8, place, value, before, -1, name, program, op, 4, track)


def test_every_routine_in_which_a_kernel_can_wait_has_its_name_in_a_timeline():
    rows = b"".join(of_gpu(1, 2, code_of(routine), 0) for routine in ROUTINES)
    names = []
    settled(np.frombuffer(rows, ROW), (0, 0, 0), (9, 9, 0), lambda name: names.append(name) or len(names))
    assert sorted(names) == sorted(f"dev.{routine}" for routine in ROUTINES)


def test_events_of_a_gpu_have_the_hosts_times_their_names_and_a_track_on_which_nothing_overlaps(tmp_path):
    """The GPU's clock is 100 ns behind at first and 300 at the end. Two programs are on multiprocessor 3 at once."""
    text = struct.unpack("<Qqq", b"a tile".ljust(24, b"\0"))
    rows = [of_gpu(1000, 9000, 0, 1, SPAN, words=text), of_gpu(2000, 3000, code_of("put"), 1),
            of_gpu(2500, 4000, code_of("fence"), 2), of_gpu(9000, 9500, code_of("put"), 2), of_gpu(0, 0, 0, 0)]  # fmt: skip
    names = {}
    first, last = (1000, 100, 5), (11000, 300, 7)
    data = settled(np.frombuffer(b"".join(rows), ROW), first, last, lambda name: names.setdefault(name, len(names) + 1))
    assert data["begin"].tolist() == [1100, 2120, 2630, 9260] and data["end"].tolist() == [9260, 3140, 4160, 9770]
    folder = tmp_path / "out.json.parts"
    folder.mkdir()
    notes = [{"pe": 0, "n_pes": 1, "host": "h", "pid": 7, "clock": (0, 0, 0)}, {"kernels": (2, 7, ["pe-0.kernels: full"])}, {"end": 1},
             *({"name": (number, name)} for name, number in names.items())]  # fmt: skip
    (folder / "pe-0.notes").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (folder / "pe-0.events").write_bytes(struct.pack("<2Q", 0, 64).ljust(4096, b"\0"))
    (folder / "pe-0.kernels").write_bytes(data.tobytes())
    merging.finish(tmp_path / "out.json")
    metadata, calls, _ = read(tmp_path / "out.json")
    assert metadata["lost_events"] == {"0": 2} and metadata["clock_error_us"] == {"0": 0.007}
    assert metadata["lost_because"] == {"0": ["pe-0.kernels: full"]}
    assert [(call["name"], call["cat"], call["args"]["program"]) for call in calls] == [
        ("a tile", "span", "1"), ("dev.put", "put", "1"), ("dev.fence", "order", "2"), ("dev.put", "put", "2")]  # fmt: skip
    tile, put, fence, later = (call["tid"] for call in calls)
    assert tile == put != fence == later
    named = [
        row for row in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if row["name"] == "thread_name"
    ]
    assert [row["args"]["name"] for row in named] == ["multiprocessor 3", "multiprocessor 3, 2"]


PRODUCT = """
import torch
import pyshmem as shmem
from pyshmem import ops
shmem.init()
a, b = torch.randn(64, 256), torch.randn(256, 64)
with shmem.trace("out.json"):
    ops.gemm_all_gather(a, b, schedule="fused")
"""


def test_a_fused_product_marks_its_tiles_and_has_no_slice_for_each_step_of_their_loops(tmp_path):
    status, _, err = mpiexec(2, PRODUCT, tmp_path=tmp_path)
    assert status == 0, err
    _, calls, _ = read(tmp_path / "out.json")
    tiles = [call for call in calls if call["name"] == "tile"]
    assert {call["pid"] for call in tiles} == {0, 1} and {call["cat"] for call in tiles} == {"span"}
    stores = [call for call in calls if call["name"] == "dev.store"]
    assert stores  # the last tile's
    for store in stores:
        assert not [tile for tile in tiles if tile["pid"] == store["pid"]
                    and tile["ts"] <= store["ts"] < tile["ts"] + tile["dur"]]  # fmt: skip


KILLED = """
import os, signal, struct
import torch
import pyshmem as shmem
from pyshmem.shmem import shmem_int64_p
from pyshmem.timelines.events import EVENT, WAITS, Event

def waits(path):
    with open(path, "rb") as file:
        (taken,) = struct.unpack("<Q", file.read(4096)[:8])
        rows = [Event(0, *row) for row in EVENT.iter_unpack(file.read(taken * EVENT.size))]
    return any(each.op >= WAITS and each.begin for each in rows)

shmem.init()
flag = shmem.zeros(1, dtype=torch.int64)
if shmem.my_pe() == 1:
    shmem_int64_p(flag, 1, 0)
    while not waits("out.json.parts/pe-0.events"):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
shmem.wait_until(flag, "==", 2)
"""


def test_a_job_in_which_a_pe_is_killed_leaves_a_file_with_all_that_was_recorded(tmp_path):
    options = "-n", "2", "--trace", "out.json"
    status, _, err = python(KILLED, tmp_path=tmp_path, launcher=(*PYSHMEMRUN, *options), fresh=True)
    assert status == 137 and "pyshmemrun --trace: wrote out.json" in err, err
    metadata, calls, _ = read(tmp_path / "out.json")
    assert metadata["unfinished_pes"] == [0, 1]
    # the C name's function calls it: one write, not two
    (ours,) = (call for call in calls if call["name"] == "shmem.p")
    assert ours["pid"] == 1 and ours["args"]["set"] == 1
    (c_name,) = (call for call in calls if call["name"] == "shmem_int64_p")
    assert (c_name["cat"], c_name["args"]) == ("put", {"pe": 0, "route": "near"})
    assert [call["pid"] for call in calls if call["args"].get("unfinished")] == [0]
    assert not (tmp_path / "out.json.parts").exists()


TWICE = """
import torch
import triton
import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.device.arch.interpreter import events

@triton.jit
def wait(ctx, word):
    dev.signal_wait_until(ctx, word, dev.CMP_GE, 1)

def number_of(name):
    if name == "dev.signal_wait_until":  # the wait has been called, and its event has not begun
        shmem.signal_add(word, 1, 0)
        shmem.signal_add(word, 1, 0)
    return usual(name)

shmem.init()
word = shmem.zeros(1, dtype=torch.uint64)
with shmem.trace("out.json"):
    usual, events.recording.number_of = events.recording.number_of, number_of
    wait[(1,)](shmem.device_context(), word)
"""


def test_an_interpreted_wait_begins_as_its_word_is_seen_so_that_the_first_of_two_messages_ends_it(tmp_path):
    status, _, err = python(TWICE, tmp_path=tmp_path)
    assert status == 0, err
    _, calls, arrows = read(tmp_path / "out.json")
    first, _ = sorted((call for call in calls if call["name"] == "shmem.signal_add"), key=lambda call: call["ts"])
    (wait,) = (call for call in calls if call["name"] == "dev.signal_wait_until")
    begin, end = sorted(arrows, key=lambda arrow: arrow["ph"], reverse=True)
    assert at(calls, begin) == first and at(calls, end) == wait and wait["args"]["began_at"] == 2


def event(pe, begin, end, op, value, before=0, to=-1, track=HOST):
    flags = WORD | (BEFORE if op >= WAITS else 0)
    return Event(pe, begin, end, 8, 64, value, before, to, "shmem.call", 1, op, flags, track)


def test_arrow_comes_from_the_first_write_between_a_compiled_kernels_look_and_the_beginning_of_its_wait():
    def wait(begin, value, track=MULTIPROCESSORS):
        return event(1, begin, begin + 100, WAITS + 3, value, track=track)

    first, second = (event(0, begin, begin + 100, ADD, 1, to=1) for begin in (1000, 1050))
    assert [*joined([first, second, wait(1200, 1)])] == [(first, wait(1200, 1))]
    assert [*joined([first, second, wait(1200, 2)])] == [(second, wait(1200, 2))]
    assert [*joined([first, second, wait(1200, 3)])] == []
    assert [*joined([first, wait(10**6, 1)])] == []  # the word was not 1 then: something else has written it
    assert [*joined([first, wait(1200, 1, HOST)])] == []  # what begins as the word is seen has no such write


@pytest.mark.parametrize(
    "label, name",
    {"shmem.put": "put", "shmem.Team.sync": "sync", "dev.put_nbi": "put_nbi", "shmem_int_put": "put",
     "shmem_ctx_long_atomic_add": "atomic_add", "shmem_putmem_signal_nbi": "put_signal_nbi", "shmem_get64": "get",
     "shmem_size_wait_until": "wait_until"}.items(),
)  # fmt: skip
def test_calls_of_c_names_are_known_by_the_names_in_python(label, name):
    assert plain(label) == name


@st.composite
def programs(draw):
    """Events of one word of PE 0, as a machine would execute them, with the pairs that are right.

    Writes come one after the other. A wait begins before or after what it waits for; the owner may take a value (set the
    word to 0) after a wait, as a program does that waits for the same value again.
    """
    counts, time, value, events, right = draw(st.booleans()), 0, 0, [], []
    for _ in range(draw(st.integers(1, 12))):
        late, gap, length, inside = (draw(st.integers(1, 9)) for _ in range(4))
        waits = draw(st.booleans())
        wanted = value + 1 if counts else 1
        old = value
        begin = time + gap
        effect, end = begin + inside, begin + inside + length
        if counts:
            op, amount, value = draw(st.sampled_from([(SET, wanted, wanted), (ADD, 1, wanted)]))
        else:
            op, amount, value = SET, 1, 1
        write = event(draw(st.integers(1, 3)), begin, end, op, amount, to=0)
        events.append(write)
        time = end
        if waits:
            early = draw(st.booleans())
            seen = old if early else value
            start = effect - 1 - draw(st.integers(0, inside - 1)) if early else end + late
            stop = max(start, effect) + draw(st.integers(1, 9))
            if early and not counts and old == 1:
                continue  # it would find the value that nobody has taken
            sign, compared = (3, wanted) if counts else (0, 1)
            wait = event(0, start, stop, WAITS + sign, compared, seen)
            events.append(wait)
            right.append((write, wait))
            time = max(time, stop)
            if not counts:
                value = 0
    return events, right


@settings(max_examples=200)
@given(programs(), st.randoms(use_true_random=False))
def test_arrows_join_the_write_and_the_wait_that_it_ends_in_any_program(program, shuffled):
    events, right = program
    shuffled.shuffle(events)
    assert sorted(joined(events)) == sorted(right)
