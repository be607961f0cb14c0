"""pyshmem taxes: the parts of timelines whose parts are known, and that parts sum to the whole."""

import json
import re

import matplotlib
import pytest
from hypothesis import given, settings, strategies as st
from pyshmem.timelines.report import taxes as command
from pyshmem.timelines import reading, taxes
from pyshmem.timelines.programs import by_programs
from pyshmem.timelines.tracks import COPIES_FROM, OF_GPU


def row(pe, begin, end, name, kind, track=0, **details):
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "pid": pe,
        "tid": 4 * pe + track,
        "ts": begin,
        "dur": end - begin,
        "args": details,
    }


METADATA = {"lost_events": {}, "unfinished_pes": [], "missing_pes": [], "clock_error_us": {"0": 0}}
# times in microseconds, and the parts of each PE
BARRIERS = (  # PE 2 computes three times as long before each of two barriers, each of which takes 10 after it has come
    [row(pe, at + (300 if pe == 2 else 100), at + 310, "shmem.barrier_all", "meet", team="world")
     for at in (0, 400) for pe in range(3)] + [row(0, 0, 1, "shmem.fence", "order")],
    {0: {"computing": 289, "meetings": 400, "communication": 21},
     1: {"computing": 290, "meetings": 400, "communication": 20},
     2: {"computing": 690, "communication": 20}},
    {0: {2: 400}, 1: {2: 400}, 2: {}},
)  # fmt: skip
PIPELINE = (  # PE 0 computes and sends; PE 1 waits for it, then computes
    [row(0, 0, 5, "shmem.zeros", "call"), row(0, 105, 125, "shmem.put_signal", "put"), row(0, 225, 250, "shmem.quiet", "order"),
     row(1, 5, 120, "shmem.signal_wait_until", "wait", ended_by=0), row(1, 200, 201, "shmem.p", "put")],
    {0: {"library": 5, "computing": 200, "communication": 45}, 1: {"computing": 134, "waits": 115, "communication": 1}},
    {0: {}, 1: {0: 115}},
)  # fmt: skip
CHAIN = (  # PE 2 waits for PE 1, which waits for PE 0 half of that time
    [row(0, 0, 10, "shmem.zeros", "call"), row(1, 10, 50, "shmem.wait_until", "wait", ended_by=0),
     row(2, 20, 110, "shmem.wait_until", "wait", ended_by=1)],
    {0: {"library": 10, "computing": 100}, 1: {"computing": 70, "waits": 40}, 2: {"computing": 20, "waits": 90}},
    {0: {}, 1: {0: 40}, 2: {0: 30, 1: 60}},
)  # fmt: skip
FINALIZE = (  # PE 1 waits there for PE 0, which computes
    [row(0, 0, 10, "shmem.get", "get"), row(0, 110, 140, "shmem.finalize", "meet", team="world"),
     row(1, 10, 130, "shmem.finalize", "meet", team="world")],
    {0: {"computing": 100, "communication": 10, "library": 30}, 1: {"computing": 20, "meetings": 100, "library": 20}},
    {0: {}, 1: {0: 100}},
)  # fmt: skip
KERNELS = (  # two kernels in an operator, with device calls, and a gap between them; a launch that is a meeting of one
    [row(0, 0, 100, "shmem.ops.gemm", "operator"), row(0, 10, 40, "tile", "kernel", 1), row(0, 20, 30, "dev.put", "put", 1),
     row(0, 100, 100, "shmem.quiet", "order"), row(0, 140, 200, "tile", "kernel", 1), row(0, 150, 190, "program", "program", 1),
     row(0, 160, 170, "dev.wait_until", "wait", 1)],
    {0: {"computing": 80, "communication": 10, "between kernels": 100, "waits": 10}},
    {0: {}},
)  # fmt: skip
MULTIPROCESSOR, STREAM = OF_GPU + 2, COPIES_FROM + 2
OF_GPUS = (  # the host waits for two kernels, then for a copy; computes while a third kernel runs on, and is in a call as it ends
    [row(0, 0, 10, "shmem.ops.gemm", "operator"), row(0, 5, 105, "program", "program", MULTIPROCESSOR),
     row(0, 110, 150, "program", "program", MULTIPROCESSOR),  # 5 us without work
     row(0, 160, 170, "shmem.ops.gemm", "operator"), row(0, 165, 200, "copy", "copy", STREAM),
     row(0, 210, 220, "shmem.ops.gemm", "operator"), row(0, 215, 270, "program", "program", MULTIPROCESSOR),
     row(0, 250, 300, "shmem.quiet", "order")],
    {0: {"computing": 30 + 5 + 10 + 10 + 30, "waits for GPU": 95 + 40 + 30, "communication": 50}},
    {0: {}},
)  # fmt: skip


