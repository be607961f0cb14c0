"""Jobs of several nodes, pretended on this machine by PYSHMEM_NODE_SIZE: any placement of PEs, and what ends a job."""

import re

import pytest
from jobs import mpiexec
from pyshmem.start.gpu import groups

PLACEMENT = """
import sys
import numpy as np
import torch
from mpi4py import MPI
import pyshmem as shmem

order = [int(each) for each in sys.argv[1].split(",")]  # the PE of each process; the nodes are blocks of processes
comm = MPI.COMM_WORLD.Split(0, order[MPI.COMM_WORLD.rank])
shmem.init(comm)
me, n = shmem.my_pe(), shmem.n_pes()
size = int(sys.argv[2])
node = sorted(order[pe] for pe in range(n) if pe // size == order.index(me) // size)

shared = [shmem.TEAM_SHARED.translate_pe(i, shmem.TEAM_WORLD) for i in range(shmem.TEAM_SHARED.n_pes())]
assert me in shared and set(shared) <= set(node)
page = shmem.full(3, me)
assert [shmem.ptr(page, pe) is not None for pe in range(n)] == [pe in node for pe in range(n)]
assert all(shmem.pe_accessible(pe) and shmem.addr_accessible(page, pe) for pe in range(n))
for pe in range(n):
    assert shmem.g(page[1:2], pe) == pe


def check(team, pes):
    k, i = len(pes), pes.index(me)
    for count in (8, 3000):
        part = lambda pe: (np.arange(count) % 7 + pe + 0.1).astype(np.float32)
        source = np.zeros(count, np.float32) + part(me)
        for array in both.values():
            array[:count].copy_(torch.from_numpy(source))
        x, y, z = both["x"][:count], both["y"][:count], target[: k * count]
        total = part(pes[0])
        before = np.zeros(count, np.float32)
        for j, pe in enumerate(pes[1:], 1):
            before = total.copy() if j == i else before
            total = total + part(pe)
        shmem.sum_reduce(y, x, team=team)
        assert y.numpy().tobytes() == total.tobytes(), "in the order of the members, whatever their nodes are"
        shmem.sync(team)
        shmem.sum_exscan(y, x, team=team)
        assert y.numpy().tobytes() == before.tobytes()
        shmem.sync(team)
        shmem.fcollect(z, x, team=team)
        assert z.numpy().tobytes() == np.concatenate([part(pe) for pe in pes]).tobytes()
        shmem.sync(team)
        shmem.collect(z, x, size=i, team=team)
        parts = [part(pe)[:j] for j, pe in enumerate(pes)]
        assert z[: sum(range(k))].numpy().tobytes() == np.concatenate(parts).tobytes()
        shmem.sync(team)
        for root in range(k):
            shmem.broadcast(y, x, root, team=team)
            assert y.numpy().tobytes() == part(pes[root]).tobytes()
            shmem.sync(team)
        w = both["w"][: k * count]
        w.copy_(torch.arange(k).repeat_interleave(count) + 100.0 * me)
        shmem.alltoall(z, w, team=team)
        assert z.view(k, count)[:, 0].tolist() == [100.0 * pe + i for pe in pes]
        shmem.sync(team)


both = {name: shmem.zeros(3000 * n) for name in "xyw"}
target = shmem.zeros(3000 * n)
shmem.sync_all()
check(shmem.TEAM_WORLD, list(range(n)))
check(shmem.TEAM_SHARED, shared)
for start, stride in ((0, 2), (1, 1), (n - 1, -1), (1, 2)):
    pes = list(range(start, n if stride > 0 else -1, stride))
    team = shmem.TEAM_WORLD.split_strided(start, stride, len(pes))
    if me in pes:
        check(team, pes)
    shmem.sync_all()
shmem.barrier_all()
if me == 0:
    print("checked")
shmem.finalize()
"""


@pytest.mark.parametrize(
    "order, size",
    [
        ("0,1,2,3", 1),
        ("0,2,1,3", 2),  # cyclic
        ("3,0,1,2", 3),
        ("0,1,3,2,4", 3),  # a node whose PEs have no equal distances
        ("0,2,3,4,6,1,5", 5),
    ],
)
def test_collectives_work_on_teams_of_any_placement(order, size, tmp_path):
    n = len(order.split(","))
    settings = {"PYSHMEM_NODE_SIZE": str(size), "PYSHMEM_WAIT_TIMEOUT": "60"}
    status, out, err = mpiexec(n, PLACEMENT, order, str(size), tmp_path=tmp_path, environment=settings)
    assert (status, out) == (0, "checked\n"), err


