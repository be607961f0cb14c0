"""Replays and predictions of timelines whose answer is known, and that a replay without changes takes the recorded time."""

import json

import pytest
from benchmarks.collectives import ROWS
from hypothesis import given, settings
from pyshmem.timelines.report import predict as command, taxes as taxes_command
from pyshmem.timelines.prediction import CALLS, Links, Machine, exchanges, moved, predicted
from pyshmem.timelines.replay import Timeline, savings
from pyshmem.timelines.runs import unchanged
from pyshmem.timelines.taxes import Arrow, Call
from test_taxes import METADATA, calls, row

# a put of n bytes takes 2 us + n bytes at 1 GB/s
LATENCY, RATE = 2.0, 1e3


def put(pe, begin, nbytes, to):
    return Call(begin, begin + LATENCY + nbytes / RATE, pe, 4 * pe, "shmem.put_signal", "put", "", None, nbytes, to)


def wait(pe, begin, end, by):
    return Call(begin, end, pe, 4 * pe, "shmem.signal_wait_until", "wait", "", by)


def arrow(write, ended):
    return Arrow(write.pe, write.track, write.end - 1e-3, ended.pe, ended.track, ended.end - 1e-3)


SIZES = (1000, 50_000, 1000, 20_000)


def pipeline(compute):
    """PE 0 computes and sends, PE 1 waits for it each time, computes half as long, and sends back."""
    made, arrows, now, seen = [], [], 0.0, 0.0
    for nbytes in SIZES:
        sent = put(0, now + compute, nbytes, 1)
        got = wait(1, seen, sent.end + 1, 0)
        back = put(1, got.end + compute / 2, nbytes, 0)
        end = wait(0, sent.end, back.end + 1, 1)
        made += [sent, got, back, end]
        arrows += [arrow(sent, got), arrow(back, end)]
        now, seen = end.end, back.end
    made.append(Call(0.0, 0.0, 0, 0, "shmem.fence", "order"))
    return made, arrows


def whole(compute, latency, rate):
    return sum(1.5 * compute + 2 * (latency + nbytes / rate) + 2 for nbytes in SIZES)


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        (Machine(), whole(100, LATENCY, RATE)),
        (Machine(link_rate=4), whole(100, LATENCY, 4 * RATE)),
        (Machine(latency=10), whole(100, 10, RATE)),
        (Machine(compute_rate=2), whole(50, LATENCY, RATE)),
        (Machine(4, 1, 10), whole(10, 1, 4 * RATE)),
    ],
    ids=["as it was", "link", "latency", "compute", "all"],
)
def test_predicted_time_of_a_pipeline_is_the_known_one(machine, wanted):
    found = predicted(Timeline(*pipeline(100)), machine)
    assert found.links == {CALLS: Links(pytest.approx(LATENCY), pytest.approx(RATE), pytest.approx(0, abs=1e-6))}
    assert found.recorded == pytest.approx(whole(100, LATENCY, RATE))
    assert found.time == pytest.approx(wanted, rel=0.02)
    assert found.error == pytest.approx(0, abs=1e-3)


def test_error_has_how_far_calls_are_from_the_fit_and_waits_that_nothing_explains():
    made = [put(0, 100 * step, 10_000, 1)._replace(end=100 * step + time) for step, time in enumerate((10, 20, 10, 20))]
    found = predicted(Timeline([*made, wait(1, 0, 30, None)], []), Machine(link_rate=100))
    mean = (2 / 10 + 2 / 20) / (2 / 100 + 2 / 400)
    spread = (((mean / 10 - 1) ** 2 + (mean / 20 - 1) ** 2) / 2) ** 0.5
    assert found.links[CALLS].error == pytest.approx(spread)
    assert found.error == pytest.approx((spread * 60 * (1 - 10_000 / 1e5 / mean) + 30) / 2)


def test_meetings_end_when_the_last_member_has_come_also_on_a_faster_machine():
    made = [
        Call(begin, 310.0, pe, 4 * pe, "shmem.barrier_all", "meet", "world")
        for pe, begin in enumerate((100.0, 200.0, 300.0))
    ]
    made.append(Call(0.0, 0.0, 0, 0, "shmem.fence", "order"))
    found = predicted(Timeline(made, []), Machine(compute_rate=3))
    assert found.time == pytest.approx(110)
    assert savings(Timeline(made, []))["communication"] == pytest.approx(10)
    assert savings(Timeline(made, []))["meetings"] == pytest.approx(0)  # the last one waits for nobody


