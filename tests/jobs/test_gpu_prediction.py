"""Predictions of timelines of GPU programs whose answer is known: tracks of multiprocessors and of copies, and what the host waits for."""

import json

import pytest
from hypothesis import given, settings, strategies as st
from pyshmem.timelines.report import predict as command
from pyshmem.timelines.flights import COPIES, KERNELS, Flight, of_programs, sharing
from pyshmem.timelines.prediction import Machine, Model, predicted, spread
from pyshmem.timelines.replay import Timeline
from pyshmem.timelines.runs import unchanged
from pyshmem.timelines.taxes import PARTS, Arrow, Call
from pyshmem.timelines.tracks import COPIES_FROM, OF_GPU
from test_taxes import METADATA

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


def time(calls, arrows=(), **machine):
    return predicted(Timeline(list(calls), list(arrows)), Machine(**machine)).time


def test_programs_of_two_tracks_compute_at_once_and_the_longer_one_counts():
    calls = [host(0, 0, 10), dev(0, 0, 10, 110, "tile"), dev(0, 1, 10, 60, "tile"), dev(0, 1, 60, 70, "tile")]
    assert time(calls) == pytest.approx(110)
    assert time(calls, compute_rate=2) == pytest.approx(60)


def test_a_kernel_begins_when_the_last_program_of_the_one_before_has_ended():
    calls = [host(0, 0, 10)]
    for unit, nbytes in ((0, 100_000), (1, 0)):  # the second program computes as long as the first one sends
        calls += [dev(0, unit, 10, 50, "tile"), dev(0, unit, 60, 100, "tile")]
        calls += (
            [dev(0, unit, 50, 54, "store", nbytes, 1), dev(0, unit, 54, 60, "fence")]
            if nbytes
            else [dev(0, 1, 50, 60, "tile")]
        )
        calls += [dev(0, unit, 105, 145, "tile")]
    assert time(calls) == pytest.approx(145)
    assert time(calls, link_rate=1) == pytest.approx(
        145 + 90
    )  # 100 us for what took 10, on one track: both begin behind it


def test_what_the_host_begins_late_begins_as_long_after_the_host_and_what_it_begins_early_behind_the_kernel_before():
    late = [host(0, 0, 100), dev(0, 0, 10, 50, "tile"), host(0, 100, 105), dev(0, 0, 110, 150, "tile")]
    late[0] = host(0, 0, 45, "shmem.zeros", "call")  # and waits for another PE when its GPU has ended
    assert time([*late, host(0, 45, 100, "shmem.signal_wait_until", "wait")], compute_rate=2) == pytest.approx(
        105 + 5 / 2 + 40 / 2
    )
    early = [host(0, 0, 4), host(0, 4, 8), dev(0, 0, 10, 50, "tile"), dev(0, 0, 60, 100, "tile")]
    assert time(early, compute_rate=2) == pytest.approx(8 + 92 / 2)


def test_a_kernel_behind_another_one_begins_no_earlier_than_the_call_that_launches_it():
    calls = [host(0, 0, 4), host(0, 30, 34), dev(0, 0, 4, 44, "tile"), dev(0, 0, 50, 70, "tile")]
    assert time(calls) == pytest.approx(70)
    assert time(calls, compute_rate=2) == pytest.approx(30 + 10)  # the one before has ended at 24, and needs 3 more
    assert time([*calls, host(0, 34, 35, "shmem.ops.reduce")], compute_rate=2) == pytest.approx(
        24 + 3 + 10
    )  # which one is unknown


def test_a_host_that_waits_for_its_gpu_goes_on_when_the_gpu_has_ended_and_meets_then():
    calls = [host(0, 0, 10), dev(0, 0, 10, 110, "tile"), host(0, 112, 114, "shmem.quiet", "order")]  # a gap until 112
    assert time(calls, compute_rate=2) == pytest.approx(64)
    meets = []
    for pe, length in ((0, 100), (1, 60)):
        meets += [host(pe, 0, 10), dev(pe, 0, 10, 10 + length, "tile"),
                  host(pe, 12, 115, "shmem.barrier_all", "meet", "world")]  # fmt: skip
    assert time(meets) == pytest.approx(115)
    assert time(meets, compute_rate=2) == pytest.approx(65)


def test_on_streams_nobody_meets():
    calls = []
    for pe, begin in ((0, 0), (1, 40)):
        calls += [
            host(pe, begin, begin + 10, "shmem.reduce_on_stream", "meet", "world"),
            dev(pe, 0, begin + 10, begin + 60, "tile"),
        ]
    assert time(calls) == pytest.approx(100)
    assert not Timeline(calls, []).last


