"""Collectives on the current stream: on CPU heaps those without _on_stream; their kernels, interpreted or compiled."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
from pyshmem.device import arch
from pyshmem.host import collectives
from pyshmem.host.streams import collectives as on_stream
from pyshmem.base import interpreter
from pyshmem.kernels import on_stream as kernels
from pyshmem.kernels import method_tables
from support import GUARD, assert_same, from_pe, guarded, name_of, payload, untouched, work
from team_shapes import group  # noqa: F401
from test_collectives import INTEGERS, OPERATORS, REALS, combined, operand

pytestmark = pytest.mark.usefixtures("beside_the_heap")
on_a_gpu = pytest.mark.skipif(interpreter.active(), reason="no stream in CPU memory")
ids = {"ids": name_of}
SIZES = [0, 1, 77, 3000, 70_000]  # a program, one tile, several, whole arrays by each


def reduced(op, dtype, count, skip=0):
    """One call: of arrays that begin ``skip`` elements behind a multiple of 64 bytes, the target right and no more."""
    source = shmem.array(operand(op, shmem.my_pe(), count, skip + count, dtype))[skip:]
    kept = source.clone()
    _, whole = guarded(skip + count, dtype)
    shmem.reduce_on_stream(whole[skip : skip + count], source, op)
    wanted = combined(op, count, skip + count, dtype, shmem.n_pes())[skip:]
    assert_same(whole[skip : skip + count].clone().cpu(), wanted)
    assert_same(source.clone(), kept)
    assert untouched(whole[skip + count :])


@pytest.mark.parametrize("op", OPERATORS)
def test_reduce_gives_numpys_result_on_every_pe(op):
    for count in SIZES:
        reduced(op, torch.int32, count)


@pytest.mark.parametrize("dtype", REALS, **ids)
def test_reduce_of_every_dtype_and_of_unaligned_arrays(dtype):
    for op in ("sum", "min") if dtype not in INTEGERS else ("max", "xor"):
        for count, skip in ((50, 0), (50, 1), (51, 0), (3001, 2), (70_000, 3)):
            reduced(op, dtype, count, skip)


def test_reduce_in_place_gives_all_pes_the_same_bits(me, npes):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for count in (9, 2000, 70_000):
            drawn = torch.rand(count, device="cpu", generator=torch.Generator().manual_seed(me))
            array = shmem.array(drawn.to(dtype))
            shmem.reduce_on_stream(array, array)
            shmem.barrier_all()
            for pe in range(npes):
                assert_same(from_pe(array, pe), array.clone())


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.float32, torch.complex128], **ids)
def test_what_only_moves_is_moved_whole_for_any_dtype(dtype, me, npes):
    for turn, count in enumerate(SIZES[:-1]):
        source = shmem.array(payload(me, turn, npes * count, dtype))
        target, whole = guarded(npes * count, dtype)
        shmem.alltoall_on_stream(target, source)
        rows = [payload(pe, turn, npes * count, dtype)[me * count : (me + 1) * count] for pe in range(npes)]
        assert_same(target.clone(), torch.cat(rows))
        shmem.fcollect_on_stream(target, source, count)
        assert_same(target.clone(), torch.cat([payload(pe, turn, npes * count, dtype)[:count] for pe in range(npes)]))
        shmem.broadcast_on_stream(target, source, turn % npes, count)
        assert_same(target[:count].clone(), payload(turn % npes, turn, npes * count, dtype)[:count])
        assert untouched(whole[npes * count :])


def test_a_broadcast_of_many_bytes_passes_through_all_members(group, me, monkeypatch):
    """From each root in turn, into an array of its own and into the source, however late the root is."""
    monkeypatch.setattr("pyshmem.kernels.on_stream.FEW_BYTES", 1000)
    team, pes = group
    most = 600_001
    source, (target, whole) = shmem.zeros(most, dtype=torch.int32), guarded(most, torch.int32)
    for turn, count in enumerate((251, 4099, 65_537, most) if team else ()):
        for root, pe in enumerate(pes):
            source.copy_(payload(me, turn, most, torch.int32))
            if pe == me:
                work(2000)
            shmem.broadcast_on_stream(target, source, root, count, team)
            shmem.broadcast_on_stream(source, source, root, count, team)
            wanted = payload(pe, turn, most, torch.int32)[:count]
            assert_same(target[:count].clone(), wanted)
            assert_same(source[:count].clone(), wanted)
            assert_same(source[count:].clone(), payload(me, turn, most, torch.int32)[count:])
    assert untouched(whole[most:])


@pytest.mark.parametrize("engine", ["kernel", "copy", "auto"])
def test_each_engine_moves_what_it_is_given_however_late_a_pe_is(engine, me, npes, monkeypatch):
    """For "auto", by a table with which sizes take turns."""
    copies = (
        method_tables.Row(16000, "", 32, 8),
        method_tables.Row(method_tables.MORE, method_tables.COPY, 32, 8),
    )
    monkeypatch.setattr(method_tables, "_active", [method_tables.tables()._replace(copies=copies)])
    for turn in range(8):
        count = 1 + 3000 * (turn % 3)
        source = shmem.array(payload(me, turn, npes * count, torch.int32))
        target, whole = guarded(npes * count, torch.int32)
        if turn % npes == me:
            work(5000)
        shmem.alltoall_on_stream(target, source, engine=engine)
        swapped = target.clone()
        target.fill_(GUARD)
        shmem.fcollect_on_stream(target, source, count, engine=engine)
        source.fill_(-1)
        every = [payload(pe, turn, npes * count, torch.int32) for pe in range(npes)]
        assert_same(swapped, torch.cat([each[me * count : (me + 1) * count] for each in every]))
        assert_same(target.clone(), torch.cat([each[:count] for each in every]))
        assert untouched(whole[npes * count :])


@pytest.mark.parametrize("op", OPERATORS)
def test_reduce_scatter_gives_each_pe_its_block_of_numpys_result(op, me, npes):
    dtype = torch.int32 if op in ("and", "or", "xor") else torch.float16
    for count in (0, 1, 77, 3000):
        source = shmem.array(operand(op, me, npes * count, npes * count, dtype))
        kept = source.clone()
        target, whole = guarded(count, dtype)
        shmem.reduce_scatter_on_stream(target, source, op)
        assert_same(target.clone().cpu(), combined(op, npes * count, npes * count, dtype, npes)[me * count :][:count])
        assert_same(source.clone(), kept)
        assert untouched(whole[count:])


def test_reduce_scatter_into_the_pes_own_block(me, npes):
    array = shmem.array(torch.arange(100 * npes, dtype=torch.int64) + me)
    shmem.reduce_scatter_on_stream(array[100 * me : 100 * me + 100], array)
    wanted = torch.arange(100 * npes, dtype=torch.int64) + me
    block = wanted[100 * me : 100 * me + 100]
    block.copy_(npes * (block - me) + sum(range(npes)))
    assert_same(array.cpu(), wanted)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=name_of)
def test_scans_add_the_members_before(dtype, me, npes):
    for turn, count in enumerate(SIZES[:-1]):
        source, (target, whole) = shmem.array(payload(me, turn, count, dtype)), guarded(count, dtype)
        parts = [payload(pe, turn, count, dtype) for pe in range(npes)]
        shmem.sum_inscan_on_stream(target, source)
        assert_same(target.clone(), sum(parts[: me + 1]))
        shmem.sum_exscan_on_stream(target, source)
        assert_same(target.clone(), sum(parts[:me], torch.zeros_like(parts[0])))
        shmem.sum_inscan_on_stream(source, source)
        assert_same(source.clone(), sum(parts[: me + 1]))
        assert untouched(whole[count:])


def test_any_team_may_call(group, me):
    team, pes = group
    source, target = shmem.full(3000, me, dtype=torch.int32), shmem.zeros(3000 * len(pes), dtype=torch.int32)
    if team:
        for count in (5, 3000):
            shmem.reduce_on_stream(target, source, size=count, team=team)
            assert target[:count].tolist() == [sum(pes)] * count
            shmem.fcollect_on_stream(target, source, count, team)
            assert target[: count * len(pes) : count].tolist() == pes
            shmem.broadcast_on_stream(target, source, len(pes) - 1, count, team)
            assert target[:count].tolist() == [pes[-1]] * count
            for engine in ("kernel", "copy"):
                shmem.alltoall_on_stream(target, source, count // len(pes), team, engine)
                assert target[: count // len(pes) * len(pes)].tolist() == [
                    pe for pe in pes for _ in range(count // len(pes))
                ]
            shmem.reduce_scatter_on_stream(target, source, size=count // len(pes), team=team)
            assert target[: count // len(pes)].tolist() == [sum(pes)] * (count // len(pes))
            shmem.sum_exscan_on_stream(target, source, count, team)
            assert target[:count].tolist() == [sum(pes[: team.my_pe()])] * count
            shmem.barrier_on_stream(team)


def a_turn(turn, data, total, parts, log):
    """Each call's operand is made just before it and spoilt just after it; every target is kept and spoilt."""
    me = shmem.my_pe()
    data.fill_(me + turn)
    shmem.reduce_on_stream(total, data)
    data.fill_(-1)
    log[turn, 0] = total[-1]
    total.fill_(-2)
    data.fill_(10 * me + turn)
    shmem.fcollect_on_stream(parts, data)
    data.fill_(-1)
    log[turn, 1:] = parts[:: len(data)]
    parts.fill_(-3)


