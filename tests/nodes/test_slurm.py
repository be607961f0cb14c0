"""A Slurm of two nodes, which slurm.sh starts on the hosts of hosts.sh: jobs as a user starts and ends them.

Run by `make test-slurm`, as root.
"""

import pathlib
import re
import subprocess

import pytest
from pyshmem.launch.run import launchers
from hosts import (
    ASLEEP,
    DEAF,
    BIN,
    FAILING,
    FAILURES,
    HERE,
    MPIS,
    NAMES,
    NOTHING,
    SECONDS,
    Job,
    ask,
    end_all,
    hosts,  # noqa: F401
    installed,
    received,
    write,
)
from surroundings import until

TEMPLATE = pathlib.Path(launchers.__file__).parent / "templates" / "slurm-core.sh"
WAYS = ("pyshmemrun", "pyshmemrun-by-srun", "srun")
ALLOCATED = ["salloc", "--quiet", "-N", "2", "-n", "4"]
SRUN_MPI = {"ofi": "pmi2", "openmpi": "pmix", "intelmpi": "pmix"}
# Intel MPI has no PMIx of its own.
BY_SRUN = {"intelmpi": {"I_MPI_PMI": "pmix", "I_MPI_PMI_LIBRARY": "libpmix.so.2"}}

MISSING = subprocess.run([HERE / "slurm.sh", "check"], capture_output=True, text=True).stderr
PMIX_MISSING = subprocess.run([HERE / "slurm.sh", "check-pmix"], capture_output=True, text=True).stderr

pytestmark = [
    pytest.mark.timeout(3 * SECONDS),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.usefixtures("slurm"),
]