def read(rows, tmp_path):
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"metadata": METADATA, "traceEvents": rows}))
    calls, arrows, notes = reading.read(path)
    assert not arrows and not notes
    return taxes.divided(calls)


@pytest.mark.parametrize(
    ("rows", "parts", "waited"),
    [BARRIERS, PIPELINE, CHAIN, FINALIZE, KERNELS, OF_GPUS],
    ids=["barriers", "pipeline", "chain", "finalize", "kernels", "of GPUs"],
)
def test_parts_of_known_timelines_are_right_within_2_percent_and_name_who_was_waited_for(rows, parts, waited, tmp_path):
    found = read(rows, tmp_path)
    for pe, known in parts.items():
        assert {part: time for part, time in found.parts[pe].items() if time} == pytest.approx(known, rel=0.02)
        assert dict(found.waited[pe]) == pytest.approx(waited[pe], rel=0.02)
        assert sum(known.values()) == pytest.approx(found.whole[pe])


def test_the_parts_of_kernels_and_operators_are_those_within_them(tmp_path):
    found = read(KERNELS[0], tmp_path).by_owner
    assert {name: {part: time for part, time in parts[0].items() if time} for name, parts in found.items()} == {
        "shmem.ops.gemm": {"computing": 30, "communication": 10, "between kernels": 60},
        "tile": {"computing": 50, "waits": 10},
    }


