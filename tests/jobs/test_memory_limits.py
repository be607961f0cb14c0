"""What a job takes of the machine, what it gives back, and what happens where PEs ask for different things."""

import re

import pytest
from jobs import mpiexec

HEAD = "import os\nimport torch\nimport pyshmem as shmem\n"


def test_the_last_finalize_gives_free_memory_back_and_leaves_the_addresses_and_what_arrays_hold(tmp_path):
    """Free pages are punched out of the shared memory at once, though a tensor still refers to it: there it reads as zeros."""
    program = (
        HEAD
        + """
shmem.init(heap_size="8m")
me, right = shmem.my_pe(), (shmem.my_pe() + 1) % shmem.n_pes()
first = shmem.full(1000, 5.0)
freed = shmem.full(1 << 19, 6.0)
block = shmem.full(1 << 20, 7.0)
layer = torch.nn.Linear(10, 100, bias=False)
layer.weight = torch.nn.Parameter(first.view(100, 10))
shmem.free(freed)
there = shmem.ptr(block, right)
assert there[-1] == 7
shmem.finalize()
assert not freed[1024:-1024].any(), "free pages are still there"
assert (block == 7).all() and (layer.state_dict()["weight"] == 5).all(), "finalize took what arrays hold"
block.fill_(1)
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
assert there.all() and there[0] == 1, "the mapping is gone"
MPI.COMM_WORLD.Barrier()
print("given back")
"""
    )
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out) == (0, "given back\n" * 2), err


def test_tensors_of_the_pool_keep_their_values_after_finalize_and_their_memory_until_they_die(tmp_path):
    program = (
        HEAD
        + """
shmem.init(heap_size="16m")
with shmem.pool(8 << 20):
    layer = torch.nn.Linear(100, 100)
before = layer.weight.detach().clone()
for _ in range(2):
    shmem.finalize()
    assert torch.equal(layer.weight, before), "finalize took what a tensor holds"
    shmem.init(heap_size="16m")
    with shmem.pool(8 << 20):
        other = torch.zeros(100, 100)
    layer.weight.data.add_(0)
    assert shmem.is_symmetric(other) and not shmem.is_symmetric(layer.weight)
from pyshmem.host import pool
assert pool._outlived
del layer, other
shmem.finalize()
assert not pool._outlived, "no tensor holds this memory"
print("kept")
"""
    )
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out) == (0, "kept\n" * 2), err


def test_a_heap_is_reserved_whole_at_init_and_shortage_on_one_pe_is_an_error_on_all(tmp_path):
    """No later access can fail for want of memory. After the error init may be tried again."""
    program = (
        HEAD
        + """
reserved, reserve = [], os.posix_fallocate
def short(fd, offset, nbytes):
    raise OSError(28, "No space left on device")
def enough(fd, offset, nbytes):
    reserved.append((offset, nbytes))
    reserve(fd, offset, nbytes)
os.posix_fallocate = short if os.environ["PMI_RANK"] == "1" else enough
try:
    shmem.init(heap_size="4m")
except shmem.HeapExhaustedError as error:
    print(error)
reserved.clear()
os.posix_fallocate = enough
shmem.init(heap_size="4m")
from pyshmem.memory.cpu_heap import cpu
whole = cpu.size + cpu.system_bytes - cpu.staging_bytes  # staging memory is allocated as it is used
assert reserved == [(shmem.my_pe() * cpu.stride, whole)] and whole >= 4 << 20
block = shmem.full(1 << 20, shmem.my_pe(), dtype=torch.float32)
assert shmem.g(block[-1:], (shmem.my_pe() + 1) % 3) == (shmem.my_pe() + 1) % 3
shmem.barrier_all()
"""
    )
    status, out, err = mpiexec(3, program, tmp_path=tmp_path)
    assert status == 0, err
    said = r"init: PE (\d): heap_size: got 4194304 bytes a PE, and from the system: .*No space left on device.*; expected less, by"
    assert sorted(re.findall(said, out)) == ["0", "1", "2"], out


@pytest.mark.parametrize("unlike", ["environment", "argument"])
def test_a_heap_size_on_some_pes_alone_is_refused_on_all(unlike, tmp_path):
    """The others have the default: neither may one PE wait for them, nor may they have another heap than it."""
    program = (
        """
import os
os.environ.pop("SHMEM_SYMMETRIC_SIZE", None)
me = int(os.environ["PMI_RANK"])
if me == 1 and UNLIKE == "environment":
    os.environ["SHMEM_SYMMETRIC_SIZE"] = "3m"
import pyshmem as shmem
try:
    shmem.init(heap_size="3m" if me == 1 and UNLIKE == "argument" else None)
except shmem.ArgumentError as error:
    print(error)
os.environ.pop("SHMEM_SYMMETRIC_SIZE", None)
shmem.init(heap_size="1m")
shmem.barrier_all()
"""
    ).replace("UNLIKE", repr(unlike))
    status, out, err = mpiexec(3, program, tmp_path=tmp_path)
    assert status == 0, err
    wants = (
        r"init: PE (\d): heap_size: got no size on one PE and 3145728 bytes on another; expected one size on all PEs"
    )
    assert sorted(re.findall(wants, out)) == ["0", "1", "2"]


