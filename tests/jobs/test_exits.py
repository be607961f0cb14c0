"""One PE fails while the others wait in a barrier for ever: the job ends, with its status and a line that names it."""

import os
import re
import tempfile
import time

import pytest
from jobs import mpiexec, python
from launching import PYSHMEMRUN
from pyshmem.launch.run.leftovers import JobDirectory

FAULTY = """
import os, signal, sys, threading
import pyshmem as shmem

shmem.init()
if shmem.my_pe() == 1:
    kind = sys.argv[1]
    if kind == "exception":
        raise ValueError("boom")
    if kind == "thread":
        worker = threading.Thread(target=lambda: [][0])
        worker.start()
        worker.join()
    if kind == "sys.exit":
        sys.exit(3)
    if kind == "SystemExit":
        raise SystemExit(-2)
    if kind == "global_exit":
        print("last words", end="")
        shmem.global_exit(7)
    if kind == "os._exit":
        os._exit(5)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
shmem.barrier_all()
"""
# what happens: (status of the job, what PE 1 says). Of an end without a word mpiexec only says that it was none; pyshmemrun
# says more, see test_launch.py.
ENDS = {
    "exception": (1, r"Traceback(.|\n)*ValueError: boom\nPE 1: ValueError: boom\n"),
    "thread": (1, r"PE 1: IndexError: list index out of range\n"),
    "sys.exit": (3, r"PE 1: exited with status 3\n"),
    "SystemExit": (254, r"PE 1: exited with status 254\n"),
    "global_exit": (7, ""),
    "os._exit": (None, ""),
    "kill": (None, ""),
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_pe_that_fails_ends_the_job_and_says_why(kind, tmp_path):
    status, said = ENDS[kind]
    begun = time.monotonic()
    got, out, err = mpiexec(3, FAULTY, kind, tmp_path=tmp_path)
    assert got == status if status else got != 0, err
    assert re.search(said, err), err
    assert time.monotonic() - begun < 90, "the others' time-out ended it, not the failure"
    if kind == "global_exit":
        assert "last words" in out


SILENT = """
import os, signal, sys, time, warnings
from contextlib import suppress
import pyshmem as shmem

warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of a fork beside threads
shmem.init()
if shmem.my_pe() == 1:
    note = f"{os.environ['PYSHMEM_JOB_DIR']}/pe-1"  # of the process that passes the output of PE 1 on
    while not os.path.exists(note):
        time.sleep(0.01)
    passing = int(open(note).read())
    os.kill(passing, signal.SIGSTOP)
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(1)
        with suppress(ProcessLookupError):
            os.kill(passing, signal.SIGCONT)
        os._exit(0)
    print("last words", file=sys.stderr)
    if sys.argv[1] == "exception":
        raise ValueError("boom")
    sys.exit(3)
shmem.barrier_all()
"""


@pytest.mark.parametrize(
    ("kind", "status", "said"), [("exception", 1, "last words\nTraceback"), ("exit", 3, "last words\n")]
)
def test_what_a_pe_says_that_fails_is_printed_however_late_it_is_passed_on(kind, status, said, tmp_path):
    got, _, err = python(SILENT, kind, tmp_path=tmp_path, launcher=(*PYSHMEMRUN, "-n", "2"))
    assert (got, err[: len(said)]) == (status, said), err


@pytest.mark.parametrize("ending", ["", "shmem.finalize()", "shmem.finalize(); sys.exit(0)", "sys.exit()"])
def test_a_program_that_ends_well_ends_with_status_0_finalised_or_not(ending, tmp_path):
    program = f"import sys\nimport pyshmem as shmem\nshmem.init()\nshmem.zeros(3)\nprint('done')\n{ending}"
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out.count("done"), err) == (0, 2, "")


SLOW = """
import atexit, os, select, time
from mpi4py import MPI

ids = MPI.COMM_WORLD.allgather(os.getpid())
others = [os.pidfd_open(each) for each in ids if each != os.getpid()]

@atexit.register  # before pyshmem's: it runs after that
def end_late():
    MPI.Finalize()
    if ids.index(os.getpid()) == 1:
        select.select(others, [], [])
        time.sleep(1.5)  # more than the service of far PEs waits before it gives a PE up

import pyshmem as shmem
shmem.init()
x = shmem.zeros(1)
shmem.p(x, 1, 1 - shmem.my_pe())
shmem.barrier_all()
print("done")
"""


def test_a_pe_that_ends_long_after_others_without_finalize_has_not_lost_them(tmp_path):
    """The program has started MPI, and finalises it: no PE waits for the others after that."""
    status, out, err = mpiexec(2, SLOW, tmp_path=tmp_path, environment={"PYSHMEM_NODE_SIZE": "1"}, fresh=True)
    assert (status, out.count("done"), err) == (0, 2, "")


def test_a_failure_after_finalize_ends_the_job_too(tmp_path):
    program = (
        "import sys\nimport pyshmem as shmem\nshmem.init()\nme = shmem.my_pe()\nshmem.finalize()\nsys.exit(6 * me)"
    )
    status, _, err = mpiexec(2, program, tmp_path=tmp_path)
    assert status == 6, err
    assert "PE 1: exited with status 6\n" in err


def test_a_forked_child_ends_without_touching_the_job(tmp_path):
    program = """
import os, sys
import pyshmem as shmem
shmem.init()
child = os.fork()
if child == 0:
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
shmem.barrier_all()
print("done")
"""
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out.count("done")) == (0, 2), err


