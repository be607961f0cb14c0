"""Calls on a stream whose plan is known: one native call checks the arrays, finds the plan and launches it."""

import struct
from contextlib import contextmanager
from types import SimpleNamespace

import pyshmem as shmem
import pytest
import torch
from pyshmem.distributed import lanes
from pyshmem.kernels.bound_kernels import Bound
from pyshmem.kernels.method_tables import APART, WORDS, Row
from pyshmem.kernels.plans import kernels, remember
from pyshmem.native import _native
from pyshmem.memory.heap import default, views
from standin_driver import Driver
from support import on_one_node

ASKED = ("reduce", "sum", None, (1, 2, 3, 4), 5)
HELD, COUNTS, WORD = (21, 22), (33, -1), 7
AREA = torch.zeros(_native.area_bytes(1), dtype=torch.uint8)
ALONE = (AREA.data_ptr(), 0, 0, 1)  # a team of one PE


def ask(plans, target, source, asked=ASKED, private=False):
    return _native.launch_pair(views, plans, asked, ALONE, default(), 77, target, source, private)


def test_a_call_whose_plan_is_known_is_launched_with_its_arrays_addresses():
    driver = Driver()
    target, source = (shmem.zeros(16) for _ in range(2))
    plan = struct.pack("<10Q", driver.address, 11, 4, 1, 1, 256, 512, False, *HELD)
    plans = {ask({}, target, source): (plan, COUNTS, WORD)}
    for to, of in ((target, source), (source, target)):
        assert ask(plans, to, of) == 0
        words = [*HELD, to.data_ptr(), of.data_ptr(), 33, 2**64 - 1, 0, 0]
        assert driver.calls.pop() == (11, (4, 1, 1), 256, 512, 77, words)
    driver.code = 701
    assert ask(plans, target, source) == 701


def test_what_differs_in_what_was_asked_or_in_the_arrays_needs_a_plan_of_its_own():
    x, y = shmem.zeros(32), shmem.zeros(32)
    asked = [ASKED, (*ASKED[:4], 6), ("reduce", "max", *ASKED[2:])]
    pairs = [(x, y), (x[:16], y), (x, y[:16]), (x[1:17], y[:16]), (x.view(torch.int32), y.view(torch.int32))]
    pairs += [(x, x), (x[4:20], x[:16]), (x[:16], x[4:20])]  # of one size and alignment, but these overlap
    keys = [ask({}, x, y, each) for each in asked] + [ask({}, *pair) for pair in pairs[1:]]
    assert len(set(keys)) == len(asked) + len(pairs) - 1
    assert ask({}, y, x) == keys[0]


def test_arrays_that_are_no_plain_pair_on_that_heap_are_left_to_python(me, npes):
    x, freed = shmem.zeros(32), shmem.zeros(32)
    shmem.free(freed)
    strange = [torch.zeros(32), x[::2], x.view(torch.int32), x.new_zeros(32), [1.0], None, 3, freed]
    for other in strange:
        assert ask({}, x, other) is None
        assert ask({}, other, x) is None
    assert _native.launch_pair(views, {}, ASKED, ALONE, "another heap", 77, x, x, True) is None


def test_private_arrays_that_will_do_have_plans_of_their_own():
    symmetric, private = shmem.zeros(16), torch.zeros(16, device=default().device)
    pairs = [(target, source) for target in (symmetric, private) for source in (symmetric, private)]
    keys = [ask({}, *pair, private=True) for pair in pairs]
    assert len(set(keys)) == 4 and keys[0] == ask({}, symmetric, symmetric)
    assert all(ask(dict.fromkeys(keys), *pair) is None for pair in pairs[1:])


@pytest.fixture
def group(monkeypatch):
    """(lane, what has been planned, the driver): the stand-in for a GPU has the heap of this PE, and plans that are counted."""
    if lanes._RECORDED:
        pytest.skip("calls that are recorded have no plans")
    started, driver = [], Driver()
    near = SimpleNamespace(heap=default(), use_stream=lambda: 77, put=default().near.put)

    def start(routine, detail, team, pair, count, key, other=0):
        started.append((routine, detail, pair.dest, pair.src, count))
        remember(key, Bound(struct.pack("<8Q", driver.address, 11, 4, 1, 1, 256, 512, False), (), WORD))

    monkeypatch.setattr(lanes, "streams", lambda: near)
    monkeypatch.setattr(lanes, "heaps", dict.fromkeys(("cpu", "cuda"), SimpleNamespace(near=near)))
    monkeypatch.setattr(lanes.on_stream, "start", start)
    monkeypatch.setattr(lanes, "context_of", lambda team: None)
    row = lambda context, members, dtype, count, aligned: (Row(0, WORDS if count < 1000 else APART, 1, 1), 0)  # noqa: E731
    monkeypatch.setattr(kernels(), "reduction_row", row)
    lanes._staged.clear()
    with members(shmem.n_pes()) as wires:
        team = SimpleNamespace(meeting=SimpleNamespace(wires=wires, spans=False), size=shmem.n_pes())
        yield lanes.Lane(team, torch.empty(4096, dtype=torch.uint8, device=default().device)), started, driver


