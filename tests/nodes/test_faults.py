"""Faults of PEs, hosts and networks: each ends the job soon, with a message that names PE and host, and leaves nothing.

Run by `make test-hosts`, as root.
"""

import re
import sys

import pytest
from hosts import ASLEEP, FAILING, FAILURES, MPIS, NOTHING, ONE, SECONDS, THREE, TWO, ask, hosts, needs_hosts, start  # noqa: F401
from surroundings import until

SOON = {"PYSHMEM_WAIT_TIMEOUT": "5"}
FABRIC = {"PYSHMEM_FAR": "fabric", "PYSHMEM_FABRIC": "tcp;ofi_rxm"}
MESSAGES = {**FABRIC, "PYSHMEM_AMO": "fabric"}
pytestmark = [pytest.mark.timeout(2 * SECONDS), needs_hosts, pytest.mark.usefixtures("hosts")]


of_each_mpi = pytest.mark.parametrize("mpi", MPIS)


def ends(job, *said, but=()):
    """The job fails by itself, says each of ``said`` and leaves nothing but temporary files whose names begin so."""
    assert job.end() != 0
    for text in said:
        assert text in job.err, job.err[-3000:]
    leaves_nothing(job, but)


def leaves_nothing(job, but=()):
    def left():
        found = job.left()
        return {**found, "temporary": [name for name in found["temporary"] if not name.startswith(but)]}

    assert until(lambda: left() == NOTHING, 30), job.left()


DAEMONS = ("prted.",)  # Open MPI's daemon on a host that is cut off ends, and leaves its directory


KILLED = """
import os, signal
import torch
import pyshmem as shmem

shmem.init()
x, y, turns = shmem.zeros(100_000), shmem.zeros(100_000), shmem.zeros(1, dtype=torch.int64)
source, me = torch.ones(100_000), shmem.my_pe()
shmem.barrier_all()
turn = 0
while True:
    turn += 1
    if me == 1 and turn == 100:
        os.kill(os.getpid(), signal.SIGKILL)
    {call}
"""


@of_each_mpi
@pytest.mark.parametrize(
    "call",
    ["shmem.put(x, source, 1 - me)", "shmem.atomic_fetch_add(turns, 1, 1 - me)", "shmem.sum_reduce(y, x)"],
    ids=["put", "atomic", "collective"],
)
def test_a_pe_killed_in_the_middle_of_a_call_ends_the_job(call, mpi, start):
    ends(start(ONE, KILLED.format(call=call), stack=mpi), "PE 1 on pyhost1")


@pytest.mark.parametrize("call", ["shmem.put(x, source, 1 - me)", "shmem.atomic_fetch_add(turns, 1, 1 - me)"])
def test_a_pe_killed_while_a_fabric_carries_its_data_ends_the_job(call, start):
    ends(start(ONE, KILLED.format(call=call), **MESSAGES), "PE 1 on pyhost1")


@of_each_mpi
@pytest.mark.parametrize("failure", FAILURES)
def test_status_and_last_line_are_those_of_the_first_failing_pe_on_any_host(failure, mpi, start):
    status, line = FAILURES[failure]
    job = start(TWO, FAILING.format(failure=failure), stack=mpi)
    assert job.end() == status, job.err
    assert [each for each in job.err.splitlines() if "whose connection has ended" not in each][-1] == line, job.err
    leaves_nothing(job)


def test_a_host_that_is_lost_is_named(start):
    job = start(TWO, ASLEEP)
    job.reach("begun", 4)
    job.lose(1)
    assert job.end() != 0
    assert re.search(r"PEs? [23 and]+ on pyhost1", job.err.splitlines()[-1]), job.err
    leaves_nothing(job)


ENDLESS = """
import torch
import pyshmem as shmem

shmem.init()
me, x, count = shmem.my_pe(), shmem.zeros(1000), shmem.zeros(1, dtype=torch.int64)
shmem.barrier_all()
print("begun", flush=True)
while True:
    shmem.put(x, torch.ones(1000), 1 - me)
    shmem.atomic_add(count, 1, 1 - me)
    shmem.quiet()
"""
OVER_TCP = [(mpi, {"PYSHMEM_FAR": "tcp"}) for mpi in MPIS]


