"""pyshmem top: what it says of a job that runs, of one that ends or loses a PE, and of what is no job."""

import json
import mmap
import os
import signal
import subprocess
import sys

import pytest
from jobs import warm
from launching import PYSHMEMRUN
from other_users import as_another_user, needs_root
from pyshmem.launch import running, top
from pyshmem.base import activity
from pyshmem.base.activity import Counts
from surroundings import until

PROGRAM = """
import os, time
import pyshmem as shmem
import torch
shmem.init()
me = shmem.my_pe()
x, flag = shmem.zeros(1024, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
own = torch.ones(1024, dtype=torch.int64)
with open(f"pid-{me}", "w") as file:
    file.write(str(os.getpid()))
open(f"ready-{me}", "w").close()
while me == 0 and not os.path.exists("stop"):
    shmem.put(x, own, 1)
if me == 0:
    shmem.signal_set(flag, 1, 1)
else:
    shmem.signal_wait_until(flag, "==", 1)
shmem.finalize()
open(f"ended-{me}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
"""


@pytest.fixture
def pair(start, tmp_path):
    """Starts the job, with what is to stand before the program on the command line. It ends with the test."""
    jobs = []

    def pair(*before):
        (tmp_path / "pair.py").write_text(PROGRAM)
        jobs.append(start(*PYSHMEMRUN, "-n", 2, *before, "pair.py"))
        jobs[-1].reach("ready-0", "ready-1")
        return jobs[-1]

    yield pair
    (tmp_path / "stop").touch()
    (tmp_path / "go").touch()
    for job in jobs:
        job.wait()


