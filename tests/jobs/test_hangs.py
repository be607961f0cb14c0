"""A job that hangs says who waits for whom, in which call and at which line: in debug mode, and when it is asked."""

import re

import pytest
from jobs import mpiexec, warm
from launching import PYSHMEMRUN
from surroundings import until

HEAD = """
import sys, threading, time
import pyshmem as shmem, torch
from pyshmem.diagnosis import host_timeouts
from pyshmem.base.job import job
host_timeouts.PATIENCE = 300.0  # whatever keeps a PE from answering for a while
shmem.init(heap_size="1m")
me = shmem.my_pe()
word, three = shmem.zeros(1, dtype=torch.int64), shmem.zeros(3, dtype=torch.int64)
team = shmem.TEAM_WORLD.split_strided(0, 2, 2)
"""
DEBUG = {"SHMEM_DEBUG": "1"}
OTHERS = {
    "zeros": ("shmem.zeros(10)", "zeros of 40 bytes aligned to 64 on cpu"),
    "free": ("shmem.free(word)", "free of 0 bytes at heap offset 0 on cpu"),
    "sync_all": ("shmem.sync_all()", "sync_all"),
    "sum_reduce": ("shmem.sum_reduce(word, word)", "sum_reduce size 1, int64"),
    "collect": ("shmem.collect(word, word)", "collect"),
    "alltoalls": ("shmem.alltoalls(torch.zeros_like(three), three, 1, 1, 1)", "alltoalls"),
    "split": ("shmem.TEAM_WORLD.split_strided(0, 1, 1)", "split_strided"),
    "finalize": ("shmem.finalize()", "finalize"),
}


def line_of(program, text):
    return next(number for number, line in enumerate(program.splitlines(), 1) if text in line)


@pytest.mark.parametrize("other", OTHERS)
def test_different_calls_of_a_team_are_named_at_once_in_debug_mode(other, tmp_path):
    """The time-out is longer than the test may take."""
    call, words = OTHERS[other]
    program = HEAD + f"if me == 1:\n    {call}\nelse:\n    shmem.barrier_all()\n"
    status, _, err = mpiexec(3, program, tmp_path=tmp_path, environment={**DEBUG, "PYSHMEM_WAIT_TIMEOUT": "300"})
    here, there = (f"at program.py:{line_of(program, text)}" for text in ("shmem.barrier_all()", call))
    got = f"got barrier_all {here} on PEs 0 and 2 and {words} {there} on PE 1; expected the same call on all PEs of TEAM_WORLD"
    assert status == 1
    assert len(re.findall(rf"^PE \d: ArgumentError: .*: call: {re.escape(got)}$", err, re.MULTILINE)) >= 1, err


@pytest.mark.parametrize(
    "call, words",
    {
        "shmem.broadcast(three, three, me % 2)": ["broadcast root 0, size 3, int64", "broadcast root 1, size 3, int64"],
        "shmem.fcollect(three, three, me % 2)": ["fcollect size 0, int64", "fcollect size 1, int64"],
        "shmem.sum_reduce(*[three, three.view(torch.uint64)][me % 2 :][:1] * 2)": [
            "sum_reduce size 3, int64",
            "sum_reduce size 3, uint64",
        ],
        'shmem.reduce_on_stream(three, three, "sum", 2 + me % 2)': [
            "reduce_on_stream size 2, int64",
            "reduce_on_stream size 3, int64",
        ],
    }.items(),
)
def test_collectives_with_different_arguments_are_named_in_debug_mode(call, words, tmp_path):
    status, _, err = mpiexec(3, f"{HEAD}{call}\n", tmp_path=tmp_path, environment=DEBUG)
    assert status == 1
    here = f"at program.py:{line_of(HEAD + call, call)} on"
    got = (
        f"got {words[0]} {here} PEs 0 and 2 and {words[1]} {here} PE 1; expected the same call on all PEs of TEAM_WORLD"
    )
    assert re.search(rf"^PE \d: OutOfRangeError: .*: call: {re.escape(got)}$", err, re.MULTILINE), err