@pytest.mark.parametrize("mpi, carrier", [*OVER_TCP, ("ofi", FABRIC), ("ofi", MESSAGES)])
def test_a_link_that_goes_down_ends_the_job(mpi, carrier, start):
    job = start(ONE, ENDLESS, stack=mpi, **carrier, **SOON)
    job.reach("begun", 2)
    ask("link", 1, "down")
    try:
        ends(job, "PE 1 on pyhost1", but=DAEMONS)
    finally:
        ask("link", 1, "up")


CUT = """
import torch
import pyshmem as shmem

shmem.init()
me, x, count = shmem.my_pe(), shmem.zeros(1000), shmem.zeros(1, dtype=torch.int64)
shmem.barrier_all()
print("begun", flush=True)
while True:
    {call}
"""
# what each PE that is not cut off says of a host of PE 2 that is
UNREACHED = {
    "shmem.barrier_all()": "barrier_all: team: got no answer from PE 2 (and no call from PEs? [0-3 and,]+ )?of TEAM_WORLD in",
    "shmem.sum_reduce(x, x)": "sum_reduce: team: got no answer from PE 2 (and no call from PEs? [0-3 and,]+ )?of TEAM_WORLD in",
    "shmem.atomic_fetch_add(count, 1, 2)": "atomic_fetch_add: pe: got no answer from PE 2 on pyhost1 in",
    "shmem.atomic_add(count, 1, 2), shmem.quiet()": "(atomic_add|quiet): pe: got no answer from PE 2 on pyhost1 in",
}


@pytest.mark.parametrize("call", UNREACHED)
def test_a_time_out_names_the_call_and_the_pes_that_cannot_be_reached(call, start):
    """PE 0 and PE 1 on a host, PE 3 on another one. These may wait in the call before."""
    job = start(THREE, CUT.format(call=call), **SOON)
    job.reach("begun", 4)
    ask("link", 1, "down")
    try:
        ends(job)
    finally:
        ask("link", 1, "up")
    said = re.findall(r"^PE [013] on pyhost[02]: (.*)$", job.err, re.MULTILINE)
    said = [each for each in said if "whose connection has ended" not in each]
    assert said and all(re.search(UNREACHED[call], each) for each in said), job.err
    for pe in (0, 1, 3):
        assert not re.search(rf"^PE {pe} on .* no call from PEs? [0-3 and,]*{pe}", job.err, re.MULTILINE), job.err


PUT = """
import torch
import pyshmem as shmem

shmem.init()
me, x = shmem.my_pe(), shmem.zeros(1000)
shmem.put(x, torch.ones(1000), 1 - me)
shmem.barrier_all()
assert x.sum() == 1000
print("put", flush=True)
"""


@of_each_mpi
def test_a_host_that_no_packet_reaches_is_named_by_the_first_call_to_it(mpi, start):
    """MPI has a network of its own; that of pyshmem, which no cable joins, loses all packets."""
    for host in (0, 1):
        ask("enter", host, "ip", "link", "add", "lost0", "type", "veth", "peer", "name", "lost1")
        ask("enter", host, "ip", "link", "set", "lost1", "up")
        ask("enter", host, "ip", "address", "add", f"10.78.0.{1 + host}/24", "dev", "lost0")
        ask("enter", host, "ip", "link", "set", "lost0", "up")
    try:
        job = start(ONE, PUT, PYSHMEM_INTERFACE="lost0", stack=mpi, **SOON)
        assert job.end() != 0
        assert re.search(r": PE (0: pe: got PE 1 on pyhost1|1: pe: got PE 0 on pyhost0), whose connection", job.err), (
            job.err
        )
        leaves_nothing(job)
    finally:
        for host in (0, 1):
            ask("enter", host, "ip", "link", "delete", "lost0")


@of_each_mpi
def test_a_host_that_the_launcher_does_not_reach_is_named(mpi, start):
    ask("link", 1, "down")
    try:
        job = start(ONE, PUT, stack=mpi, options=("--timeout", "60"))
        ends(job, but=DAEMONS)
        assert re.search(r"pyhost1|10\.77\.0\.2", job.out + job.err), job.out + job.err
    finally:
        ask("link", 1, "up")