@pytest.mark.parametrize("count", [4, 5000, 100_000])
def test_calls_follow_each_other_with_nothing_between_however_late_a_pe_is(count, me, npes):
    data, total = shmem.zeros(count, dtype=torch.int32), shmem.zeros(count, dtype=torch.int32)
    parts, log = shmem.zeros(npes * count, dtype=torch.int32), torch.zeros((24, 1 + npes), dtype=torch.int32)
    for turn in range(24):
        if turn % npes == me:
            work(20_000)
        a_turn(turn, data, total, parts, log)
    for turn in range(24):
        assert log[turn].tolist() == [sum(range(npes)) + npes * turn, *(10 * pe + turn for pe in range(npes))]


# int64, of sizes that are words on a GPU: such calls begin while the one in front of them runs
SMALL = [4, 2000, 15_000]


def eight_in_place(array):
    for _ in range(8):
        shmem.reduce_on_stream(array, array)


@pytest.mark.parametrize("count", SMALL)
def test_each_call_takes_what_the_one_in_front_of_it_has_made(count, npes):
    array = shmem.ones(count, dtype=torch.int64)
    for _ in range(5):
        array.fill_(1)
        if not interpreter.active():
            torch.cuda._sleep(2_000_000)  # 1 ms: so that all are on the stream before the first begins
        eight_in_place(array)
        assert (array == npes**8).all()


