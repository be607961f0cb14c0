"""A program on torch.distributed over pyshmem: each call against what it should give, in the world and in smaller groups.

Every process can make the tensors of all: ``of(rank, ...)``.
"""

import functools
import os
import threading
import warnings

import torch
import torch.distributed as dist

import pyshmem as shmem
from pyshmem.distributed import lanes
from pyshmem.native import _native
from pyshmem.transport.teams import staging

os.environ["PYSHMEM_MAX_TEAMS"] = "8"
warnings.simplefilter("ignore", FutureWarning)  # names that torch has renamed
dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
me, n = dist.get_rank(), dist.get_world_size()
assert (me, n) == (shmem.my_pe(), shmem.n_pes())
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOVED = (*INTEGERS, *FLOATS, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16)
OP = dist.ReduceOp
OPS = {
    OP.SUM: (torch.add, (*INTEGERS, *FLOATS, torch.complex64)),
    OP.PRODUCT: (torch.mul, (torch.int32, torch.float32)),
    OP.MIN: (torch.minimum, (torch.uint8, torch.int64, torch.bfloat16, torch.float64)),
    OP.MAX: (torch.maximum, (torch.int8, torch.float16, torch.float32)),
    OP.BAND: (torch.bitwise_and, INTEGERS),
    OP.BOR: (torch.bitwise_or, (torch.int32, torch.bool)),
    OP.BXOR: (torch.bitwise_xor, (torch.int64, torch.bool)),
}


def of(rank, shape, dtype=torch.float32, salt=0):
    """Small whole numbers, which no order of sums changes."""
    count = torch.Size(shape).numel()
    values = (torch.arange(count) * 3 + 5 * rank + salt) % 7 + 1
    return (values % 2 if dtype is torch.bool else values).to(dtype).view(shape)


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (what, got, wanted)
    bits = [each.contiguous().reshape(-1).view(torch.uint8) for each in (got, wanted)]
    assert torch.equal(*bits), f"PE {me}: {what}: got {got}, wanted {wanted}"


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error) and f"PE {me}: " in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def finished(work, asynchronous):
    if asynchronous:
        assert work.wait() and work.is_completed() and work.get_future().done()


def reductions(group, ranks, asynchronous):
    members = len(ranks)
    for op, (function, dtypes) in OPS.items():
        for dtype in dtypes:
            wanted = functools.reduce(function, [of(i, (3, 2), dtype) for i in ranks])
            mine = of(me, (3, 2), dtype)
            finished(dist.all_reduce(mine, op, group, async_op=asynchronous), asynchronous)
            same(mine, wanted, ("all_reduce", op, dtype))
    mean = of(me, (4,))
    dist.all_reduce(mean, OP.AVG, group)
    torch.testing.assert_close(mean, sum(of(i, (4,)) for i in ranks) / members)
    scaled = of(me, (4,))
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5), group)
    same(scaled, sum(of(i, (4,)) for i in ranks) / 2, "PREMUL_SUM")
    anyone = torch.tensor([me == ranks[-1], False])
    dist.all_reduce(anyone, OP.SUM, group)
    same(anyone, torch.tensor([True, False]), "sum of bools")
    strided = of(me, (4, 6)).t()
    dist.all_reduce(strided, group=group)
    same(strided, sum(of(i, (4, 6)).t() for i in ranks), "strided")
    at_root = of(me, (5,))
    dist.reduce(at_root, ranks[-1], group=group)
    same(at_root, sum(of(i, (5,)) for i in ranks) if me == ranks[-1] else of(me, (5,)), "reduce")
    share = torch.empty(2, 3)
    dist.reduce_scatter_tensor(share, of(me, (2 * members, 3)), group=group)
    same(share, sum(of(i, (2 * members, 3)) for i in ranks)[2 * ranks.index(me) :][:2], "reduce_scatter_tensor")
    blocks = [of(me, (i + 1,), salt=i) for i in range(members)]  # uneven
    mine = torch.empty(ranks.index(me) + 1)
    dist.reduce_scatter(mine, blocks, group=group)
    same(mine, sum(of(i, mine.shape, salt=ranks.index(me)) for i in ranks), "reduce_scatter")


