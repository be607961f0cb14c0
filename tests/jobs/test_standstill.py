"""A PE that stands still where MPI knows no limit: pyshmemrun names it after a while, and ends the job."""

import random
import re

import pytest
from jobs import python
from launching import NOTHING, PYSHMEMRUN
from pyshmem.launch.run.pe import BEAT
from pyshmem.launch.run.progress import STALE, Place, Progress, standstill

WORDS = "is stopped by SIGSTOP"
LIMIT = {"PYSHMEM_WAIT_NOTICE": "1", "PYSHMEM_WAIT_TIMEOUT": "2"}
# A program that tells its phases as pyshmem does, and is there at once.
TELLING = """
def tell(phase):
    with open(os.environ["PYSHMEM_JOB_PE"].split()[2], "w") as pipe:
        pipe.write(phase + "\\n")
def stand():
    os.kill(os.getpid(), signal.SIGSTOP)
def phase(*names):
    for name in names:
        tell(name)
"""
# what PE 1 does, what the others do, and what pyshmemrun says of it in the end
STANDING = {
    "before init": ("stand()", "phase('init'); wait_for('never')", f"waited 2 s in init; PE 1 {WORDS};"),
    "without init": ("wait_for('never')", "phase('init'); wait_for('never')", "in init; PE 1 has not called it;"),
    "in init": ("phase('init'); stand()", "phase('init'); wait_for('never')", f"in init; PE 1 {WORDS} in init;"),
    "ended before init": ("pass", "phase('init'); wait_for('never')", "in init; PE 1 has ended without it;"),
    "all in init": ("phase('init'); wait_for('never')",) * 2 + ("in init; PEs 0, 1 and 2 do not come out of it;",),
    "in a further init": (
        "phase('init', 'runs', 'finalized'); stand()",
        "phase('init', 'runs', 'finalized', 'init'); wait_for('never')",
        f"waited 2 s in init; PE 1 {WORDS};",
    ),
    "at the end": (
        "phase('init', 'runs', 'finalized'); stand()",
        "phase('init', 'runs', 'finalized', 'leaves', 'ends'); wait_for('never')",
        f"PEs 0 and 2 have waited 2 s at the end; PE 1 {WORDS};",
    ),
    "after the others have ended": (
        "phase('init', 'runs', 'finalized', 'leaves', 'ends'); stand()",
        "phase('init', 'runs', 'finalized', 'leaves', 'ends')",
        f"no progress for 2 s; PE 1 {WORDS};",
    ),
    "all at the end": (
        *("phase('init', 'runs', 'finalized', 'leaves', 'ends'); wait_for('never')",) * 2,
        "waited 2 s at the end; PEs 0, 1 and 2 do not come out of MPI_Finalize;",
    ),
}


@pytest.mark.parametrize("where", STANDING)
def test_a_pe_that_stands_still_is_named_and_the_job_ends(start, idle_launcher, program, where):
    """The notice comes first, with the same words. A slow machine may have another PE named before."""
    pe_1, others, words = STANDING[where]
    prog = program(f"{TELLING}\nif me == 1:\n    {pe_1}\nelse:\n    {others}\n")
    job = start(*PYSHMEMRUN, "-n", 3, *idle_launcher, "python", prog, env=LIMIT)
    assert job.wait() == 124, job.errors
    assert words in job.errors.splitlines()[-1], job.errors
    assert words.replace(" 2 s", " 1 s") in job.errors, job.errors
    assert job.errors.endswith("PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit\n")
    assert job.left() == NOTHING


def test_a_pe_that_has_not_started_is_named_and_the_job_ends(start, idle_launcher, program):
    """The launcher starts one PE less than it is asked to."""
    with open(idle_launcher[1]) as script:
        text = script.read().replace("range(int(sys.argv[2]))", "range(int(sys.argv[2]) - 1)")
    with open(idle_launcher[1], "w") as script:
        script.write(text)
    job = start(*PYSHMEMRUN, "-n", 3, *idle_launcher, "python", program("wait_for('never')"), env=LIMIT)
    assert job.wait() == 124, job.errors
    assert "ended the job: no progress for 2 s; PE 2 has not started;" in job.errors.splitlines()[-1]
    assert job.left() == NOTHING


@pytest.mark.parametrize("settings", [{"PYSHMEM_WAIT_NOTICE": "0.1", "PYSHMEM_WAIT_TIMEOUT": "0"}])
def test_without_a_limit_a_job_is_not_ended_and_the_notice_comes_once(start, idle_launcher, program, settings):
    """PE 1 goes on once PE 0 has seen the notice, and the time has passed twice since."""
    prog = program(f"""{TELLING}
phase("init")
if me == 0:
    for _ in range(2):
        while open("errors").read().count("have waited") < 1:
            time.sleep(0.01)
    note("seen")
wait_for("seen")
phase("runs", "finalized", "leaves", "ends")
""")
    job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", prog, env=settings)
    assert job.wait() == 0, job.errors
    assert job.errors.count("PEs 0 and 1 do not come out of it") == 1


