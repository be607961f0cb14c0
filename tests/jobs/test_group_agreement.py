"""What the processes of a group must have in common, and what a group that has lost it does: no result is made of two calls."""

import re

import pytest
from jobs import mpiexec

START = """
import functools
import signal
import sys
import warnings
import torch
import torch.distributed as dist
import pyshmem as shmem
import pyshmem.distributed

warnings.simplefilter("ignore")
dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
me, n = dist.get_rank(), dist.get_world_size()
OP = dist.ReduceOp
last = me == n - 1


def error_of(call):
    try:
        call()
    except shmem.ShmemError as error:
        return f"{type(error).__name__} {error}"
    return "no error"
"""

DIFFERENT = """
x, whole, many = torch.ones(4), torch.ones(4 * n), [torch.ones(4) for _ in range(n)]
sizes = [1] * (n - 1) + [3 if last else 2]


def coalesced(rows):
    with dist._coalescing_manager():
        for _ in range(rows):
            dist.all_reduce(torch.ones(2))


CASES = {
    "op": lambda: dist.all_reduce(x, OP.PRODUCT if last else OP.SUM),
    "average": lambda: dist.all_reduce(x, OP.AVG if last else OP.SUM),
    "scattered": lambda: dist.reduce_scatter_tensor(x, whole, OP.MAX if last else OP.SUM),
    "reduce": lambda: dist.reduce(x, n - 1 if last else 0),
    "broadcast": lambda: dist.broadcast(x, n - 1 if last else 0),
    "gather": lambda: dist.gather(x, many if me == (n - 1 if last else 0) else None, n - 1 if last else 0),
    "scatter": lambda: dist.scatter(x, many if me == (n - 1 if last else 0) else None, n - 1 if last else 0),
    "gathered": lambda: dist.gather(x.int() if last else x, many if me == 0 else None, 0),
    "splits": lambda: dist.all_to_all_single(
        torch.empty(2 * n if last else n), torch.ones(n), [2 if last else 1] * n, [1] * n
    ),
    "blocks": lambda: dist.all_to_all(
        [torch.empty(5 if last and i == 0 else 4) for i in range(n)], [torch.ones(4) for _ in range(n)]
    ),
    "lists": lambda: dist.all_gather([torch.empty(1 if i else 3 + (last and n > 2)) for i in range(n)], torch.ones(1 if me else 3)),
    "parts": lambda: dist.reduce_scatter(torch.empty(sizes[me]), [torch.ones(size) for size in sizes]),
    "rows": lambda: coalesced(3 if last else 2),
    "calls": lambda: dist.broadcast(x, 0) if last else dist.all_reduce(x),
    "barrier": lambda: dist.barrier() if last else dist.all_reduce(x),
    "messages": lambda: dist.gather(x, None if me else many, 0) if last else dist.all_reduce(x),
}
for name, call in CASES.items():
    print(me, name, error_of(call), flush=True)
    dist.barrier()
x.fill_(me)
dist.all_reduce(x)  # the group goes on
print(me, "sum", x[0].item(), flush=True)
right = (me + 1) % n
dist.isend(torch.ones(2), right)
print(me, "recv", error_of(lambda: dist.recv(torch.ones(2, dtype=torch.int32), me - 1 if me else n - 1)), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
# of each case: the argument and what is said of the last rank, and of the others
WANTED = {
    "op": ("op", "SUM", "PRODUCT"),
    "average": ("op", "SUM", "AVG"),
    "scattered": ("op", "SUM", "MAX"),
    "reduce": ("root", "rank 0", "rank {last}"),
    "broadcast": ("root", "rank 0", "rank {last}"),
    "gather": ("root", "rank 0", "rank {last}"),
    "scatter": ("root", "rank 0", "rank {last}"),
    "gathered": ("dtype", "float32", "int32"),
    "parts": ("size", "{parts} elements", "{more} elements"),
    "rows": ("sizes", r"\[2\]", r"\[3\]"),
    "calls": ("call", "all_reduce", "broadcast"),
    "barrier": ("call", "all_reduce", "barrier"),
    "messages": ("call", "all_reduce", "gather"),
}


@pytest.mark.parametrize("n", [2, 3])
def test_calls_that_differ_are_refused_on_all_ranks_with_what_differs_and_where(n, tmp_path):
    status, out, err = mpiexec(n, START + DIFFERENT, tmp_path=tmp_path)
    assert status == 0, err
    found = {tuple(line.split(maxsplit=2)[:2]): line.split(maxsplit=2)[2] for line in out.splitlines()}
    others = "PE 0" if n == 2 else "PEs 0 and 1"
    for name, (argument, first, other) in WANTED.items():
        first, other = (each.format(last=n - 1, parts=n + 1, more=n + 2) for each in (first, other))
        wanted = rf"Error [\w, ]+: PE \d: {argument}: got {first} on {others} and {other} on PE {n - 1}; expected the same on all PEs$"
        for me in range(n):
            assert re.search(wanted, found[str(me), name]), (me, name, found[str(me), name])
    for me in range(n):
        assert f"block: got PE {n - 1} with room for 2 elements where PE {n - 1} sends 1;" in found[str(me), "splits"]
        assert f"block: got PE {n - 1} with room for 5 elements where PE 0 sends 4;" in found[str(me), "blocks"]
        if n == 3:
            assert re.search(r"sizes: got \[3, 1, 1\] on PEs 0 and 1 and \[4, 1, 1\] on PE 2;", found[str(me), "lists"])
        assert found[str(me), "sum"] == str(float(sum(range(n))))
        assert f"got int32 elements; expected the float32 that PE {(me - 1) % n} sends" in found[str(me), "recv"]


AVERAGES = """
def whole(dtype, value):  # of the last rank, and of the others
    values = {torch.float16: 60000.0, torch.bfloat16: 3e38, torch.int8: 100, torch.uint8: 200, torch.int32: 2**31 - 1}
    large = torch.full((4 * n,), values[dtype], dtype=dtype)
    large[::2] = value
    return large


