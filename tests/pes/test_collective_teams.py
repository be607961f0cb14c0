"""9.9 on teams of every shape: collect, all-to-all, reductions, scans; by each way, back to back, one PE late."""

import numpy as np
import pytest
import torch
from support import assert_same, guarded, here, name_of, payload, refused_by_all, refuses, untouched, work
from team_shapes import SHAPES, group, way  # noqa: F401

import pyshmem as shmem
from pyshmem.transport.teams import meeting as mapped

DTYPES = [torch.bool, torch.int16, torch.int64, torch.bfloat16, torch.complex128]
NUMBERS = [torch.int8, torch.uint64, torch.float16, torch.float64, torch.complex64]
SIZES = [0, 1, 7, 1000, 20_000]
ids = {"ids": name_of}


def total(parts, dtype):
    """The sum by NumPy, in the order of the parts; half types in float32."""
    wide = [(part.float() if dtype.itemsize == 2 and dtype.is_floating_point else part).cpu().numpy() for part in parts]
    result = wide[0]
    for part in wide[1:]:
        result = np.add(result, part, dtype=wide[0].dtype)
    return torch.from_numpy(np.array(result)).to(dtype).to(here())


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_collect_takes_as_much_as_each_member_brings(dtype, group, way, me):
    team, pes = group
    for turn, most in enumerate((1, 5, 1000)):
        counts = [(pe * 3 + turn) * most // 4 for pe in pes]  # 0 among them
        source = shmem.array(payload(me, turn, 12 * most, dtype))
        target, whole = guarded(sum(counts), dtype)
        if team:
            shmem.collect(way(whole), way(source), counts[team.my_pe()], team)
            wanted = [payload(pe, turn, 12 * most, dtype)[:count] for pe, count in zip(pes, counts, strict=True)]
            assert_same(target, torch.cat(wanted))
        assert untouched(whole if not team else whole[sum(counts) :])
        shmem.free(whole)


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_fcollect_puts_the_members_one_after_the_other(dtype, group, way, me):
    team, pes = group
    for turn, count in enumerate(SIZES):
        source = shmem.array(payload(me, turn, count, dtype))
        target, whole = guarded(len(pes) * count, dtype)
        if team:
            shmem.fcollect(way(whole), way(source), team=team)
            assert_same(target, torch.cat([payload(pe, turn, count, dtype) for pe in pes]))
        assert untouched(whole if not team else whole[len(pes) * count :])
        shmem.free(whole)


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_alltoall_sends_block_j_to_member_j(dtype, group, way, me):
    team, pes = group
    for turn, count in enumerate(SIZES):
        source = shmem.array(payload(me, turn, len(pes) * count, dtype))
        target, whole = guarded(len(pes) * count, dtype)
        if team:
            shmem.alltoall(way(whole), way(source), count, team)
            k = team.my_pe()
            parts = [payload(pe, turn, len(pes) * count, dtype)[k * count : (k + 1) * count] for pe in pes]
            assert_same(target, torch.cat(parts))
        assert untouched(whole if not team else whole[len(pes) * count :])
        shmem.free(whole)


@pytest.mark.parametrize("tst, sst", [(1, 1), (3, 1), (1, 2), (2, 5)])
@pytest.mark.parametrize("dtype", [torch.int8, torch.complex128], **ids)
def test_alltoalls_takes_and_leaves_gaps(dtype, tst, sst, group, way, me):
    """Element i of block l: source[(l*n+i)*sst] here becomes target[(k*n+i)*tst] on member l, k being this one."""
    team, pes = group
    for turn, count in enumerate((0, 1, 7, 300)):
        source = shmem.array(payload(me, turn, len(pes) * count * sst + 1, dtype))
        target, whole = guarded(len(pes) * count * tst, dtype)
        wanted = whole.clone()
        shmem.sync_all()  # others write at once
        if team:
            shmem.alltoalls(way(whole), way(source), tst, sst, count, team)
            block = team.my_pe() * count
            for k, pe in enumerate(pes):
                sent = payload(pe, turn, len(pes) * count * sst + 1, dtype)
                places = torch.arange(count, device=here())
                wanted[(k * count + places) * tst] = sent[(block + places) * sst]
        assert_same(whole.clone(), wanted)
        shmem.free(whole)


def test_broadcast_counts_the_root_in_the_team(group, way, me):
    team, pes = group
    for count in SIZES:
        for root, pe in enumerate(pes):
            source, (target, whole) = shmem.array(payload(me, root, count, torch.int32)), guarded(count, torch.int32)
            if team:
                shmem.broadcast(way(whole), way(source), root, count, team)
                assert_same(target, payload(pe, root, count, torch.int32))
            assert untouched(whole if not team else whole[count:])
            shmem.free(whole)


@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
@pytest.mark.parametrize("dtype", NUMBERS, **ids)
@pytest.mark.parametrize("name", ["sum_reduce", "sum_inscan", "sum_exscan"])
def test_sums_are_those_of_the_members_up_to_the_right_one(name, dtype, in_place, group, way, me):
    team, pes = group
    for turn, count in enumerate(SIZES):
        source, (target, whole) = shmem.array(payload(me, turn, count, dtype)), guarded(count, dtype)
        if team:
            shmem_call = getattr(shmem, name)
            shmem_call(way(source if in_place else whole), way(source), count, team)
            last = {"sum_reduce": len(pes), "sum_inscan": team.my_pe() + 1, "sum_exscan": team.my_pe()}[name]
            parts = [payload(pe, turn, count, dtype) for pe in pes[:last]]
            wanted = total(parts, dtype) if parts else torch.zeros_like(source)
            assert_same((source if in_place else target).clone(), wanted)
            if not in_place:
                assert_same(source.clone(), payload(me, turn, count, dtype))
        assert untouched(whole if in_place or not team else whole[count:])
        shmem.free(whole)


INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPERATORS = [(op, dtype) for dtype in INTEGERS for op in ("sum", "prod", "min", "max", "and", "or", "xor")] + [
    (op, dtype) for dtype in FLOATS for op in ("sum", "prod", "min", "max")
]


@pytest.mark.parametrize("op, dtype", OPERATORS, ids=lambda each: name_of(each))
def test_torch_and_c_give_the_same_bits(op, dtype, me, monkeypatch):
    """On all bit patterns of integers, and on floats that round, overflow, and are NaN in some places."""
    drawn = torch.randint(-(2**63), 2**63 - 1, (4000,), generator=torch.Generator().manual_seed(me)).view(torch.uint8)
    if dtype.is_floating_point:
        values = ((drawn.view(torch.int32) % 2001 - 1000) / 7.0).to(dtype)
        values[me::17] = float("nan")
        values[me + 3 :: 19] = 60_000.0
    else:
        values = drawn.view(dtype)
    count = len(values)
    source, by_c, by_torch = shmem.array(values), shmem.empty(count, dtype=dtype), shmem.empty(count, dtype=dtype)
    shmem.reduce(by_c, source, op)
    monkeypatch.setattr(mapped, "native_heap", None)
    shmem.reduce(by_torch, source, op)
    if dtype.is_floating_point:
        assert torch.equal(by_c.isnan(), by_torch.isnan()) and by_c.isnan().any()
        by_c, by_torch = by_c.nan_to_num(0, 2, 3), by_torch.nan_to_num(0, 2, 3)
    assert_same(by_c.clone(), by_torch.clone())


@pytest.mark.parametrize("name", ["sum_inscan", "sum_exscan"])
def test_scans_by_torch_and_by_c_give_the_same(name, me, monkeypatch):
    for turn, dtype in enumerate((torch.int32, torch.uint8, torch.bfloat16)):
        source = shmem.array(payload(me, turn, 37, dtype))
        by_c, by_torch = shmem.empty(37, dtype=dtype), shmem.empty(37, dtype=dtype)
        getattr(shmem, name)(by_c, source)
        with monkeypatch.context() as patch:
            patch.setattr(mapped, "native_heap", None)
            getattr(shmem, name)(by_torch, source)
        assert_same(by_c.clone(), by_torch.clone())


CALLS = {
    "collect": lambda target, source, team: shmem.collect(target, source, team=team),
    "fcollect": lambda target, source, team: shmem.fcollect(target, source, team=team),
    "alltoall": lambda target, source, team: shmem.alltoall(target, source, source.numel() // team.n_pes(), team),
    "sum_inscan": lambda target, source, team: shmem.sum_inscan(target[: source.numel()], source, team=team),
    "sum_exscan": lambda target, source, team: shmem.sum_exscan(target[: source.numel()], source, team=team),
    "sum_reduce": lambda target, source, team: shmem.sum_reduce(target[: source.numel()], source, team=team),
}


def outcome(name, turn, count, me, n):
    """What PE me finds, when PE p brings 10**p + turn in every place."""
    brought = [10**pe + turn for pe in range(n)]
    sums = {"sum_inscan": brought[: me + 1], "sum_exscan": brought[:me], "sum_reduce": brought}
    if name in sums:
        return [sum(sums[name])] * count
    share = count // n if name == "alltoall" else count
    return [value for value in brought for _ in range(share)]


@pytest.mark.parametrize("count, turns", [(12, 100), (60_000, 8)])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("way", ["tensors", "torch"], indirect=True)
def test_calls_follow_each_other_without_a_word_between(name, count, turns, way, me, npes):
    """A source is written just before the call and again just after it; each time another PE is late."""
    source = shmem.empty(count, dtype=torch.int64)
    targets = shmem.zeros(turns, npes * count, dtype=torch.int64)
    for turn, target in enumerate(targets):
        if me == turn // 3 % npes:
            work(5000)
        source.fill_(10**me + turn)
        CALLS[name](target, source, shmem.TEAM_WORLD)
        source.fill_(-1)
        wanted = torch.tensor(outcome(name, turn, count, me, npes), dtype=torch.int64, device=here())
        assert_same(target[: len(wanted)].clone(), wanted)


@pytest.mark.many
def test_teams_take_turns_and_do_not_mix(me, npes):
    """Every team has its own area: calls on overlapping teams in different order of arrival do not meet each other."""
    teams = [shmem.TEAM_WORLD.split_strided(*shape(npes)) for shape in SHAPES.values()]
    members = [[shape(npes)[0] + i * shape(npes)[1] for i in range(shape(npes)[2])] for shape in SHAPES.values()]
    source, target = shmem.empty(3, dtype=torch.int64), shmem.zeros(len(teams), 60, 3, dtype=torch.int64)
    for turn in range(60):
        if me == turn % npes:
            work(3000)
        for which, (team, pes) in enumerate(zip(teams, members, strict=True)):
            if team:
                source.fill_(turn + me)
                shmem.sum_reduce(target[which, turn], source, team=team)
                assert target[which, turn].tolist() == [sum(turn + pe for pe in pes)] * 3
    for team in teams:
        team.destroy()


@pytest.mark.parametrize("kind", [np.longdouble, np.clongdouble])
def test_long_double_is_combined_by_numpy_in_uint8_memory(kind, me, npes, device):
    if device != "cpu":
        pytest.skip("a type of the CPU")
    item = np.dtype(kind).itemsize
    source = shmem.zeros(5 * item, dtype=torch.uint8, device="cpu").numpy().view(kind)
    target = shmem.zeros(6 * item, dtype=torch.uint8, device="cpu").numpy().view(kind)
    third = kind(1) / 3  # needs the type's precision
    source[:] = np.arange(5) + third * (me + 1)
    shmem.sum_reduce(target, source)
    wanted = np.arange(5) + third
    for pe in range(1, npes):
        wanted = wanted + (np.arange(5) + third * (pe + 1))
    assert (target[:5] == wanted).all() and target[5] == 0
    shmem.fcollect(shmem.zeros(5 * item * npes, dtype=torch.uint8, device="cpu").numpy().view(kind), source)
    with refuses("and_reduce", "target: got (c)?longdouble|float128|complex256", shmem.DtypeError):
        shmem.and_reduce(target, source)


# ---- what is refused ----


def test_operands_that_do_not_fit_are_refused_and_nothing_changes(me, npes):
    small, source = shmem.zeros(4), shmem.full((2 * npes + 5,), 7.0)
    for name, call, pattern in (
        ("fcollect", lambda: shmem.fcollect(small, source, 5), rf"target: got 4 elements; expected at least {5 * npes}: {npes} blocks of 5"),
        ("fcollect", lambda: shmem.fcollect(source, small, 5), rf"(source: got 4 elements; expected at least 5|target: got .* {5 * npes})"),
        ("alltoall", lambda: shmem.alltoall(source, source, 8), rf"target: got {2 * npes + 5} elements; expected at least {8 * npes}"),
        ("alltoalls", lambda: shmem.alltoalls(source, small, 1, 4, 2), rf"source: got 4 elements; expected at least {(2 * npes - 1) * 4 + 1}"),
        ("sum_inscan", lambda: shmem.sum_inscan(small, source), r"source: got \d+ elements, with target of 4 and source of \d+; expected at most"),
        ("collect", lambda: shmem.collect(source, small, 5), r"size: got 5 elements, with source of 4; expected at most those"),
    ):  # fmt: skip
        refused_by_all(shmem.OutOfRangeError, rf"^{name}: PE {me}: {pattern}", call, small, source)
    for stride in ((0, 1), (1, 0)):
        refused_by_all(shmem.ArgumentError, rf"^alltoalls: PE {me}: [ts]st: got 0; expected 1 or more",
                       lambda s=stride: shmem.alltoalls(source, source, *s, 1), source)  # fmt: skip
    if npes > 1:
        refused_by_all(shmem.OutOfRangeError, rf"^alltoall: PE {me}: source: got {2 * npes + 5} elements; expected a multiple of {npes}, or a size",
                       lambda: shmem.alltoall(source, source), source)  # fmt: skip


def test_collect_refuses_on_all_when_one_brings_too_much(me, npes):
    """What comes together is known to the call alone, and then to all members."""
    source, target = shmem.full(9, 7.0), shmem.zeros(8)
    pattern = rf"^collect: PE {me}: target: got 8 elements on some PE; expected at least 9, which come together"
    refused_by_all(
        shmem.OutOfRangeError, pattern, lambda: shmem.collect(target, source, 9 if me == npes - 1 else 0), target
    )


def test_a_team_that_is_none_is_refused():
    array = shmem.ones(4)
    for call in CALLS.values():
        with refuses(r"\w+", "team: got <TEAM_INVALID: no team>; expected a team this PE is in"):
            call(array, array, shmem.TEAM_INVALID) if call is not CALLS["alltoall"] else shmem.alltoall(
                array, array, 1, shmem.TEAM_INVALID
            )