RUNS, ENDS, INIT = Place(1, "runs"), Place(1, "ends"), Place(1, "init")
GOES_ON = {
    "a program that others wait for at their end": [RUNS, ENDS, Place(1, "ended")],
    "a PE that is stopped while others run": [RUNS, RUNS._replace(stopped=19), ENDS],
    "one that was not heard of": [RUNS, ENDS, ENDS._replace(fresh=False)],
}
NOBODY_WAITS = {
    "all run": [RUNS] * 3,
    "none has told anything": [Place()] * 3,
    "others have ended": [Place(), Place(0, "ended")],
    "none has started": [None] * 3,
    "all are stopped, as by a batch system": [RUNS._replace(stopped=19)] * 2,
    "those that wait are stopped too, and were not heard of": [INIT._replace(fresh=False)] * 2,
    "the last one computes": [RUNS, Place(1, "ended")],
}


@pytest.mark.parametrize("case", GOES_ON)
def test_a_job_that_may_go_on_by_itself_is_not_ended(case):
    found = standstill(GOES_ON[case])
    assert found and not found.certain


@pytest.mark.parametrize("case", NOBODY_WAITS)
def test_nothing_is_said_where_no_pe_is_known_to_wait_for_one_that_stands_still(case):
    assert standstill(NOBODY_WAITS[case]) is None


def test_what_pes_on_other_hosts_have_told_counts_while_it_is_fresh(tmp_path, monkeypatch):
    """By a clock of the test. A PE that waits tells so again."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    away = {0: ("1 init 0", now), 1: ("0 - 19", now)}
    progress = Progress(tmp_path, 2, away, 5.0, 0.0)
    said = []
    while now < 1000 + 3 * BEAT:
        now += 1.0
        away[0] = "1 init 0", now
        said.append(progress.look()[0])
    assert [text for text in said if text] == [
        "PE 0 has waited 5 s in init; PE 1 is stopped by SIGSTOP; PYSHMEM_WAIT_NOTICE sets the seconds, 0 for never"
    ]
    limited = Progress(tmp_path, 2, away, 0.0, 2 * STALE)
    while now < 1000 + 20 * BEAT:
        now += 1.0
        assert limited.look() == ("", False), "nothing has been heard since"


# The same with pyshmem and MPI. The seed says at which of the calls into C PE 1 is stopped.
STOPPED = f"""
{TELLING}
import random
import pyshmem as shmem, torch
where, at = sys.argv[1], int(sys.argv[2])
def stopping(here, call, *arguments):
    left = at if me == 1 and where == here else -1
    def count(frame, event, called):
        nonlocal left
        if event == "c_call":
            if left == 0:
                stand()
            left -= 1
    if left >= 0:
        sys.setprofile(count)
    call(*arguments)
    sys.setprofile(None)
stopping("init", lambda: shmem.init(heap_size="16m"))
x = shmem.zeros(100)
stopping("body", shmem.sum_reduce, x, x)
stopping("finalize", shmem.finalize)
if me == 1 and where == "end":
    stand()
"""
CALLS = {"init": 1000, "body": 1, "finalize": 30, "end": 1}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("where", CALLS)
def test_a_pe_that_is_stopped_anywhere_ends_the_job_by_name(start, program, where, seed):
    """The first limit in which the others come to where they wait: a machine may be slow."""
    at = random.Random(f"{where} {seed}").randrange(CALLS[where])
    for seconds in (5, 20, 60):
        settings = {"PYSHMEM_WAIT_TIMEOUT": str(seconds), "PYSHMEM_QUIET": "1"}
        job = start(*PYSHMEMRUN, "-n", 2 + seed, "--launcher", "mpich", program(STOPPED), where, at, env=settings)
        assert job.wait() != 0
        assert job.left() == NOTHING
        if re.search(rf"pyshmemrun: (ended the job: .*)?PE 1 {WORDS}", job.errors.splitlines()[-1]):
            break
    else:
        pytest.fail(job.errors)


SILENT = """
import os, signal, sys
import torch, pyshmem as shmem

shmem.init(heap_size="16m")
x = shmem.zeros(4, dtype=torch.int64)
if shmem.my_pe() == 1:
    shmem.put(x[3:], torch.tensor([os.getpid()]), 0)
shmem.barrier_all()
if shmem.my_pe() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
while open(f"/proc/{int(x[3])}/stat").read().rpartition(")")[2].split()[0] != "T":
    pass  # an atomic may still be answered
if sys.argv[1] == "barrier_all":
    shmem.barrier_all()
shmem.atomic_fetch_add(x[:1], 1, 1)
"""
SAID = {
    "barrier_all": "barrier_all: team: got no answer from PE 1 of TEAM_WORLD in",
    "atomic_fetch_add": "atomic_fetch_add: pe: got no answer from PE 1 on",
}


@pytest.mark.parametrize("call", SAID)
def test_a_time_out_names_the_programs_call_and_the_far_pe_that_does_not_answer(call, tmp_path):
    settings = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_WAIT_TIMEOUT": "3"}
    status, _, err = python(SILENT, call, tmp_path=tmp_path, launcher=(*PYSHMEMRUN, "-n", "2"), environment=settings)
    assert status == 1, err
    assert f"PE 0: WaitTimeoutError: {SAID[call]}" in err, err
