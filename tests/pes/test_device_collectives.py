"""9.9 in kernels: OpenSHMEM's collectives on symmetric arrays, called by one program of each PE or by whole grids."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base import interpreter
from pyshmem.device.arch.fields import encoded
from pyshmem.device.collectives.scratch import divide
from support import GUARD, as_dtype, assert_same, from_pe, guarded, here, interpreted, name_of, payload, untouched
from team_shapes import group  # noqa: F401
from test_collectives import INTEGERS, OPERATORS, REALS, combined, operand

pytestmark = pytest.mark.usefixtures("beside_the_heap")

DTYPES = [torch.bool, torch.int8, torch.bfloat16, torch.uint32, torch.float64, torch.float8_e5m2]
SIZES = [0, 1, 77]
LARGE = 70_000  # of every type more than a block of the widest accesses on each of 4 PEs
ids = {"ids": name_of}
both = pytest.mark.parametrize(("form", "programs"), [("", 1), ("_grid", 3)], ids=["one program", "grid"])


# One compiled kernel serves all lengths; `specialised` is compiled for those that Triton knows something of.
@triton.jit(do_not_specialize=["n"])
def plain(ctx, dest, source, n, CALL: tl.constexpr):
    CALL(ctx, dest, source, n)


@triton.jit
def specialised(ctx, dest, source, n, CALL: tl.constexpr):
    CALL(ctx, dest, source, n)


@triton.jit(do_not_specialize=["n", "root"])
def rooted(ctx, dest, source, n, root, CALL: tl.constexpr):
    CALL(ctx, dest, source, n, root)


@triton.jit(do_not_specialize=["dst", "sst", "n"])
def strided(ctx, dest, source, dst, sst, n, CALL: tl.constexpr):
    CALL(ctx, dest, source, dst, sst, n)


def call(kernel, programs, name, *operands, ctx=None):
    kernel[(programs,)](ctx or shmem.device_context(), *operands, getattr(dev, name))


def context_of(team, programs):
    """The team's, with scratch for all programs of a grid, which a small part of PYSHMEM_SCRATCH need not have."""
    scratch = shmem.zeros(1 << 20, dtype=torch.uint8) if programs > 1 else None
    return shmem.device_context(team, scratch=scratch) if team else None


# ---- what moves ----


@both
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_broadcast_writes_every_dest_the_roots_too_and_nothing_else(dtype, form, programs, me, npes):
    for turn, count in enumerate(SIZES):
        source = shmem.array(payload(me, turn, count, dtype))
        dest, whole = guarded(count, dtype)
        call(rooted, programs, f"broadcast{form}", dest, source, count, turn % npes)
        assert_same(dest, payload(turn % npes, turn, count, dtype))
        assert_same(source, payload(me, turn, count, dtype))
        assert untouched(whole[count:])


def gathered(form, programs, dtype, team, pes, counts):
    """Of fcollect, or of collect where the members bring different counts: the right elements at their places."""
    name = "fcollect" if len(set(counts)) == 1 else "collect"
    ctx = context_of(team, programs)
    source = shmem.array(payload(shmem.my_pe(), 1, max(counts), dtype))
    dest, whole = guarded(sum(counts), dtype)
    if team:
        call(plain, programs, name + form, dest, source, counts[team.my_pe()], ctx=ctx)
        assert_same(dest, torch.cat([payload(pe, 1, count, dtype) for pe, count in zip(pes, counts, strict=True)]))
    shmem.barrier_all()
    assert untouched(whole[sum(counts) :] if team else whole)


@both
def test_fcollect_and_collect_put_the_members_one_behind_the_other(form, programs, group):
    team, pes = group
    gathered(form, programs, torch.int16, team, pes, [77 for _ in pes])
    gathered(form, programs, torch.int16, team, pes, [40 * (index % 3) + 3 for index in range(len(pes))])


@both
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_fcollect_and_collect_of_every_size_and_dtype(dtype, form, programs, npes):
    pes = range(npes)
    for count in SIZES:
        gathered(form, programs, dtype, shmem.TEAM_WORLD, pes, [count] * npes)
    gathered(form, programs, dtype, shmem.TEAM_WORLD, pes, [50 * (pe % 2) for pe in pes])  # nothing on some