def test_equal_calls_are_not_refused_in_debug_mode_and_their_results_stand(tmp_path):
    program = (
        HEAD
        + """
source, target = shmem.full(3, me, dtype=torch.int64), shmem.zeros(9, dtype=torch.int64)
shmem.fcollect(target, source)
assert target.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
shmem.collect(target, source, me)
assert target[:3].tolist() == [1, 2, 2]
shmem.sum_reduce(source, source)
shmem.broadcast(target, source, 1)
shmem.alltoalls(target, shmem.arange(3), 1, 1, 1)
assert target[:3].tolist() == [me] * 3
if team:
    team.sync()
shmem.barrier_all()
"""
    )
    status, _, err = mpiexec(3, program, tmp_path=tmp_path, environment=DEBUG)
    assert status == 0, err


def test_a_time_out_says_where_the_missing_pes_are_in_debug_mode(tmp_path):
    program = (
        HEAD
        + """
if me == 3:
    shmem.set_lock(three[:1])
shmem.barrier_all()
if me == 1:
    shmem.wait_until(word, ">=", 1)
if me == 2:
    time.sleep(300)
if me == 3:
    shmem.set_lock(three[:1])  # again
job.timeout, said = 0.2, ""
while not all(f"PE {pe} is in {where}" in said for pe, where in enumerate(("wait_until", "no call", "set_lock"), 1)):
    try:
        shmem.wait_until(word, ">=", 1)
    except shmem.WaitTimeoutError as error:
        said = str(error)
shmem.barrier_all()
"""
    )
    status, _, err = mpiexec(4, program, tmp_path=tmp_path, environment=DEBUG)
    assert status == 1
    said = err[err.index("PE 0: WaitTimeoutError: barrier_all: team: got no call from PEs 1, 2 and 3 of TEAM_WORLD") :]
    for words in (
        f"PE 1 is in wait_until at program.py:{line_of(program, 'wait_until')}",
        f"PE 2 is in no call of pyshmem, at program.py:{line_of(program, 'time.sleep')}",
        f"PE 3 is in set_lock at program.py:{line_of(program, '# again')}",
    ):
        assert words in said


NOTICED = """
import os
import sys
import time
write = sys.stderr.write

def watched(text):
    for name in ("barrier_all", "wait_until"):
        if f"has waited 0.2 s in {name}" in text:
            open(name, "w").close()
    return write(text)

sys.stderr.write = watched
import pyshmem as shmem, torch
from pyshmem.diagnosis import host_timeouts
host_timeouts.PATIENCE = 300.0
shmem.init(heap_size="1m")
me, word = shmem.my_pe(), shmem.zeros(1, dtype=torch.int64)

def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)

if me == 0:
    until("out of zeros")
if me == 1:
    open("out of zeros", "w").close()
    until("barrier_all")
shmem.barrier_all()
if me == 1:
    until("wait_until")
    shmem.p(word, 5, 0)
if me == 0:
    shmem.wait_until(word, ">=", 5)
"""


@pytest.mark.parametrize("debug", [False, True])
def test_pe_0_says_once_in_each_long_wait_where_it_waits_and_for_whom(debug, tmp_path):
    """PE 1 goes on as soon as the line is there."""
    settings = {"PYSHMEM_WAIT_NOTICE": "0.2", **(DEBUG if debug else {})}
    status, _, err = mpiexec(2, NOTICED, tmp_path=tmp_path, environment=settings)
    assert status == 0, err
    said = [line for line in err.splitlines() if "barrier_all at" in line or "wait_until at" in line]
    first, second = (line_of(NOTICED, call) for call in ("shmem.barrier_all", "shmem.wait_until"))
    where = (
        r"PE 1 is in no call of pyshmem, at program.py:\d+" if debug else "SHMEM_DEBUG=1 says where the other PEs are"
    )
    end = f"; {where}; PYSHMEM_WAIT_NOTICE sets the seconds, 0 for never"
    begin = "pyshmem: PE 0 has waited 0.2 s in "
    assert len(said) == 2, err
    assert re.fullmatch(
        f"{begin}barrier_all at program.py:{first}: no call yet from PE 1 of TEAM_WORLD{end}", said[0]
    ), err
    assert re.match(
        rf"{begin}wait_until at program.py:{second}: ivar = int64\[\d*\] at heap offset \d+.*, now ", said[1]
    ), err


def test_a_time_out_without_debug_mode_names_the_missing_pes_alone(tmp_path):
    """The first time after which PE 2 has come: a machine may be slow."""
    program = HEAD + "job.timeout = float(sys.argv[1])\nif me == 1:\n    time.sleep(300)\nshmem.barrier_all()\n"
    for seconds in ("2", "10", "30"):
        status, _, err = mpiexec(3, program, seconds, tmp_path=tmp_path)
        assert status == 1
        last = (
            rf"no call from PE 1 of TEAM_WORLD in {seconds} s; expected all of them to call it; "
            r"PYSHMEM_WAIT_TIMEOUT sets .* no limit; SHMEM_DEBUG=1 says where they are$"
        )
        if re.search(last, err, re.MULTILINE):
            break
    else:
        pytest.fail(err)