def mean(dtype):
    every = torch.stack([whole(dtype, 256 if rank == 0 and dtype.is_floating_point else 1) for rank in range(n)])
    if dtype.is_floating_point:
        return every.double().mean(0).to(dtype)
    return torch.div(every.to(torch.int64).sum(0), n, rounding_mode="trunc").to(dtype)


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), (what, got, wanted)


for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32):
    mine, wanted, share = whole(dtype, 256 if me == 0 and dtype.is_floating_point else 1), mean(dtype), torch.empty(4, dtype=dtype)
    for asynchronous in (False, True):
        x = mine.clone()
        work = dist.all_reduce(x, OP.AVG, async_op=asynchronous)
        if asynchronous:
            work.wait()
        same(x, wanted, ("all_reduce", dtype))
    x = mine.clone()
    dist.reduce(x, n - 1, OP.AVG)
    same(x, wanted if last else mine, ("reduce", dtype))
    dist.reduce_scatter_tensor(share, mine, OP.AVG)
    same(share, wanted[4 * me :][:4], ("reduce_scatter_tensor", dtype))
    uneven = list(mine.split([1] * (n - 1) + [3 * n + 1]))
    own = torch.empty(uneven[me].shape, dtype=dtype)
    dist.reduce_scatter(own, uneven, OP.AVG)
    same(own, wanted[me:][: len(own)], ("reduce_scatter", dtype))
    strided = mine.view(4, n).t()
    dist.all_reduce(strided, OP.AVG)
    same(strided, wanted.view(4, n).t(), ("strided", dtype))
    mine = whole(dtype, 256 if me == 0 and dtype.is_floating_point else 1)
    with dist._coalescing_manager():
        results = [mine[:3].clone(), mine[3:].clone()]
        for each in results:
            dist.all_reduce(each, OP.AVG)
    same(torch.cat(results), wanted, ("coalesced", dtype))
