"""Three hosts, which hosts.sh makes of namespaces of this machine; jobs on them; and what these leave behind."""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

import pytest
from surroundings import until

HERE = pathlib.Path(__file__).parent
HOSTS, PES = str(HERE / "hosts.sh"), HERE.parent / "pes"
BIN = pathlib.Path(sys.executable).parent
SECONDS = 240  # for a job to start, or to end; generous, since machines are slow and shared
NAMES = ("pyhost0", "pyhost1", "pyhost2")
TWO = "10.77.0.1:2,10.77.0.2:2"
ONE = "10.77.0.1:1,10.77.0.2:1"
UNEVEN = "10.77.0.1:3,10.77.0.2:1"
THREE = "10.77.0.1:2,10.77.0.2:1,10.77.0.3:1"


class Stack(NamedTuple):
    """An MPI: where it is installed, and what makes it use the network of the hosts."""

    folder: pathlib.Path
    library: str
    launcher: str
    options: str  # of its launcher
    variables: dict[str, str]

    def chosen(self):
        """The variables by which a user chooses this MPI without pyshmemrun; the environment's own needs no choice."""
        if self.folder == BIN.parent:
            return self.variables
        path, library = f"{BIN}:{self.folder}/bin:{os.environ['PATH']}", self.folder / "lib" / self.library
        return {**self.variables, "PATH": path, "MPI4PY_LIBMPI": str(library)}


