"""File descriptors between the processes of a node: everybody gets everybody's, by either way, and none is left open."""

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


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("way", ["sockets", "pidfd_getfd"])
def test_every_pe_gets_the_descriptors_of_all_others(way, pes, tmp_path):
    status, out, err = mpiexec(pes, PROGRAM.replace("WAY", repr(way)), tmp_path=tmp_path)
    assert (status, out) == (0, "swapped\n" * pes), err


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
