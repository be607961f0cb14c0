"""File descriptors between the processes of a node: from each to all, or from the first to all, by either way."""

import pytest
from jobs import mpiexec

PROGRAM = """
import os
import mpi4py
from mpi4py import MPI
from pyshmem.runtime.descriptors import Exchange, close_all

node = MPI.COMM_WORLD
before = len(os.listdir("/proc/self/fd"))
exchange = Exchange(node, node)
assert exchange.way == "sockets"
exchange.way = WAY
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
exchange.close()
assert len(os.listdir("/proc/self/fd")) == before
print("swapped")
"""


@pytest.mark.parametrize("pes", [1, 3])
@pytest.mark.parametrize("way", ["sockets", "pidfd_getfd"])
def test_every_pe_gets_the_descriptors_of_all_others(way, pes, tmp_path):
    status, out, err = mpiexec(pes, PROGRAM.replace("WAY", repr(way)), tmp_path=tmp_path)
    assert (status, out) == (0, "swapped\n" * pes), err


@pytest.mark.parametrize("pes", [1, 3])
@pytest.mark.parametrize("way", ["sockets", "pidfd_getfd"])
def test_the_first_pe_gives_its_descriptor_to_all(way, pes, tmp_path):
    program = (
        PROGRAM.replace("WAY", repr(way)).split("for turn")[0]
        + """
own = os.memfd_create("test") if node.rank == 0 else -1
if node.rank == 0:
    os.write(own, b"of the first")
fd = exchange.give(own)
assert os.pread(fd, 99, 0) == b"of the first"
node.Barrier()
close_all([fd])
exchange.close()
assert len(os.listdir("/proc/self/fd")) == before
print("given")
"""
    )
    status, out, err = mpiexec(pes, program, tmp_path=tmp_path)
    assert (status, out) == (0, "given\n" * pes), err


@pytest.mark.parametrize("failing", [0, 2])
def test_a_heap_that_cannot_be_passed_on_is_no_exhausted_heap(failing, tmp_path):
    """init on every PE says that the node's PEs cannot share memory; afterwards it may be tried again."""
    program = f"""
import pyshmem as shmem
from mpi4py import MPI
from pyshmem.runtime.descriptors import Exchange

send, receive = Exchange._send, Exchange._receive


def refuse(*arguments):
    raise PermissionError(1, "no socket for this one")


if MPI.COMM_WORLD.rank == {failing}:
    Exchange._send = Exchange._receive = refuse
else:
    Exchange._receive = lambda self: (self._socket.settimeout(1), receive(self))[1]
try:
    shmem.init()
except shmem.UnreachableError as error:
    print(error, flush=True)
Exchange._send, Exchange._receive = send, receive
shmem.init()
shmem.barrier_all()
"""
    status, out, err = mpiexec(3, program, tmp_path=tmp_path)
    said = "comm: got PEs of a node that cannot share memory: "
    assert status == 0 and out.count(said) == 3 and "no socket for this one" in out, (out, err)


def test_a_failure_of_one_pe_is_its_own_and_stops_nobody(tmp_path):
    """The PE whose descriptor is none raises, and so do those it would have gone to; nobody waits for ever."""
    program = (
        PROGRAM.replace("WAY", "exchange.way").split("for turn")[0]
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
    exchange = "exchange._socket.settimeout(1)\n"
    program = program.replace("assert exchange.way", exchange + "assert exchange.way")
    status, out, err = mpiexec(3, program, tmp_path=tmp_path)
    assert status == 0 and out.count("over") == 3 and out.count("failed") >= 1, err
