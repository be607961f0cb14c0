"""Timelines: one file of all PEs, arrows between the right calls, clocks, and files that open whatever happens to a PE."""

import json

import pytest
from hypothesis import given, settings, strategies as st
from jobs import mpiexec, python
from launching import PYSHMEMRUN
from pyshmem.timelines.arrows import joined
from pyshmem.timelines.events import ADD, BEFORE, SET, WAITS, WORD, Event

PROGRAM = """
import random
import time
import numpy as np
import torch
import pyshmem as shmem
from pyshmem.host import rma
from pyshmem.runtime.job import job
from pyshmem.timelines.clocks import compared

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
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
    shmem.put(data, np.ones(8, np.int32), 0)
    team.sync()
    try:
        shmem.get(data, data, n)
    except shmem.OutOfRangeError:
        pass
assert shmem.put is rma.put
hosts = ["a", "a", "b"]
away, clock = 5_000_000_000, time.monotonic_ns
_, ahead, error = compared(job.comm, hosts, clock if me < 2 else lambda: clock() + away)
assert abs(ahead - (away if me == 2 else 0)) <= error and (error > 0) == (me == 2), (ahead, error)
shmem.barrier_all()
"""


def read(path):
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
    assert len(pairs) == sum(call["cat"] == "wait" for call in calls) == 60
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
    assert [call["args"] for call in by_name["shmem.get"]] == [
        {"bytes": 256, "pe": 3, "route": "near", "failed": True}
    ] * 3
    assert "shmem.my_pe" not in by_name
    assert metadata["pes"] == 3 and metadata["events"] == len(calls)
    assert metadata["clock_error_us"] == {"0": 0, "1": 0, "2": 0} and not metadata["lost_events"]


KILLED = """
import os, signal
import torch
import pyshmem as shmem
shmem.init()
flag = shmem.zeros(1, dtype=torch.int64)
if shmem.my_pe() == 1:
    shmem.p(flag, 1, 0)
    os.kill(os.getpid(), signal.SIGKILL)
shmem.wait_until(flag, "==", 2)
"""


def test_a_job_in_which_a_pe_is_killed_leaves_a_file_with_all_that_was_recorded(tmp_path):
    options = "-n", "2", "--trace", "out.json"
    status, _, err = python(KILLED, tmp_path=tmp_path, launcher=(*PYSHMEMRUN, *options), fresh=True)
    assert status == 137 and "pyshmemrun --trace: wrote out.json" in err, err
    metadata, calls, _ = read(tmp_path / "out.json")
    assert metadata["unfinished_pes"] == [0, 1]
    assert [call["pid"] for call in calls if call["name"] == "shmem.p"] == [1]
    assert [call["pid"] for call in calls if call["args"].get("unfinished")] == [0]
    assert not (tmp_path / "out.json.parts").exists()


FULL = """
import os, resource
import torch
import pyshmem as shmem
shmem.init()
x = shmem.zeros(8)
for path in "out.txt", "none/out.json":
    try:
        with shmem.trace(path):
            pass
    except shmem.ArgumentError as error:
        print(error)
with shmem.trace("few.json"):
    for _ in range(120):
        shmem.put(x, x, 0)
    try:
        shmem.trace("two.json")
    except shmem.ArgumentError as error:
        print(error)
os.environ["PYSHMEM_TRACE_EVENTS"] = "40000"
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20 | 4096, resource.RLIM_INFINITY))
with shmem.trace("cut.json"):
    for _ in range(20000):
        shmem.put(x, x, 0)
"""


def test_events_without_space_are_counted_and_a_full_disk_leaves_a_file_that_opens(tmp_path):
    status, out, err = python(FULL, tmp_path=tmp_path, environment={"PYSHMEM_TRACE_EVENTS": "100"})
    assert status == 0, err
    name, folder, second = out.splitlines()
    assert name == "trace: PE 0: path: got 'out.txt'; wants a name that ends with .json"
    assert folder.startswith("trace: PE 0: path: got ") and "none/out.json" in folder and "No such file" in folder
    assert second.endswith("few.json is recorded; wants one timeline at a time")
    metadata, calls, _ = read(tmp_path / "few.json")
    assert len(calls) == 100 and metadata["lost_events"] == {"0": 20}
    metadata, calls, _ = read(tmp_path / "cut.json")
    assert metadata["lost_events"] == {"0": 20000 - (1 << 14)}
    assert 1000 < len(calls) < 1 << 14 and "no space" in (tmp_path / "cut.json").read_text()
    assert (tmp_path / "cut.json.parts").is_dir()


def event(pe, begin, end, op, value, before=0, to=-1):
    flags = WORD | (BEFORE if op >= WAITS else 0)
    return Event(pe, begin, end, 8, 64, value, before, to, "shmem.call", 1, op, flags, 0)


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


@settings(max_examples=200, deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_arrows_join_the_write_and_the_wait_that_it_ends_in_any_program(program, shuffled):
    events, right = program
    shuffled.shuffle(events)
    assert sorted(joined(events)) == sorted(right)
