"""Calls of kernels to PEs on other nodes: what arrives, in what order, and when it is complete. Skipped on one node."""

import pytest
import torch
import triton
import triton.language as tl
from support import AMO_DTYPES, AMO_INTEGERS, DTYPES, assert_same, guarded, name_of, neighbours, on_one_node, payload
from support import untouched

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.base.far import PIECE, SLOTS


# kernels have no complex numbers, and those for NVIDIA's GPUs not every type of 8 bits
SCALARS = [dtype for dtype in DTYPES if not dtype.is_complex and "fnuz" not in name_of(dtype)]


@pytest.fixture(autouse=True)
def several_nodes():
    if on_one_node():
        pytest.skip("all PEs are on one node")


@triton.jit
def put_and_get(ctx, there, back, source, n, right):
    dev.put(ctx, there, source, n, right)
    dev.quiet(ctx)
    dev.get(ctx, back, there, n, right)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.int64], ids=name_of)
@pytest.mark.parametrize("nbytes", [0, 8, 1000, 9 * PIECE + 24])  # a get of the last has two batches
@pytest.mark.parametrize("shift", [0, 1])
def test_put_and_get_move_any_number_of_elements_and_quiet_completes_the_put(nbytes, dtype, shift):
    left, me, right = neighbours()
    count = nbytes // dtype.itemsize
    there, whole = guarded(count + shift, dtype)
    back, source = (payload(each, 1, count + shift, dtype) for each in (9, me))
    put_and_get[(1,)](shmem.device_context(), there[shift:], back[shift:], source[shift:], count, right)
    shmem.barrier_all()
    assert_same(there[shift:], payload(left, 1, count + shift, dtype)[shift:])
    assert_same(back[shift:], source[shift:])
    assert untouched(whole[count + shift :]) and untouched(whole[:shift])
    shmem.barrier_all()


@triton.jit
def element_there_and_back(ctx, word, value, out, right):
    dev.p(ctx, word, tl.load(value), right)
    dev.quiet(ctx)
    tl.store(out, dev.g(ctx, word, right))


@pytest.mark.parametrize("dtype", SCALARS, ids=name_of)
def test_p_and_g_move_one_element_of_any_type(dtype):
    left, me, right = neighbours()
    word, whole = guarded(1, dtype)
    value, out = payload(me, 3, 1, dtype), payload(me, 4, 1, dtype)
    element_there_and_back[(1,)](shmem.device_context(), word, value, out, right)
    shmem.barrier_all()
    assert_same(word, payload(left, 3, 1, dtype))
    assert_same(out, value)
    assert untouched(whole[1:])
    shmem.barrier_all()


@triton.jit
def strided_there_and_back(ctx, there, back, source, bsize, nblocks, right):
    dev.ibput(ctx, there, source, bsize + 1, bsize + 2, bsize, nblocks, right)
    dev.quiet(ctx)
    dev.ibget(ctx, back, there, bsize + 2, bsize + 1, bsize, nblocks, right)