def test_links_have_the_rate_while_a_call_runs_and_are_printed(tmp_path, capsys):
    rows = [
        row(0, begin, begin + 10, "shmem.put", "put", track, bytes=20_000)
        for begin, track in ((0, 0), (5, 1), (100, 0))
    ]
    rows.append(row(1, 0, 200, "shmem.get", "get", bytes=1_000_000))
    for each in rows:
        each["args"]["pe"] = 1 - each["pid"]
    rows.append(row(1, 0, 200, "shmem.put", "put", bytes=1_000_000) | {"args": {"bytes": 1, "pe": 1}})  # to itself
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"metadata": METADATA, "traceEvents": rows}))
    found = taxes.links(reading.read(path)[0])
    assert found == {(0, 1): (3, 60_000, 25), (1, 0): (1, 1_000_000, 200)}
    assert found[0, 1].rate == pytest.approx(2.4)
    assert command.main([str(path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "PE 0" in line and "PE 1" in line)
    cells = [each.strip() for each in line.strip("│").split("│")]
    assert cells == ["PE 0", "PE 1", "3", "60 kB", "0.03", "12%", "2.4 GB/s"]


calls = st.builds(
    lambda begin, length, pe, track, kind: taxes.Call(begin, begin + length, pe, 4 * pe + track, f"shmem.{kind}", kind, "world"),
    st.integers(0, 100), st.integers(0, 50), st.integers(0, 2), st.integers(0, 1),
    st.sampled_from(["put", "wait", "meet", "kernel", "operator", "call"]),
)  # fmt: skip


@settings(max_examples=100)
@given(st.lists(calls, min_size=1, max_size=20))
def test_the_parts_of_each_pe_sum_to_the_whole_in_any_timeline(found):
    divided = taxes.divided(found)
    for pe, whole in divided.whole.items():
        assert sum(divided.parts[pe].values()) == pytest.approx(whole)
        assert all(time >= 0 for time in divided.parts[pe].values())


def test_the_command_prints_shares_and_the_pe_that_was_waited_for_and_refuses_other_files(tmp_path, capsys):
    read(BARRIERS[0], tmp_path)
    picture = tmp_path / "out.png"
    assert command.main([str(tmp_path / "out.json"), "--picture", str(picture), "--window", "0", "0.4"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "0.40  56%" in out and "PE 2: 0.40" in out
    assert "PE 2 was waited for longest: 0.80 ms in all, by 2 PEs" in out
    assert "saved" in out and "0.69  97%" in out  # without computing 21 of 710 us are left
    (tmp_path / "other.json").write_text("[]")
    assert command.main([str(tmp_path / "other.json")]) == 2
    assert "other.json; expected a timeline that pyshmemrun --trace has written" in capsys.readouterr().err
    assert command.main([str(tmp_path / "none.json")]) == 2
    assert f"got no file {tmp_path}/none.json; expected a timeline" in capsys.readouterr().err


def test_waits_for_a_gpu_have_a_column_and_no_saving(tmp_path, capsys):
    read(OF_GPUS[0], tmp_path)
    assert command.main([str(tmp_path / "out.json"), "--savings", str(tmp_path / "saved.svg")]) == 0
    rows = [[each.strip() for each in re.split("[│┃]", line)[1:-1]] for line in capsys.readouterr().out.splitlines()]
    place = next(row for row in rows if "waits for GPU" in row).index("waits for GPU")
    assert [row[place] for row in rows if row and row[0] in ("0", "saved")] == ["0.17  55%", "-"]


def test_the_picture_of_savings_has_a_bar_for_each_pe_and_the_time_without_each_part(tmp_path, capsys):
    read(BARRIERS[0], tmp_path)
    picture = tmp_path / "saved.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # texts remain texts
        assert command.main([str(tmp_path / "out.json"), "--savings", str(picture)]) == 0
    texts = picture.read_text()
    assert all(f">PE {pe}<" in texts for pe in range(3))
    assert ">without computing<" in texts and "0.021 ms, 97% saved<" in texts  # of 710 us
    assert ">without meetings<" in texts and "between kernels" not in texts


def test_programs_of_kernels_are_in_their_innermost_mark_or_call_and_name_whom_they_waited_for(tmp_path, capsys):
    interpreted = [row(0, 0, 100, "gemm", "kernel", 1), row(0, 10, 90, "program", "program", 1),
                   row(0, 20, 60, "tile", "span", 1), row(0, 30, 40, "dev.store", "put", 1)]  # fmt: skip
    compiled = [row(1, 0, 50, "tile", "span", OF_GPU), row(1, 50, 80, "dev.wait_until", "wait", OF_GPU, ended_by=0),
                row(1, 0, 20, "tile", "span", OF_GPU + 4), row(1, 0, 9, "copy", "copy", COPIES_FROM)]  # fmt: skip
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"metadata": METADATA, "traceEvents": interpreted + compiled}))
    assert by_programs(reading.read(path)[0]) == {
        0: {"outside of both": (1, 40, {}), "tile": (1, 30, {}), "dev.store": (1, 10, {})},
        1: {"tile": (2, 70, {}), "dev.wait_until": (1, 30, {0: 30})},
    }
    assert command.main([str(path)]) == 0
    lines = [[each.strip() for each in line.strip("│").split("│")] for line in capsys.readouterr().out.splitlines()]
    assert ["tile", "1", "2", "0.07", "70%", "35.00", "-"] in lines
    assert ["dev.wait_until", "1", "1", "0.03", "30%", "30.00", "PE 0: 0.03"] in lines
