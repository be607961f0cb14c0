"""Jobs as a user starts them, watched from outside: what the tests of pyshmemrun share. conftest has its fixtures."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from jobs import settle_warm, warm_server
from pyshmem.launch.run import launchers, libmpi
from surroundings import SECONDS, until

END = 60  # from a failure to the end of the job: the promise is 10, but machines are slow and shared
PR_SET_CHILD_SUBREAPER = 36
PYSHMEMRUN = (f"{os.path.dirname(sys.executable)}/pyshmemrun",)

# What the programs below share. Files in the working directory tell the test how far a PE is.
PRELUDE = """
import ctypes, json, os, signal, sys, time
me = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
def note(name, text=""):
    with open(name + ".new", "w") as file:
        file.write(text)
    os.rename(name + ".new", name)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def spin():
    "In C, with the GIL, deaf to all signals but SIGKILL: what a PE in a tight wait looks like from outside."
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    note(f"spins-{me}")
    while True:
        ctypes.PyDLL(None).pause()
"""
MPI = """
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if " /dev/shm/" in line}
note(f"segments-{me}", json.dumps(sorted(mapped)))
"""


class Job:
    """A job started in ``folder``; its temporary files are in ``folder``/tmp, whose emptiness shows that it left none."""

    def __init__(self, folder, command, **options):
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        environment = (
            os.environ | {"SHMEM_SYMMETRIC_SIZE": "16m", "TMPDIR": str(self.temporary)} | options.pop("env", {})
        )
        with open(folder / "output", "wb") as output, open(folder / "errors", "wb") as errors:
            files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors, **options}
            self.process = subprocess.Popen([*map(str, command)], cwd=folder, env=environment, **files)

    def wait(self):
        return self.process.wait(SECONDS)

    @property
    def output(self):
        return (self.folder / "output").read_text(errors="replace")

    @property
    def errors(self):
        return (self.folder / "errors").read_text(errors="replace")

    def reach(self, *names):
        """Wait until the programs have written these files."""
        assert until(lambda: all((self.folder / name).exists() for name in names) or self.process.poll() is not None)
        missing = [name for name in names if not (self.folder / name).exists()]
        assert not missing, f"no {missing}; status {self.process.poll()}: {self.errors}"

    def processes(self):
        """All of the job, pyshmemrun itself excepted: those that have its directory in their environment, and those
        that are in its folder, since a forked program (jobs.warm) has another environment to the system.
        """
        mark = f"PYSHMEM_JOB_DIR={self.temporary}".encode()
        found = [path for path in pathlib.Path("/proc").glob("[0-9]*") if path.name != str(self.process.pid)]
        return [int(path.name) for path in found if mark in read(path / "environ") or is_in(path / "cwd", self.folder)]

    def segments(self):
        """What the PEs have noted as mapped from /dev/shm and still is there."""
        noted = {path for note in self.folder.glob("segments-*") for path in json.loads(note.read_text())}
        return [path for path in noted if os.path.exists(path)]

    def left(self):
        settle_warm()
        return {"processes": self.processes(), "segments": self.segments(), "files": os.listdir(self.temporary)}


NOTHING = {"processes": [], "segments": [], "files": []}


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""  # ended by now


def is_in(link, folder):
    try:
        return link.samefile(folder)
    except OSError:
        return False  # ended by now


def childless():
    """Whether this process has no child left but the one that starts programs, not even a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    started = {str(warm_server().pid)} if warm_server.cache_info().currsize else set()
    lists = pathlib.Path("/proc/self/task").glob("*/children")
    return {pid for each in lists for pid in read(each).decode().split()} <= started


@pytest.fixture
def start(tmp_path):
    """Starts jobs. Orphans of theirs become children of this process, which must have none when the test is over."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    jobs = []

    def start(*command, **options):
        jobs.append(Job(tmp_path, command, **options))
        return jobs[-1]

    yield start
    running = [job for job in jobs if job.process.poll() is None]
    for job in running:
        for pid in [job.process.pid, *job.processes()]:
            with suppress(ProcessLookupError):  # ended by now
                os.kill(pid, signal.SIGKILL)
        job.process.wait()
    alone = until(childless, END)
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert not running, "pyshmemrun was still running"
    assert alone, "a process of the job has outlived it"


@pytest.fixture(params=["mpich", "openmpi", "intelmpi"])
def launcher(request):
    """The options that choose the launcher."""
    found = next(launchers.candidates(request.param), None)
    if not found:
        pytest.skip(f"no {request.param} launcher on this machine")
    try:
        libmpi.matching(found, os.environ)
    except launchers.LaunchError as error:
        pytest.skip(f"the {request.param} launcher on PATH has no library here: {error}")
    return ["--launcher", request.param]


@pytest.fixture
def idle_launcher(tmp_path):
    """A launcher that ends no job by itself: it passes nothing on, and waits for all of its processes."""
    path = tmp_path / "mpiexec"
    path.write_text(f"""#!{sys.executable}
import os, signal, sys
if sys.argv[1] == "--version":
    sys.exit("HYDRA build details: Version: 1.0")
def on_signals(do):
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, do)
on_signals(signal.SIG_IGN)
for pe in range(int(sys.argv[2])):
    if os.fork() == 0:
        on_signals(signal.SIG_DFL)
        os.environ["PMI_RANK"] = str(pe)
        os.execv(sys.argv[3], sys.argv[3:])
while True:
    try:
        os.wait()
    except ChildProcessError:
        sys.exit(0)
""")
    path.chmod(0o755)
    return ["--mpiexec", str(path)]


@pytest.fixture
def program(tmp_path):
    def write(text, name="prog.py"):
        (tmp_path / name).write_text(PRELUDE + text)
        return name

    return write
