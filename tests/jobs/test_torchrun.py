"""Starts without MPI: by torchrun, by its variables, from a process group; and what is refused there."""

import os
import re
import sys
import threading

import pytest
import torch.distributed as dist
from jobs import python
from test_doc_programs import PROGRAMS

import pyshmem as shmem
from pyshmem.base import bootstrap
from pyshmem.start import how_started
from pyshmem.base.job import job

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
LIFE = """
import sys
sys.stdout.flush()  # what torchrun ends loses what it has not written
shmem.init(heap_size="1m")  # again, now without a process group
assert not dist.is_initialized() and "mpi4py.MPI" not in sys.modules
assert (me, n) == (shmem.my_pe(), shmem.n_pes()) and shmem.TEAM_SHARED.n_pes() == n
a, b = shmem.zeros(4, dtype=torch.int64), shmem.zeros(4, dtype=torch.int64)
shmem.put(a, torch.arange(4) + me, (me + 1) % n)
shmem.barrier_all()
assert a.tolist() == [(me - 1) % n + i for i in range(4)]
shmem.get(b, a, (me + 1) % n)
assert b.tolist() == [me + i for i in range(4)]
shmem.fcollect(got := torch.zeros(n, dtype=torch.int64), torch.tensor([me]))
assert got.tolist() == list(range(n)), got
shmem.finalize()
shmem.init()
if me == 1:
    raise ValueError("boom")
shmem.barrier_all()
"""


def test_program_of_the_page_runs_under_torchrun_and_an_exception_on_one_pe_ends_the_job(tmp_path):
    """One job for all that needs torchrun, which takes seconds to start."""
    page = PROGRAMS["torch.md"]["by_torchrun.py"]
    status, out, err = python(page + LIFE, launcher=TORCHRUN, tmp_path=tmp_path)
    wanted = ["PE 0 of 2 reads 1", "PE 0: 1, 2.0", "PE 1 of 2 reads 0", "PE 1: 1, 2.0"]
    assert sorted(line for line in out.splitlines() if line.startswith("PE")) == wanted, err
    assert status == 1 and re.search(r"^PE 1: ValueError: boom$", err, re.MULTILINE), err
    assert "AssertionError" not in err, err


def test_a_world_of_one_needs_torchs_variables_only(tmp_path):
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    program = """
import sys
import pyshmem as shmem
shmem.init()
x = shmem.ones(3)
shmem.sum_reduce(x, x)
print("mpi4py.MPI" in sys.modules, shmem.n_pes(), x.tolist())
shmem.global_exit(4)
"""
    status, out, err = python(program, tmp_path=tmp_path, environment=variables)
    assert (status, out) == (4, "False 1 [1.0, 1.0, 1.0]\n"), err


FORKED = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import pyshmem as shmem

def connect(rank, kind):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}-{kind}", rank=rank, world_size=3)

def subgroup(rank):
    connect(rank, "subgroup")
    pair = dist.new_group([0, 2])
    try:
        shmem.init(pair)
        print(f"{rank} is {shmem.my_pe()} of {shmem.n_pes()}", flush=True)
    except shmem.ArgumentError as error:
        print("refused:", error, flush=True)

def mute(rank):
    # a backend whose collectives move nothing: the store alone connects, and nobody waits for a group of the default one
    from torch.testing._internal.distributed import fake_pg  # which adds the backend
    store = dist.FileStore(f"{sys.argv[1]}-mute", 3)
    dist.init_process_group("fake", store=store, rank=rank, world_size=3)
    shmem.init()
    pair = shmem.Team.from_group(dist.new_group([0, 2]))
    world, new_group, device = dist.group.WORLD, dist.new_group, torch.device("cuda", 0)
    def unbound(*given, **more):
        assert world.bound_device_id is None
        return new_group(*given, **more)
    world.bound_device_id, dist.new_group = device, unbound
    if pair:
        assert dist.get_process_group_ranks(pair.to_group()) == [0, 2] and world.bound_device_id == device
    print(f"{rank} is {shmem.my_pe()} of {shmem.n_pes()}, {pair.my_pe()} of {pair.n_pes()}", flush=True)
    shmem.barrier_all()

def everybody(rank):
    connect(rank, "everybody")
    shmem.init()
    print(f"{rank} is {shmem.my_pe()} of {shmem.n_pes()}", flush=True)
    shmem.barrier_all()
    if rank == 2:
        shmem.global_exit(5)
    shmem.barrier_all()

for main in (subgroup, mute, everybody):
    workers = mp.start_processes(main, nprocs=3, join=False, start_method="fork")
    for each in workers.processes:
        each.join()
    print(main.__name__, *(each.exitcode for each in workers.processes), flush=True)