LONELY = (
    HEAD
    + """
import triton
import pyshmem.device as dev
signal = shmem.zeros(1, dtype=torch.uint64)

@triton.jit
def wait(ctx, word):
    dev.wait_until(ctx, word, dev.CMP_GE, 1)

@triton.jit
def wait_for_signal(ctx, signal):
    dev.signal_wait_until(ctx, signal, dev.CMP_GE, 1)

@triton.jit
def meet(ctx):
    dev.barrier_all(ctx)

def late():
    shmem.wait_until(word, ">=", 7)

team = shmem.TEAM_WORLD.split_strided(0, 1, shmem.n_pes())
shmem.barrier_all()
if me:
    late()
job.timeout, said = 0.2, ""
while "PEs 1 and 2 are in wait_until" not in said:
    try:
        shmem.wait_until(word, ">=", 1)
    except shmem.WaitTimeoutError as error:
        said = str(error)
for call in (
    lambda: shmem.wait_until(word, ">=", 1),
    lambda: shmem.signal_wait_until(signal, ">=", 1),
    lambda: shmem.wait_until_all(three, ">=", 1),
    lambda: wait[(1,)](shmem.device_context(), word),
    lambda: wait_for_signal[(1,)](shmem.device_context(), signal),
    lambda: (shmem.p(word, 1 << 32, 0), shmem.set_lock(word)),
    lambda: meet[(1,)](shmem.device_context(team)),  # a time-out in a collective ends its team
    lambda: shmem.barrier_all(),
):
    try:
        call()
    except Exception as error:
        print(error.__cause__ or error, flush=True)
shmem.global_exit(3)
"""
)
ALONE = (
    "wait_until: PE 0: ivar",
    "signal_wait_until: PE 0: signal",
    r"wait_until_all: PE 0: ivars\[0\]",
    "kernel wait: wait_until: PE 0: ivar",
    "kernel wait_for_signal: signal_wait_until: PE 0: sig_addr",
    "set_lock: PE 0: lock",
    "kernel meet: barrier_all: PE 0: ctx",
    "barrier_all: PE 0: team",
)


def test_every_wait_that_times_out_says_where_the_other_pes_are_in_debug_mode(tmp_path):
    """The others are in one call: they are named together."""
    status, out, err = mpiexec(3, LONELY, tmp_path=tmp_path, environment=DEBUG)
    assert status == 3, err
    where = rf"PEs 1 and 2 are in wait_until at program\.py:{line_of(LONELY, 'def late') + 1}"
    for said, head in zip(out.splitlines(), ALONE, strict=True):
        assert re.fullmatch(rf"{head}: got .* in 0\.2 s; expected .*0 for no limit; {where}", said), said


def test_a_wait_that_times_out_names_what_says_where_the_other_pes_are(tmp_path):
    program = HEAD + "job.timeout = 0.2\nif me == 0:\n    shmem.wait_until(word, '>=', 1)\ntime.sleep(300)\n"
    status, _, err = mpiexec(3, program, tmp_path=tmp_path)
    assert status == 1
    assert re.search(
        r"WaitTimeoutError: wait_until: .* no limit; SHMEM_DEBUG=1 says where the other PEs are$", err, re.M
    )


PLACES = """
import numpy as np
import pyshmem as shmem, torch, triton
import pyshmem.device as dev
from pyshmem.base.job import job
shmem.init(heap_size="1m")
job.timeout = 0.1

def some():
    return shmem.zeros(9, dtype=torch.int64)

@triton.jit
def wait(ctx, word):
    dev.wait_until(ctx, word, dev.CMP_GE, 1)

@triton.jit
def put(ctx, dest, source):
    dev.put(ctx, dest, source, 10, 0)

first, words = some(), some()
private = torch.zeros(10, dtype=torch.int64)
for call in (
    lambda: shmem.wait_until(words[2], ">=", 1),
    lambda: shmem.put(np.lib.stride_tricks.as_strided(words.numpy(), (10,)), private, 0),
    lambda: wait[(1,)](shmem.device_context(), words[2:]),
    lambda: put[(1,)](shmem.device_context(), words, private),
):
    try:
        call()
    except Exception as error:
        print(error.__cause__ or error)
"""


