"""9.6 in kernels: my_pe, n_pes, ptr, load, store, put, get, p, g. Values name who sent them and when."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base import interpreter
from support import DTYPES, GUARD, assert_same, guarded, name_of, neighbours, payload, untouched

pytestmark = pytest.mark.usefixtures("beside_the_heap")

# Triton has no complex numbers, and compiles AMD's 8-bit floats for some AMD GPUs only
POINTEES = [
    dtype for dtype in DTYPES if not dtype.is_complex and (interpreter.active() or "fnuz" not in name_of(dtype))
]
STANDARD = [dtype for dtype in POINTEES if dtype.itemsize > 1 or not dtype.is_floating_point]  # numbers, not only bits
SIZES = [0, 1, 7, 1000]
every_pointee = pytest.mark.parametrize("dtype", POINTEES, ids=str)
every_standard = pytest.mark.parametrize("dtype", STANDARD, ids=str)


@triton.jit
def tell(ctx, out):
    tl.store(out, dev.my_pe(ctx))
    tl.store(out + 1, dev.n_pes(ctx))


@triton.jit
def put_kernel(ctx, dest, source, n, pe):
    dev.put(ctx, dest, source, n, pe)


@triton.jit
def get_kernel(ctx, dest, source, n, pe):
    dev.get(ctx, dest, source, n, pe)


@triton.jit
def p_kernel(ctx, dest, VALUE: tl.constexpr, pe):
    dev.p(ctx, dest, VALUE, pe)


@triton.jit
def g_kernel(ctx, found, source, pe):
    tl.store(found, dev.g(ctx, source, pe))


@triton.jit
def load_kernel(ctx, found, source, pe, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(found + lanes, dev.load(ctx, source + lanes, pe))


@triton.jit
def store_kernel(ctx, dest, source, pe, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    dev.store(ctx, dest + lanes, tl.load(source + lanes), pe)


def test_my_pe_and_n_pes_are_the_hosts(me, npes):
    out = torch.full((2,), -1)
    tell[(1,)](shmem.device_context(), out)
    assert out.tolist() == [me, npes]


@every_pointee
@pytest.mark.parametrize("size", SIZES)
def test_put_writes_size_elements_on_the_pe_and_no_more(size, dtype):
    left, me, right = neighbours()
    target, whole = guarded(size, dtype)
    put_kernel[(1,)](shmem.device_context(), whole, payload(me, 1, size + 1, dtype), size, right)
    shmem.barrier_all()
    assert_same(target.clone(), payload(left, 1, size, dtype))
    assert untouched(whole[size:])


@every_pointee
@pytest.mark.parametrize("size", SIZES)
def test_get_reads_size_elements_of_the_pe_and_writes_no_more(size, dtype):
    _, me, right = neighbours()
    source = shmem.array(payload(me, 2, size + 1, dtype))
    target, whole = guarded(size, dtype)
    get_kernel[(1,)](shmem.device_context(), whole, source, size, right)
    assert_same(target.clone(), payload(right, 2, size, dtype))
    assert untouched(whole[size:])


@every_standard
def test_p_writes_one_element_and_g_reads_it(dtype):
    left, me, right = neighbours()
    target, whole = guarded(1, dtype)
    p_kernel[(1,)](shmem.device_context(), whole, payload(me, 5, 1, dtype)[0].item(), right)
    shmem.barrier_all()
    assert_same(target.clone(), payload(left, 5, 1, dtype))
    assert untouched(whole[1:])
    found = torch.full((1,), GUARD).to(dtype)
    g_kernel[(1,)](shmem.device_context(), found, whole, right)
    assert_same(found, payload(me, 5, 1, dtype))


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        (torch.float64, 0.1, 0.1),  # not by way of float32
        (torch.float64, 1e-300, 1e-300),
        (torch.float32, 0.1, torch.tensor(0.1).item()),
        (torch.float16, 1.5, 1.5),
        (torch.bfloat16, 3, 3.0),
        (torch.float32, -7, -7.0),
        (torch.bool, 2, True),
        (torch.int8, 300, 44),  # integers wrap, as in C
        (torch.uint64, -1, 2**64 - 1),
        (torch.uint64, 2**63 + 5, 2**63 + 5),
        (torch.uint32, -2, 2**32 - 2),
        (torch.int64, -(2**62) - 3, -(2**62) - 3),
        (torch.int32, True, 1),
    ],
    ids=str,
)
def test_p_and_store_convert_the_value_to_the_pointee(dtype, value, held):
    _, me, _ = neighbours()
    word, block = guarded(1, dtype), guarded(1, dtype)
    p_kernel[(1,)](shmem.device_context(), word[1], value, me)
    fill[(1,)](shmem.device_context(), block[1], value, me)
    shmem.quiet()
    for target, whole in (word, block):
        assert target.item() == torch.tensor(held, dtype=dtype).item()
        assert untouched(whole[1:])


@triton.jit
def fill(ctx, dest, VALUE: tl.constexpr, pe):
    dev.store(ctx, dest + tl.arange(0, 1), VALUE, pe)


@triton.jit
def store_converted(ctx, dest, source, kind: tl.constexpr, pe):
    lanes = tl.arange(0, 4)
    dev.store(ctx, dest + lanes, tl.load(source + lanes).to(kind), pe)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [tl.int8, tl.uint64, tl.float16, tl.bfloat16, tl.float32, tl.float64], ids=str)
def test_store_converts_a_block_of_another_type(dtype, kind):
    """The interpreter's own conversion of integers and float64 to bfloat16 would take the number for its bits."""
    me = shmem.my_pe()
    target, _ = guarded(4, dtype)
    store_converted[(1,)](shmem.device_context(), target, torch.tensor([0.0, 1.0, 3.0, 96.0]), kind, me)
    assert target.tolist() == [0.0, 1.0, 3.0, 96.0]