"""


def test_a_process_group_is_a_job_and_global_exit_ends_it_where_nobody_else_does(tmp_path):
    status, out, err = python(FORKED, str(tmp_path / "store"), tmp_path=tmp_path)
    assert status == 0, err
    head, _, tail = out.partition("subgroup 0 0 0\n")
    assert {"0 is 0 of 2", "2 is 1 of 2"} <= set(head.splitlines()), (out, err)
    assert "comm: got int; expected an mpi4py intracommunicator or a torch ProcessGroup" in head
    mute, _, tail = tail.partition("mute 0 0 0\n")
    assert sorted(mute.splitlines()) == ["0 is 0 of 3, 0 of 2", "1 is 1 of 3, -1 of -1", "2 is 2 of 3, 1 of 2"], err
    assert sorted(tail.splitlines()) == ["0 is 0 of 3", "1 is 1 of 3", "2 is 2 of 3", "everybody -15 -15 5"], err


CHOICES = {
    "nothing": ({}, False),
    "torchrun": ({"TORCHELASTIC_RUN_ID": "x"}, True),
    "torchrun in one step of an MPI launcher": ({"TORCHELASTIC_RUN_ID": "x", "PMI_SIZE": "1"}, True),
    "an MPI launcher below torchrun": ({"TORCHELASTIC_RUN_ID": "x", "PMI_SIZE": "2"}, False),
    "torch's variables": (dict.fromkeys(bootstrap.VARIABLES, "1"), True),
    "some of them": (dict.fromkeys(bootstrap.VARIABLES[1:], "1"), False),
    "torch's variables in MPICH's job": (dict.fromkeys([*bootstrap.VARIABLES, "PMI_SIZE"], "1"), False),
    "torch's variables in Open MPI's job": (dict.fromkeys([*bootstrap.VARIABLES, "OMPI_COMM_WORLD_SIZE"], "1"), False),
    "torch's variables in Slurm's job by PMIx": (dict.fromkeys([*bootstrap.VARIABLES, "PMIX_RANK"], "1"), False),
}


@pytest.mark.parametrize("case", CHOICES)
def test_torch_connects_the_processes_only_where_no_mpi_launcher_does(case, monkeypatch):
    variables, wanted = CHOICES[case]
    for name in ("TORCHELASTIC_RUN_ID", *bootstrap.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert how_started.is_torchs() is wanted


def test_a_program_that_has_imported_mpi_is_started_by_it(monkeypatch):
    for name in bootstrap.VARIABLES:
        monkeypatch.setenv(name, "1")
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", os)
    assert not how_started.is_torchs()


def on_all(size, call, store=None):
    """What ``call(communicator)`` returns, or its error, on each of ``size`` threads that share a store."""
    store, results = store or dist.HashStore(), [None] * size

    def run(rank):
        try:
            results[rank] = call(bootstrap.StoreComm(store, rank, size))
        except shmem.ShmemError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results


def test_calls_follow_each_other():
    def calls(comm):
        many = [comm.allgather((turn, comm.rank)) for turn in range(20)]
        comm.Barrier()
        return many, comm.bcast(comm.rank), comm.gather(comm.rank)

    store = [[(turn, rank) for rank in range(3)] for turn in range(20)]
    assert on_all(3, calls) == [(store, 0, [0, 1, 2]), (store, 0, None), (store, 0, None)]


def test_a_job_reads_nothing_of_an_earlier_one_on_the_same_store(monkeypatch):
    """The second PE of the second job does not come."""
    store = dist.HashStore()
    assert on_all(2, lambda comm: comm.allgather(comm.rank), store) == [[0, 1], [0, 1]]
    monkeypatch.setattr(job, "timeout", 0.5)
    with pytest.raises(shmem.WaitTimeoutError, match="no call from PE 1"):
        bootstrap.StoreComm(store, 0, 2).allgather(0)


def test_processes_on_several_hosts_are_refused_on_all(monkeypatch):
    hosts = iter(("one", "two", "one"))
    real, lock = os.uname(), threading.Lock()

    def uname():
        with lock:
            return type("uname", (), {"nodename": next(hosts), "sysname": real.sysname})

    monkeypatch.setattr(os, "uname", uname)
    for error in on_all(3, lambda comm: comm.Split_type(0, 0)):
        assert isinstance(error, shmem.LaunchError)
        assert re.search(
            r"comm: got processes on 2 hosts, connected by torch.distributed; expected .*pyshmemrun", str(error)
        )


def test_pretended_nodes_are_refused():
    for error in on_all(2, lambda comm: comm.Split(0, 0)):
        assert "PYSHMEM_NODE_SIZE: got pretended nodes in a job without MPI" in str(error)


def test_a_process_that_does_not_come_is_named(monkeypatch):
    """The others read when both have posted what they have."""
    post, both = bootstrap.StoreComm._post, threading.Barrier(2)
    monkeypatch.setattr(bootstrap.StoreComm, "_post", lambda comm, mine: (post(comm, mine), both.wait()))
    monkeypatch.setattr(job, "timeout", 0.5)
    first, _, last = on_all(3, lambda comm: None if comm.rank == 1 else comm.allgather(comm.rank))
    for error in (first, last):
        assert isinstance(error, shmem.WaitTimeoutError) and "got no call from PE 1 in 0.5 s" in str(error)