@both
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_alltoall_sends_block_j_to_pe_j(dtype, form, programs, me, npes):
    for turn, count in enumerate(SIZES):
        source = shmem.array(payload(me, turn, npes * count, dtype))
        dest, whole = guarded(npes * count, dtype)
        call(plain, programs, f"alltoall{form}", dest, source, count)
        rows = [payload(pe, turn, npes * count, dtype)[me * count : (me + 1) * count] for pe in range(npes)]
        assert_same(dest, torch.cat(rows))
        assert untouched(whole[npes * count :])


@both
@pytest.mark.parametrize(("dst", "sst"), [(1, 1), (3, 2)])
def test_alltoalls_takes_every_ssth_element_to_every_dstth_place(dst, sst, form, programs, me, npes):
    for turn, count in enumerate(SIZES):
        source = shmem.array(payload(me, turn, npes * count * sst, torch.int32))
        dest, whole = guarded(npes * count * dst, torch.int32)
        call(strided, programs, f"alltoalls{form}", dest, source, dst, sst, count)
        rows = [payload(pe, turn, npes * count * sst, torch.int32)[::sst] for pe in range(npes)]
        columns = torch.stack([dest[gap::dst] for gap in range(dst)])
        assert_same(columns[0], torch.cat([row[me * count : (me + 1) * count] for row in rows]))
        assert untouched(columns[1:])
        assert untouched(whole[npes * count * dst :])


# ---- what is combined ----


def reduced(op, dtype, count, form, programs, kernel=plain):
    source = shmem.array(operand(op, shmem.my_pe(), count, count, dtype))
    dest, whole = guarded(count, dtype)
    call(kernel, programs, f"{op}_reduce{form}", dest, source, count)
    assert_same(dest, combined(op, count, count, dtype, shmem.n_pes()).to(here()))
    assert_same(source, operand(op, shmem.my_pe(), count, count, dtype))
    assert untouched(whole[count:])


@both
@pytest.mark.parametrize("op", OPERATORS)
def test_reductions_give_numpys_result_on_every_pe(op, form, programs):
    for count in SIZES:
        reduced(op, torch.int32, count, form, programs)


@both
def test_lengths_that_the_compiler_knows(form, programs):
    for count in (1, 16):
        reduced("sum", torch.int32, count, form, programs, specialised)


@pytest.mark.parametrize("dtype", REALS, **ids)
def test_reductions_of_every_dtype(dtype):
    """Where each takes a second to compile, of the operators one that adds, one that compares, one of bits."""
    for op in OPERATORS if interpreter.active() else ("prod", "min", "xor"):
        if op not in ("and", "or", "xor") or dtype in INTEGERS:
            reduced(op, dtype, 33, "", 1)


@both
@pytest.mark.parametrize("skip", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.uint64], **ids)
def test_reductions_of_many_elements_in_place(dtype, skip, form, programs, me, npes):
    whole = shmem.array(as_dtype(torch.full((skip + LARGE + 1,), GUARD), dtype))
    part = whole[skip : skip + LARGE]
    part.copy_(operand("sum", me, 1, LARGE, dtype))
    call(plain, programs, f"sum_reduce{form}", part, part, LARGE)
    assert_same(part.clone(), combined("sum", 1, LARGE, dtype, npes).to(here()))
    assert whole[-1].item() == GUARD and (skip == 0 or whole[0].item() == GUARD)


def scanned(name, dtype, count, team, pes, in_place, form, programs):
    """The sum of this member's and the earlier ones' operands; sum_exscan: of the earlier ones'."""
    source = shmem.array(operand("sum", shmem.my_pe(), 1, count, dtype))
    dest, whole = guarded(count, dtype)
    dest, ctx = source if in_place else dest, context_of(team, programs)
    if team:
        call(plain, programs, name + form, dest, source, count, ctx=ctx)
        before = pes[: team.my_pe() + (name == "sum_inscan")]
        total = sum((operand("sum", pe, 1, count, dtype).double() for pe in before), torch.zeros(count, device=here()))
        assert_same(dest, total.to(dtype))
    shmem.barrier_all()
    assert untouched(whole if in_place or not team else whole[count:])


@both
@pytest.mark.parametrize("name", ["sum_inscan", "sum_exscan"])
def test_scans_sum_up_to_this_pe(name, form, programs, group):
    team, pes = group
    scanned(name, torch.int32, 77, team, pes, False, form, programs)