@on_a_gpu
@pytest.mark.parametrize("count", SMALL)
def test_each_call_of_a_graph_takes_what_the_one_in_front_of_it_has_made(count, npes):
    array, other = shmem.ones(count, dtype=torch.int64), shmem.ones(count, dtype=torch.int64)
    eight_in_place(array)
    shmem.barrier_on_stream()
    shmem.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        array.fill_(1)
        eight_in_place(array)
        shmem.barrier_on_stream()
        shmem.reduce_on_stream(other, array, "max")
    for _ in range(20):
        other.zero_()
        graph.replay()
        assert (array == npes**8).all()
        assert (other == npes**8).all()
    shmem.barrier_all()


@on_a_gpu
@pytest.mark.parametrize("count", [4, 5000, 100_000])
def test_a_graph_of_them_is_replayed(count, me, npes):
    data, total = shmem.zeros(count, dtype=torch.int32), shmem.zeros(count, dtype=torch.int32)
    parts, log = shmem.zeros(npes * count, dtype=torch.int32), torch.zeros((1, 1 + npes), dtype=torch.int32)
    number = torch.zeros(1, dtype=torch.int32)

    def body():
        number.add_(1)
        data.copy_(number.expand(count)).add_(me)
        shmem.reduce_on_stream(total, data)
        shmem.fcollect_on_stream(parts, data)
        shmem.alltoall_on_stream(parts, sevens)
        shmem.alltoall_on_stream(parts, sevens, engine="copy")
        shmem.broadcast_on_stream(data, total, npes - 1)
        shmem.barrier_on_stream()
        log[0, 0] = data[-1]

    sevens = shmem.full(npes * count, 7, dtype=torch.int32)
    body()
    torch.cuda.synchronize()
    shmem.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        body()
    for turn in range(2, 40):
        graph.replay()
        if turn % 7 == me:
            assert log[0, 0].item() == sum(range(npes)) + npes * turn
    assert (parts == 7).all()
    shmem.barrier_all()