@pytest.mark.parametrize("dtype, eps", [(torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)], ids=str)
def test_store_rounds_floats_to_the_nearest(dtype, eps):
    """The interpreter's own conversion to bfloat16 cuts bits off."""
    target, _ = guarded(4, dtype)
    wide = torch.tensor([1 + 0.6 * eps, 1 + 0.4 * eps, -1 - 0.6 * eps, 1 + 1.5 * eps])
    store_converted[(1,)](shmem.device_context(), target, wide, tl.float32, shmem.my_pe())
    assert target.tolist() == [1 + eps, 1, -1 - eps, 1 + 2 * eps]


@every_standard
def test_load_gives_the_values_of_the_pe(dtype):
    _, me, right = neighbours()
    source = shmem.array(payload(me, 6, 64, dtype))
    found = torch.full((65,), GUARD).to(dtype)
    load_kernel[(1,)](shmem.device_context(), found, source, right, BLOCK=64)
    assert_same(found[:64], payload(right, 6, 64, dtype))
    assert found[64] == torch.tensor(GUARD).to(dtype)


@every_standard
def test_store_writes_the_values_on_the_pe(dtype):
    left, me, right = neighbours()
    target, whole = guarded(64, dtype)
    store_kernel[(1,)](shmem.device_context(), whole, payload(me, 7, 64, dtype), right, BLOCK=64)
    shmem.barrier_all()
    assert_same(target.clone(), payload(left, 7, 64, dtype))
    assert untouched(whole[64:])


@triton.jit
def load_masked(ctx, found, source, n, pe, other):
    lanes = tl.arange(0, 16)
    tl.store(found + lanes, dev.load(ctx, source + lanes, pe, lanes < n, other))


@triton.jit
def store_masked(ctx, dest, source, n, pe):
    lanes = tl.arange(0, 16)
    dev.store(ctx, dest + lanes, tl.load(source + lanes), pe, mask=lanes < n)


