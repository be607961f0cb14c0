"""Replays of timelines whose answer is known, and that a replay with all parts takes the recorded time."""

import pytest
from hypothesis import given, settings
from pyshmem.timelines.replay import Timeline, savings
from pyshmem.timelines.report import taxes as command
from pyshmem.timelines.taxes import Arrow, Call
from test_taxes import calls

TRANSFER = 2.0  # us of a put of few bytes; 1 us more per 1000 bytes


def put(pe, begin, nbytes, to):
    return Call(begin, begin + TRANSFER + nbytes / 1e3, pe, 4 * pe, "shmem.put_signal", "put", "", None, nbytes, to)


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


def whole(compute, transfers=1.0):
    return sum(1.5 * compute + 2 * transfers * (TRANSFER + nbytes / 1e3) + 2 for nbytes in SIZES)


@pytest.mark.parametrize(
    ("without", "expected"),
    [("", whole(100)), ("communication", whole(100, 0.0)), ("computing", whole(0))],
)
def test_a_pipeline_without_a_part_takes_the_time_of_the_others(without, expected):
    assert Timeline(*pipeline(100)).replay(without) == pytest.approx(expected)


def meeting(name, begins, end):
    """All PEs meet once, and PE 0 has made another call, so that all of its time counts."""
    made = [Call(begin, end, pe, 4 * pe, name, "meet", "world") for pe, begin in enumerate(begins)]
    return Timeline([*made, Call(0.0, 0.0, 0, 0, "shmem.fence", "order")], [])


def test_a_meeting_ends_as_long_after_the_last_member_as_it_did():
    timeline = meeting("shmem.barrier_all", (100.0, 200.0, 300.0), 310.0)
    assert timeline.replay("computing") == pytest.approx(10)
    assert savings(timeline)["communication"] == pytest.approx(10)
    assert savings(timeline)["meetings"] == pytest.approx(0)  # the last one waits for nobody


def test_finalize_waits_for_the_last_pe_and_then_is_the_librarys_time():
    timeline = meeting("shmem.finalize", (100.0, 300.0), 340.0)
    assert timeline.replay("computing") == pytest.approx(40)
    assert (savings(timeline)["library"], savings(timeline)["communication"]) == pytest.approx((40, 0))


def test_what_a_part_would_save_is_what_the_other_pe_lets_it_save():
    saved = savings(Timeline(*pipeline(100)))
    transfers = (whole(0) - 2 * len(SIZES)) / 2
    assert saved["computing"] == pytest.approx(150 * len(SIZES))
    assert saved["communication"] == pytest.approx(2 * transfers)
    assert saved["waits"] == pytest.approx(whole(100) - 100 * len(SIZES) - transfers)  # of PE 0 alone


@settings(max_examples=100)
@given(calls)
def test_a_call_alone_takes_its_time_again(call):
    timeline = Timeline([call], [])
    assert timeline.replay() == pytest.approx(timeline.end - timeline.start)


def test_a_window_that_ends_before_it_begins_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "out.json"), "--window", "5", "1"])
    assert "--window: got 5 1; expected FROM before TO" in capsys.readouterr().err