def waiting(link_free=30.0):
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
        dev(1, 0, 131, 131 + link_free, "tile"),
    ]
    return calls, [ends(signal, wait)]


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [({}, 161), ({"compute_rate": 2}, 10 + 50 + 20 + 1 + 15), ({"link_rate": 20}, 151), ({"link_rate": 5}, 181)],
)
def test_a_wait_of_another_pe_ends_when_the_data_have_come(machine, wanted):
    calls, arrows = waiting()
    found = predicted(Timeline(calls, arrows), Machine(**machine))
    assert found.links[KERNELS].rate == pytest.approx(200_000 / 20)
    assert found.time == pytest.approx(wanted)
    assert found.sent == pytest.approx((200_000 + 8) / 2)


def test_the_data_of_all_programs_share_the_link_while_they_are_under_way():
    calls = [
        dev(0, 0, 0, 10, "store", 1000, 1),
        dev(0, 0, 10, 20, "fence"),
        dev(0, 1, 10, 20, "store", 3000, 1),
        dev(0, 1, 20, 40, "fence"),
    ]
    tracks = [[each for each in calls if each.track == track] for track in sorted({each.track for each in calls})]
    flights = sharing(flight for own in tracks for flight in of_programs(own))
    assert flights == [Flight(0, 20, 1000, pytest.approx(1000 + 1000)), Flight(10, 40, 3000, pytest.approx(3000 + 500))]


def test_stores_that_nothing_orders_and_those_to_this_pe_are_no_flights():
    assert not [*of_programs([dev(0, 0, 0, 1, "store", 1000, 1), dev(0, 0, 1, 9, "tile")])]
    assert not [*of_programs([dev(0, 0, 0, 1, "store", 1000, 0), dev(0, 0, 1, 9, "fence")])]
    assert [
        *of_programs([dev(0, 0, 0, 1, "store", 9, 1), dev(0, 0, 2, 3, "store", 9, 1), dev(0, 0, 4, 5, "fence")])
    ] == [Flight(0, 5, 18)]


def copied():
    """An operator sends two copies to a stream. The first one waits 80 us for what it copies, the second one for the first."""
    first, second = copy(0, 100, 140, 400_000, 1), copy(0, 141, 181, 400_000, 1)
    puts = host(0, 20, 22, "shmem.put", "put"), host(0, 22, 24, "shmem.put", "put")
    calls = [host(0, 0, 40), *puts, first, second]
    return calls, [sends(put, each) for put, each in zip(puts, (first, second), strict=True)]


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [({}, 181), ({"link_rate": 20}, 100 + 20 + 1 + 20), ({"compute_rate": 2}, 20 + 40 + 40 + 0.5 + 40)],
)
def test_copies_of_a_stream_follow_each_other_and_begin_no_earlier_than_what_they_copy_is_there(machine, wanted):
    calls, arrows = copied()
    found = predicted(Timeline(calls, arrows), Machine(**machine))
    assert found.links[COPIES].rate == pytest.approx(10_000)
    assert found.time == pytest.approx(wanted)


def test_a_call_that_enqueues_a_copy_takes_no_longer_on_a_slower_link():
    calls, _ = copied()
    nbytes = [each._replace(nbytes=400_000, to=1) if each.kind == "put" else each for each in calls]
    alone = [each for each in nbytes if each.kind != "operator"]
    arrows_of = [sends(put, each) for put, each in zip(alone[:2], alone[2:], strict=True)]
    for program in (
        (nbytes, [sends(put, each) for put, each in zip(nbytes[1:3], nbytes[3:], strict=True)]),
        (alone, arrows_of),
    ):
        found = predicted(Timeline(*program), Machine(link_rate=1))
        assert [*found.links] == [COPIES] and found.sent == 800_000
        assert found.time == pytest.approx(Timeline(*program).replay(unchanged) + 2 * 360)


def test_a_copy_that_has_waited_for_computing_does_not_begin_earlier_when_the_one_before_it_is_faster():
    calls, arrows = copied()
    later = copy(0, 300, 340, 400_000, 1)
    put = host(0, 24, 26, "shmem.put", "put")
    assert time([*calls, put, later], [*arrows, sends(put, later)], link_rate=20) == pytest.approx(300 + 20)


def test_a_wait_of_a_kernel_for_a_flag_that_a_copy_sets_ends_with_the_copy():
    flag, wait = copy(0, 100, 110, 8, 1), dev(1, 0, 10, 112, "signal_wait_until")
    calls = [host(0, 0, 10), host(1, 0, 10), copy(0, 10, 97, 870_000, 1), flag, wait, dev(1, 0, 112, 120, "tile")]
    timeline = Timeline(calls, [])
    assert timeline.writes == {wait: flag}
    assert timeline.replay(unchanged) == pytest.approx(120)
    assert predicted(timeline, Machine(link_rate=2)).time > 400
    other = flag._replace(to=0)
    assert not Timeline([each if each is not flag else other for each in calls], []).writes


