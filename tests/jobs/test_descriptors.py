"""File descriptors between the processes of a node: from each to all, or from the first to all, by either way."""

import re

import pytest
from jobs import mpiexec

PROGRAM = """
import os
import mpi4py
from mpi4py import MPI
from pyshmem.memory.descriptors import Exchange, close_all
from pyshmem.memory.mailbox import Mailbox

def refuse(*arguments):
    raise PermissionError(1, "no socket is reached")

if WAY == "pidfd_getfd":
    Mailbox.send = refuse
node = MPI.COMM_WORLD
before = len(os.listdir("/proc/self/fd"))
exchange = Exchange(node)
for turn in range(3):
    own = os.memfd_create("test")
    os.write(own, b"%d of %d" % (turn, node.rank))
    fds = exchange.swap(own)
    assert [fd for fd in fds if fd < 0] == [-1] and fds[node.rank] == -1
    for rank, fd in enumerate(fds):
        if rank != node.rank:
            assert os.pread(fd, 99, 0) == b"%d of %d" % (turn, rank), (turn, rank)
    node.Barrier()
    close_all([own, *fds])
assert len(os.listdir("/proc/self/fd")) == before
print("swapped")
"""


@pytest.mark.parametrize("pes", [1, 3])
@pytest.mark.parametrize("way", ["sockets", "pidfd_getfd"])
def test_every_pe_gets_the_descriptors_of_all_others(way, pes, tmp_path):
    status, out, err = mpiexec(pes, PROGRAM.replace("WAY", repr(way)), tmp_path=tmp_path)
    assert (status, out) == (0, "swapped\n" * pes), err


GIVEN = """
import os
from mpi4py import MPI
from pyshmem.memory import descriptors

node = MPI.COMM_WORLD
before = len(os.listdir("/proc/self/fd"))
mailbox = descriptors.Mailbox()
unreached = UNREACHED
send = mailbox.send
def send_to_some(fd, place, rank):
    if places.index(place) in unreached:
        raise PermissionError(1, "not this one")
    send(fd, place, rank)
mailbox.send = send_to_some
places = node.allgather(mailbox.place)
def create():
    fd = os.memfd_create("test")
    os.write(fd, b"of the first")
    return fd
fd = descriptors.of_first(node, mailbox, places, create)
assert os.pread(fd, 99, 0) == b"of the first"
node.Barrier()
os.close(fd)
mailbox.close()
assert len(os.listdir("/proc/self/fd")) == before
print("given")
"""


@pytest.mark.parametrize("pes", [1, 3])
@pytest.mark.parametrize("unreached", [[], [2], [1, 2]], ids=["sockets", "both", "pidfd_getfd"])
def test_the_first_pe_gives_its_descriptor_to_all(unreached, pes, tmp_path):
    status, out, err = mpiexec(pes, GIVEN.replace("UNREACHED", repr(unreached)), tmp_path=tmp_path)
    assert (status, out) == (0, "given\n" * pes), err


@pytest.mark.parametrize("failing", [0, 2])
def test_a_heap_that_cannot_be_passed_on_is_no_exhausted_heap(failing, tmp_path):
    """init on every PE says that the node's PEs cannot share memory; afterwards it may be tried again."""
    program = f"""
import pyshmem as shmem
from mpi4py import MPI
from pyshmem.memory import descriptors

kept = descriptors.Mailbox.send, descriptors.Mailbox.receive, descriptors._fetch


def refuse(*arguments):
    raise PermissionError(1, "nothing passes here")


if MPI.COMM_WORLD.rank == {failing}:
    descriptors.Mailbox.send = descriptors.Mailbox.receive = refuse
if {failing} == 0:
    descriptors._fetch = refuse
try:
    shmem.init()
except shmem.UnreachableError as error:
    print(error, flush=True)
descriptors.Mailbox.send, descriptors.Mailbox.receive, descriptors._fetch = kept
shmem.init()
shmem.barrier_all()
"""
    status, out, err = mpiexec(3, program, tmp_path=tmp_path)
    said = "comm: got PEs of a node that cannot share memory: "
    assert status == 0 and out.count(said) == 3 and "nothing passes here" in out, (out, err)


def test_a_failure_of_one_pe_is_its_own_and_stops_nobody(tmp_path):
    """The PE whose descriptor is none raises, and so do those it would have gone to; nobody waits for ever."""
    program = (
        PROGRAM.replace("WAY", "'sockets'").split("for turn")[0]
        + """
own = os.memfd_create("test") if node.rank != 1 else 987654
try:
    fds = exchange.swap(own)
    print("got", [fd >= 0 for fd in fds].count(True))
except OSError:
    print("failed")
print("over")
"""
    )
    status, out, err = mpiexec(3, program, tmp_path=tmp_path)
    assert status == 0 and out.count("over") == 3 and out.count("failed") >= 1, err


COUNTED = """
import pyshmem as shmem
from mpi4py import MPI

class Counting(MPI.Intracomm):
    def allgather(self, mine):
        gathers.append(mine)
        return super().allgather(mine)

gathers = []
shmem.init(Counting(MPI.COMM_WORLD))
print(len(gathers))
"""


def test_init_on_a_node_gathers_twice_what_pes_say_and_whether_all_have_the_memory(tmp_path):
    """Each gather is two collectives of MPI, in which PEs without a core of their own wait for a turn."""
    assert mpiexec(3, COUNTED, tmp_path=tmp_path)[1] == "2\n" * 3


LIMITED = """
import os, resource, sys
import pyshmem as shmem

resource.setrlimit(resource.RLIMIT_NOFILE, (min(60, HARD), HARD))
try:
    shmem.init()
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
except shmem.LaunchError as error:
    print(error)
"""


@pytest.mark.parametrize("hard, said", [
    (300, r"\(300, 300\)"),
    (90, r"init: PE \d: RLIMIT_NOFILE: got a hard limit of 90 open files on \S+; expected \d{2,3}, two of them for each of 2 PEs"),
])  # fmt: skip
def test_init_raises_the_limit_of_open_files_for_far_pes_and_refuses_one_that_is_too_low(hard, said, tmp_path):
    _, out, err = mpiexec(
        3, LIMITED.replace("HARD", str(hard)), tmp_path=tmp_path, environment={"PYSHMEM_NODE_SIZE": "1"}
    )
    assert len(re.findall(said, out)) == 3, (out, err)