@both
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
@pytest.mark.parametrize("name", ["sum_inscan", "sum_exscan"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16], **ids)
def test_scans_of_every_size(dtype, name, in_place, form, programs, npes):
    for count in (0, 1, LARGE // 4):
        scanned(name, dtype, count, shmem.TEAM_WORLD, range(npes), in_place, form, programs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], **ids)
def test_sums_of_fractions_have_the_same_bits_on_all_pes(dtype, me, npes):
    drawn = [torch.Generator().manual_seed(pe) for pe in range(npes)]
    exact = [torch.rand(999, dtype=torch.float64, device="cpu", generator=each) for each in drawn]
    source, dest = shmem.array(exact[me].to(dtype)), shmem.empty(999, dtype=dtype)
    call(plain, 1, "sum_reduce", dest, source, 999)
    shmem.barrier_all()
    for pe in range(npes):
        assert_same(from_pe(dest, pe), dest.clone())
    wide = [part.to(dtype).to(torch.float32 if dtype.itemsize == 2 else dtype) for part in exact]
    total = wide[0]
    for part in wide[1:]:
        total = total + part
    assert_same(dest.cpu(), total.to(dtype))  # in the order of PEs; half types rounded once


# ---- call after call ----


@triton.jit
def many_broadcasts(ctx, dest, source, n, turns):
    for turn in range(turns):
        dev.broadcast(ctx, dest + turn * n, source + turn * n, n, 0)


def test_a_root_is_a_hundred_broadcasts_ahead_of_its_readers(me, npes):
    """The readers begin when it has made them all."""
    source = shmem.array(payload(me, 1, 300, torch.int32))
    dest, whole = guarded(300, torch.int32)
    done = shmem.zeros(1, dtype=torch.int32)
    if me > 0:
        shmem.wait_until(done, "==", 1)
    many_broadcasts[(1,)](shmem.device_context(), dest, source, 3, 100)
    if me == 0:
        for pe in range(npes):
            shmem.p(done, 1, pe)
    assert_same(dest, payload(0, 1, 300, torch.int32))
    assert untouched(whole[300:])


@triton.jit
def in_turn(ctx, source, dest, n, late, turns, GRID: tl.constexpr):
    """A source is written just before a call and just after it; one PE is late each time."""
    me, npes = dev.my_pe(ctx), dev.n_pes(ctx)
    lane = tl.arange(0, 64)
    for turn in range(turns):
        row = dest + turn * 64 * npes
        if me == turn % npes:
            for _ in range(late):
                dev.my_pe(ctx)
        tl.store(source + lane, turn * 10 + me + lane, mask=lane < n)
        if GRID:
            dev.sum_reduce_grid(ctx, row, source, n)
        else:
            dev.sum_reduce(ctx, row, source, n)
        tl.store(source + lane, turn + 2 * me + lane, mask=lane < n)
        if GRID:
            dev.fcollect_grid(ctx, row + n, source, n)
        else:
            dev.fcollect(ctx, row + n, source, n)
        tl.store(source + lane, -1, mask=lane < n)


@pytest.mark.parametrize("grid", [False, True], ids=["one", "grid"])
def test_calls_follow_each_other_without_a_word_between(grid, me, npes):
    n, turns = 9, 8
    source, dest = shmem.zeros(64, dtype=torch.int32), shmem.full((turns, 64 * npes), GUARD, dtype=torch.int32)
    in_turn[(1,)](shmem.device_context(), source, dest, n, 200, turns, grid)
    lane = torch.arange(n, dtype=torch.int32)
    for turn in range(turns):
        wanted = [sum(turn * 10 + pe + lane for pe in range(npes)), *(turn + 2 * pe + lane for pe in range(npes))]
        row = dest[turn].cpu()
        used = n * (npes + 1)
        assert row[:used].tolist() == torch.cat(wanted).tolist()[: 64 * npes]
        assert (row[used:] == GUARD).all()


@triton.jit
def by_some_program(ctx, dest, source, n, caller, out):
    """The programs of a grid call the grid forms; one of them, another on each PE, the plain ones between."""
    dev.sum_reduce_grid(ctx, dest, source, n)
    if tl.program_id(0) == caller:
        dev.max_reduce(ctx, dest + n, source, n)
    tl.store(out + tl.program_id(0), dev.all_reduce(ctx, dev.my_pe(ctx) + tl.program_id(0), "sum"))
    dev.min_reduce_grid(ctx, dest + 2 * n, source, n)


