"""Replays of timelines of GPU programs whose answer is known: tracks of multiprocessors and of copies, and host waits."""

import pytest
from hypothesis import given, settings, strategies as st
from pyshmem.timelines.flights import Flight, of_programs
from pyshmem.timelines.replay import Timeline
from pyshmem.timelines.taxes import COMMUNICATION, COMPUTING, Arrow, Call
from pyshmem.timelines.tracks import COPIES_FROM, OF_GPU

KIND = {"store": "put", "signal_set": "put", "fence": "order", "signal_wait_until": "wait"}


def host(pe, begin, end, name="shmem.ops.gemm_all_gather", kind="operator", team=""):
    return Call(begin, end, pe, 4 * pe, name, kind, team)


def dev(pe, unit, begin, end, name, nbytes=0, to=-1):
    """A call, or a mark, of a program on a multiprocessor."""
    known = f"dev.{name}" if name in KIND else name
    return Call(begin, end, pe, OF_GPU + 256 * unit + 2, known, KIND.get(name, "span"), "", None, nbytes, to)


def copy(pe, begin, end, nbytes, to, stream=0):
    return Call(begin, end, pe, COPIES_FROM + 256 * stream + 2, "copy", "copy", "", None, nbytes, to)


def ends(write, wait):
    return Arrow(write.pe, write.track, write.end - 1e-3, wait.pe, wait.track, wait.end - 1e-3)


def sends(call, executed):
    return Arrow(call.pe, call.track, call.begin, executed.pe, executed.track, executed.begin, sends=True)


def time(calls, without="", arrows=()):
    return Timeline(list(calls), list(arrows)).replay(without)


def test_programs_of_two_tracks_compute_at_once_and_the_longer_one_counts():
    calls = [host(0, 0, 10), dev(0, 0, 10, 110, "tile"), dev(0, 1, 10, 60, "tile"), dev(0, 1, 60, 70, "tile")]
    assert time(calls) == pytest.approx(110)
    assert time(calls, COMPUTING) == pytest.approx(10)  # of the host
    calls += [dev(0, 1, 70, 90, "store", 5000, 1), dev(0, 1, 90, 95, "fence")]  # the shorter one alone sends
    assert time(calls, COMMUNICATION) == pytest.approx(110)
    assert time(calls, COMPUTING) == pytest.approx(10 + 25)


def sending(begin, end, unit=0):
    """A program that stores and waits for its stores."""
    middle = (begin + end) / 2
    return [dev(0, unit, begin, middle, "store", 5000, 1), dev(0, unit, middle, end, "fence")]


def test_a_kernel_begins_when_the_last_program_of_the_one_before_has_ended():
    calls = [host(0, 0, 10), dev(0, 0, 105, 145, "tile"), *sending(105, 145, unit=1)]
    for unit in (0, 1):  # the second program computes as long as the first one sends
        calls += [dev(0, unit, 10, 50, "tile"), dev(0, unit, 60, 100, "tile")]
    calls += [*sending(50, 60), dev(0, 1, 50, 60, "tile")]
    assert time(calls) == pytest.approx(145)
    assert time(calls, COMMUNICATION) == pytest.approx(145)  # the other program computes meanwhile
    assert time(calls, COMPUTING) == pytest.approx(10 + 10 + 40)


def test_what_the_host_begins_late_begins_as_long_after_the_host():
    waits = host(0, 45, 100, "shmem.signal_wait_until", "wait")  # for another PE, when its GPU has ended
    calls = [host(0, 0, 45, "shmem.zeros", "call"), dev(0, 0, 10, 50, "tile"), waits, host(0, 100, 105)]
    assert time([*calls, *sending(110, 150)]) == pytest.approx(150)
    assert time([*calls, *sending(110, 150)], COMPUTING) == pytest.approx(105 + 40)


def test_what_the_host_begins_early_begins_behind_the_kernel_before():
    calls = [host(0, 0, 4, "shmem.zeros", "call"), *sending(10, 50), *sending(60, 100)]
    assert time(calls) == pytest.approx(100)
    assert time(calls, COMPUTING) == pytest.approx(4 + 2 * 40)


