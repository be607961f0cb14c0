"""pyshmemrun, from outside: each test starts a job as a user does, and nothing of it may be left afterwards.

These start jobs of their own, so they are run by one process: `python -m pytest tests/jobs/test_launch.py`.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import termios

from contextlib import suppress

import pytest
from jobs import warm
from pyshmem.launch.run import launchers, leftovers, command as run
from pyshmem.launch import running
from launching import MPI, NOTHING, PYSHMEMRUN, childless
from surroundings import SECONDS, until

# How a job ends

FAILURES = {
    "status": ("os._exit(3)", 3, "exited with status 3"),
    "status after MPI_Finalize": ("MPI.Finalize(); os._exit(4)", 4, "exited with status 4"),
    "SIGKILL": ("os.kill(os.getpid(), 9)", 137, "killed by signal 9 (SIGKILL)"),
    "SIGSEGV": ("ctypes.string_at(0)", 139, "killed by signal 11 (SIGSEGV)"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_first_failure_ends_the_job_with_its_status_and_a_line_that_names_the_pe(start, launcher, program, failure):
    """The other PEs spin in C and ignore SIGTERM. PE 1 waits for them, so that nothing but the failure can end the job."""
    action, status, words = FAILURES[failure]
    others = "MPI.Finalize(); spin()" if "Finalize" in failure else "spin()"
    alone = f"{action}" if "Finalize" in failure else f"wait_for('spins-0'); wait_for('spins-2'); {action}"
    prog = program(MPI + f"if me == 1:\n    {alone}\nelse:\n    {others}\n")
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, prog)
    assert job.wait() == status, job.errors
    assert re.findall(r"^PE \d+: .*(?:status|signal).*$", job.errors, re.MULTILINE) == [f"PE 1: {words}"]
    assert job.left() == NOTHING


def test_job_ends_where_the_launcher_lets_it_run_on(start, idle_launcher, program):
    """PE 2 ends when it is asked to, which is no failure to report; PE 0 must be killed."""
    prog = program("""
if me == 1:
    wait_for("spins-0")
    sys.exit(5)
if me == 2:
    wait_for("never")
spin()
""")
    job = start(*PYSHMEMRUN, "-n", 3, *idle_launcher, "python", prog)
    assert (job.wait(), job.errors) == (5, "PE 1: exited with status 5\n")
    assert job.left() == NOTHING


def test_job_ends_where_a_pe_has_reported_its_failure_and_cannot_end(start, idle_launcher, program):
    """As in an MPI_Abort that waits for a host that is lost."""
    prog = program("""
if me == 1:
    wait_for("spins-0")
    note(os.environ["PYSHMEM_JOB_DIR"] + "/reported-1", "1\\nPE 1: ValueError: why")
spin()
""")
    job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", prog)
    assert job.wait() == 1
    assert "PE 1: ValueError: why" in job.errors.splitlines()
    assert job.left() == NOTHING


def test_exit_status_is_that_of_the_pe_that_failed_first(start, idle_launcher, program):
    """PE 0 fails as well, unless pyshmemrun ends it before it does."""
    prog = program("""
if me == 0:
    wait_for(os.environ["PYSHMEM_JOB_DIR"] + "/failure")
    sys.exit(7)