def test_errors_that_name_heap_offsets_name_the_allocation_in_debug_mode(tmp_path):
    """9 words of 8 bytes at a multiple of 64: the second allocation is from 128 to 200."""
    status, out, err = mpiexec(1, PLACES, tmp_path=tmp_path, environment=DEBUG)
    assert status == 0, err
    made = f"128 to 200, allocated at program.py:{line_of(PLACES, 'shmem.zeros')}"
    for said, words in zip(
        out.splitlines(),
        (
            f"wait_until: PE 0: ivar: got 0 at heap offset 144 (in {made}) in 0.1 s; expected",
            f"put: PE 0: target: got 80 bytes from heap offset 128 (in {made}); expected at most 72, to the end",
            f"kernel wait: wait_until: PE 0: ivar: got 0 at heap offset 144 (in {made}) in 0.1 s; expected",
            f"the nearest allocation is {made}",
        ),
        strict=True,
    ):
        assert words in said
    status, out, err = mpiexec(1, PLACES, tmp_path=tmp_path)
    assert status == 0 and out.count(" at heap offset 144 in 0.1 s; expected ") == 2 and "allocated at" not in out, out


ASKED = {"PYSHMEM_DUMP": "SIGUSR1"}  # which pyshmemrun forwards

AT_ITS_END = HEAD + "if me != 1:\n    shmem.barrier_all()\n"


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_time_out_says_which_program_has_ended(tmp_path, debug):
    """Such a PE waits in MPI's finalisation. The first time after which PE 1 is there: a machine may be slow."""
    wanted = r"barrier_all: .*got no call from PE 1 of TEAM_WORLD.*; PE 1 has come to the end of its program"
    for seconds in ("1", "5", "25"):
        settings = {"SHMEM_DEBUG": debug, "PYSHMEM_WAIT_TIMEOUT": seconds}
        status, _, err = mpiexec(3, AT_ITS_END, tmp_path=tmp_path, environment=settings)
        assert status == 1
        if re.search(wanted, err):
            break
    else:
        pytest.fail(err)


def test_dump_after_does_not_kill_a_pe_at_the_end_of_its_program(start, program):
    """The first time after which PE 1 is there: a machine may be slow."""
    prog = program(HEAD + "if me == 0:\n    wait_for('enough')\n    print('unharmed')\n")
    for seconds in (1, 5, 25):
        job = start(*PYSHMEMRUN, "-n", 3, "--dump-after", seconds, *warm(), prog, env=ASKED)
        # a PE that comes to its end as it is asked says nothing
        until(lambda job=job: re.search("^(PE 1 is|.*PE 1 has come)", job.errors, re.MULTILINE), seconds + 15)
        if "PE 1 has come to the end of its program" in job.errors:
            break
        job.process.terminate()
        job.wait()
    assert "PE 1 has come to the end of its program" in job.errors
    job.process.send_signal(10)
    assert until(lambda: "PE 0 is in no call of pyshmem" in job.errors), job.errors
    (job.folder / "enough").touch()
    assert (job.wait(), job.output) == (0, "unharmed\n")


DUMPS = (
    HEAD
    + """
def of_the_user():
    if me == 1:
        shmem.wait_until(word, ">=", 1)
    if me == 2:
        team.sync()
    if me == 3:
        shmem.sum_reduce(word, word)
    shmem.barrier_all()

of_the_user()
"""
)


def answers(job, *wanted):
    """Ask the PEs, as many as these lines, again until all lines are there, but not before they have answered."""
    assert until(lambda: all(f"\nPE {pe} is in" in "\n" + job.errors for pe in range(len(wanted)))), job.errors
    asked = []

    def seen():
        if len(re.findall(r"^PE \d is in", job.errors, re.MULTILINE)) >= len(wanted) * len(asked):
            asked.append(job.process.send_signal(10))
        return all(re.search(f"^{line}$", job.errors, re.MULTILINE) for line in wanted)

    assert until(seen), job.errors