def test_between_the_rate_of_a_schedule_and_the_best_one_another_link_changes_nothing():
    slow = Timeline(*waiting())
    best = {KERNELS: 40_000.0}
    times = {rate: predicted(slow, Machine(link_rate=rate), best).time for rate in (5, 10, 20, 40, 80)}
    assert times[10] == times[20] == times[40] == pytest.approx(161)
    assert times[5] == pytest.approx(181) and times[80] == pytest.approx(151)


@pytest.mark.parametrize(
    ("name", "wanted"), [("gemm_all_gather", 3), ("gemm_reduce_scatter", 1.5), ("moe_dispatch", 1.5)]
)
def test_operators_send_more_to_more_pes(name, wanted):
    calls, arrows = waiting()
    calls = [each._replace(name=f"shmem.ops.{name}") if each.kind == "operator" else each for each in calls]
    timeline = Timeline(calls, arrows)
    assert spread(timeline, 4) / spread(timeline, 2) == pytest.approx(wanted)
    found = predicted(timeline, Machine(pes=4))
    assert found.time == pytest.approx(161 + 20 * (wanted - 1))
    assert found.error >= 0.15 * found.time
    assert predicted(timeline, Machine(pes=2)).error == 0


def test_programs_without_operators_send_what_they_sent():
    calls, arrows = waiting()
    calls = [each._replace(name="shmem.quiet", kind="order") if each.kind == "operator" else each for each in calls]
    assert predicted(Timeline(calls, arrows), Machine(pes=4)).time == pytest.approx(161)


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
def test_the_replay_of_any_program_without_changes_takes_the_recorded_time(program):
    timeline = Timeline(*program)
    assert timeline.replay(unchanged) == pytest.approx(timeline.end - timeline.start, rel=1e-6)
    half = (timeline.start + timeline.end) / 2
    window = timeline.replay(unchanged, window=(half, timeline.end))
    assert window == pytest.approx(
        timeline.replay(unchanged) - timeline.replay(unchanged, window=(timeline.start, half)), rel=1e-6
    )
    assert Model(timeline).scale(Machine()) is not None


@settings(max_examples=100, deadline=None)
@given(programs(), st.sampled_from(["", *PARTS]))
def test_the_time_without_a_part_is_the_same_step_by_step_and_by_the_sums_of_stretches(program, part):
    """Steps for whose moments nobody waits are summed up where each takes its own time."""
    timeline = Timeline(*program)
    assert timeline.replay(unchanged, part) == pytest.approx(timeline.replay(lambda step: 1.0, part), rel=1e-9)


def rows(calls, arrows):
    """As a file has them."""
    made = [{"name": each.name, "cat": each.kind, "ph": "X", "pid": each.pe, "tid": each.track, "ts": each.begin, "dur": each.end - each.begin,
             "args": {"bytes": each.nbytes, "pe": each.to, "team": each.team}} for each in calls]  # fmt: skip
    for number, each in enumerate(arrows):
        cat = "request" if each.sends else "arrow"
        made += [{"ph": "s", "id": number, "cat": cat, "pid": each.source, "tid": each.source_track, "ts": each.begun},
                 {"ph": "f", "id": number, "cat": cat, "pid": each.pe, "tid": each.track, "ts": each.ended}]  # fmt: skip
    return {"metadata": METADATA, "traceEvents": made}


def test_the_command_sorts_several_timelines_by_their_predicted_times_and_says_what_has_no_slice(tmp_path, capsys):
    calls, arrows = waiting()
    silent = [each._replace(nbytes=8) if each.nbytes else each for each in calls]
    for name, program in (("overlaps", (silent, arrows)), ("sends", (calls, arrows)), ("copies", copied())):
        (tmp_path / f"{name}.json").write_text(json.dumps(rows(*program)))
    paths = [str(tmp_path / f"{name}.json") for name in ("copies", "sends", "overlaps")]
    assert command.main([*paths, "--link-rate", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    order = [line.rpartition("/")[2].partition(": recorded")[0] for line in lines if ": recorded" in line]
    assert order == ["copies.json", "sends.json", "overlaps.json"]
    assert any("overlaps.json: 8 B of what a PE sends have slices" in line for line in lines)
    assert command.main([*paths[:2], "--window", "0.1", "0.14", "--window", "0.0", "0.13"]) == 0
    out = capsys.readouterr().out
    assert "copies.json: recorded 0.040 ms" in out and "sends.json: recorded 0.130 ms" in out
    with pytest.raises(SystemExit):
        command.main([*paths, "--window", "0.1", "0.2"])
    assert "--window: got 1; wants one for each of 3 timelines" in capsys.readouterr().err