def test_load_gives_other_where_the_mask_is_off_and_reads_nothing_there():
    """The array has 10 elements: the lanes from 10 on are not memory."""
    _, me, right = neighbours()
    source, found = shmem.array(payload(me, 8, 10, torch.int32)), torch.full((16,), GUARD, dtype=torch.int32)
    load_masked[(1,)](shmem.device_context(), found, source, 10, right, -5)
    assert_same(found, torch.cat([payload(right, 8, 10, torch.int32), torch.full((6,), -5, dtype=torch.int32)]))


def test_store_leaves_masked_lanes_untouched():
    left, me, right = neighbours()
    target, whole = guarded(10, torch.int32, behind=6)
    store_masked[(1,)](shmem.device_context(), whole, payload(me, 9, 16, torch.int32), 10, right)
    shmem.barrier_all()
    assert_same(target.clone(), payload(left, 9, 10, torch.int32))
    assert untouched(whole[10:])


@triton.jit
def whole_mask(ctx, found, dest, source, pe, KEEP: tl.constexpr):
    lanes = tl.arange(0, 4)
    tl.store(found + lanes, dev.load(ctx, source + lanes, pe, mask=KEEP, other=-1))
    dev.store(ctx, dest + lanes, 5, pe, mask=KEEP)


@pytest.mark.parametrize("keep", [True, False])
def test_a_mask_may_be_one_python_bool(keep):
    _, me, right = neighbours()
    source, found, (target, _) = shmem.full(4, me), torch.full((4,), GUARD), guarded(4, torch.int64)
    whole_mask[(1,)](shmem.device_context(), found, target, source, right, KEEP=keep)
    shmem.barrier_all()
    assert found.tolist() == [right if keep else -1] * 4
    assert target.tolist() == [5] * 4 if keep else untouched(target)


@triton.jit
def exchange_by_block(ctx, dest, found, source, n):
    """Lane i goes to PE i % n: row me there, and from row i of the PE."""
    lanes = tl.arange(0, 8)
    pes = lanes % n
    me = dev.my_pe(ctx)
    dev.store(ctx, dest + me * 8 + lanes, me * 100 + lanes, pes)
    tl.store(found + lanes, dev.load(ctx, source + lanes, pes))


def test_pe_may_be_a_block_a_pe_for_each_lane(me, npes):
    (target, whole), source = guarded(npes * 8, torch.int32), shmem.array(payload(me, 10, 8, torch.int32))
    found = torch.zeros(8, dtype=torch.int32)
    exchange_by_block[(1,)](shmem.device_context(), whole, found, source, npes)
    shmem.barrier_all()
    for sender in range(npes):
        for lane in range(8):
            wanted = sender * 100 + lane if lane % npes == me else None
            cell = target[sender * 8 + lane : sender * 8 + lane + 1]
            assert untouched(cell) if wanted is None else cell.item() == wanted, (sender, lane)
    assert found.tolist() == [payload(lane % npes, 10, 8, torch.int32)[lane].item() for lane in range(8)]
    assert untouched(whole[npes * 8 :])


@triton.jit
def broadcast_pe(ctx, found, source, n):
    """One pointer with a block of PEs and a mask; a 2-D block with a column of PEs."""
    lanes = tl.arange(0, 4)
    tl.store(found + lanes, dev.load(ctx, source, lanes % n, lanes < 3, -1))
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(found + 4 + rows * 8 + columns, dev.load(ctx, source + columns + rows * 0, rows % n))


def test_pe_broadcasts_against_the_pointers(me, npes):
    source, found = shmem.array(payload(me, 11, 8, torch.int64)), torch.zeros(36, dtype=torch.int64)
    broadcast_pe[(1,)](shmem.device_context(), found, source, npes)
    assert found[:4].tolist() == [payload(pe % npes, 11, 8, torch.int64)[0].item() for pe in range(3)] + [-1]
    for row in range(4):
        assert_same(found[4 + row * 8 : 12 + row * 8], payload(row % npes, 11, 8, torch.int64))