def test_a_group_plans_a_small_reduction_of_private_tensors_once_and_a_large_one_not_at_all(group):
    lane, started, driver = group
    small, large = (torch.zeros(count, device=default().device) for count in (400, 2000))  # the latter takes two rounds
    odd = large.view(torch.int8)[1:9]
    least = lanes.Lane(lane.team, lane.memory[:1024])
    for _ in range(3):
        assert lanes.enqueue(lane, "reduce", "sum", small, small)
        assert not lanes.enqueue(lane, "reduce", "sum", large, large)
        assert not lanes.enqueue(lane, "fcollect", "auto", large, small)
        assert not lanes.enqueue(lane, "reduce", "and", small, small)
        assert not lanes.enqueue(least, "reduce", "max", small, small)  # which would take two rounds of a peer
    assert not lanes.enqueue(lane, "reduce", "sum", odd, odd)
    read_by_peers = torch.zeros(1010, device=default().device)  # in one round
    assert not lanes.enqueue(lane, "reduce", "sum", read_by_peers, read_by_peers)
    assert started == [("reduce", "sum", small.data_ptr(), small.data_ptr(), 400)]
    assert len(driver.calls) == 2


def test_what_passes_through_the_lane_in_one_round_is_asked_about_once(group, monkeypatch):
    """The first call is planned by its caller, later ones go there at once."""
    lane, started, driver = group
    x = torch.arange(1010.0, device=default().device)
    lanes.reduce(lane, lane.team, x, x, "sum")
    at = lane.memory.data_ptr()
    assert started == [("reduce", "sum", at, at, 1010)] and torch.equal(lane.memory[:4040].view(torch.float32), x)
    monkeypatch.setattr(lanes, "_is_free", lambda *given: pytest.fail("asked again"))
    monkeypatch.setattr(lanes, "_fits", lambda *given: pytest.fail("asked again"))
    for turn in range(3):
        y = x + turn
        assert lanes.enqueue(lane, "reduce", "sum", y, y)
        assert driver.calls.pop()[-1][:2] == [at, at] and not driver.calls
        assert torch.equal(lane.memory[:4040].view(torch.float32), y)


def test_a_plan_of_too_many_words_or_of_none_is_refused():
    driver, x = Driver(), shmem.zeros(4)
    key = ask({}, x, x)
    for plan, counts in (
        (struct.pack("<7Q", *[driver.address] * 7), ()),
        (struct.pack("<134Q", *[driver.address] * 134), (1,)),
        ("x", ()),
    ):
        with pytest.raises(TypeError):
            ask({key: (plan, counts, WORD)}, x, x)
    assert not driver.calls


@contextmanager
def members(npes):
    """What the C module knows of a new team of all PEs, which are on one node, as calls on streams want."""
    if not on_one_node():
        pytest.skip("calls on streams reach PEs of one node")
    team = shmem.TEAM_WORLD.split_strided(0, 1, npes)
    yield team.meeting.wires
    shmem.barrier_all()
    team.destroy()


@pytest.mark.many
def test_the_later_of_two_members_finds_that_their_calls_differ(me, npes):
    with members(npes) as wires:
        for word in range(40):
            assert _native.compare_on_stream(wires, word) == 0
        for pe, word in ((0, 8), (1, 4)):
            shmem.barrier_all()
            if me == pe:
                assert _native.compare_on_stream(wires, word) == -pe


@pytest.mark.many
def test_a_member_that_is_far_behind_finds_a_difference_in_the_calls_that_can_still_be_seen(me, npes):
    with members(npes) as wires:
        for pe in range(2):
            shmem.barrier_all()
            if me == pe:
                found = [_native.compare_on_stream(wires, 3 if call == 5 and pe else 8) for call in range(100)]
                assert found == [0] * 84 + [-pe] * 16


def test_a_call_that_is_not_the_others_is_not_launched(me, npes):
    driver, x = Driver(), shmem.zeros(4)
    plan = struct.pack("<8Q", driver.address, 11, 4, 1, 1, 256, 512, False)
    with members(npes) as wires:
        key = _native.launch_pair(views, {}, ASKED, wires, default(), 77, x, x, False)
        for pe in range(min(npes, 2)):
            shmem.barrier_all()
            if me == pe:
                plans = {key: (plan, (), WORD + pe)}
                assert _native.launch_pair(views, plans, ASKED, wires, default(), 77, x, x, False) == -pe
                assert len(driver.calls) == 1 - pe