def test_a_kernel_behind_another_one_begins_no_earlier_than_the_call_that_launches_it():
    calls = [host(0, 0, 4), host(0, 4, 30, "shmem.zeros", "call"), host(0, 30, 34), dev(0, 0, 4, 44, "tile")]
    calls += sending(50, 70)
    assert time(calls) == pytest.approx(70)
    assert time(calls, COMPUTING) == pytest.approx(30 + 20)
    other = host(0, 34, 35, "shmem.ops.reduce")  # the operator that launches the second kernel is unknown
    assert time([*calls, other], COMPUTING) == pytest.approx(35)


def test_a_host_that_waits_for_its_gpu_goes_on_when_the_gpu_has_ended_and_meets_then():
    calls = [host(0, 0, 10), dev(0, 0, 10, 110, "tile"), host(0, 112, 114, "shmem.quiet", "order")]  # a gap until 112
    assert time(calls) == pytest.approx(114)
    assert time(calls, COMPUTING) == pytest.approx(10 + 2 + 2)
    meets = []
    for pe, length in ((0, 100), (1, 60)):
        meets += [host(pe, 0, 10), dev(pe, 0, 10, 10 + length, "tile"),
                  host(pe, 12, 115, "shmem.barrier_all", "meet", "world")]  # fmt: skip
    assert time(meets) == pytest.approx(115)
    assert time(meets, COMPUTING) == pytest.approx(10 + 5)


def test_on_streams_nobody_meets():
    calls = []
    for pe, begin in ((0, 0), (1, 40)):
        calls += [
            host(pe, begin, begin + 10, "shmem.reduce_on_stream", "meet", "world"),
            dev(pe, 0, begin + 10, begin + 60, "tile"),
        ]
    assert time(calls) == pytest.approx(100)
    assert not Timeline(calls, []).last


def waiting():
    """PE 0 computes and sends 200,000 bytes; PE 1 waits for them and computes."""
    store, signal = dev(0, 0, 110, 120, "store", 200_000, 1), dev(0, 0, 120, 130, "signal_set", 8, 1)
    wait = dev(1, 0, 10, 131, "signal_wait_until")
    calls = [
        host(0, 0, 10),
        host(1, 0, 10),
        dev(0, 0, 10, 110, "tile"),
        store,
        signal,
        wait,
        dev(1, 0, 131, 161, "tile"),
    ]
    return calls, [ends(signal, wait)]


@pytest.mark.parametrize(("without", "expected"), [("", 161), (COMPUTING, 10 + 20 + 1), (COMMUNICATION, 110 + 1 + 30)])
def test_a_wait_of_another_pe_ends_when_the_data_have_come(without, expected):
    calls, arrows = waiting()
    assert time(calls, without, arrows) == pytest.approx(expected)


def test_stores_are_under_way_until_the_fence_or_signal_behind_them():
    """What nothing orders, and what goes to this PE, is not."""
    stores = [dev(0, 0, 0, 1, "store", 9, 1), dev(0, 0, 2, 3, "store", 9, 1)]
    assert [*of_programs([*stores, dev(0, 0, 4, 5, "fence")])] == [Flight(0, 5)]
    assert not [*of_programs([dev(0, 0, 0, 1, "store", 1000, 1), dev(0, 0, 1, 9, "tile")])]
    assert not [*of_programs([dev(0, 0, 0, 1, "store", 1000, 0), dev(0, 0, 1, 9, "fence")])]


def copied():
    """An operator sends two copies to a stream. The first one waits 80 us for what it copies, the second one for the first."""
    first, second = copy(0, 100, 140, 400_000, 1), copy(0, 141, 181, 400_000, 1)
    puts = host(0, 20, 22, "shmem.put", "put"), host(0, 22, 24, "shmem.put", "put")
    calls = [host(0, 0, 40), *puts, first, second]
    return calls, [sends(put, each) for put, each in zip(puts, (first, second), strict=True)]


@pytest.mark.parametrize(("without", "expected"), [("", 181), (COMMUNICATION, 100 + 1), (COMPUTING, 20 + 2 * 40)])
def test_copies_of_a_stream_follow_each_other_and_begin_no_earlier_than_what_they_copy_is_there(without, expected):
    calls, arrows = copied()
    assert time(calls, without, arrows) == pytest.approx(expected)