@pytest.mark.parametrize("caller", [0, 2])
def test_plain_calls_do_not_meet_those_of_grids(caller, me, npes):
    """On all PEs the caller is the same program: interpreted programs run one after the other."""
    source, (dest, whole) = shmem.array(payload(me, 1, 100, torch.int32)), guarded(300, torch.int32)
    out = torch.zeros(3, dtype=torch.int32)
    for _ in range(3):
        by_some_program[(3,)](shmem.device_context(), dest, source, 100, caller, out)
    for part, op in enumerate(("sum", "max", "min")):
        rows = torch.stack([payload(pe, 1, 100, torch.int32) for pe in range(npes)])
        wanted = {"sum": rows.sum(0), "max": rows.amax(0), "min": rows.amin(0)}[op].to(torch.int32)
        assert_same(dest[100 * part : 100 * (part + 1)].clone(), wanted)
    assert out.tolist() == [sum(range(npes)) + npes * program for program in range(3)]
    assert untouched(whole[300:])


@triton.jit
def after_one_program(ctx, dest, source, n, alone):
    if tl.program_id(0) == tl.num_programs(0) - 1:
        dev.sum_reduce(ctx, dest, source, n)


def test_the_one_program_may_be_another_on_each_pe(me, npes):
    source, dest = shmem.array(payload(me, 1, 50, torch.int64)), shmem.zeros(50, dtype=torch.int64)
    for turn in range(3):
        after_one_program[(1 + (me + turn) % 3,)](shmem.device_context(), dest, source, 50, 0)
        assert_same(dest, sum(payload(pe, 1, 50, torch.int64) for pe in range(npes)))
        shmem.barrier_all()


# ---- what is refused ----


REFUSED = [
    (plain, "sum_reduce", (torch.float32, torch.int32, 4), "DtypeError", "source: got a pointer to int32; expected a pointer to fp32"),
    (plain, "xor_reduce", (torch.float32, torch.float32, 4), "DtypeError", "dest: got a pointer to fp32; expected a pointer to integers"),
    (plain, "sum_inscan", (torch.float8_e5m2, torch.float8_e5m2, 4), "DtypeError", "dest: got a pointer to fp8e5; expected a pointer to integers, or to floats"),
    (plain, "max_reduce_grid", (torch.int32, torch.int32, 4000), "NotSymmetricError", "dest: got 16000 bytes at heap offset"),
    (plain, "fcollect", (torch.int32, torch.int32, -1), "OutOfRangeError", "nelems: got -.*; expected 0 or more"),
    (rooted, "broadcast", (torch.int32, torch.int32, 4, 99), "OutOfRangeError", "PE_root: got 99; expected a PE from 0 to"),
    (strided, "alltoalls", (torch.int32, torch.int32, 0, 1, 1), "OutOfRangeError", "dst: got 0; expected 1 or more"),
]  # fmt: skip


@interpreted
@pytest.mark.parametrize(("kernel", "name", "operands", "error", "words"), REFUSED, ids=[each[1] for each in REFUSED])
def test_a_refused_call_says_what_is_wrong_and_moves_nothing(kernel, name, operands, error, words, me, npes):
    to, of = (shmem.array(torch.ones(8 * npes).to(dtype)) for dtype in operands[:2])
    before = to.view(torch.uint8).clone()
    routine = name.removesuffix("_grid")
    with pytest.raises(Exception, match=rf"{error}.*kernel {kernel.fn.__name__}: {routine}: PE {me}: {words}"):
        call(kernel, 1, name, to, of, *operands[2:])
    assert_same(to.view(torch.uint8), before)


@interpreted
def test_a_grid_without_a_slot_for_each_program_is_refused(me, npes):
    """Scratch for the calls of one program and for two programs."""
    nbytes = next(n for n in range(0, 1 << 24, 64) if divide(0, n, npes)["slots"] == encoded(2 + 1))
    ctx = shmem.device_context(scratch=shmem.zeros(nbytes + 64, dtype=torch.uint8))
    array = shmem.ones(4)
    plain[(2,)](ctx, array, array, 4, dev.sum_reduce_grid)
    plain[(1,)](ctx, array, array, 4, dev.sum_reduce)
    assert array.tolist() == [npes * npes] * 4
    with pytest.raises(Exception, match=f"sum_reduce: PE {me}: grid: got program 2; expected at most 2"):
        plain[(3,)](ctx, array, array, 4, dev.sum_reduce_grid)