def rows(capsys, *arguments):
    assert top.main([*arguments, "--json", "--interval", "0.2"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_top_shows_rates_and_where_a_pe_waits(pair, capsys):
    job, found = pair(), {}

    def moves():
        """A look may fall between a call's two counts, and find few calls or none of a PE that has no core."""
        found.update(*rows(capsys, str(job.process.pid), "--once"))
        busy = found["rows"][0]
        return busy["near_calls"] > 0 and busy["near_bytes"] == pytest.approx(8192 * busy["near_calls"], rel=0.01)

    assert until(moves), found
    assert found["pes"] == 2
    busy, waiting = found["rows"]
    assert (busy["pe"], waiting["pe"]) == (0, 1)
    assert busy["now"] == ""
    assert waiting["near_calls"] == 0
    assert waiting["heap_used"] == 8192 + 64
    looks, seen = top._looks(running.find(job.process.pid), 0.05), []
    # the PE notices at an unknown time that somebody watches, and names its wait later
    assert until(lambda: seen.append(next(looks)[1].now) or seen[-1] == "signal_wait_until at pair.py:17"), seen[-9:]
    assert next(looks)[1].waiting == pytest.approx(1)
    looks.close()
    (listed,) = [each for each in rows(capsys)[0] if each["job"] == found["job"]]
    assert listed | {"host": ""} == {"job": found["job"], "host": "", "program": "pair.py", "pes": 2, "here": [0, 1]}


def test_top_says_that_a_job_has_ended(pair, capsys, tmp_path):
    job = pair(*warm())
    pid = int((tmp_path / "pid-0").read_text())
    looks = top._looks(running.find(pid), 0.05)
    assert [each.state for each in next(looks)] == ["running", "running"]
    (tmp_path / "stop").touch()
    job.reach("ended-0", "ended-1")
    *_, last = looks
    assert [each.state for each in last] == ["ended", "ended"]
    assert top.main([str(pid), "--once"]) == 2
    assert f"process {pid} is of no job that runs here" in capsys.readouterr().err


def test_top_says_which_pe_was_killed(pair, capsys, tmp_path):
    job = pair(*warm())
    pid = int((tmp_path / "pid-1").read_text())
    found = running.find(pid)
    os.kill(found.pes[1].pid, signal.SIGKILL)
    assert until(lambda: found.pes[1].state() == "gone")
    assert top.main([str(pid), "--once"]) == 2 or "without finalize" in capsys.readouterr().out
    job.wait()
    assert until(
        lambda: [each.state() for each in found.pes] == ["gone", "gone"]
    )  # those of warm end after their clients
    looks = list(top._looks(found, 0.05))
    assert len(looks) == 1
    assert top._show(found, iter(looks), once=True) == 0
    said = capsys.readouterr().out
    assert "ended without finalize" in said
    assert "the job has ended, 2 of its PEs here without finalize" in said


def test_top_shows_a_pe_that_has_forked_once():
    own = activity.Page()
    own.open({"job": 1, "host": "here", "pe": 0, "n_pes": 1, "pid": os.getpid()}, str)
    child = os.fork()
    if not child:
        signal.pause()
    try:
        assert [pe.pid for job in running.jobs() if (job.name, job.host) == (1, "here") for pe in job.pes] == [
            os.getpid()
        ]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        own.close()


PAGES = [b"", b"x", b"{}", b"[1]", b"[" * 3000, b'{"job": 1, "pe": 0, "n_pes": 1, "pid": 1}', b'{"job": [], "host": 1}',
         b'{"job": true, "host": "h", "pe": 0, "n_pes": 1, "pid": 1}', b'{"job": 1, "host": "h", "pe": "0", "n_pes": 1, "pid": 1}']  # fmt: skip


@pytest.mark.parametrize("text", PAGES, ids=lambda text: repr(text[:30]))
def test_a_page_that_no_pe_has_written_is_no_page(text):
    """Root sees those of all users, who may write anything there."""
    page = mmap.mmap(-1, activity.PAGE)
    page[1024 : 1024 + len(text)] = text
    with pytest.raises(ValueError):
        activity.description(page)


def test_what_a_pe_waits_in_is_shown_without_what_a_terminal_obeys():
    page = mmap.mmap(-1, activity.PAGE)
    page[activity._WHERE : activity._WHERE + 9] = b"a\x1b]0;b\x07\n\0"
    assert activity.counts(page).where == "a?]0;b??"


@needs_root
def test_a_page_is_reached_by_its_user_alone():
    own = activity.Page()
    own.open({"job": 1, "host": "h", "pe": 0, "n_pes": 1, "pid": os.getpid()}, str)
    name = os.path.realpath(f"/proc/{os.getpid()}/fd")
    try:
        assert as_another_user(lambda: os.listdir(name)).startswith("PermissionError")
    finally:
        own.close()


def test_another_file_in_the_place_of_a_page_is_left_alone(tmp_path):
    """Between the look at its name and its opening, a process may have put another file there."""
    other = tmp_path / "other"
    other.write_bytes(bytes(activity.PAGE))
    with pytest.raises(ValueError, match="another file"):
        running._mapped(str(other))


def test_top_refuses_what_is_no_job(capsys, monkeypatch):
    assert top.main([str(2**22 + 1)]) == 2
    assert "which is no process of this machine" in capsys.readouterr().err
    assert top.main([str(os.getpid())]) == 2
    assert "is of no job that runs here" in capsys.readouterr().err
    assert 1 not in running._above(os.getpid())  # it has started everything
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert top.main([str(os.getpid())]) == 2
    assert f"is of user {os.stat('/proc/self').st_uid}; a job can be watched by its own user" in capsys.readouterr().err


def test_top_needs_no_torch():
    command = [sys.executable, "-X", "importtime", os.path.join(os.path.dirname(sys.executable), "pyshmem"), "top"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    assert not [line for line in done.stderr.splitlines() if line.split("|")[-1].strip() == "torch"]


def counts(**known):
    zero = Counts((0, 0), (0, 0), 0, 0, 0, 0, (0, 0), (0, 0), False, 0, 0, "")
    return zero._replace(**known)


def test_rates_are_of_the_interval_and_a_wait_under_way_counts():
    before, after = counts(waited=0, since=500), counts(calls=(0, 20), bytes=(0, 160), waited=0, since=500)
    found = top._rates(0, "running", before, after, 10**9, 3 * 10**9)
    assert (found.far_calls, found.far_bytes, found.waiting) == (10, 80, 1)
    assert (found.now, found.now_seconds) == ("a wait", pytest.approx(3, abs=1e-6))
    half = top._rates(0, "running", counts(waited=10**9), counts(waited=2 * 10**9), 10**9, 3 * 10**9)
    assert (half.waiting, half.now) == (0.5, "")
    ended_in_between = top._rates(0, "running", counts(since=10**9), counts(waited=10**9), 2 * 10**9, 4 * 10**9)
    assert ended_in_between.waiting == 0
    finalized = top._rates(0, "ended", counts(meetings=100, calls=(9, 0)), counts(ended=True), 10**9, 2 * 10**9)
    assert (finalized.meetings, finalized.near_calls) == (0, 0)


@pytest.mark.parametrize(
    ("here", "text"),
    [
        ([0, 1, 2, 3], "4 PEs"),
        ([0, 1, 3], "4 PEs, of which this machine has 3: 0-1, 3"),
        ([2], "4 PEs, of which this machine has 1: 2"),
    ],
)
def test_top_says_which_pes_this_machine_has(here, text):
    pes = [running.Running(None, {"pe": pe, "pid": 1}) for pe in here]
    assert top._place(running.Job(1, "host", 4, pes)) == text
