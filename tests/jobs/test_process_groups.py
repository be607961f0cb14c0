"""torch.distributed on pyshmem, in programs that MPI and torchrun start: process_groups.py and models_on_groups.py."""

import pathlib
import re

import pytest
from jobs import mpiexec, python
from test_torchrun import TORCHRUN

PROGRAM, MODELS = (
    pathlib.Path(__file__).with_name(name).read_text() for name in ("process_groups.py", "models_on_groups.py")
)


def require_whole(outcome, n):
    """All processes have come to the end, and no thread of a group that is gone is left."""
    status, out, err = outcome
    assert status == 0, err
    lines = [f"{me}: {n * (n - 1) / 2}, threads ['MainThread', 'pyshmem.messages']" for me in range(n)]
    assert sorted(out.splitlines()) == lines, err


@pytest.mark.parametrize("n", [2, 4])
def test_calls_of_torch_distributed_give_what_they_should_in_the_world_and_in_groups(n, tmp_path):
    require_whole(mpiexec(n, PROGRAM, tmp_path=tmp_path), n)


def test_the_same_program_runs_under_torchrun(tmp_path):
    launcher = [*TORCHRUN[:-3], "--nproc-per-node", "3", "--no-python"]
    require_whole(python(PROGRAM, tmp_path=tmp_path, launcher=launcher), 3)


@pytest.mark.parametrize("n", [2, 4])
def test_ddp_fsdp_and_dtensor_give_what_they_give_on_gloo(n, tmp_path):
    status, out, err = mpiexec(n, MODELS, tmp_path=tmp_path)
    assert status == 0 and sorted(out.splitlines()) == [f"{me}: 179 parameters" for me in range(n)], err


COUNTED = """
import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.two_tensor import TwoTensor
import pyshmem as shmem
import pyshmem.distributed

dist.init_process_group("pyshmem")
me, n = dist.get_rank(), dist.get_world_size()
x, whole = torch.ones(4), torch.empty(4 * n)
parts = [torch.empty(4) for _ in range(n)]
some = parts if me == 0 else None
with CommDebugMode() as outer, CommDebugMode() as inner:
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.all_gather_into_tensor(whole, x)
    dist.reduce_scatter_tensor(x, whole)
    dist.all_gather(parts, x)
    dist.reduce_scatter(x, parts)
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.gather(x, some, 0)
    dist.scatter(x, some, 0)
    dist.all_to_all(parts, [each.clone() for each in parts])
    dist.all_to_all_single(whole, whole.clone())
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(whole)
    try:
        dist.broadcast(torch.ones(2).to_sparse(), 0)
    except Exception as error:
        refused = type(error).__module__.split(".")[0]
two = TwoTensor(torch.full((3,), float(me)), torch.full((3,), 1.0))
dist.all_reduce(two)
work = dist.all_reduce(two, async_op=True)
work.wait()
gathered = [TwoTensor(torch.empty(3), torch.empty(3)) for _ in range(n)]
dist.all_gather(gathered, TwoTensor(torch.full((3,), float(me)), torch.full((3,), -1.0)))
for each in outer, inner:
    print(me, *sorted(f"{kind}={count}" for kind, count in each.get_comm_counts().items()), refused)
print(me, two.a.tolist(), two.b.tolist(), [each.a[0].item() for each in gathered], [each.b[0].item() for each in gathered])
x.fill_(1)
dist.all_reduce(x)
print(me, x[0].item(), flush=True)
dist.destroy_process_group()
"""


def test_modes_of_torch_see_the_calls_of_groups_and_tensors_that_unwrap_themselves_are_passed_by_their_parts(tmp_path):
    status, out, err = mpiexec(2, COUNTED, tmp_path=tmp_path)
    assert status == 0, err
    once = """_allgather_base_ _reduce_scatter_base_ allgather_ reduce_scatter_ broadcast_ reduce_ gather_ scatter_ alltoall_
        alltoall_base_ allreduce_coalesced_"""
    counts = sorted([f"c10d.{kind}=1" for kind in once.split()] + ["c10d.allreduce_=2"])
    ends = [" ".join(counts) + " pyshmem"] * 2 + ["[2.0, 2.0, 2.0] [4.0, 4.0, 4.0] [0.0, 1.0] [-1.0, -1.0]", "2.0"]
    assert sorted(out.splitlines()) == sorted(f"{me} {line}" for me in range(2) for line in ends), err


ENDS = """
import torch.distributed as dist
import pyshmem as shmem
import pyshmem.distributed
store = dist.HashStore()
try:
    dist.init_process_group("pyshmem", store=store, rank=0, world_size=1)
except shmem.LaunchError as error:
    print(f"{shmem.my_pe()}: {error}", flush=True)
dist.init_process_group("pyshmem")
def fails():
    raise ValueError("boom")
if shmem.my_pe():
    fails()
dist.barrier()
"""


def test_a_group_without_all_pes_is_refused_and_an_exception_is_told_with_its_place(tmp_path):
    """torch has a hook of its own for exceptions, which must not keep the traceback for itself."""
    status, out, err = mpiexec(2, ENDS, tmp_path=tmp_path)
    wants = "init_process_group: PE {}: world_size: got 1 processes; expected all 2 PEs, once each"
    assert sorted(out.splitlines()) == [f"{me}: {wants.format(me)}" for me in range(2)], err
    assert status == 1 and re.search(r"in fails\n", err), err


AT_EXIT = """
import torch
import torch.distributed as dist
import pyshmem.distributed
dist.init_process_group("pyshmem")
for group in [dist.new_group() for _ in range(8)]:
    dist.all_reduce(torch.ones(4), group=group, async_op=True).wait()
"""


def test_a_program_may_end_while_threads_of_its_groups_drop_what_they_have_performed(tmp_path):
    """A thread that torch's code keeps when the interpreter ends would abort the process."""
    assert mpiexec(2, AT_EXIT, tmp_path=tmp_path)[0] == 0