def test_an_mpi_without_thread_multiple_is_enough(start):
    single = (
        "import mpi4py\nmpi4py.rc.thread_level = 'single'\nfrom mpi4py import MPI\nassert MPI.Query_thread() == 0\n"
    )
    job = start(ONE, single + PUT)
    assert job.end() == 0, job.err
    assert job.out.count("put\n") == 2


WRONG = """
import os
from pyshmem.native import _native

if os.environ["PMI_RANK"] == "1":
    opened = _native.far_open
    _native.far_open = lambda *words: opened(*words[:7], bytes(16), *words[8:])  # the token is all zeros
"""


def test_a_pe_with_a_wrong_token_is_refused_by_name(start):
    job = start(ONE, WRONG + PUT)
    ends(job, "on pyhost")
    why = "(it refused this PE's greeting|it has not proved that it belongs to this job)"
    assert re.search(rf"got PE (0 on pyhost0|1 on pyhost1), whose connection has ended: {why}", job.err), job.err


WAITING = """
import os, pathlib, socket, time
import pyshmem as shmem
from pyshmem.native import _native

opened = _native.far_open
def open_and_tell(*words):
    opened(*words)
    if words[0] == 0:
        print("port", socket.socket(fileno=os.dup(words[8])).getsockname()[1], flush=True)
_native.far_open = open_and_tell

shmem.init()
x, me = shmem.zeros(1), shmem.my_pe()
shmem.barrier_all()
print("begun", flush=True)
while me == 0 and not pathlib.Path("go").exists():
    time.sleep(0.01)
shmem.p(x, 1, 1 - me)
shmem.barrier_all()
assert x.item() == 1
"""
# On host 1: greets PE 0 with a token that is wrong, and prints what it answers.
STRANGER = """
import socket, struct, sys
connection = socket.create_connection(("10.77.0.1", int(sys.argv[1])), 60)
connection.sendall(struct.pack("=8s16sQii", b"pyshmem1", bytes(16), 0, 1, 2))
print(connection.recv(1))
"""


def test_a_stranger_with_a_wrong_token_is_hung_up_on_and_the_job_goes_on(start, tmp_path):
    job = start(ONE, WAITING)
    job.reach("begun", 2)
    port = re.search(r"port (\d+)", job.out)[1]
    assert ask("enter", 1, sys.executable, "-c", STRANGER, port) == "b''\n"
    (tmp_path / "go").touch()
    assert job.end() == 0, job.err


FULL = "fallocate -l $(df --output=avail -B1 /dev/shm | tail -1) /dev/shm/kept"


@of_each_mpi
def test_a_full_shared_memory_is_named(mpi, start):
    ask("enter", 1, "bash", "-c", FULL)
    try:
        ends(
            start(TWO, "import pyshmem\npyshmem.init()\n", stack=mpi, options=("--timeout", "100")),
            "/dev/shm: got 0 bytes free on pyhost1",
            "PE ",
        )
    finally:
        ask("enter", 1, "rm", "/dev/shm/kept")


COMPUTING = """
import time
import torch
import pyshmem as shmem

shmem.init()
x, me = shmem.zeros(4, dtype=torch.int64), shmem.my_pe()
slowest = 0.0
shmem.barrier_all()
if me == 1:
    end = time.monotonic() + 10
    while time.monotonic() < end:  # Python code, which holds the GIL
        pass
else:
    for turn in range(50):
        for call in (
            lambda: (shmem.put(x, torch.full((4,), turn), 1), shmem.quiet()),
            lambda: shmem.g(x[3:], 1),
            lambda: shmem.atomic_fetch_add(x[:1], 1, 1),
        ):
            begun = time.monotonic()
            call()
            slowest = max(slowest, time.monotonic() - begun)
shmem.barrier_all()
assert slowest < 5, f"an operation took {slowest} s"
"""


@pytest.mark.parametrize("carrier", [{}, FABRIC, MESSAGES], ids=["tcp", "fabric", "messages"])
def test_operations_do_not_wait_for_a_target_that_computes_in_python(carrier, start):
    job = start(ONE, COMPUTING, **carrier)
    assert job.end() == 0, job.err
