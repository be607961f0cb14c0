"""Jobs that end by what comes from outside: closed files, Ctrl-C once and twice, and a PE that the system kills."""

import os
import re
import signal

import pytest
from jobs import warm
from launching import NOTHING, PYSHMEMRUN

READS = """
import pyshmem as shmem
shmem.init()
text = sys.stdin.read()  # standard input is there, and at its end
for _ in range(50):
    print(str(me) * 99999)  # more in all than pipes hold
    print("error", me, file=sys.stderr)
shmem.barrier_all()
note(f"done-{me}", text)
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
def test_a_job_whose_standard_files_are_closed_runs_as_with_empty_ones(closed, start, launcher, program):
    """`pyshmemrun ... <&- >&-`: no file of pyshmemrun's own may take their numbers, or output would go round in it."""
    files = {"preexec_fn": lambda: [os.close(number) for number in closed]}
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, *warm(), program(READS), **files)
    assert job.wait() == 0, job.errors
    assert [(job.folder / f"done-{pe}").read_text() for pe in (0, 1)] == ["", ""]
    assert len(job.output) == (0 if 1 in closed else 50 * 2 * 100000)
    assert job.errors.count("error") == (0 if 2 in closed else 100)
    assert job.left() == NOTHING


INTERRUPTED = """
import pyshmem as shmem, torch
shmem.init()
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if " /dev/shm/" in line}
note(f"segments-{me}", json.dumps(sorted(mapped)))
word = shmem.zeros(1, dtype=torch.int64)
shmem.barrier_all()
try:
    note(f"waits-{me}")
    if me == 0:
        shmem.wait_until(word, "==", 1)
    elif me == 1:
        while True:
            time.sleep(1)
    shmem.barrier_all()
finally:
    note(f"ends-{me}")
    ENDING
"""


def test_the_first_interrupt_lets_each_pe_end_in_order_wherever_it_waits(start, launcher, program):
    """In a wait, in a barrier and in a program's own sleep: what the program does at its end is done."""
    job = start(
        *PYSHMEMRUN,
        "-n",
        3,
        *launcher,
        *warm(),
        program(INTERRUPTED.replace("ENDING", "[wait_for(f'ends-{pe}') for pe in range(3)]")),
    )
    job.reach("waits-0", "waits-1", "waits-2")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130, job.errors
    first, *others = re.findall(r"\d", named(job)[0].partition(";")[0])
    assert sorted([first, *others]) == ["0", "1", "2"]
    assert named(job) == [f"PE {first}: KeyboardInterrupt (also PEs {others[0]} and {others[1]}; 3 PEs)"]
    assert job.left() == NOTHING


def test_the_second_interrupt_ends_at_once_pes_whose_end_does_not_come(start, launcher, program):
    """Each PE hears both; the first has begun its end, which would take for ever."""
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, *warm(), program(INTERRUPTED.replace("ENDING", "spin()")))
    job.reach("waits-0", "waits-1", "waits-2")
    job.process.send_signal(signal.SIGINT)
    job.reach("spins-0", "spins-1", "spins-2")
    job.process.send_signal(signal.SIGINT)
    assert (job.wait(), named(job)) == (130, []), job.errors
    assert job.left() == NOTHING


def named(job):
    return [line for line in job.errors.splitlines() if re.match(r"PE \d+: ", line)]


KILLED = """
import pyshmem as shmem
shmem.init()
shmem.barrier_all()
if me == 1:
    counted = os.environ.get("COUNTED")
    if counted:  # as the system does before it kills
        with open(counted, "w") as file:
            file.write("nr_free_pages 1\\noom_kill 8\\n")
    os.kill(os.getpid(), signal.SIGKILL)
shmem.barrier_all()
"""
COUNTING = ["unshare", "--mount", "sh", "-c", 'mount --bind "$COUNTED" /proc/vmstat && exec "$@"', "sh"]


def test_a_pe_that_is_killed_is_named_with_its_signal(start, launcher, program):
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, *warm(), program(KILLED))
    assert (job.wait(), named(job)) == (128 + signal.SIGKILL, ["PE 1: killed by signal 9 (SIGKILL)"]), job.errors
    assert job.left() == NOTHING


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount another count of killed processes")
def test_a_pe_that_is_killed_as_the_system_runs_out_of_memory_is_named_with_that(start, program, tmp_path):
    counted = tmp_path / "vmstat"
    counted.write_text("nr_free_pages 1\noom_kill 7\n")
    job = start(*COUNTING, *PYSHMEMRUN, "-n", 2, program(KILLED), env={"COUNTED": str(counted)})
    why = "probably for lack of memory, for which the system has killed processes since this PE started"
    assert (job.wait(), named(job)) == (137, [f"PE 1: killed by signal 9 (SIGKILL), {why}"]), job.errors
    assert job.left() == NOTHING