def test_a_dump_says_where_each_pe_is_and_what_it_waits_for_and_the_job_runs_on(start, program):
    job = start(*PYSHMEMRUN, "-n", 4, "--dump-after", 1, *warm(), program(DUMPS), env=ASKED)
    answers(
        job,
        r"PE 0 is in barrier_all at prog.py:\d+: no call yet from PEs 1, 2 and 3 of TEAM_WORLD",
        r"PE 1 is in wait_until at prog.py:\d+: ivar = int64\[1\] at heap offset 0, now \[0\], cmp = '>=', value = 1",
        r"PE 2 is in sync at prog.py:\d+: no call yet from PE 0 of team of PEs 0, 2, \.\.\.",
        r"PE 3 is in sum_reduce at prog.py:\d+: target = int64\[1\] .*, no call yet from .*",
    )
    assert re.search(r'^  File ".*prog.py", line \d+, in of_the_user$', job.errors, re.MULTILINE)
    job.process.terminate()
    job.wait()


KERNELS = """
import pyshmem as shmem, torch, triton
import pyshmem.device as dev
shmem.init(heap_size="1m")
words = shmem.full(4, -5, dtype=torch.int64)
signals = shmem.zeros(2, dtype=torch.uint64)

@triton.jit
def wait(ctx, words, signals):
    if dev.my_pe(ctx) == 0:
        dev.wait_until(ctx, words + 2, dev.CMP_EQ, 7)
    if dev.my_pe(ctx) == 1:
        dev.signal_wait_until(ctx, signals + 1, dev.CMP_GE, 2)
    dev.barrier_all(ctx)

wait[(1,)](shmem.device_context(), words, signals)
"""


def test_a_dump_of_a_wait_in_an_interpreted_kernel_names_the_word_and_what_it_holds(start, program):
    job = start(*PYSHMEMRUN, "-n", 3, "--dump-after", 1, *warm(), program(KERNELS), env=ASKED)
    answers(
        job,
        r"PE 0 is in wait_until at prog.py:\d+: ivar = int64 at heap offset 16, now -5, cmp = '==', value = 7",
        r"PE 1 is in signal_wait_until at prog.py:\d+: sig_addr = uint64 at heap offset \d+, now 0, cmp = '>=', value = 2",
        r"PE 2 is in barrier_all at prog.py:\d+: no call yet from PEs 0 and 1 of its team",
    )
    job.process.terminate()
    job.wait()


FORGOTTEN = """
import pyshmem as shmem, torch
shmem.init(heap_size="1m")
word = shmem.zeros(1, dtype=torch.int64)
if shmem.my_pe() == 1:
    shmem.wait_until(word, ">=", 1)
shmem.barrier_all()
"""


def test_a_time_out_of_the_job_says_where_its_pes_are(start, program):
    """The first time after which they are there: a machine may be slow."""
    wanted = ("PE 0 is in barrier_all at ", "no call yet from PE 1 of TEAM_WORLD", "PE 1 is in wait_until at ")
    for seconds in (2, 8, 30):
        job = start(*PYSHMEMRUN, "-n", 2, "--timeout", seconds, *warm(), program(FORGOTTEN))
        assert job.wait() == 124
        if all(words in job.errors for words in wanted):
            break
    else:
        pytest.fail(job.errors)


def test_dump_after_leaves_programs_alone_that_do_not_listen(start, idle_launcher, program):
    prog = program("wait_for('enough'); print('unharmed\\n', end='')")  # by one write, which no other splits
    job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "--dump-after", 1, "python", prog)
    assert until(lambda: job.errors.count("has not called shmem.init") == 2), job.errors
    (job.folder / "enough").touch()
    assert (job.wait(), job.output) == (0, "unharmed\n" * 2)


def test_a_signal_that_is_named_prints_a_dump_more_than_once(start, program):
    prog = program("import pyshmem as shmem\nshmem.init(heap_size='1m')\nnote('ready')\nwait_for('enough')")
    job = start(*PYSHMEMRUN, "-n", 1, *warm(), prog, env={"PYSHMEM_DUMP": "usr2"})
    job.reach("ready")
    for turn in (1, 2):
        job.process.send_signal(12)
        assert until(lambda turn=turn: job.errors.count("PE 0 is in no call of pyshmem, at ") == turn), job.errors
    (job.folder / "enough").touch()
    assert job.wait() == 0


def test_a_dump_signal_that_does_not_exist_is_refused(tmp_path):
    status, _, err = mpiexec(1, HEAD, tmp_path=tmp_path, environment={"PYSHMEM_DUMP": "SIGNOTHING"})
    assert (
        status == 1 and "PYSHMEM_DUMP: got 'SIGNOTHING'; expected the name of a signal that programs may handle" in err
    )
