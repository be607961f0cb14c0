"""What Chrome's trace format asks of a timeline, so that ui.perfetto.dev and chrome://tracing show all of it."""

import json
from collections import defaultdict

KEYS = {"M": {"name", "ph", "pid"}, "X": {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"},
        "s": {"name", "cat", "ph", "id", "pid", "tid", "ts"}, "f": {"name", "cat", "ph", "id", "pid", "tid", "ts", "bp"},
        "i": {"name", "ph", "s", "ts", "pid", "tid"}}  # fmt: skip
NESTED = 0.0015  # us; times are in ns


def checked(path):
    """The slices of a timeline. Fails with what is wrong in the file."""
    found = json.loads(path.read_text(), parse_constant=lambda text: 1 / 0)  # NaN is no JSON
    assert set(found) == {"displayTimeUnit", "metadata", "traceEvents"}
    assert found["displayTimeUnit"] in ("ns", "ms")
    rows = found["traceEvents"]
    tracks, flows = defaultdict(list), defaultdict(list)
    named = {(row["pid"], row["tid"]) for row in rows if row["ph"] == "M" and row["name"] == "thread_name"}
    for row in rows:
        assert row["ph"] in KEYS and KEYS[row["ph"]] <= set(row), row
        assert isinstance(row["name"], str) and isinstance(row["pid"], int)
        if row["ph"] == "X":
            assert row["dur"] >= 0 and row["ts"] >= 0, row
            tracks[row["pid"], row["tid"]].append(row)
        if row["ph"] in "sf":
            flows[row["id"]].append(row)
    assert set(tracks) <= named
    for slices in tracks.values():
        _check_nesting(slices)
    for ends in flows.values():
        assert sorted(row["ph"] for row in ends) == ["f", "s"]
        for row in ends:  # an arrow without a slice at its place is not drawn
            slices = tracks[row["pid"], row["tid"]]
            assert any(each["ts"] - NESTED <= row["ts"] <= each["ts"] + each["dur"] + NESTED for each in slices), row
    return [row for slices in tracks.values() for row in slices]


def _check_nesting(slices):
    """Slices of a track lie within each other, or one after the other."""
    under_way = []
    for each in sorted(slices, key=lambda row: (row["ts"], -row["dur"])):
        while under_way and under_way[-1] <= each["ts"] + NESTED:
            under_way.pop()
        end = each["ts"] + each["dur"]
        assert not under_way or end <= under_way[-1] + NESTED, each
        under_way.append(end)