def test_a_call_that_enqueues_a_copy_is_no_communication():
    calls, arrows = copied()
    alone = [each for each in calls if each.kind != "operator"]
    for program in (calls, alone):
        steps = [each for own in Timeline(program, arrows).steps.values() for each in own]
        assert {each.call.kind for each in steps if each.part == COMMUNICATION} == {"copy"}


def test_a_copy_that_has_waited_for_computing_does_not_begin_earlier_when_the_one_before_it_is_faster():
    calls, arrows = copied()
    later = copy(0, 300, 340, 400_000, 1)
    put = host(0, 24, 26, "shmem.put", "put")
    assert time([*calls, put, later], COMMUNICATION, [*arrows, sends(put, later)]) == pytest.approx(300)


def test_a_wait_of_a_kernel_for_a_flag_that_a_copy_sets_ends_with_the_copy():
    flag, wait = copy(0, 100, 110, 8, 1), dev(1, 0, 10, 112, "signal_wait_until")
    calls = [host(0, 0, 10), host(1, 0, 10), copy(0, 10, 97, 870_000, 1), flag, wait, dev(1, 0, 112, 120, "tile")]
    timeline = Timeline(calls, [])
    assert timeline.writes == {wait: flag}
    assert timeline.replay() == pytest.approx(120)
    assert timeline.replay(COMMUNICATION) < 30
    other = flag._replace(to=0)
    assert not Timeline([each if each is not flag else other for each in calls], []).writes


@st.composite
def programs(draw):
    """Calls and arrows of up to 3 PEs, as a machine could execute them."""
    n, length = draw(st.integers(1, 3)), st.floats(0.1, 50)
    calls, arrows, signals = [], [], []
    now = [0.0] * n
    for _ in range(draw(st.integers(1, 4))):  # rounds
        for pe in range(n):
            begin = now[pe] + draw(length)
            operator = host(pe, begin, begin + draw(length))
            calls.append(operator)
            last = operator.end
            for unit in range(draw(st.integers(0, 3))):
                at = operator.begin + draw(length)
                busy = [each.end for each in calls if each.pe == pe and each.track == OF_GPU + 256 * unit + 2]
                at = max([at, *busy])
                for name in draw(
                    st.lists(st.sampled_from(["store", "fence", "signal_set", "tile", "signal_wait_until"]), max_size=5)
                ):
                    at += draw(st.sampled_from([0.0, 0.3, 5.0]))
                    to = draw(st.integers(0, n - 1))
                    end = at + draw(length)
                    arrow = draw(st.sampled_from([None, *signals[-3:]])) if name == "signal_wait_until" else None
                    if arrow:
                        end = max(end, arrow.end + 0.5)
                    data = {"store": (4096, to), "signal_set": (8, to)}.get(name, (0, -1))
                    calls.append(dev(pe, unit, at, end, name, *data))
                    if name == "signal_set":
                        signals.append(calls[-1])
                    if arrow:
                        arrows.append(ends(arrow, calls[-1]))
                    at = end
                last = max(last, at)
            before = max([operator.begin, *(each.end for each in calls if each.pe == pe and each.kind == "copy")])
            for _ in range(draw(st.integers(0, 2))):
                begin = before + draw(length)
                before = begin + draw(length)
                calls.append(copy(pe, begin, before, draw(st.sampled_from([8, 5000])), draw(st.integers(0, n - 1))))
                arrows.append(sends(operator, calls[-1]))
            waits = draw(st.booleans())
            now[pe] = max(last, before) + draw(length) if waits else operator.end
        if draw(st.booleans()):
            end = max(now) + draw(length)
            for pe in range(n):
                calls.append(host(pe, now[pe], end, "shmem.barrier_all", "meet", "world"))
                now[pe] = end
    return calls, arrows


@settings(max_examples=300, deadline=None)
@given(programs())
def test_the_replay_of_any_program_with_all_parts_takes_the_recorded_time(program):
    timeline = Timeline(*program)
    assert timeline.replay() == pytest.approx(timeline.end - timeline.start, rel=1e-6)