KILLED = """
import os, signal
import torch
import pyshmem as shmem

shmem.init()
x, me = shmem.zeros(100000), shmem.my_pe()
source = torch.ones(100000)
if me == 1:
    while x[-1] != 1:
        pass
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    {call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "shmem.put(x, source, 1)",
        "shmem.put(x, source, 1); shmem.atomic_fetch_add(x[:1], 1.0, 1)",
        "shmem.put(x, source, 1); shmem.barrier_all()",
    ],
)
def test_a_pe_killed_in_the_middle_of_a_call_ends_the_job(call, tmp_path):
    settings = {"PYSHMEM_NODE_SIZE": "1"}
    status, _, _ = mpiexec(2, KILLED.format(call=call), tmp_path=tmp_path, environment=settings)
    assert status != 0


BUSY = """
import time
import torch
import pyshmem as shmem

shmem.init()
x, me = shmem.zeros(4, dtype=torch.int64), shmem.my_pe()
done = shmem.zeros(1, dtype=torch.int64)
shmem.barrier_all()
if me == 1:
    while not done.item():  # Python code, which holds the GIL
        pass
else:
    for turn in range(200):
        shmem.put(x, torch.full((4,), turn), 1)
        shmem.quiet()
        assert shmem.g(x[3:], 1) == turn
        assert shmem.atomic_fetch_add(x[:1], 1, 1) == turn
    shmem.p(done, 1, 1)
shmem.barrier_all()
if me == 0:
    print("done")
shmem.finalize()
"""


def test_operations_complete_while_the_target_computes_in_python(tmp_path):
    status, out, err = mpiexec(2, BUSY, tmp_path=tmp_path, environment={"PYSHMEM_NODE_SIZE": "1"})
    assert (status, out) == (0, "done\n"), err


def test_different_node_sizes_are_refused_on_all_pes(tmp_path):
    program = (
        "import os\nos.environ['PYSHMEM_NODE_SIZE'] = os.environ['PMI_RANK'] + '0'\nimport pyshmem\npyshmem.init()"
    )
    status, _, err = mpiexec(2, program, tmp_path=tmp_path)
    assert status != 0 and len(re.findall("PYSHMEM_NODE_SIZE: got different values; expected one value", err)) >= 2, err


ALL = ()


@pytest.mark.parametrize(
    "pes, wanted",
    [
        ([("a", ALL, False), ("b", ALL, False), ("c", ALL, False)], [0, 0, 0]),
        ([("a", "cd", False), ("b", "cd", False), ("c", "ab", False), ("d", "ab", False)], [0, 0, 1, 1]),
        ([("a", "bd", False), ("b", "ac", False), ("c", "bd", False), ("d", "ac", False)], [0, 1, 0, 1]),
        ([("a", ALL, False), ("b", "a", False)], [0, 1]),  # access in one direction
        ([("a", "b", False), ("b", ALL, False)], [0, 1]),
        ([("a", ALL, False), ("b", "c", False), ("c", "b", False)], [0, 0, 1]),  # a reaches both, b and c do not
        ([("a", "b", False), ("a", "b", False), ("b", "a", False)], [0, 0, 1]),  # two PEs on one GPU
        ([("a", ALL, True), ("b", ALL, False), ("c", ALL, False)], [0, 1, 1]),
        ([("a", ALL, False), ("b", ALL, True), ("c", ALL, False)], [0, 1, 0]),
        ([("a", ALL, True), ("b", ALL, True)], [0, 1]),
    ],
)
def test_near_pes_are_those_whose_gpus_all_access_each_other(pes, wanted):
    assert groups(pes) == wanted


APART = """
import sys
import torch
import pyshmem as shmem
import pyshmem.device as dev
import triton
from pyshmem.start import nodes

group = [int(each) for each in sys.argv[1]]
whole = nodes.find


def find(comm, answers):  # as the GPUs would decide
    whole(comm, answers)
    nodes.divide(comm, group[comm.rank])


@triton.jit
def pass_on(ctx, page, word, n):
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put_signal(ctx, page + n, page, n, word, 1, dev.SIGNAL_ADD, right)
    dev.signal_wait_until(ctx, word, dev.CMP_GE, 1)


nodes.find = find
shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
near = [pe for pe in range(n) if group[pe] == group[me]]
page, word = shmem.full(8, me), shmem.zeros(1, dtype=torch.uint64)
assert [shmem.ptr(page, pe) is not None for pe in range(n)] == [pe in near for pe in range(n)]
assert all(shmem.pe_accessible(pe) and shmem.addr_accessible(page, pe) for pe in range(n))
shared = [shmem.TEAM_SHARED.translate_pe(i, shmem.TEAM_WORLD) for i in range(shmem.TEAM_SHARED.n_pes())]
assert me in shared and set(shared) <= set(near)
pass_on[(1,)](shmem.device_context(), page, word, 4)
assert page.tolist() == [me] * 4 + [(me - 1) % n] * 4
assert [shmem.g(page[:1], pe) for pe in range(n)] == list(range(n))
shmem.barrier_all()
"""


@pytest.mark.parametrize("group", ["01", "0011", "0101", "0012"])
def test_a_divided_host_is_several_nodes(group, tmp_path):
    status, _, err = mpiexec(len(group), APART, group, tmp_path=tmp_path)
    assert status == 0, err