@pytest.mark.parametrize("bsize, nblocks", [(1, 7), (1, 20000), (500, 9), (PIECE // 4 + 10, 3)])
def test_strided_copies_move_their_blocks_alone(bsize, nblocks):
    left, me, right = neighbours()
    source = payload(me, 1, (bsize + 2) * nblocks, torch.int32)
    there, back = shmem.zeros((bsize + 1) * nblocks, dtype=torch.int32), torch.zeros_like(source)
    strided_there_and_back[(1,)](shmem.device_context(), there, back, source, bsize, nblocks, right)
    shmem.barrier_all()
    sent = payload(left, 1, (bsize + 2) * nblocks, torch.int32).view(nblocks, bsize + 2)
    assert_same(there.view(nblocks, bsize + 1)[:, :bsize].contiguous(), sent[:, :bsize].contiguous())
    assert not there.view(nblocks, bsize + 1)[:, bsize].any()
    assert_same(back.view(nblocks, -1)[:, :bsize].contiguous(), source.view(nblocks, -1)[:, :bsize].contiguous())
    assert not back.view(nblocks, -1)[:, bsize:].any()
    shmem.barrier_all()


@triton.jit
def every_atomic(ctx, words, found, right, INTEGER: tl.constexpr):
    """Each on a word of its own, which is 12."""
    tl.store(found, dev.atomic_fetch_add(ctx, words, 5, right))
    tl.store(found + 1, dev.atomic_swap(ctx, words + 1, 7, right))
    tl.store(found + 2, dev.atomic_compare_swap(ctx, words + 2, 12, 8, right))
    tl.store(found + 3, dev.atomic_compare_swap(ctx, words + 3, 11, 8, right))
    tl.store(found + 4, dev.atomic_fetch(ctx, words + 4, right))
    tl.store(found + 5, dev.atomic_fetch_min(ctx, words + 5, 9, right))
    tl.store(found + 6, dev.atomic_fetch_max(ctx, words + 6, 9, right))
    dev.atomic_set(ctx, words + 7, 3, right)
    if INTEGER:
        tl.store(found + 8, dev.atomic_fetch_and(ctx, words + 8, 6, right))
        tl.store(found + 9, dev.atomic_fetch_or(ctx, words + 9, 3, right))
        tl.store(found + 10, dev.atomic_fetch_xor(ctx, words + 10, 6, right))


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=name_of)
def test_every_atomic_returns_what_it_found_and_leaves_what_it_should(dtype):
    _, _, right = neighbours()
    count = 11 if dtype in AMO_INTEGERS else 8
    words = shmem.full(count, 12, dtype=dtype)
    found = shmem.full(count, 12, dtype=dtype)
    every_atomic[(1,)](shmem.device_context(), words, found, right, dtype in AMO_INTEGERS)
    shmem.barrier_all()
    assert words.tolist() == [17, 7, 8, 12, 12, 9, 12, 3, 4, 15, 10][:count]
    assert found.tolist() == [12] * count
    shmem.barrier_all()


@triton.jit
def count_up(ctx, counters, times, n_pes):
    lane = tl.arange(0, 8)
    for _ in range(times):
        dev.atomic_add(ctx, counters + lane, lane + 1, lane % n_pes, mask=lane != 3)


def test_no_update_of_a_block_on_near_and_far_pes_is_lost_and_masked_lanes_do_nothing(me, npes):
    counters = shmem.zeros(8, dtype=torch.int32)
    count_up[(3,)](shmem.device_context(), counters, 5, npes)
    shmem.barrier_all()
    mine = [15 * npes * (lane + 1) if lane % npes == me and lane != 3 else 0 for lane in range(8)]
    assert counters.tolist() == mine
    shmem.barrier_all()


@triton.jit
def put_flag_after(ctx, data, flag, source, n, turn, right, HOW: tl.constexpr):
    if HOW == "put_signal":
        dev.put_signal(ctx, data, source, n, flag, turn, dev.SIGNAL_SET, right)
    else:
        dev.put(ctx, data, source, n, right)
        if HOW == "signal_add":
            dev.signal_add(ctx, flag, 1, right)
        elif HOW == "signal_set":
            dev.signal_set(ctx, flag, turn, right)
        else:
            dev.fence(ctx)
            dev.atomic_inc(ctx, flag, right)
    dev.signal_wait_until(ctx, flag, dev.CMP_GE, turn)


@pytest.mark.parametrize("how", ["put_signal", "signal_add", "signal_set", "fence"])
def test_who_sees_a_signal_sees_the_data_sent_before(how):
    left, me, right = neighbours()
    data, flag = shmem.zeros(3000, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
    for turn in range(1, 11):
        source = payload(me, turn, 3000, torch.int64)
        put_flag_after[(1,)](shmem.device_context(), data, flag, source, 3000, turn, right, how)
        assert torch.equal(data, payload(left, turn, 3000, torch.int64))
        shmem.barrier_all()


@triton.jit
def tell_another(ctx, data, value, flag, right, next_):
    """Data to one PE, quiet, a flag to another, which reads the data on the first."""
    dev.p(ctx, data, value, right)
    dev.quiet(ctx)
    dev.signal_add(ctx, flag, 1, next_)


@triton.jit(do_not_specialize=["turn", "near"])  # one kernel, which the first launch loads: see docs/clusters.md
def look_there(ctx, data, out, flag, turn, near):
    dev.signal_wait_until(ctx, flag, dev.CMP_GE, turn)
    tl.store(out, dev.g(ctx, data, near))


def test_quiet_completes_a_put_before_a_flag_to_another_pe(me, npes):
    data, flag = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
    out = torch.zeros(1, dtype=torch.int64, device=data.device)
    look_there[(1,)](shmem.device_context(), data, out, flag, 0, (me - 1) % npes)  # loads it
    shmem.barrier_all()
    for turn in range(1, 11):
        tell_another[(1,)](shmem.device_context(), data, 100 * turn + me, flag, (me + 1) % npes, (me + 2) % npes)
        look_there[(1,)](shmem.device_context(), data, out, flag, turn, (me - 1) % npes)
        assert out.item() == 100 * turn + (me - 2) % npes
        shmem.barrier_all()


@triton.jit
def put_words(ctx, words, first, count, right):
    for at in range(count):
        dev.p(ctx, words + tl.program_id(0) * count + at, first + at, right)


@pytest.mark.parametrize("programs", [1, 4])
def test_more_requests_than_the_ring_holds_all_arrive(programs):
    _, me, right = neighbours()
    count = 2 * SLOTS + 3
    words = shmem.zeros(programs * count, dtype=torch.int32)
    put_words[(programs,)](shmem.device_context(), words, 1, count, right)
    shmem.barrier_all()
    assert words.tolist() == list(range(1, count + 1)) * programs
    shmem.barrier_all()


def test_calls_of_the_host_after_a_fence_follow_the_requests_of_a_kernel(me):
    _, _, right = neighbours()
    words = shmem.zeros(50, dtype=torch.int32)
    for turn in range(1, 11):
        put_words[(1,)](shmem.device_context(), words, turn, 50, right)
        shmem.fence()
        shmem.put(words, torch.full_like(words, -turn), right)
        shmem.barrier_all()
        assert words.tolist() == [-turn] * 50
        shmem.barrier_all()


@triton.jit
def collected(ctx, gathered, uneven, source, n, own):
    dev.fcollect(ctx, gathered, source, n)
    dev.collect(ctx, uneven, source, own)


@triton.jit
def swapped_blocks(ctx, swapped, strided, gathered, n):
    dev.alltoall(ctx, swapped, gathered, n)
    dev.alltoalls(ctx, strided, gathered, 2, 1, n)


@triton.jit
def greatest(ctx, top, source, n):
    dev.max_reduce(ctx, top, source, n)


@triton.jit
def sums_before(ctx, sums, source, n):
    dev.sum_exscan(ctx, sums, source, n)


@triton.jit
def broadcast_after_sync(ctx, source, n, npes):
    dev.sync_all(ctx)
    dev.broadcast(ctx, source, source, n, npes - 1)
    dev.barrier_all(ctx)


@pytest.mark.parametrize("count", [3, 3000])
def test_every_collective_on_arrays_reaches_every_node(count, me, npes):
    source, top, sums = (shmem.zeros(count, dtype=torch.int32) for _ in range(3))
    gathered, uneven, swapped = (shmem.zeros(npes * count, dtype=torch.int32) for _ in range(3))
    strided = shmem.zeros(2 * npes * count, dtype=torch.int32)
    source.copy_(payload(me, 1, count, torch.int32))
    own = count - me % 2
    shmem.barrier_all()
    ctx = shmem.device_context()
    launches = (
        lambda: collected[(1,)](ctx, gathered, uneven, source, count, own),
        lambda: swapped_blocks[(1,)](ctx, swapped, strided, gathered, count),
        lambda: greatest[(1,)](ctx, top, source, count),
        lambda: sums_before[(1,)](ctx, sums, source, count),
        lambda: broadcast_after_sync[(1,)](ctx, source, count, npes),
    )
    for launch in launches:
        launch()
        shmem.barrier_all()  # the next one is loaded when no kernel waits for a far PE: see docs/clusters.md
    for array in (top, sums, gathered, uneven, swapped, strided):
        array.zero_()
    source.copy_(payload(me, 1, count, torch.int32))
    shmem.barrier_all()
    for launch in launches:
        launch()
    parts = torch.stack([payload(pe, 1, count, torch.int32) for pe in range(npes)])
    assert torch.equal(gathered.view(npes, count), parts)
    pieces = torch.cat([parts[pe, : count - pe % 2] for pe in range(npes)])
    assert torch.equal(uneven[: pieces.numel()], pieces)
    mine = parts[me].expand(npes, count).contiguous()
    assert torch.equal(swapped.view(npes, count), mine) and torch.equal(strided[::2].view(npes, count), mine)
    assert torch.equal(top, parts.amax(0)) and torch.equal(sums, parts[:me].sum(0).to(torch.int32))
    assert torch.equal(source, parts[npes - 1])
    shmem.barrier_all()
