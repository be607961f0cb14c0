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
    wants = "init_process_group: PE {}: world_size: got 1 processes; wants all 2 PEs, once each"
    assert sorted(out.splitlines()) == [f"{me}: {wants.format(me)}" for me in range(2)], err
    assert status == 1 and re.search(r"in fails\n", err), err