sys.exit(6)
""")
    job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", prog)
    assert job.wait() == 6
    first, *later = job.errors.splitlines()
    assert first == "PE 1: exited with status 6" and later in ([], ["PE 0: exited with status 7"])


def test_a_failure_that_the_program_reported_is_not_reported_twice(start, idle_launcher, program):
    prog = program("note(os.environ['PYSHMEM_JOB_DIR'] + f'/reported-{me}', '1\\n'); sys.exit(1)")
    job = start(*PYSHMEMRUN, "-n", 1, *idle_launcher, "python", prog)
    assert (job.wait(), job.errors) == (1, "")


def test_status_is_0_and_nothing_is_said_where_all_pes_end_well(start, launcher, program):
    prog = program(MPI + "print(f'PE {me} of {MPI.COMM_WORLD.size}')")
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, prog)
    assert (job.wait(), job.errors) == (0, "")
    assert sorted(re.findall(r"PE \d of 3", job.output)) == [f"PE {pe} of 3" for pe in range(3)]
    assert job.left() == NOTHING


def test_timeout_ends_the_job_and_names_the_pes_that_still_ran(start, launcher, program):
    """The first time after which PE 1 has ended and the others have started: a machine may be slow."""
    prog = program("if me != 1:\n    spin()\n")
    for seconds in (3, 10, 30):
        job = start(*PYSHMEMRUN, "-n", 3, *launcher, "--timeout", seconds, prog)
        assert job.wait() == 124
        assert job.left() == NOTHING
        if "pyshmemrun: --timeout: the time limit has passed with PEs 0, 2 still running; ending the job" in job.errors:
            break
    assert job.errors.splitlines()[-1] == "pyshmemrun: --timeout: ended the job, with PEs 0, 2 still running"


def test_nothing_is_left_when_all_of_the_job_is_killed(start, launcher, program):
    """The launcher too, which so cannot clean up. TMPDIR is the test's, hence Hydra's file in /tmp is not seen here."""
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, program(MPI + "spin()"))
    job.reach("spins-0", "spins-1", "spins-2")
    if launcher[1] != "intelmpi":  # whose files have no names any more
        assert job.segments(), "this MPI keeps nothing in /dev/shm: the test tests nothing"
    # a process that would tell of the end of another is killed before that one
    for pid in sorted(job.processes(), key=lambda pid: len([*running._above(pid)])):
        with suppress(ProcessLookupError):  # it has ended with its parent
            os.kill(pid, signal.SIGKILL)
    assert job.wait() == 137
    assert job.errors.endswith(f"pyshmemrun: the launcher, {launcher[1]}, was killed by signal 9 (SIGKILL)\n")
    assert job.left() == NOTHING


def test_pes_end_with_a_killed_pyshmemrun_and_the_next_one_removes_what_it_left(start, launcher, program):
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, program(MPI + "spin()"))
    job.reach("spins-0", "spins-1")
    job.process.kill()
    assert job.wait() == -signal.SIGKILL
    assert until(lambda: childless() and not job.processes())
    assert len(os.listdir(job.temporary)) >= 1  # the job's directory
    again = start(*PYSHMEMRUN, "-n", 1, *launcher, "true")
    assert again.wait() == 0, again.errors
    assert job.left() == NOTHING


def test_pes_end_with_a_launcher_that_does_not_end_them(start, idle_launcher, program):
    """Killed with pyshmemrun, whose death kills it, it cannot tell them: they find out for themselves."""
    job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", program("spin()"))
    job.reach("spins-0", "spins-1")
    job.process.kill()
    job.wait()
    assert until(lambda: childless() and not job.processes())


def test_pes_on_other_nodes_are_reported_and_pe_0_gets_its_input(start, idle_launcher, program, tmp_path):
    """There the job's directory is absent, so the launcher's input is used, and its errors tell pyshmemrun what failed."""
    script = pathlib.Path(idle_launcher[1])
    line = "os.environ['PYSHMEM_JOB_DIR'] = '/absent/' + os.path.basename(os.environ.get('PYSHMEM_JOB_DIR', ''))"
    script.write_text(script.read_text().replace("import os, signal, sys", f"import os, signal, sys\n{line}"))
    (tmp_path / "input").write_text("from afar\n")
    prog = program("note(f'read-{me}', sys.stdin.read()); wait_for('read-0'); sys.exit(7 * me)")
    with open(tmp_path / "input") as file:
        job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", prog, stdin=file)
    assert (job.wait(), job.errors) == (7, f"PE 1 on {os.uname().nodename}: exited with status 7\n")
    assert [(job.folder / f"read-{pe}").read_text() for pe in (0, 1)] == ["from afar\n", ""]
    assert job.left() == NOTHING


def test_processes_that_a_pe_leaves_behind_end_with_the_job(start, idle_launcher, program):
    prog = program("""
