"""Jobs over two hosts, which hosts.sh makes of network namespaces: all data between them go over TCP.

Run by `make test-hosts`, as root.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
HOSTS, PES = str(HERE / "hosts.sh"), HERE.parent / "pes"
BIN = pathlib.Path(sys.executable).parent
SECONDS = 600  # for the longest job
STACKS = {
    "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"},
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self"},  # otherwise UCX shares memory between the namespaces
}

pytestmark = [
    pytest.mark.timeout(SECONDS + 60),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare"))),
        reason="needs root, iproute2 and util-linux",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def hosts():
    subprocess.run([HOSTS, "down"], capture_output=True)
    subprocess.run([HOSTS, "up", "2"], check=True)
    yield
    subprocess.run([HOSTS, "down"], check=True)


def received(host):
    return int(subprocess.run([HOSTS, "bytes", str(host)], check=True, capture_output=True, text=True).stdout)


def start(placed, *program, stack="ofi", **environment):
    """Start pyshmemrun on host 0, with PEs on the hosts of ``placed``."""
    launcher = f"{BIN}/mpiexec -launcher rsh -launcher-exec {HERE}/rsh.sh -iface eth0"
    pes = sum(int(each.partition(":")[2]) for each in placed.split(","))
    command = [HOSTS, "enter", "0", str(BIN / "pyshmemrun"), "-n", str(pes), "--hosts", placed, "--mpiexec", launcher]
    variables = os.environ | STACKS[stack] | {"PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m"} | environment
    return subprocess.Popen(
        [*command, *map(str, program)],
        cwd=PES,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_of(job, seconds=SECONDS):
    """(status, stdout, stderr) of a job that ends by itself in time."""
    try:
        out, err = job.communicate(timeout=seconds)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    return job.returncode, out, err


MEGABYTES = """
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
assert shmem.TEAM_SHARED.n_pes() == n // 2
x, y = shmem.zeros(5_000_000), torch.arange(5_000_000) + float(me)
shmem.put(x, y, (me + n // 2) % n)
shmem.barrier_all()
assert torch.equal(x, torch.arange(5_000_000) + float((me - n // 2) % n))
shmem.finalize()
"""


@pytest.mark.parametrize("stack", STACKS)
def test_data_go_over_the_network(stack, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MEGABYTES)
    before = [received(host) for host in (0, 1)]
    status, _, err = end_of(start("10.77.0.1:2,10.77.0.2:2", program, stack=stack), 120)
    assert status == 0, err
    for host in (0, 1):
        assert received(host) - before[host] > 2 * 20_000_000, "two PEs put 20 MB each"


def test_the_tests_of_host_calls_pass():
    names = ("rma", "signal", "locks", "ordering", "contexts", "setup", "threads", "memory")
    files = [f"test_{name}.py" for name in names]
    status, out, err = end_of(start("10.77.0.1:2,10.77.0.2:2", "-m", "pytest", *files, "-q"))
    assert status == 0, out[-3000:] + err[-3000:]


ENDLESS = """
import torch
import pyshmem as shmem

shmem.init()
me, x = shmem.my_pe(), shmem.zeros(1000)
shmem.barrier_all()
print("begun", flush=True)
while True:
    shmem.put(x, torch.ones(1000), 1 - me)
    shmem.quiet()
"""


def test_a_link_that_goes_down_ends_the_call_with_the_pe_and_its_host(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ENDLESS)
    job = start("10.77.0.1:1,10.77.0.2:1", program, PYSHMEM_WAIT_TIMEOUT="5")
    for _ in range(2):
        assert job.stdout.readline() == "begun\n"
    subprocess.run([HOSTS, "link", "1", "down"], check=True)
    began = time.monotonic()
    try:
        said = ""
        while "PE 1 on pyhost1" not in said and time.monotonic() - began < 60:
            said += job.stderr.readline()
    finally:
        subprocess.run([HOSTS, "link", "1", "up"], check=True)
        os.killpg(job.pid, signal.SIGTERM)
        end_of(job, 60)
    assert "PE 1 on pyhost1" in said