def moves(group, ranks, asynchronous):
    members, mine = len(ranks), ranks.index(me)
    for dtype in MOVED:
        whole = torch.empty(members * 3, 2, dtype=dtype)
        finished(dist.all_gather_into_tensor(whole, of(me, (3, 2), dtype), group, asynchronous), asynchronous)
        same(whole, torch.cat([of(i, (3, 2), dtype) for i in ranks]), ("all_gather_into_tensor", dtype))
        value = of(me, (5,), dtype)
        finished(dist.broadcast(value, ranks[-1], group, asynchronous), asynchronous)
        same(value, of(ranks[-1], (5,), dtype), ("broadcast", dtype))
        got = torch.empty(2 * members, dtype=dtype)
        finished(
            dist.all_to_all_single(got, of(me, (2 * members,), dtype), None, None, group, asynchronous), asynchronous
        )
        wanted = torch.cat([of(i, (2 * members,), dtype)[2 * mine : 2 * mine + 2] for i in ranks])
        same(got, wanted, ("all_to_all_single", dtype))
    for sizes in ([4] * members, [i * 2 for i in range(members)]):
        parts = [torch.empty(size) for size in sizes]
        dist.all_gather(parts, of(me, (sizes[mine],)), group)
        for i, part in zip(ranks, parts, strict=True):
            same(part, of(i, part.shape), "all_gather")
    sent, got = [i + 1 for i in range(members)], [mine + 1] * members
    rows = torch.empty(sum(got), 2)
    dist.all_to_all_single(rows, of(me, (sum(sent), 2)), got, sent, group)
    begin = sum(sent[:mine])
    same(rows, torch.cat([of(i, (sum(sent), 2))[begin : begin + mine + 1] for i in ranks]), "uneven all_to_all_single")
    outputs = [torch.empty(mine + 1) for _ in ranks]
    dist.all_to_all(outputs, [of(me, (i + 1,), salt=i) for i in range(members)], group)
    for i, part in zip(ranks, outputs, strict=True):
        same(part, of(i, (mine + 1,), salt=mine), "all_to_all")
    root = ranks[0]
    parts = [torch.empty(3) for _ in ranks] if me == root else None
    dist.gather(of(me, (3,)), parts, root, group)
    for i, part in zip(ranks, parts or (), strict=me == root):
        same(part, of(i, (3,)), "gather")
    part = torch.empty(3)
    dist.scatter(part, [of(root, (3,), salt=i) for i in ranks] if me == root else None, root, group)
    same(part, of(root, (3,), salt=me), "scatter")
    objects = [None] * members
    dist.all_gather_object(objects, {"rank": me}, group)
    assert objects == [{"rank": i} for i in ranks], objects
    dist.barrier(group)


def coalesced(group, ranks):
    members, mine = len(ranks), ranks.index(me)
    with dist._coalescing_manager(group):
        results = [of(me, (size,)) for size in (2, 5)]
        for each in results:
            dist.all_reduce(each, group=group)
    for each in results:
        same(each, sum(of(i, each.shape) for i in ranks), "coalesced all_reduce")
    with dist._coalescing_manager(group, async_ops=True) as works:
        wholes = [torch.empty(members * size) for size in (1, 3)]
        for size, each in zip((1, 3), wholes, strict=True):
            dist.all_gather_into_tensor(each, of(me, (size,)), group)
    works.wait()
    for size, each in zip((1, 3), wholes, strict=True):
        same(each, torch.cat([of(i, (size,)) for i in ranks]), "coalesced all_gather")
    with dist._coalescing_manager(group):
        shares = [torch.empty(size) for size in (1, 3)]
        for each in shares:
            dist.reduce_scatter_tensor(each, of(me, (len(each) * members,)), group=group)
    for each in shares:
        whole = sum(of(i, (len(each) * members,)) for i in ranks)
        same(each, whole[mine * len(each) :][: len(each)], "coalesced reduce_scatter")