def test_finalize_waits_for_the_last_pe_and_then_takes_its_time_whatever_the_link():
    made = [
        Call(begin, 340.0, pe, 4 * pe, "shmem.finalize", "meet", "world") for pe, begin in enumerate((100.0, 300.0))
    ]
    made.append(Call(0.0, 0.0, 0, 0, "shmem.fence", "order"))
    for machine, wanted in ((Machine(latency=1e6), 340), (Machine(compute_rate=3), 140)):
        assert predicted(Timeline(made, []), machine).time == pytest.approx(wanted)
    saved = savings(Timeline(made, []))
    assert (saved["library"], saved["communication"]) == pytest.approx((40, 0))


def test_what_a_part_would_save_is_what_the_other_pe_lets_it_save():
    saved = savings(Timeline(*pipeline(100)))
    transfers = whole(0, LATENCY, RATE) / 2 - len(SIZES)
    assert saved["computing"] == pytest.approx(150 * len(SIZES))
    assert saved["communication"] == pytest.approx(2 * transfers)
    assert saved["waits"] == pytest.approx(whole(100, LATENCY, RATE) - 100 * len(SIZES) - transfers)  # of PE 0 alone


@pytest.mark.parametrize(
    ("name", "recorded", "pes", "wanted"),
    [
        ("barrier_all", 2, 8, 1),
        ("barrier_all", 4, 64, 6),
        ("fcollect", 2, 4, 3),
        ("sum_reduce", 2, 4, 1.5),
        ("broadcast", 2, 8, 1),
    ],
)
def test_meetings_grow_with_the_pes_as_the_page_on_scaling_says(name, recorded, pes, wanted):
    call = Call(0, 1, 0, 0, f"shmem.{name}", "meet", nbytes=0 if name == "barrier_all" else 8)
    grows = moved if call.nbytes else lambda _, n: exchanges(n)
    assert grows(call, pes) / grows(call, recorded) == pytest.approx(wanted)


@pytest.mark.parametrize("row", {row.name: row for row in ROWS if row.bus}.values(), ids=lambda row: row.name)
def test_meetings_move_the_bytes_of_which_benchmarks_print_the_rate(row):
    call = Call(0, 1, 0, 0, f"shmem.{row.name}", "meet", nbytes=row.nbytes)
    assert moved(call, 4) == pytest.approx(row.bus(4) * row.nbytes)


def test_a_meeting_of_few_bytes_among_puts_of_many_takes_the_latency_of_meetings():
    """Puts of one size say nothing about latency, so that a meeting of 8 bytes would take as long as their rate says."""
    made = []
    for step in range(4):
        at = 1000.0 * step
        made += [put(pe, at, 200_000, 1 - pe) for pe in range(2)]
        made += [Call(at + 300, at + 304, pe, 4 * pe, "shmem.sum_reduce", "meet", "world", None, 8) for pe in range(2)]
    found = predicted(Timeline(made, []), Machine(latency=20, link_rate=1))
    assert found.time == pytest.approx(made[-1].end + 4 * (20 - LATENCY) + 4 * (20 - 4), rel=0.02)


@settings(max_examples=100)
@given(calls)
def test_a_call_alone_takes_its_time_again(call):
    timeline = Timeline([call], [])
    assert timeline.replay(unchanged) == pytest.approx(timeline.end - timeline.start)


def test_the_command_says_the_time_and_its_error_and_refuses_other_files(tmp_path, capsys):
    rows = [row(0, begin, begin + 100, "shmem.put", "put", bytes=10_000) for begin in (0, 300)]
    for each in rows:
        each["args"]["pe"] = 1
    rows.append(row(1, 0, 400, "shmem.quiet", "order"))
    (tmp_path / "out.json").write_text(json.dumps({"metadata": METADATA, "traceEvents": rows}))
    assert command.main([str(tmp_path / "out.json"), "--link-rate", "0.2", "--compute-rate", "2"]) == 0
    out = capsys.readouterr().out
    assert "100 MB/s, each +- 0 %" in out
    assert "recorded 0.400 ms, predicted 0.400 ms +- 0.000 ms" in out  # PE 1 does not change
    assert command.main([str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    assert command.main([str(tmp_path / "out.json"), "--window", "7", "8"]) == 2
    assert "--window: got 7 8; wants times in which something ends, before 0.400 ms" in capsys.readouterr().err


@pytest.mark.parametrize("main", [command.main, taxes_command.main])
def test_a_window_that_ends_before_it_begins_is_refused(main, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "out.json"), "--window", "5", "1"])
    assert "--window: got 5 1; wants FROM before TO" in capsys.readouterr().err