def test_a_directory_that_another_job_removes_as_stale_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    made, make = [], tempfile.mkdtemp

    def removed(**options):
        made.append(make(dir=tmp_path, **options))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", removed)
    directory = JobDirectory()
    assert len(made) == 2 and str(directory.path) == made[1] and directory.path.is_dir()
    directory.remove()
    assert not os.listdir(tmp_path)


def test_nothing_of_pyshmem_is_left_in_shared_memory(tmp_path):
    """Killed in the middle, with a registered tensor: neither it nor the heap has a name, so the kernel takes both back with
    the last process."""
    program = """
import os, signal
import pyshmem as shmem, torch
shmem.init()
x = shmem.register(torch.zeros(1 << 16).share_memory_())
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if " /dev/shm/" in line}
assert [path for path in mapped if path.endswith("(deleted)")], "torch's is mapped"
print(os.getpid(), [path for path in mapped if os.path.exists(path) and "mpich" not in path], flush=True)
shmem.barrier_all()
os.kill(os.getpid(), signal.SIGKILL)
"""
    _, out, err = mpiexec(2, program, tmp_path=tmp_path)
    pids = re.findall(r"(\d+) \[\]\n", out)
    assert len(pids) == 2, (out, err)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(tuple(f"torch_{pid}_" for pid in pids))]


FULL = """
import os, sys
import pyshmem as shmem

shmem.init()
shmem.barrier_all()
if shmem.my_pe() == 1:
    with open(os.environ["TMPDIR"] + "/full", "wb", buffering=0) as file:
        try:
            for _ in range(1024):  # and no more, on whichever disk that is
                file.write(bytes(1024))
            os._exit(9)  # a disk that is not full
        except OSError:
            pass
    if sys.argv[1] == "exception":
        raise ValueError("boom")
    if sys.argv[1] == "exit":
        sys.exit(3)
    os._exit(3)
shmem.barrier_all()
"""
MOUNTED = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=128k none "$TMPDIR" && exec "$@"', "sh"]
FULL_ENDS = {
    "exception": (1, "PE 1: ValueError: boom"),
    "exit": (3, "PE 1: exited with status 3"),
    "os._exit": (3, "PE 1: exited with status 3"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk that is full soon")
@pytest.mark.parametrize("kind", FULL_ENDS)
def test_on_a_full_disk_for_temporary_files_the_programs_own_error_is_printed_and_one_line_of_ours(kind, tmp_path):
    status, line = FULL_ENDS[kind]
    (tmp_path / "tmp").mkdir()
    command, settings = (*MOUNTED, *PYSHMEMRUN, "-n", "2"), {"TMPDIR": str(tmp_path / "tmp")}
    # fresh: processes that warm() forks have the disk of its server, not the small one
    got, _, err = python(FULL, kind, tmp_path=tmp_path, launcher=command, environment=settings, fresh=True)
    assert got == status, err
    assert err.count("Traceback") == (kind == "exception"), err
    # a PE that has no room for its report prints the line itself, before the launcher says that it has aborted
    assert [each for each in err.splitlines() if each.startswith("PE ")] == [line], err


LEFT = """
import os, sys
import pyshmem as shmem

shmem.init()
if shmem.my_pe() == 1:
    os._exit(0)
shmem.barrier_all()
"""


def test_a_pe_that_leaves_by_os_exit_with_status_0_ends_the_job_and_is_named(tmp_path):
    status, _, err = python(LEFT, tmp_path=tmp_path, launcher=(*PYSHMEMRUN, "-n", "3"), fresh=True)
    assert status == 1, err
    assert err.splitlines()[-1] == "PE 1: exited with status 0, by os._exit or the like, and had not called finalize"


OVER = """
import pyshmem as shmem, torch
from pyshmem.base.job import job

shmem.init()
target, source, gone = shmem.zeros(8), shmem.zeros(4), shmem.zeros(1, dtype=torch.uint64)
shmem.barrier_all()

def said(call):
    try:
        call()
    except shmem.ShmemError as error:
        print(type(error).__name__, error)

if shmem.my_pe() == 0:
    limit, job.timeout = job.timeout, 0.05
    said(shmem.barrier_all)
    job.timeout = limit
    shmem.signal_set(gone, 1, 1)
    said(lambda: shmem.collect(target, source, 4))
else:
    shmem.signal_wait_until(gone, "==", 1)
said(lambda: shmem.zeros(3))
said(lambda: shmem.zeros(5))
"""


@pytest.mark.parametrize("node", ["2", "1"])
@pytest.mark.parametrize("debug", ["0", "1"])
def test_after_a_time_out_of_a_call_of_all_pes_all_later_ones_are_refused_for_it_alone(debug, node, tmp_path):
    """Calls of several kinds, which without the refusal would meet each other, and find notes of other lengths."""
    settings = {"SHMEM_DEBUG": debug, "PYSHMEM_NODE_SIZE": node}
    _, out, err = mpiexec(2, OVER, tmp_path=tmp_path, environment=settings)
    why = "got TEAM_WORLD, whose barrier_all has ended on PE 0 by a time-out: no call from PE 1 in 0.05 s; expected"
    first, *others = sorted(out.splitlines(), key=lambda line: not line.startswith("WaitTimeoutError"))
    assert first.startswith("WaitTimeoutError barrier_all: PE 0: team: got no call from PE 1 of TEAM_WORLD"), err
    calls = ("collect: PE 0", "zeros: PE 0", "zeros: PE 0", "zeros: PE 1", "zeros: PE 1")
    assert [line.partition(" expected")[0] + " expected" for line in sorted(others)] == [
        f"BrokenTeamError {call}: team: {why}" for call in calls
    ], out + err