@on_a_gpu
def test_no_target_is_written_before_its_stream_has_come_to_the_call(me, npes):
    """One PE's stream sleeps in front of a kernel that reads the target: what is there is its own."""
    source, target = shmem.full(4096, me, dtype=torch.int32), shmem.full(4096 * npes, -1, dtype=torch.int32)
    for turn in range(4 * npes):
        target.fill_(-1)
        if turn % npes == me:
            torch.cuda._sleep(20_000_000)  # 10 ms
        seen = target.clone()
        if turn % 2:
            shmem.fcollect_on_stream(target, source)
        else:
            shmem.broadcast_on_stream(target, source, turn // 2 % npes, 4096)
            assert target[:4096].tolist() == [turn // 2 % npes] * 4096
        assert (seen == -1).all()


@triton.jit
def put_right(ctx, word, value, right):
    dev.put(ctx, word, value, 1, right)


def test_a_barrier_stands_between_the_kernels_of_all_streams(me, npes):
    word, seen = shmem.zeros(1, dtype=torch.int32), torch.zeros(20, dtype=torch.int32)
    ctx, left, right = shmem.device_context(), (me - 1) % npes, (me + 1) % npes
    for turn in range(20):
        if turn % npes == me:
            work(5000)
        put_right[(1,)](ctx, word, torch.full((1,), 100 * me + turn, dtype=torch.int32), right)
        shmem.barrier_on_stream()
        seen[turn] = word[0]
        shmem.barrier_on_stream()
    assert seen.tolist() == [100 * left + turn for turn in range(20)]


REFUSED = [
    (lambda a: shmem.reduce_on_stream(a, a, "mean"), shmem.ArgumentError, "reduce_on_stream: PE \\d+: op: got 'mean'; expected one of sum"),
    (lambda a: shmem.reduce_on_stream(a, a, "xor"), shmem.DtypeError, "target: got float32"),
    (lambda a: shmem.reduce_on_stream(a, a, size=99), shmem.OutOfRangeError, "size: got 99 elements"),
    (lambda a: shmem.reduce_on_stream(a, torch.ones(8)), shmem.NotSymmetricError, "source: "),
    (lambda a: shmem.fcollect_on_stream(a, a, 50), shmem.OutOfRangeError, "fcollect_on_stream: PE \\d+: "),
    (lambda a: shmem.alltoall_on_stream(a, a, 50), shmem.OutOfRangeError, "alltoall_on_stream: PE \\d+: "),
    (lambda a: shmem.broadcast_on_stream(a, a, 99), shmem.OutOfRangeError, "broadcast_on_stream: PE \\d+: root: got 99"),
    (lambda a: shmem.broadcast_on_stream(a, a, False), shmem.ArgumentError, "root: got False; expected an int"),
    (lambda a: shmem.alltoall_on_stream(a, a, 1, engine="sm"), shmem.ArgumentError, "engine: got 'sm'; expected 'kernel', 'copy' or 'auto'"),
    (lambda a: shmem.reduce_scatter_on_stream(a, a, size=9), shmem.OutOfRangeError, "reduce_scatter_on_stream: PE \\d+: "),
    (lambda a: shmem.sum_inscan_on_stream(a, a, 9), shmem.OutOfRangeError, "sum_inscan_on_stream: PE \\d+: size: "),
    (lambda a: shmem.barrier_on_stream(3), shmem.ArgumentError, "barrier_on_stream: PE \\d+: team: got int"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSED, ids=range(len(REFUSED)))
def test_a_refused_call_says_what_is_wrong(call, error, words):
    array = shmem.ones(8)
    with pytest.raises(error, match=words):
        call(array)
    assert array.tolist() == [1] * 8


# ---- the kernels, where they are interpreted ----


@pytest.mark.skipif(not interpreter.active(), reason="kernels are compiled")
@pytest.mark.parametrize("kernel", ["tiles", "sent", "arrays", "apart"])
def test_the_kernels_reduce_where_they_are_interpreted(kernel, me, npes):
    for count in (1, 77, 300):
        source = guarded(count, torch.float16)[0]  # what is behind it is read with the last element of an odd number
        source.copy_(operand("sum", me, 1, count, torch.float16))
        target, whole = guarded(count, torch.float16)
        scratch = shmem.zeros(npes << 20, dtype=torch.uint8)  # of which a piece holds 32 lanes
        ctx, at = shmem.device_context(scratch=scratch), (whole.data_ptr(), source.data_ptr())
        if kernel == "tiles":
            odd = count % 2 == 1
            kernels.reduce_tiles[(-(-count // 64),)](ctx, *at, count, kernels.tl.float16, "sum", 32, odd, False)
        elif kernel == "sent":
            kernels.reduce_sent[(-(-count // 64),)](ctx, *at, count, kernels.tl.float16, "sum", 64)
        else:
            kernels.reduce_arrays[(2,)](ctx, *at, count, kernels.tl.float16, "sum", kernel == "apart")
        assert_same(target, combined("sum", 1, count, torch.float16, npes))
        assert untouched(whole[count:])


@pytest.mark.skipif(not interpreter.active(), reason="kernels are compiled")
def test_the_kernel_of_reduce_scatter_waits_for_late_sources_and_slow_readers(me, npes, monkeypatch):
    load, count = arch.load_block, 8
    ctx = shmem.device_context(scratch=shmem.zeros(1 << 20, dtype=torch.uint8))
    source, target = shmem.zeros(npes * count, dtype=torch.int32), shmem.zeros(count, dtype=torch.int32)
    for turn in range(1, 9):
        late = turn // 2 % npes == me

        def slow(*operands, late=late):
            work(20_000 if late else 0)
            return load(*operands)

        monkeypatch.setattr(arch, "load_block", slow if turn % 2 else load)
        work(400_000 if late and not turn % 2 else 0)  # longer than a launch by the interpreter
        source.fill_(turn + me)
        at = (target.data_ptr(), source.data_ptr(), count, kernels.tl.int32, "sum")
        kernels.reduce_blocks[(1,)](ctx, *at)
        source.fill_(-1000)
        assert target.tolist() == [npes * turn + sum(range(npes))] * count


@pytest.mark.skipif(not interpreter.active(), reason="kernels are compiled")
def test_the_kernels_scan_and_reduce_blocks_where_they_are_interpreted(me, npes):
    for count in (1, 300):
        source = shmem.array(operand("sum", me, npes * count, npes * count, torch.float32))
        ctx = shmem.device_context(scratch=shmem.zeros(npes << 18, dtype=torch.uint8))
        target, whole = guarded(count, torch.float32)
        at = (target.data_ptr(), source.data_ptr(), count, kernels.tl.float32)
        kernels.reduce_blocks[(2,)](ctx, *at, "sum")
        assert_same(target, combined("sum", npes * count, npes * count, torch.float32, npes)[me * count :][:count])
        shmem.barrier_all()
        parts = [operand("sum", pe, npes * count, npes * count, torch.float32)[:count] for pe in range(npes)]
        for op, last in (("inscan", me + 1), ("exscan", me)):
            kernels.scan_arrays[(2,)](ctx, *at, op, f"sum_{op}_on_stream")
            assert_same(target, sum(parts[:last], torch.zeros(count)))
            shmem.barrier_all()  # before others write into the target again
        assert untouched(whole[count:])


@pytest.mark.skipif(not interpreter.active(), reason="kernels are compiled")
@pytest.mark.parametrize("count", [3, 50, 1001])
def test_the_kernels_move_where_they_are_interpreted(count, me, npes):
    ctx = shmem.device_context(scratch=shmem.zeros(1 << 20, dtype=torch.uint8))
    source, (target, whole) = shmem.full(npes * count, me, dtype=torch.int32), guarded(npes * count, torch.int32)
    at = (target.data_ptr(), source.data_ptr(), count)
    wanted = [pe for pe in range(npes) for _ in range(count)]
    for kernel in (kernels.gather_arrays, kernels.swap_arrays):
        kernel[(2,)](ctx, *at, kernels.tl.int32)
        assert target.tolist() == wanted
        target.fill_(GUARD)
    for kernel, turns in ((kernels.cast_arrays, ()), *[(kernels.cast_shares, (3,))] * (npes > 2)):
        for root in range(npes):
            kernel[(2,)](ctx, *at, root, kernels.tl.int32, *turns)
            assert target.tolist() == [root] * count + [GUARD] * (count * (npes - 1))
            target.fill_(GUARD)
            shmem.barrier_all()
    assert untouched(whole[npes * count :])


@on_a_gpu
def test_a_call_that_is_not_the_others_is_refused_on_the_later_pe_and_enqueues_nothing(me, npes):
    if npes == 1:
        pytest.skip("a PE agrees with itself")
    team = shmem.TEAM_WORLD.split_strided(0, 1, npes)
    target, source = shmem.zeros(64), shmem.ones(64)
    for size in (4, 8, 4, 8):  # both are known
        shmem.reduce_on_stream(target, source, "sum", size, team)
    last = me == npes - 1
    if not last:
        shmem.reduce_on_stream(target, source, "sum", 8, team)
    shmem.sync_all()
    if last:
        got = "4 float32 elements in GPU memory here, and another routine, size, type or root on PE 0, in this call or one before"
        with pytest.raises(
            shmem.ArgumentError, match=rf"^reduce_on_stream: PE {me}: call: got {got}; expected the same"
        ):
            shmem.reduce_on_stream(target, source, "sum", 4, team)
        pair = collectives.pair_of("reduce_on_stream", target, source)
        plan = on_stream._planned("reduce_on_stream", "reduce", "sum", team, pair, 8)
        plan.launch("reduce_on_stream", pair.heap.near.use_stream(), pair.dest, pair.src)  # for which the others wait
    shmem.barrier_all()
    assert target.tolist() == [npes] * 8 + [0] * 56
    team.destroy()