@triton.jit
def by_pointer(ctx, dest, found, source, pe, n):
    lanes = tl.arange(0, 8)
    tl.store(dev.ptr(ctx, dest, pe) + lanes, tl.load(source + lanes))
    tl.store(found + lanes, tl.load(dev.ptr(ctx, source + lanes, lanes % n)))
    tl.store(found + 8, tl.load(dev.ptr(ctx, source, dev.my_pe(ctx))))


def test_ptr_gives_pointers_for_plain_loads_and_stores(me, npes):
    left, me, right = neighbours()
    (target, whole), source = guarded(8, torch.float32), shmem.array(payload(me, 12, 8, torch.float32))
    found = torch.zeros(9)
    by_pointer[(1,)](shmem.device_context(), whole, found, source, right, npes)
    shmem.barrier_all()
    assert_same(target.clone(), payload(left, 12, 8, torch.float32))
    assert found[:8].tolist() == [payload(lane % npes, 12, 8, torch.float32)[lane].item() for lane in range(8)]
    assert found[8] == source[0]
    assert untouched(whole[8:])


@triton.jit
def turn_words(ctx, word, pe, turns):
    for turn in range(turns):
        value = tl.full([], 0x1111111111111111, tl.int64) * (turn % 8)
        dev.p(ctx, word, value, pe)  # check: ignore, any of the words may be seen


@triton.jit
def watch_words(ctx, word, pe, torn, turns):
    for _ in range(turns):
        seen = dev.g(ctx, word, pe)
        if seen % 0x1111111111111111 != 0:
            tl.store(torn, seen)


def test_p_is_a_single_store_and_g_a_single_load():
    """PEs write words of 16 equal hexadecimal digits to PE 0; a reader never sees a word made of two."""
    word, torn, me = shmem.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), shmem.my_pe()
    for _ in range(5):
        (turn_words if me % 2 else watch_words)[(1,)](
            shmem.device_context(), word, *([0] if me % 2 else [0, torn]), 200
        )
    assert torn.item() == 0


@triton.jit
def put_twice(ctx, dest, source, flag, pe, turns):
    """Two puts to one place, the later wins by a fence; another one holds the flag behind both."""
    for turn in range(1, turns + 1):
        dev.put(ctx, dest, source, 64, pe)
        dev.fence(ctx)
        dev.put(ctx, dest, source + 64 * turn, 64, pe)
        dev.fence(ctx)
        dev.p(ctx, flag, turn, pe)
        dev.wait_until(ctx, flag + 1, dev.CMP_GE, turn)


@triton.jit
def take_all(ctx, dest, results, flag, pe, turns):
    for turn in range(1, turns + 1):
        dev.wait_until(ctx, flag, dev.CMP_GE, turn)
        dev.get(ctx, results + 64 * turn, dest, 64, dev.my_pe(ctx))
        dev.p(ctx, flag + 1, turn, pe)


def test_a_later_put_to_the_same_pe_wins_after_a_fence(npes):
    """Even PEs send to the odd one on their right, 50 turns, no barrier between."""
    left, me, right = neighbours()
    target, flags, ctx = shmem.zeros(64, dtype=torch.int64), shmem.zeros(2, dtype=torch.int64), shmem.device_context()
    turns = 50
    if me % 2 == 0 and right % 2:
        source = torch.stack([payload(me, turn, 64, torch.int64) for turn in range(turns + 1)])
        put_twice[(1,)](ctx, target, source, flags, right, turns)
    elif me % 2:
        results = torch.zeros(turns + 1, 64, dtype=torch.int64)
        take_all[(1,)](ctx, target, results, flags, left, turns)
        for turn in range(1, turns + 1):
            assert_same(results[turn], payload(left, turn, 64, torch.int64))
