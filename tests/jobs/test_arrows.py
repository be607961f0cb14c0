"""Arrows join the right calls in random programs, many of which are one job; and the file is as Chrome's format wants it."""

import bisect
import json
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings, strategies as st
from jobs import mpiexec
from pyshmem.timelines import arrows
from pyshmem.timelines.events import BEFORE, HOST, SET, WAITS, WORD, Event
from trace_format import checked

GE = 3  # among comparisons
PROGRAMS = 250  # of a job, of which there are four
PROGRAM = """
import random
import sys
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton

@triton.jit
def send(ctx, data, flag, value, pe):
    dev.put_signal(ctx, data, data, 4, flag, value, dev.SIGNAL_SET, pe)

@triton.jit
def receive(ctx, flag, value):
    dev.signal_wait_until(ctx, flag, dev.CMP_GE, value)

seed, programs = int(sys.argv[1]), int(sys.argv[2])
shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
flags, data = shmem.zeros(programs * n, dtype=torch.uint64), shmem.zeros(16, dtype=torch.int32)
ctx = shmem.device_context()
with shmem.trace("out.json"):
    for program in range(programs):
        plan = random.Random(seed * programs + program)
        sent = [[0] * n for _ in range(n)]
        kernels = plan.random() < 0.02
        for _ in range(plan.randrange(1, 7)):
            source, target, how, late, sign = (plan.randrange(k) for k in (n, n, 5, 2, 2))
            sent[source][target] += 1
            value = sent[source][target]  # of this word: each is of one message
            flag = flags[program * n + source : program * n + source + 1]
            if me == source:
                if kernels:
                    send[(1,)](ctx, data, flag, value, target)
                elif how == 0:
                    shmem.put_signal(data, data, target, flag, value, shmem.SIGNAL.SET, size=4)
                elif how == 1:
                    shmem.put_signal(data, data, target, flag, 1, shmem.SIGNAL.ADD, size=4)
                elif how == 2:
                    shmem.signal_set(flag, value, target)
                elif how == 3:
                    shmem.p(flag, value, target)
                else:
                    shmem.atomic_inc(flag, target)
            if me == target:
                if kernels:
                    receive[(1,)](ctx, flag, value)
                elif sign:
                    shmem.wait_until(flag, ">=", value)
                else:
                    shmem.signal_wait_until(flag, ">", value - 1)
        if plan.randrange(4) == 0:
            shmem.barrier_all()
shmem.finalize()
"""


@pytest.mark.timeout(600)
@settings(max_examples=4)
@given(seed=st.integers(0, 1 << 20))
def test_every_wait_of_random_programs_has_its_arrow_from_the_message_that_it_waits_for(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("random")
    status, _, errors = mpiexec(3, PROGRAM, str(seed), str(PROGRAMS), tmp_path=folder)
    assert status == 0, errors
    slices = checked(folder / "out.json")
    waits = [each for each in slices if each["cat"] == "wait"]
    pairs = joined(folder / "out.json", slices)
    assert len(pairs) == len(waits) > PROGRAMS
    added = Counter()
    for write, wait in sorted(pairs, key=lambda pair: pair[1]["ts"]):
        word = write["args"]["word"], write["args"]["pe"]
        added[word] += 1
        assert wait["args"]["word"] == write["args"]["word"]
        assert wait["pid"] == write["args"]["pe"]
        assert wait["args"]["ended_by"] == write["pid"]
        assert write["args"].get("set", added[word]) == added[word]
        sign, number = wait["args"]["waits_for"].split()
        assert int(number) + (sign == ">") == added[word]


def test_a_set_that_has_taken_effect_and_not_returned_hides_no_earlier_write():
    """PE 0 does not run for a while in its third message, and PE 1 then waits for one after the other."""

    def event(pe, begin, end, op, value, before=0):
        flags = WORD | (BEFORE if op >= WAITS else 0)
        return Event(pe, begin, end, 8, 64, value, before, 1, "shmem.call", 1, op, flags, HOST)

    sent = [event(0, begin, end, SET, value) for value, begin, end in ((1, 0, 10), (2, 20, 30), (3, 40, 1000))]
    waits = [event(1, 500 + 20 * value, 510 + 20 * value, WAITS + GE, value, before=3) for value in (1, 2, 3)]
    assert [*arrows.joined([*sent, *waits])] == [*zip(sent, waits, strict=True)]


def joined(path, slices):
    """Pairs of the calls that arrows join, each the innermost at its end of the arrow."""
    tracks = defaultdict(list)
    for each in sorted(slices, key=lambda row: row["ts"]):
        tracks[each["pid"], each["tid"]].append(each)
    begins = {track: [each["ts"] for each in own] for track, own in tracks.items()}
    found = defaultdict(dict)
    for row in json.loads(path.read_text())["traceEvents"]:
        if row["ph"] in "sf":
            track = row["pid"], row["tid"]
            place = bisect.bisect_right(begins[track], row["ts"]) - 1
            while row["ts"] > tracks[track][place]["ts"] + tracks[track][place]["dur"] + 1e-3:
                place -= 1
            found[row["id"]][row["ph"]] = tracks[track][place]
    return [(ends["s"], ends["f"]) for ends in found.values()]