if os.fork() == 0:
    os.setsid()
    spin()
wait_for(f"spins-{me}")
""")
    job = start(*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", prog)
    assert job.wait() == 0
    assert job.left() == NOTHING


# What is removed from /dev/shm


def test_files_that_a_pe_noted_are_removed_and_no_others(start, idle_launcher, program, tmp_path):
    shared = pathlib.Path("/dev/shm")
    ours = [shared / f"pyshmem-test-{os.getpid()}-{name}" for name in ("noted", "older", "kept", "link", "folder")]
    noted, older, kept, link, folder = ours
    outside = tmp_path / "outside"
    try:
        older.touch()
        folder.mkdir()
        prog = program(f"""
for path in ({str(noted)!r}, {str(kept)!r}, {str(folder / "inner")!r}, {str(outside)!r}):
    open(path, "w").close()
os.symlink({str(outside)!r}, {str(link)!r})
names = [{str(noted)!r}, {str(folder / "inner")!r}, {str(noted)!r} + "-absent", {str(older)!r}, {str(link)!r}]
names += [{str(link / "x")!r}, {str(outside)!r}, {"/dev/shm/../.." + str(outside)!r}, {"/other/shm/" + kept.name!r}]
names += [{kept.name!r}, "/dev/shm", "/", ""]
with open(os.environ["PYSHMEM_JOB_DIR"] + "/shm-0", "a") as file:
    file.writelines(name + "\\n" for name in names)
""")
        job = start(*PYSHMEMRUN, "-n", 1, *idle_launcher, "python", prog)
        assert (job.wait(), job.errors) == (0, "")
        assert not noted.exists() and not (folder / "inner").exists()
        assert older.exists() and kept.exists() and outside.exists() and link.is_symlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path in (noted, older, kept, link):
            path.unlink(missing_ok=True)


def test_what_another_process_has_opened_and_not_yet_mapped_is_left_alone(tmp_path):
    """It may be of a job that starts meanwhile."""
    path = tmp_path / "segment"
    with open(path, "wb"):
        leftovers._remove_unused({str(path)})
        assert path.exists()
    leftovers._remove_unused({str(path)})
    assert not path.exists()


def test_job_directory_is_private(start, idle_launcher, program):
    prog = program("print(os.environ['PYSHMEM_JOB_DIR'], oct(os.stat(os.environ['PYSHMEM_JOB_DIR']).st_mode))")
    job = start(*PYSHMEMRUN, "-n", 1, *idle_launcher, "python", prog)
    assert job.wait() == 0
    path, mode = job.output.split()
    assert path.startswith(str(job.temporary)) and stat.S_IMODE(int(mode, 8)) == 0o700


# Signals, input, arguments

LISTEN = (
    MPI
    + """
def hear(number, frame):
    heard.append(number)
    note(f"heard-{me}-{signal.Signals(number).name}")  # the next one may come from here on
heard = []
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, hear)
note(f"listens-{me}")
while len(heard) < 3 or not os.path.exists("enough"):
    time.sleep(0.01)
note(f"heard-{me}", " ".join(signal.Signals(number).name for number in heard))
"""
)


@pytest.mark.parametrize("ending", ["SIGHUP", "SIGINT", "SIGTERM"])
def test_signals_reach_the_pes_once_each_as_what_they_are(start, launcher, program, ending):
    names = ["SIGUSR1", "SIGUSR2", ending]
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, program(LISTEN))
    job.reach("listens-0", "listens-1")
    for name in names:
        job.process.send_signal(getattr(signal, name))
        job.reach(f"heard-0-{name}", f"heard-1-{name}")
    (job.folder / "enough").touch()
    assert job.wait() == 0, job.errors  # they end well, as they chose to
    assert [(job.folder / f"heard-{pe}").read_text().split() for pe in (0, 1)] == [names, names]


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1"])
def test_status_is_128_and_the_signal_where_it_ends_the_pes(start, launcher, program, name):
    """SIGINT makes them end with status 1, SIGUSR1 kills them."""
    action = "lambda *_: sys.exit(1)" if name == "SIGINT" else "signal.SIG_DFL"
    prog = program(MPI + f"signal.signal(signal.{name}, {action})\nnote(f'ready-{{me}}')\nwait_for('never')\n")
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, prog)
    job.reach("ready-0", "ready-1")
    job.process.send_signal(getattr(signal, name))
    assert job.wait() == 128 + getattr(signal, name)
    assert job.left() == NOTHING


def test_second_interrupt_kills_pes_that_live_on_after_the_first(start, launcher, program):
    prog = program(
        MPI
        + """