print(me, "averaged", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("n", [2, 3])
def test_averages_of_narrow_types_are_divided_before_they_are_rounded(n, tmp_path):
    status, out, err = mpiexec(n, START + AVERAGES, tmp_path=tmp_path)
    assert status == 0 and sorted(out.splitlines()) == [f"{me} averaged" for me in range(n)], err


GROUPS = """
for ranks in ([0, 3] if me in (0, 3) else [1, 2]), ([0] if me == 0 else [1, 2, 3]):
    group = dist.new_group(ranks)
    x, every = torch.tensor([me + 1.0]), [torch.zeros(1) for _ in ranks]
    dist.all_reduce(x, group=group)
    dist.all_gather(every, torch.tensor([float(me)]), group=group)
    assert x.item() == sum(ranks) + len(ranks) and [int(each) for each in every] == ranks, (x, every)
print(me, error_of(lambda: dist.new_group([0, 1, 2] if me == 2 else [0, 1])), flush=True)
dist.barrier()
if me == 3:
    print(me, error_of(lambda: dist.new_group([1, 3])), flush=True)
    dist.group.WORLD.get_group_store().set("refused", "yes")
dist.group.WORLD.get_group_store().wait(["refused"])
dist.barrier()
"""


def test_groups_that_processes_make_in_one_call_have_the_ranks_that_each_names_or_both_lists_are_named(tmp_path):
    status, out, err = mpiexec(4, START + GROUPS, tmp_path=tmp_path, environment={"PYSHMEM_WAIT_TIMEOUT": "20"})
    lines = sorted(out.splitlines())
    assert status == 0 and len(lines) == 5, (out, err)
    assert lines[0] == "0 no error" and lines[1] == "1 no error" and lines[4] == "3 no error", lines
    lists = (
        r"2 ArgumentError new_group: PE 2: ranks: got \[0, 1, 2\] on rank 2 and \[0, 1\] on rank 0; expected one list"
    )
    assert re.match(lists, lines[2]), lines
    assert re.match(
        r"3 WaitTimeoutError new_group: PE 3: ranks: got no call from rank 1 in 20 s; expected a call of ranks 1 and 3;",
        lines[3],
    ), lines


ENDED = """
def interrupted():
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        dist.all_reduce(torch.ones(3))
    except KeyboardInterrupt:
        return
    raise AssertionError("not interrupted")


signal.signal(signal.SIGALRM, signal.default_int_handler)
store = dist.group.WORLD.get_group_store()
other = dist.new_group()
if me == 0:
    interrupted()
    print(me, error_of(lambda: dist.all_reduce(torch.ones(3))), flush=True)
    print(me, error_of(lambda: dist.barrier(async_op=True).wait()), flush=True)
    store.set("interrupted", "yes")
store.wait(["interrupted"])
x = torch.full((3,), me + 1.0)
dist.all_reduce(x, group=other)  # other groups go on
print(me, x[0].item(), flush=True)
"""


def test_a_group_in_whose_call_a_process_was_interrupted_refuses_later_calls_by_name(tmp_path):
    status, out, err = mpiexec(2, START + ENDED, tmp_path=tmp_path)
    wants = "expected a new group, on all its processes: no result is made of two calls"
    got = "ArgumentError {}: PE 0: group: got a group whose all_reduce was ended by KeyboardInterrupt on this PE; "
    lines = ["0 3.0", *(f"0 {got.format(call)}{wants}" for call in ("all_reduce", "barrier")), "1 3.0"]
    assert status == 0 and sorted(out.splitlines()) == lines, (out, err)


WATCHED = """
from torch.profiler import ProfilerActivity, profile
x, whole = torch.ones(4), torch.empty(4 * n)
for watched in (False, True):
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        dist.all_gather_into_tensor(whole, x)
        dist.broadcast(x, 0)
        dist.isend(x, (me + 1) % n)
        dist.recv(x, (me - 1) % n)
        dist.barrier()
counts = {each.key: each.count for each in seen.key_averages() if each.key.startswith("pyshmem:")}
print(me, *sorted(f"{key}={count}" for key, count in counts.items()), flush=True)
dist.destroy_process_group()
"""


def test_the_profiler_of_torch_shows_each_call_of_a_group_by_its_name(tmp_path):
    status, out, err = mpiexec(2, START + WATCHED, tmp_path=tmp_path)
    names = "all_gather_single=1 all_reduce=2 barrier=1 broadcast=1 recv=1 send=1"
    wanted = " ".join(f"pyshmem:{name}" for name in names.split())
    lines = [line for line in out.splitlines() if "pyshmem:" in line]
    assert status == 0 and sorted(lines) == [f"{me} {wanted}" for me in range(2)], (out, err)


COMPILED = """
from torch.nn.parallel import DistributedDataParallel
for options in ({}, {"static_graph": True}):
    gradients = []
    for make in (lambda model: model, lambda model: torch.compile(model, backend="eager")):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        call = make(DistributedDataParallel(model, **options))
        for turn in range(3):
            call(torch.arange(8.0).view(2, 4) * (me + turn)).sum().backward()
        gradients.append([each.grad for each in model.parameters()])
    assert all(map(torch.equal, *gradients)), gradients
    torch._dynamo.reset()
print(me, "compiled", flush=True)
dist.destroy_process_group()
"""


def test_compiled_ddp_makes_the_gradients_of_ddp_in_each_call(tmp_path):
    status, out, err = mpiexec(2, START + COMPILED, tmp_path=tmp_path)
    assert status == 0 and sorted(out.splitlines()) == [f"{me} compiled" for me in range(2)], err


ALONE = """
from pyshmem.distributed import symm_mem
if me == 0:
    print(error_of(symm_mem._meet_for_empty), flush=True)
"""


def test_empty_of_symmetric_memory_on_one_pe_says_that_it_is_collective(tmp_path):
    status, out, err = mpiexec(2, START + ALONE, tmp_path=tmp_path, environment={"PYSHMEM_WAIT_TIMEOUT": "2"})
    wanted = r"WaitTimeoutError symm_mem.empty: PE 0: team: got no call from PE 1 .*is collective over all PEs after symm_mem.enable"
    assert re.search(wanted, out), (out, err)