_HYDRA = f"-launcher rsh -launcher-exec {HERE}/rsh.sh -iface eth0"
_PRTE = f"--prtemca plm_ssh_agent {HERE}/rsh.sh --prtemca prte_if_include eth0"
_OWN, _OPEN, _INTEL = BIN.parent, BIN.parent / "mpi-openmpi", BIN.parent / "mpi-impi-rt"
_OB1 = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_btl_tcp_if_include": "eth0"}
# UCX without UCX_TLS shares memory between the namespaces.
STACKS = {
    "ofi": Stack(_OWN, "", "auto", _HYDRA, {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}),
    "ucx": Stack(_OWN, "", "auto", _HYDRA, {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self"}),
    "openmpi": Stack(_OPEN, "libmpi.so.40", "openmpi", _PRTE, _OB1),
    "intelmpi": Stack(_INTEL, "libmpi.so.12", "intelmpi", _HYDRA, {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}),
}
MPIS = ("ofi", "openmpi", "intelmpi")  # one stack of each MPI
LACKS = subprocess.run([HOSTS, "check"], capture_output=True, text=True).stderr
needs_hosts = pytest.mark.skipif(bool(LACKS), reason=LACKS)
os.environ["PYHOSTS"] = str(os.getpid())  # other sets of hosts may exist


@pytest.fixture(scope="module")
def hosts():
    """Three hosts, which are removed with all of their processes; they go too when this process is killed."""
    command = [HOSTS, "up", str(len(NAMES))]
    # in a session of its own: it removes the hosts also when the whole group of this process is killed
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    keeper = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    assert keeper.stdout.readline() == "up\n"
    yield
    keeper.stdin.close()
    keeper.wait(SECONDS)


def ask(*words):
    return subprocess.run([HOSTS, *map(str, words)], check=True, capture_output=True, text=True).stdout


def received(host):
    return int(ask("bytes", host))


class Job:
    """A command on host 0, in ``folder``, whose output is gathered. It has a folder of its own for temporary files."""

    def __init__(self, folder, *command, **environment):
        self.temporary = pathlib.Path(tempfile.mkdtemp(prefix="pyhosts-"))
        self.before, self.files = running(), shared()
        self.lines = {"out": [], "err": []}
        variables = {"PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "TMPDIR": str(self.temporary), **environment}
        self.process = subprocess.Popen(
            [HOSTS, "enter", "0", *map(str, command)],
            cwd=folder,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        streams = zip((self.process.stdout, self.process.stderr), self.lines.values(), strict=True)
        self._threads = [threading.Thread(target=lines.extend, args=(file,), daemon=True) for file, lines in streams]
        for thread in self._threads:
            thread.start()

    @property
    def out(self):
        return "".join(self.lines["out"])

    @property
    def err(self):
        return "".join(self.lines["err"])

    def reach(self, text, times=1):
        """Wait until the job has printed ``text`` so often."""
        assert until(lambda: self.out.count(text) >= times or self.process.poll() is not None, SECONDS)
        assert self.out.count(text) >= times, self.out[-2000:] + self.err[-3000:]

    def end(self, seconds=SECONDS):
        """Wait until it has ended by itself, and return the status."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end in {seconds} s: {self.out[-2000:]}{self.err[-3000:]}")
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            for thread in self._threads:
                thread.join(30)  # a process that the job has left may hold its output open
        return self.process.returncode

    def lose(self, host):
        """Kill all processes of the job on a host, at once, as they go with it."""
        for pid in ask("processes", host).split():
            if pid not in self.before:
                os.kill(int(pid), signal.SIGKILL)

    def left(self):
        """What of the job still exists: command lines, and files in /dev/shm and in the temporary folder."""
        commands = [line for pid, line in running().items() if pid not in self.before]
        return {"processes": commands, "shared": sorted(shared() - self.files), "temporary": os.listdir(self.temporary)}


NOTHING = {"processes": [], "shared": [], "temporary": []}


def running():
    """The command lines of the hosts' processes, by process id."""
    pids = itertools.chain.from_iterable(ask("processes", host).split() for host in range(len(NAMES)))
    return {pid: line for pid in pids if (line := command_line(pid))}


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""  # ended by now


def shared():
    """(host, inode and name) of each file in /dev/shm: names may come again."""
    hosts = enumerate(NAMES)
    return {(name, line) for host, name in hosts for line in ask("enter", host, "ls", "-i", "/dev/shm").splitlines()}


def installed(name):
    """The stack of this name; the test is skipped if its MPI is not installed."""
    stack = STACKS[name]
    if not (stack.folder / "bin" / "mpiexec").exists():
        pytest.skip(f"no {stack.folder}: make test-hosts and test-slurm install it")
    return stack


@pytest.fixture
def start(tmp_path):
    """start(placed, program or words, stack=, **environment): pyshmemrun on host 0 with PEs on the hosts of ``placed``."""
    jobs = []

    def start(placed, *program, stack="ofi", options=(), folder=tmp_path, **environment):
        words = [write(tmp_path, program[0])] if "\n" in str(program[0]) else program
        pes = sum(int(each.partition(":")[2]) for each in placed.split(","))
        mpi = installed(stack)
        launcher = f"{mpi.folder}/bin/mpiexec {mpi.options}"
        command = ["pyshmemrun", "-n", pes, "--hosts", placed, "--mpiexec", launcher, *options, *words]
        jobs.append(Job(folder, *command, **mpi.variables, **environment))
        return jobs[-1]

    yield start
    end_all(jobs)


FAILING = """
import os, signal, sys
import pyshmem as shmem

shmem.init()
shmem.barrier_all()
if shmem.my_pe() == shmem.n_pes() - 1:
    {failure}
shmem.barrier_all()
"""
# how a PE of the other node fails: (the job's status by pyshmemrun, its last line but for PEs that miss that one)
FAILURES = {
    'raise ValueError("why")': (1, "PE 3 on pyhost1: ValueError: why"),
    "sys.exit(7)": (7, "PE 3 on pyhost1: exited with status 7"),
    "os.kill(os.getpid(), signal.SIGKILL)": (137, "PE 3 on pyhost1: killed by signal 9 (SIGKILL)"),
}
# PEs that no SIGTERM ends
DEAF = """
import signal
import pyshmem as shmem

signal.signal(signal.SIGTERM, signal.SIG_IGN)
shmem.init()
shmem.barrier_all()
print("begun", flush=True)
"""
# and that are in no call
ASLEEP = (
    DEAF
    + """
while True:
    signal.sigtimedwait([], 1)
"""
)


def write(folder, text):
    path = folder / "program.py"
    path.write_text(text)
    return path


def end_all(jobs):
    """End what a failed test has left."""
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
        for pid in running().keys() - job.before.keys():
            os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(job.temporary)
