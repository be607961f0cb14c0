"""PYSHMEM_NVTX=1: each host call is a range, which ends with the call. torch.cuda.nvtx has a stand-in here."""

from jobs import python

import pyshmem as shmem
from pyshmem import ops
from pyshmem import shmem as c_names
from pyshmem.host import locks, rma, teams

RECORDED = """
import sys
import torch
from torch.cuda import nvtx

seen, depth = [], 0

def push(label):
    global depth
    seen.append("  " * depth + label)
    depth += 1

def pop():
    global depth
    depth -= 1

nvtx.range_push, nvtx.range_pop = push, pop
import pyshmem as shmem
from pyshmem import irregular, ops
from pyshmem.shmem import shmem_long_p, shmem_put
from pyshmem.diagnosis import host_timeouts

shmem.init()
x = shmem.zeros(4, dtype=torch.int64)
seen.clear()
shmem.put(x, torch.ones(4, dtype=torch.int64), 0)
shmem.barrier_all()
try:
    shmem.get(x, x, 7)
except shmem.OutOfRangeError:
    print(depth)
shmem.TEAM_WORLD.split_strided(0, 1, 1)
with shmem.Lock():
    pass
shmem_long_p(x, 3, 0)
shmem_put(x, x, 4, 0)
try:
    shmem.wait_until(x[:1], "==", 9)
except shmem.WaitTimeoutError:
    pass
def pes():
    caller = sys._getframe(1)
    print(host_timeouts._place(caller) + host_timeouts._waits_for(caller))
    yield 0
shmem.pe_quiet(pes())
ops.clear()
irregular.csr(torch.eye(3).to_sparse_csr())
print(depth, x.tolist())
print("\\n".join(seen))
"""
WANTED = [
    *("shmem.put", "shmem.barrier_all", "shmem.get", "shmem.Team.split_strided", "shmem.Lock.__enter__"),
    *("shmem.Lock.__exit__", "shmem_long_p", "shmem_put", "shmem.wait_until", "shmem.pe_quiet"),
    *("shmem.ops.clear", "shmem.irregular.csr"),
]


def test_each_call_is_a_range_with_its_name_that_ends_with_it_also_by_an_error(tmp_path):
    settings = {"PYSHMEM_NVTX": "1", "PYSHMEM_WAIT_TIMEOUT": "0.1"}
    status, out, err = python(RECORDED, tmp_path=tmp_path, environment=settings)
    assert status == 0, err
    failed, place, counted, *ranges = out.splitlines()
    assert (failed, counted) == ("0", "0 [3, 1, 1, 1]")
    # not in the range's own code
    assert place.startswith("is in pe_quiet at program.py:") and ": pes = <generator" in place
    assert [each for each in ranges if not each.startswith(" ")] == WANTED


def test_unset_every_call_is_the_function_itself():
    """Nothing stands between the program and the call."""
    assert shmem.put is rma.put and shmem.put.__code__.co_name == "put"
    assert ops.gemm_all_reduce.__code__.co_name == "gemm_all_reduce"
    assert shmem.Team.sync is teams.Team.sync and shmem.Team.sync.__code__.co_name == "sync"
    assert locks.Lock.acquire.__code__.co_name == "acquire"
    assert "within" not in c_names.shmem_long_put.__code__.co_name


def test_a_torch_without_ranges_is_refused_at_init(tmp_path):
    program = """
from torch.cuda import nvtx
def push(label):
    raise RuntimeError("NVTX functions not installed")
nvtx.range_push = push
import pyshmem as shmem
print(shmem.info_get_name() != "")
try:
    shmem.init()
except shmem.ArgumentError as error:
    print(error)
"""
    status, out, err = python(program, tmp_path=tmp_path, environment={"PYSHMEM_NVTX": "1"})
    assert status == 0, err
    assert out.startswith(
        "True\ninit: PE 0: PYSHMEM_NVTX: got 1 with a torch without ranges: NVTX functions not installed"
    )