if me == 0:
    spin()
signal.signal(signal.SIGINT, lambda *_: note("heard"))
note("listens")
wait_for("never")
"""
    )
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, prog)
    job.reach("spins-0", "listens")
    job.process.send_signal(signal.SIGINT)
    job.reach("heard")  # or the two would be one
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    assert job.left() == NOTHING


def test_input_goes_to_pe_0_and_the_others_find_its_end(start, launcher, program):
    reading, writing = os.pipe()
    text = "".join(f"line {i} of the input\n" for i in range(20000))
    job = start(*PYSHMEMRUN, "-n", 3, *launcher, program("note(f'read-{me}', sys.stdin.read())"), stdin=reading)
    os.close(reading)
    with open(writing, "w") as pipe:
        pipe.write(text)
    assert job.wait() == 0, job.errors
    assert [(job.folder / f"read-{pe}").read_text() for pe in range(3)] == [text, "", ""]


@pytest.fixture
def terminal():
    """(master, terminal, preexec_fn that makes it the controlling terminal); must be left as it was."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)

    def control():
        os.setsid()
        os.close(os.open(os.ttyname(slave), os.O_RDWR))

    yield master, slave, control
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_a_terminal_gives_pe_0_its_lines_and_the_job_its_interrupt(start, launcher, program, terminal):
    prog = program("""
if me == 0:
    note("line", sys.stdin.readline())
try:
    note(f"ready-{me}")
    wait_for("never")
except KeyboardInterrupt:
    sys.exit(130)
""")
    master, slave, control = terminal
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, prog, stdin=slave, preexec_fn=control)
    os.write(master, b"as typed\n")
    job.reach("ready-0", "ready-1")
    os.write(master, b"\x03")
    assert job.wait() == 130, job.errors
    assert (job.folder / "line").read_text() == "as typed\n"


# wait returns also when the job has been stopped, as by whatever examines it
BACKGROUND = f'"$@" & while wait $!; status=$?; [ $status = {128 + signal.SIGSTOP} ]; do :; done; exit $status'


def test_a_job_in_the_background_runs_on_and_leaves_the_terminals_lines_to_others(
    start, idle_launcher, program, terminal
):
    master, slave, control = terminal
    command = [*PYSHMEMRUN, "-n", 2, *idle_launcher, "python", program("note(f'ready-{me}'); wait_for('enough')")]
    job = start("sh", "-mc", BACKGROUND, "sh", *command, stdin=slave, preexec_fn=control)
    os.write(master, b"for the shell\n")
    job.reach("ready-0", "ready-1")
    (job.folder / "enough").touch()
    assert job.wait() == 0, job.errors
    assert os.read(slave, 100) == b"for the shell\n"


ARGUMENTS = [
    "two words", "", "it's", '"quoted"', "new\nline", "$HOME;*", "\\", "é", "--", "-n", "9", "--help", "a=b", "%s",
]  # fmt: skip


def test_arguments_arrive_as_they_were_given(start, launcher, program):
    prog = program("note(f'arguments-{me}', json.dumps(sys.argv[1:]))")
    job = start(*PYSHMEMRUN, "-n", 2, *launcher, prog, *ARGUMENTS)
    assert job.wait() == 0, job.errors
    assert [json.loads((job.folder / f"arguments-{pe}").read_text()) for pe in (0, 1)] == [ARGUMENTS] * 2