def messages(group, ranks):
    """To all at once, larger than a mailbox, by tags in another order; from anyone; and while a collective is under way."""
    mine, size = ranks.index(me), 200_000
    right, left = ranks[(mine + 1) % len(ranks)], ranks[mine - 1]
    sends = [dist.isend(of(me, (size,), salt=tag), right, group, tag) for tag in (1, 2)]
    sends.append(dist.isend(torch.empty(0), right, group, 3))
    total = of(me, (2,))
    reduction = dist.all_reduce(total, group=group, async_op=True)
    for tag in (2, 1):
        got = torch.empty(2, size // 2)
        assert dist.recv(got.t(), left, group, tag) == left
        same(got.t().contiguous().view(-1), of(left, (size,), salt=tag), ("recv", tag))
    dist.irecv(torch.empty(0), left, group, 3).wait()
    one = dist.isend(of(me, (4,), torch.float64)[1::2][:1], right, group)  # a single element, of stride 2
    with torch.inference_mode():
        got = torch.empty(1, dtype=torch.float64)
    dist.recv(got, left, group)
    same(got, of(left, (4,), torch.float64)[1:2], "recv into a tensor of inference mode")
    for each in (*sends, one, reduction):
        each.wait()
    same(total, sum(of(i, (2,)) for i in ranks), "all_reduce beside messages")
    if mine:
        dist.send(of(me, (4,)), ranks[0], group, 7)
    else:
        came = set()
        for _ in ranks[1:]:
            got = torch.empty(4)
            source = dist.recv(got, None, group, 7)
            same(got, of(source, (4,)), "recv from anyone")
            came.add(source)
        assert came == set(ranks[1:])
    got = torch.empty(3)
    pair = dist.P2POp(dist.irecv, got, left, group), dist.P2POp(dist.isend, of(me, (3,)), right, group)
    for work in dist.batch_isend_irecv(list(pair)):
        work.wait()
    same(got, of(left, (3,)), "batch_isend_irecv")


def symmetric(group, ranks):
    """A symmetric tensor is used where it is: peers see what the call has written, and nothing is staged."""
    count = 1 << 18  # fewer pass through the areas of teams
    inside, whole = shmem.zeros(count), shmem.zeros(count * n)
    inside.copy_(of(me, (count,)))
    staged = []
    real = {name: getattr(staging, name) for name in ("fold", "scatter", "broadcast")}
    for name in real:
        setattr(staging, name, lambda *given, name=name: staged.append(name) or real[name](*given))
    dist.all_gather_into_tensor(whole, inside, group)
    dist.all_reduce(inside, group=group)
    assert not staged, staged
    dist.all_reduce(torch.zeros(count), group=group)
    assert staged == ["fold"], staged
    for name, function in real.items():
        setattr(staging, name, function)
    same(whole, torch.cat([of(i, (count,)) for i in ranks]), "symmetric all_gather")
    same(inside, sum(of(i, (count,)) for i in ranks), "symmetric all_reduce")
    shmem.barrier_all()


def order_of_groups(groups):
    """Two groups, which one process calls in another order: calls that nobody waits for hold up nobody."""
    x, y = torch.ones(3), torch.ones(3)
    calls = [(x, groups[0]), (y, groups[1])]
    works = [dist.all_reduce(each, group=group, async_op=True) for each, group in (calls if me else calls[::-1])]
    for work in works:
        work.wait()
    assert x.tolist() == y.tolist() == [n] * 3


def callbacks(group):
    """A callback of a future waits for another call of its group, as PowerSGD's does. PE 0's waits in the group's thread."""
    x, y, z = torch.ones(3), torch.full((3,), 2.0), torch.full((3,), 3.0)
    if me:
        dist.recv(torch.empty(1), 0, group)
    future = dist.all_reduce(x, group=group, async_op=True).get_future()
    after = future.then(
        lambda done: done.value()[0] + dist.all_reduce(y, group=group, async_op=True).get_future().wait()[0]
    )
    last = dist.all_reduce(z, group=group, async_op=True)
    if not me:
        for other in range(1, n):
            dist.send(torch.ones(1), other, group)
    got = after.wait()
    last.wait()
    assert (got[0], z[0]) == (3 * n, 3 * n), (got, z)
    (torch.ones(3, requires_grad=True) * got).sum().backward()  # refuses tensors of inference mode


def errors(group):
    short = torch.empty(3)
    refused(
        shmem.OutOfRangeError,
        f"output: got 3 elements; expected {n} times",
        lambda: dist.all_gather_into_tensor(short, short),
    )
    double = torch.empty(3 * n, dtype=torch.float64)
    refused(shmem.DtypeError, "expected the float64 of output", lambda: dist.all_gather_into_tensor(double, short))
    refused(
        shmem.DtypeError,
        "expected the float64 of output",
        lambda: dist.reduce_scatter_tensor(double[:1], torch.ones(n)),
    )
    refused(
        shmem.OutOfRangeError,
        "tensor: got 3 elements; expected the 4",
        lambda: dist.all_gather([torch.empty(4)] * n, short),
    )
    refused(
        shmem.OutOfRangeError,
        "output: got 3 elements; expected the 4",
        lambda: dist.reduce_scatter(short, [torch.ones(4)] * n),
    )
    refused(
        shmem.OutOfRangeError,
        f"output: got {2 * n} elements; expected the {n} of input",
        lambda: dist.all_to_all_single(torch.empty(n, 2), torch.ones(n)),
    )
    refused(shmem.ArgumentError, "AVG of bools", lambda: dist.all_reduce(torch.tensor([True]), OP.AVG))
    work = dist.all_reduce(torch.tensor([True]), OP.AVG, async_op=True)
    refused(shmem.ArgumentError, "AVG of bools", work.wait)
    assert isinstance(work.exception(), shmem.ArgumentError) and not work.is_success()
    refused(shmem.DtypeError, "float8", lambda: dist.all_reduce(torch.zeros(2, dtype=torch.float8_e5m2)))
    dist.isend(torch.zeros(2), (me + 1) % n)
    refused(shmem.OutOfRangeError, "got 4 bytes; expected the 8 bytes", lambda: dist.recv(torch.zeros(1), (me - 1) % n))
    small = dist.new_group(list(range(n)))
    dist.destroy_process_group(small)
    refused(shmem.ArgumentError, "destroyed process group", lambda: small.allreduce([short]).wait())


def launched(lane, routine, detail, like, nbytes, dest, source):
    """What a kernel on a stream does, in CPU memory."""
    members, shared = lane.team.n_pes(), {"fcollect": (1, 0), "alltoall": (1, 1), "reduce_scatter": (0, 1)}
    blocks = [members if many else 1 for many in shared.get(routine, (0, 0))]
    memory = (_native.bytes_at(at, nbytes * some, 1, 0) for at, some in zip((dest, source), blocks, strict=True))
    target, given = (torch.utils.dlpack.from_dlpack(each).view(like.dtype) for each in memory)
    lane.team.sync()  # no target is written before its PE calls
    if routine == "reduce_scatter":
        whole = torch.empty_like(given)
        shmem.reduce(whole, given, detail, team=lane.team)
        target.copy_(whole.view(members, -1)[lane.team.my_pe()])
    else:
        more = (detail,) if routine in ("reduce", "broadcast") else ()
        getattr(shmem, routine)(target, given, *more, team=lane.team)


world = list(range(n))
subsets = [world, sorted({0, n - 1}), world[::2], sorted({0, 1, n - 1}), [me]]  # the fourth has no equal distances at 4
lane = shmem.zeros(512, dtype=torch.uint8)
lanes._launch = launched
for number, ranks in enumerate(subsets):
    group = dist.new_group(ranks, use_local_synchronization=number == 4)
    if me in ranks:
        if number == 1:  # the moves on streams, in rounds, which CPU memory has too
            group._place = group._place._replace(lane=lanes.Lane(group.team, lane))
        assert dist.get_backend(group).startswith("cpu:pyshmem") and dist.get_world_size(group) == len(ranks)
        reductions(group, ranks, asynchronous=bool(number % 2))
        moves(group, ranks, asynchronous=not number % 2)
        coalesced(group, ranks)
        if len(ranks) > 1:
            messages(group, ranks)
        dist.destroy_process_group(group)
symmetric(dist.group.WORLD, world)
order_of_groups([dist.group.WORLD, dist.new_group(world)])
callbacks(dist.group.WORLD)
errors(dist.group.WORLD)
for _ in range(8):  # PYSHMEM_MAX_TEAMS is 8: areas come back
    dist.destroy_process_group(dist.new_group(world))
held = [dist.new_group(world) for _ in range(4)]
refused(shmem.ArgumentError, "PYSHMEM_MAX_TEAMS: got 8 teams, which all exist", lambda: dist.new_group(world))
dist.isend(torch.ones(3), (me + 1) % n)  # which nobody receives before the group ends
dist.barrier()
dist.destroy_process_group()
dist.init_process_group("pyshmem", init_method="pyshmem://")
sent, got = dist.isend(torch.full((3,), 2.0), (me + 1) % n), torch.empty(3)
dist.recv(got, (me - 1) % n)
same(got, torch.full((3,), 2.0), "recv in a group of the same name as one that has ended")
sent.wait()
value = torch.full((1,), float(me))
dist.all_reduce(value)
print(f"{me}: {value.item()}, threads {sorted({each.name for each in threading.enumerate()})}", flush=True)
dist.destroy_process_group()
shmem.finalize()