def test_debug_mode_compares_every_collective_memory_call(tmp_path):
    """Sizes, one PE's size of 0, another routine, another block: refused on all PEs, and the heap is as before."""
    program = (
        HEAD
        + """
shmem.init()
me = shmem.my_pe()
from pyshmem.memory.cpu_heap import cpu
a, b = shmem.zeros(8), shmem.zeros(8)
before = cpu.allocator.live()
for call in (
    lambda: shmem.malloc(8 + me),
    lambda: shmem.zeros(8 * me),
    lambda: shmem.free((a, b)[me]),
    lambda: shmem.realloc(a, 100 + 4 * me),
    lambda: shmem.align(64 << me, 64),
    lambda: shmem.malloc(8) if me else shmem.calloc(1, 8),
    lambda: shmem.free(a) if me else shmem.realloc(a, 64),
):
    try:
        call()
    except (shmem.OutOfRangeError, shmem.ArgumentError) as error:
        print(error)
    assert cpu.allocator.live() == before
shmem.free(a)
shmem.free(b)
"""
    )
    status, out, err = mpiexec(2, program, tmp_path=tmp_path, environment={"SHMEM_DEBUG": "1"})
    assert (status, err) == (0, ""), err
    site = r"at program.py:\d+ on PE"
    said = re.findall(
        rf"(\w+): PE \d: call: got (.*) {site} 0 and (.*) {site} 1; expected the same call on all PEs", out
    )
    alike = [
        ("malloc", "malloc of 8 bytes aligned to 64 on cpu", "malloc of 9 bytes aligned to 64 on cpu"),
        ("zeros", "zeros of 0 bytes aligned to 64 on cpu", "zeros of 32 bytes aligned to 64 on cpu"),
        ("free", "free of 0 bytes at heap offset 0 on cpu", "free of 0 bytes at heap offset 64 on cpu"),
        ("realloc", "realloc of 100 bytes at heap offset 0 on cpu", "realloc of 104 bytes at heap offset 0 on cpu"),
        ("align", "align of 64 bytes aligned to 64 on cpu", "align of 64 bytes aligned to 128 on cpu"),
    ]
    mixed = [
        ("calloc of 8 bytes aligned to 64 on cpu", "malloc of 8 bytes aligned to 64 on cpu"),
        ("realloc of 64 bytes at heap offset 0 on cpu", "free of 0 bytes at heap offset 0 on cpu"),
    ]
    assert sorted(said) == sorted(alike + alike + [(call.split()[0], *calls) for calls in mixed for call in calls])


def test_all_pes_on_one_core_still_pass(tmp_path):
    """A wait gives the core to whoever it waits for."""
    program = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import torch
import pyshmem as shmem
shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
token = shmem.zeros(1, dtype=torch.int64)
for turn in range(1, 101):
    if me or turn > 1:
        shmem.wait_until(token, "==", turn - (me == 0))
    shmem.p(token, turn, (me + 1) % n)
    shmem.barrier_all()
print(me)
"""
    status, out, err = mpiexec(6, program, tmp_path=tmp_path, environment={"PYSHMEM_WAIT_TIMEOUT": "60"})
    assert (status, sorted(out.split())) == (0, list("012345")), err


@pytest.mark.parametrize(
    "given, setting",
    [
        ("", "SHMEM_SYMMETRIC_SIZE, or pyshmemrun --heap-size"),
        ("heap_size='1m'", "heap_size of init, which overrides SHMEM_SYMMETRIC_SIZE"),
    ],
)
def test_an_array_that_does_not_fit_names_what_sets_the_size_of_the_heap(given, setting, tmp_path):
    program = f"import pyshmem as shmem\nshmem.init({given})\nshmem.zeros(1 << 20)"
    status, _, err = mpiexec(1, program, tmp_path=tmp_path, environment={"SHMEM_SYMMETRIC_SIZE": "1m"})
    assert status == 1 and f"the heap of 1 MiB: raise {setting}\n" in err, err


def test_halves_of_the_world_keep_to_themselves(tmp_path):
    """Both at once, each with its own heap size, barriers and collectives; then the whole world."""
    program = (
        HEAD
        + """
from mpi4py import MPI
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2)
for comm, name in ((MPI.COMM_SELF.Split(MPI.UNDEFINED), "COMM_NULL"), (MPI.Group, "type"), ("world", "str")):
    try:
        shmem.init(comm)
    except shmem.ArgumentError as error:
        assert f"comm: got {name}; expected an mpi4py intracommunicator" in str(error), error
shmem.init(half, heap_size=("1m", "2m")[world.rank % 2])
for turn in range(200 + 100 * (world.rank % 2)):
    x = shmem.full(5, turn + world.rank, dtype=torch.int64)
    shmem.sum_reduce(x, x)
    assert x.tolist() == [2 * turn + (2, 4)[world.rank % 2]] * 5
    shmem.free(x)
shmem.finalize()
half.Free()
shmem.init()
x = shmem.full(1, 1, dtype=torch.int64)
shmem.sum_reduce(x, x)
print(shmem.my_pe() == world.rank, x.item())
"""
    )
    status, out, err = mpiexec(4, program, tmp_path=tmp_path)
    assert (status, out) == (0, "True 4\n" * 4), err


def test_mpi_that_is_over_cannot_be_started_again(tmp_path):
    program = HEAD + "from mpi4py import MPI\nMPI.Finalize()\nshmem.init()"
    status, _, err = mpiexec(1, program, tmp_path=tmp_path)
    assert status == 1
    assert (
        "LaunchError: init: PE ?: MPI: got finalised; expected MPI still up: it cannot be started twice in a process"
        in err
    )