def test_a_module_and_an_executable_are_run_as_well(start, idle_launcher, program, tmp_path):
    program("print(sys.argv[1:])", "module.py")
    (tmp_path / "script").write_text('#!/bin/sh\necho script "$@"\n')
    (tmp_path / "script").chmod(0o755)
    for words, output in (
        (["-m", "module", "-m"], "['-m']\n"),
        (["./script", "-n", "x"], "script -n x\n"),
        (["--", "./script", "--", "y"], "script -- y\n"),
        (["python", "-c", "print(1)"], "1\n"),
    ):
        job = start(*PYSHMEMRUN, "-n", 1, *idle_launcher, *words)
        assert (job.wait(), job.errors, job.output) == (0, "", output)


def test_pes_get_the_environment_of_the_user(start, idle_launcher, program):
    """Not the choice of interpreter that importing pyshmem made on this machine, which may have no GPU."""
    prog = program("note('environment', json.dumps(dict(os.environ)))")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    unset = ("env", "-u", "TRITON_INTERPRET")
    command = [*unset, *PYSHMEMRUN, "-n", 1, *idle_launcher, "--heap-size", "3M", "python", prog]
    job = start(*command, env={"ONE": "two words"})
    assert job.wait() == 0, job.errors
    seen = json.loads((job.folder / "environment").read_text())
    own = {"PMI_RANK", "PYSHMEM_JOB_DIR", "TMPDIR", "ONE", "PWD", "OLDPWD", "_", "TRITON_INTERPRET"}
    assert seen["ONE"] == "two words" and seen["SHMEM_SYMMETRIC_SIZE"] == "3M" and "TRITON_INTERPRET" not in seen
    assert {name: seen.get(name) for name in environment if name not in own} == {
        name: value for name, value in environment.items() if name not in own
    }


def test_programs_start_with_no_signal_blocked_or_ignored(start, idle_launcher):
    """Python ignores SIGPIPE, and the process before the program blocks what it passes on: neither is inherited.

    The C library's own signals 32 and 33 are no program's to set: whoever started the tests may have left them so.
    """
    job = start(*PYSHMEMRUN, "-n", 1, *idle_launcher, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    assert (job.wait(), job.errors) == (0, "")
    of_libc = 1 << 31 | 1 << 32
    assert [int(mask, 16) & ~of_libc for mask in re.findall(r"\t(\w+)", job.output)] == [0, 0]


def test_the_process_before_each_program_imports_neither_site_nor_pyshmem(tmp_path):
    command = [sys.executable, "-I", "-S", "-X", "importtime", run.pe.__file__, "PMI_RANK", "true"]
    environment = {**os.environ, "PMI_RANK": "0", "PYSHMEM_JOB_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0 and "ctypes" in imported
    assert not imported & {"site", "pyshmem", "torch", "mpi4py", "subprocess"}


# The same for programs that use pyshmem, under pyshmemrun and under plain mpiexec

FAULTS = {
    "an exception": ("raise ValueError('no such luck')", 1, "PE 1: ValueError: no such luck"),
    "sys.exit": ("sys.exit(3)", 3, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("by", ["pyshmemrun", "mpiexec"])
def test_a_fault_on_one_pe_ends_a_job_that_waits_in_a_barrier(start, launcher, program, by, fault):
    action, status, words = FAULTS[fault]
    prog = program(f"""
import pyshmem as shmem
shmem.init(heap_size="16m")
note(f"waits-{{me}}")
if shmem.my_pe() == 1:
    for pe in (0, 2, 3):
        wait_for(f"waits-{{pe}}")
    {action}
shmem.barrier_all()
""")
    plain = next(launchers.candidates(launcher[1])).line(4, {})
    job = start(*([*PYSHMEMRUN, "-n", 4, *launcher] if by == "pyshmemrun" else plain), *warm(), prog)
    assert job.wait() == status, job.errors
    lines = re.findall(r"^PE \d+: .*$", job.errors, re.MULTILINE)
    if words:
        assert lines == [words]
    elif by == "pyshmemrun":
        assert lines == [f"PE 1: exited with status {status}"]
    if by == "pyshmemrun":
        assert job.left() == NOTHING