@pytest.fixture(scope="module")
def slurm(hosts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        subprocess.run([HERE / "slurm.sh", "up", "2", folder], check=True)
        yield


@pytest.fixture
def jobs():
    """The jobs of a test, which end with it."""
    started = []
    yield started
    ask("enter", 0, "scancel", "--user=root")
    end_all(started)


@pytest.fixture(params=MPIS)
def mpi(request):
    """The name of each MPI, which the tests that take it run with."""
    if SRUN_MPI[request.param] == "pmix" and PMIX_MISSING:
        pytest.skip(PMIX_MISSING)
    installed(request.param)
    return request.param


@pytest.fixture
def begin(tmp_path, jobs):
    """begin(words, program, mpi=, **variables): a command of Slurm on host 0. Without ``mpi`` nothing chooses an MPI."""

    def begin(words, program, mpi="ofi", **variables):
        chosen = installed(mpi).chosen() if mpi else {}
        jobs.append(Job(tmp_path, *words, write(tmp_path, program), **chosen, **variables))
        return jobs[-1]

    return begin


@pytest.fixture
def begin_by(begin):
    """begin_by(way, mpi, program): a job of four PEs on two nodes."""

    def begin_by(way, mpi, program):
        launcher = installed(mpi).launcher if way == "pyshmemrun" else "srun"
        words = [*ALLOCATED, "pyshmemrun", "--launcher", launcher]
        if way == "srun":
            words = ["srun", "-N", "2", "-n", "4", f"--mpi={SRUN_MPI[mpi]}", "--kill-on-bad-exit=1", "python"]
        if launcher == "srun" and mpi == "ofi":
            return begin(words, program, "")  # init selects ofi, since UCX's addresses are too long for Slurm's PMI-2
        return begin(words, program, mpi, **(BY_SRUN.get(mpi, {}) if launcher == "srun" else {}))

    return begin_by


@pytest.fixture
def submit(tmp_path, begin):
    """submit(program, *options, mpi=, **changed): sbatch of the template, as a site changes it; ends with the batch job."""

    def submit(program, *options, mpi="ofi", **changed):
        values = {"nodes": 2, "ntasks-per-node": 2, "cpus-per-task": 1, "time": 10, "partition": "batch", **changed}
        text = TEMPLATE.read_text()
        for name, value in values.items():
            text, count = re.subn(rf"(?m)^#SBATCH --{name}=.*", f"#SBATCH --{name}={value}", text)
            assert count == 1, name
        text = re.sub(r"(?m)^(#SBATCH --account|module load).*\n", "", text)
        variables = {**installed(mpi).chosen(), "PYSHMEM_QUIET": "1"}
        site = "\n".join(f"export {name}='{value}'" for name, value in variables.items())
        text = re.sub(r"(?m)^source .*", f"source {BIN}/activate\n{site}", text).replace("SIZE=1g", "SIZE=64m")
        text = re.sub(r"(?m)^exec pyshmemrun ", f"exec pyshmemrun --launcher {installed(mpi).launcher} ", text)
        (tmp_path / "job.sh").write_text(text)
        return begin(["sbatch", "--wait", "--output=said", *options, "job.sh"], program, mpi)

    return submit


PROGRAM = """
import os
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
x, y = shmem.zeros(1_000_000), torch.arange(1_000_000) + float(me)
shmem.put(x, y, (me + 1) % n)
shmem.barrier_all()
assert torch.equal(x, torch.arange(1_000_000) + float((me - 1) % n))
print(f"PE {me} of {n} on {os.uname().nodename}")
shmem.finalize()
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_program_runs_on_both_nodes(way, mpi, begin_by):
    before = [received(host) for host in (0, 1)]
    job = begin_by(way, mpi, PROGRAM)
    assert job.end() == 0, job.err
    said = dict(re.findall(r"PE (\d) of 4 on (\w+)\n", job.out))
    assert said.keys() == set("0123") and set(said.values()) == set(NAMES[:2]), job.out
    for host in (0, 1):
        assert received(host) - before[host] > 4_000_000, "a PE of each node puts 4 MB to the other"
    assert until(lambda: job.left() == NOTHING, 30), job.left()


BY_FABRIC = """
import os

os.environ |= {{"PYSHMEM_FAR": "fabric", "PYSHMEM_FABRIC": "tcp;ofi_rxm", "PYSHMEM_AMO": "{requests}", "SHMEM_INFO": "1"}}
"""


@pytest.mark.parametrize("requests", ["tcp", "fabric"])
@pytest.mark.parametrize("way", WAYS)
def test_a_fabric_carries_data_between_both_nodes(way, requests, begin_by):
    before = [received(host) for host in (0, 1)]
    job = begin_by(way, "ofi", BY_FABRIC.format(requests=requests) + PROGRAM)
    assert job.end() == 0, job.err
    assert re.search(r"^Data to other nodes: fabric: tcp;ofi_rxm, libfabric", job.out, re.MULTILINE), job.out
    assert len(re.findall(r"PE \d of 4 on \w+\n", job.out)) == 4, job.out
    for host in (0, 1):
        assert received(host) - before[host] > 4_000_000, "a PE of each node puts 4 MB to the other"
    assert until(lambda: job.left() == NOTHING, 30), job.left()


def test_the_job_script_runs_on_both_nodes(submit, tmp_path):
    job = submit(PROGRAM)
    assert job.end() == 0, (tmp_path / "said").read_text()
    said = re.findall(r"PE (\d) of 4 on (\w+)\n", (tmp_path / "said").read_text())
    assert sorted(said) == [("0", NAMES[0]), ("1", NAMES[0]), ("2", NAMES[1]), ("3", NAMES[1])]
    assert until(lambda: job.left() == NOTHING, 30), job.left()


CHECKOUT = HERE.parents[1]
DOCUMENTED = re.findall(
    r"^\$ (salloc .*)$|`(srun .*\.py)`", (CHECKOUT / "docs" / "clusters.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("line", ["".join(each) for each in DOCUMENTED], ids=lambda line: line.split()[0])
def test_the_commands_of_the_documentation_run_on_both_nodes(line, jobs, tmp_path):
    (tmp_path / "examples").symlink_to(CHECKOUT / "examples")  # the example draws into the folder
    jobs.append(Job(tmp_path, *line.split(), **installed("ofi").chosen()))
    assert jobs[-1].end() == 0, jobs[-1].err
    assert "4 PEs" in jobs[-1].out
    if "--report" in line:
        rows = re.findall(r"^(\d) +(\w+) ", jobs[-1].out, re.MULTILINE)
        assert "".join(pe for pe, _ in rows) == "0123" and {host for _, host in rows} == set(NAMES[:2]), rows
    assert until(lambda: jobs[-1].left() == NOTHING, 30), jobs[-1].left()


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("way", WAYS)
def test_a_failing_pe_ends_the_job_with_its_status_and_leaves_nothing(way, failure, mpi, begin_by):
    status, line = FAILURES[failure]
    job = begin_by(way, mpi, FAILING.format(failure=failure))
    if way == "srun":  # its status is the highest of all processes, those that it has killed with it
        assert job.end() != 0 and ("SIGKILL" in line or line in job.err), job.err
    else:
        assert (job.end(), line in job.err) == (status, True), job.err
        last = [line for line in job.err.splitlines() if "whose connection has ended" not in line][-1]
        assert last == line, job.err
    assert until(lambda: job.left() == NOTHING, 30), job.left()


def test_mpich_takes_libfabric_under_srun(begin):
    program = "import os\nimport pyshmem as shmem\nshmem.init()\nprint(os.environ['MPIR_CVAR_CH4_NETMOD'])\n"
    job = begin(["srun", "-N", "2", "-n", "2", "--mpi=pmi2", "python"], program, "")
    assert job.end() == 0, job.err
    assert job.out == "ofi\n" * 2


HEARING = """
import os, signal, time
import pyshmem as shmem

heard = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: heard.append(number))
shmem.init()
shmem.barrier_all()
print("begun", flush=True)
"""
COUNTING = (
    HEARING
    + """
while signal.SIGTERM not in heard:
    time.sleep(0.01)
print("heard", flush=True)
while signal.SIGUSR1 not in heard:
    time.sleep(0.01)
shmem.barrier_all()
print("SIGTERM:", heard.count(signal.SIGTERM), flush=True)
"""
)


def test_a_signal_of_slurm_reaches_each_pe_once(begin):
    """Slurm signals every process of a step: the PE, and that which would forward the signal to it."""
    job = begin([*ALLOCATED, "pyshmemrun", "--launcher", "srun"], COUNTING)
    for name, text in (("TERM", "begun"), ("USR1", "heard")):
        job.reach(text, 4)
        number = ask("enter", 0, "squeue", "--noheader", "--format=%A").split()[0]
        ask("enter", 0, "scancel", f"--signal={name}", number)
    assert job.end() == 0, job.err
    assert job.out.count("SIGTERM: 1\n") == 4, job.out


def test_a_lost_node_is_named(begin):
    job = begin([*ALLOCATED, "pyshmemrun", "--launcher", installed("ofi").launcher], ASLEEP)
    job.reach("begun", 4)
    job.lose(1)
    assert job.end() != 0
    assert re.search(r"PEs? [23 and]+ on pyhost1", job.err.splitlines()[-1]), job.err
    assert until(lambda: job.left() == NOTHING, 30), job.left()


ENDLESS = (
    DEAF
    + """
while True:
    shmem.barrier_all()
"""
)


def begun(said):
    """Wait until all PEs have begun, and return the job's number."""
    assert until(lambda: said.exists() and said.read_text().count("begun") == 4, SECONDS)
    return ask("enter", 0, "squeue", "--noheader", "--format=%A").split()[0]


def fails(job, number, state):
    """The status of sbatch --wait is 0 if that of the job has not yet reached Slurm's controller: ask for it."""
    job.end()
    show = ("enter", 0, "scontrol", "show", "job", number)
    assert until(lambda: f"JobState={state}" in ask(*show), 60), ask(*show)
    assert "ExitCode=0:0" not in ask(*show)


def test_scancel_ends_the_job_and_leaves_nothing(mpi, submit, tmp_path):
    job = submit(ENDLESS, mpi=mpi)
    number = begun(tmp_path / "said")
    ask("enter", 0, "scancel", number)
    fails(job, number, "CANCELLED")
    assert until(lambda: job.left() == NOTHING, 60), job.left()


def test_the_time_limit_ends_the_job_and_leaves_nothing(submit, tmp_path):
    """Slurm counts minutes, and looks twice in one."""
    job = submit(ENDLESS, time=1)
    fails(job, begun(tmp_path / "said"), "TIMEOUT")
    assert "DUE TO TIME LIMIT" in (tmp_path / "said").read_text()
    assert until(lambda: job.left() == NOTHING, 60), job.left()


PREEMPTED = (
    HEARING
    + """
while not heard:
    time.sleep(0.01)
shmem.barrier_all()
print("heard", *heard, flush=True)
shmem.finalize()
"""
)


@pytest.mark.parametrize(
    "words, heard", [(["--signal=TERM"], 15), (["--batch", "--signal=USR1"], 10)], ids=["all", "B:"]
)
def test_pes_that_end_well_for_a_signal_of_slurm_complete_the_job(words, heard, submit, tmp_path):
    """As for a preemption's SIGTERM, and for that of sbatch --signal=B:USR1@60, which goes to the batch step alone."""
    job = submit(PREEMPTED)
    number = begun(tmp_path / "said")
    ask("enter", 0, "scancel", *words, number)
    assert job.end() == 0, (tmp_path / "said").read_text()
    assert (tmp_path / "said").read_text().count(f"heard {heard}\n") == 4
    assert "JobState=COMPLETED" in ask("enter", 0, "scontrol", "show", "job", number)
    assert until(lambda: job.left() == NOTHING, 30), job.left()


AGAIN = """
import os
import pyshmem as shmem

shmem.init()
shmem.barrier_all()
print("begun", os.environ.get("SLURM_RESTART_COUNT"), flush=True)
while "SLURM_RESTART_COUNT" not in os.environ:
    shmem.barrier_all()
shmem.finalize()
"""


def test_a_requeued_job_starts_again_and_the_first_leaves_nothing(submit, tmp_path):
    said = tmp_path / "said"
    job = submit(AGAIN, "--requeue", "--open-mode=append")
    ask("enter", 0, "scontrol", "requeue", begun(said))
    assert job.end() == 0, said.read_text()
    assert said.read_text().count("begun 1") == 4, said.read_text()
    assert until(lambda: job.left() == NOTHING, 30), job.left()
