"""9.7 in kernels: what each atomic does to each type, in every sem and scope, and that no update is lost."""

import operator
import threading

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import (
    AMO_DTYPES, AMO_INTEGERS, GUARD, aside, assert_same, element, from_pe, guarded, limits, name_of, neighbours,
    untouched,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("beside_the_heap")

# operator: (old, value) -> new
OPERATORS = {
    "set": lambda old, value: value,
    "swap": lambda old, value: value,
    "add": operator.add,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
}
BITWISE = ("and", "or", "xor")
UPDATES, FETCHES = ("set", "add", "min", "max", *BITWISE), ("swap", "add", "min", "max", *BITWISE)
SEMS, SCOPES = ("relaxed", "acquire", "release", "acq_rel"), ("sys", "gpu", "cta")


def cases(names):
    return [(name, dtype) for name in names for dtype in (AMO_INTEGERS if name in BITWISE else AMO_DTYPES)]


def ids(each):
    return name_of(each) if isinstance(each, torch.dtype) else each


def fetching(name):
    return getattr(dev, "atomic_swap" if name == "swap" else f"atomic_fetch_{name}")


@triton.jit
def update(ctx, routine: tl.constexpr, target, value, pe, SEM: tl.constexpr, SCOPE: tl.constexpr):
    routine(ctx, target, value, pe, sem=SEM, scope=SCOPE)


@triton.jit
def fetch_and_update(ctx, routine: tl.constexpr, target, found, value, pe, SEM: tl.constexpr, SCOPE: tl.constexpr):
    tl.store(found, routine(ctx, target, value, pe, sem=SEM, scope=SCOPE))


@triton.jit
def fetch(ctx, routine: tl.constexpr, target, found, pe, SEM: tl.constexpr, SCOPE: tl.constexpr):
    tl.store(found, routine(ctx, target, pe, sem=SEM, scope=SCOPE))


@triton.jit
def swap_if(ctx, target, found, cond, value, pe, SEM: tl.constexpr, SCOPE: tl.constexpr):
    tl.store(found, dev.atomic_compare_swap(ctx, target, cond, value, pe, sem=SEM, scope=SCOPE))


def turns(dtype):
    """For each pair of limits (old here, value of the left PE, value of this one): each PE is at another pair."""
    left, me, _ = neighbours()
    pairs = limits(dtype)
    for turn in range(len(pairs)):
        here, there = pairs[(turn + me) % len(pairs)], pairs[(turn + left) % len(pairs)]
        yield here[0], there[1], here[1]


@pytest.mark.parametrize("name, dtype", cases(UPDATES), ids=ids)
def test_atomic_update_gives_what_the_operator_gives(name, dtype):
    _, me, right = neighbours()
    target, whole = guarded(1, dtype)
    for old, theirs, mine in turns(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        update[(1,)](shmem.device_context(), getattr(dev, f"atomic_{name}"), target, mine, right, "acq_rel", "sys")
        shmem.barrier_all()
        assert_same(target.clone(), element(OPERATORS[name](old, theirs), dtype))
    assert untouched(whole[1:])


@pytest.mark.parametrize("name, dtype", cases(FETCHES), ids=ids)
def test_fetching_atomic_returns_the_value_before_and_has_happened(name, dtype):
    _, me, right = neighbours()
    (target, whole), found = guarded(1, dtype), torch.empty(1, dtype=dtype)
    for old, theirs, mine in turns(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        before = from_pe(target, right)
        shmem.barrier_all()
        fetch_and_update[(1,)](shmem.device_context(), fetching(name), target, found, mine, right, "acq_rel", "sys")
        assert_same(found, before)
        assert_same(from_pe(target, right), element(OPERATORS[name](before.item(), mine), dtype))
        shmem.barrier_all()
        assert_same(target.clone(), element(OPERATORS[name](old, theirs), dtype))
    assert untouched(whole[1:])


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_inc_and_fetch_inc_add_one_and_wrap_around(dtype):
    _, me, right = neighbours()
    (target, whole), found = guarded(1, dtype), torch.empty(1, dtype=dtype)
    for old, _, _ in turns(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        before = from_pe(target, right)
        shmem.barrier_all()
        fetch[(1,)](shmem.device_context(), dev.atomic_fetch_inc, target, found, right, "acq_rel", "sys")
        assert_same(found, before)
        inc[(1,)](shmem.device_context(), target, right)
        shmem.barrier_all()
        assert_same(target.clone(), element(element(old + 1, dtype).item() + 1, dtype))
    assert untouched(whole[1:])


@triton.jit
def inc(ctx, target, pe):
    dev.atomic_inc(ctx, target, pe)


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_fetch_gives_every_value_bit_by_bit_and_changes_nothing(dtype):
    """-0.0, which adding 0.0 would change, and a NaN with a payload included; each PE's are in an order of its own."""
    _, me, right = neighbours()
    values = [value for pair in limits(dtype) for value in pair]
    mine = torch.tensor([*values[me:], *values[:me], 0], dtype=dtype)
    if dtype.is_floating_point:
        mine[-1:].view(torch.uint8)[:] = 0xFB
    source, found = shmem.array(mine), torch.empty(1, dtype=dtype)
    for i in range(source.numel()):
        fetch[(1,)](shmem.device_context(), dev.atomic_fetch, source[i], found, right, "acq_rel", "sys")
        assert_same(found, from_pe(source[i : i + 1], right))
    shmem.barrier_all()
    assert_same(source.clone(), mine)


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_compare_swap_writes_only_where_the_element_equals_cond(dtype):
    _, me, right = neighbours()
    (target, whole), found, ctx = guarded(1, dtype), torch.empty(1, dtype=dtype), shmem.device_context()
    for mine, _, value in turns(dtype):
        shmem.p(target, mine, me)
        shmem.barrier_all()
        old = shmem.g(target, right)
        shmem.barrier_all()
        swap_if[(1,)](ctx, target, found, value, GUARD, right, "acq_rel", "sys")  # value differs, or is the same
        assert_same(found, torch.tensor([old], dtype=dtype))
        expected = GUARD if value == old else old
        assert shmem.atomic_fetch(target, right) == expected
        swap_if[(1,)](ctx, target, found, expected, value, right, "acq_rel", "sys")
        assert_same(found, torch.tensor([expected], dtype=dtype))
        assert_same(from_pe(target, right), element(value, dtype))
        shmem.barrier_all()
    assert untouched(whole[1:])


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("sem", SEMS)
def test_every_sem_and_scope_is_taken_by_every_atomic(sem, scope):
    """What they order shows only where memory is weaker than here; that each form is legal, and does its work, shows."""
    _, me, right = neighbours()
    target, found, ctx = shmem.full(1, 12, dtype=torch.int64), torch.empty(1, dtype=torch.int64), shmem.device_context()
    value = 12
    for name in UPDATES:
        update[(1,)](ctx, getattr(dev, f"atomic_{name}"), target, 10, right, sem, scope)
        value = OPERATORS[name](value, 10)
        assert shmem.atomic_fetch(target, right) == value, name
    for name in FETCHES:
        fetch_and_update[(1,)](ctx, fetching(name), target, found, 9, right, sem, scope)
        assert found.item() == value, name
        value = OPERATORS[name](value, 9)
    for name, routine in (("fetch", dev.atomic_fetch), ("fetch_inc", dev.atomic_fetch_inc)):
        fetch[(1,)](ctx, routine, target, found, right, sem, scope)
        assert found.item() == value, name
    swap_if[(1,)](ctx, target, found, value + 1, me, right, sem, scope)
    assert found.item() == value + 1
    assert shmem.atomic_fetch(target, right) == me


@pytest.mark.parametrize("bad", [{"SEM": "seq_cst", "SCOPE": "sys"}, {"SEM": "relaxed", "SCOPE": "world"}], ids=str)
def test_an_unknown_sem_or_scope_is_an_error(bad):
    target = shmem.full(1, 12, dtype=torch.int64)
    with pytest.raises(Exception) as caught:
        update[(1,)](shmem.device_context(), dev.atomic_add, target, 1, shmem.my_pe(), **bad)
    reasons, error = [], caught.value
    while error is not None:
        reasons.append(str(error))
        error = error.__cause__
    assert "expected one of" in "".join(reasons)
    assert target.item() == 12


@triton.jit
def update_lanes(ctx, routine: tl.constexpr, target, value, n, pe):
    lanes = tl.arange(0, 16)
    routine(ctx, target + lanes, value + lanes, pe, mask=lanes < n)


@pytest.mark.parametrize("name, dtype", cases(UPDATES), ids=ids)
def test_a_block_is_updated_lane_by_lane_and_masked_lanes_are_untouched(name, dtype):
    left, me, right = neighbours()
    target, whole = guarded(10, dtype, behind=6)
    target.copy_(torch.tensor(list(range(10)), dtype=dtype))
    shmem.barrier_all()
    update_lanes[(1,)](shmem.device_context(), getattr(dev, f"atomic_{name}"), whole, 100 + me, 10, right)
    shmem.barrier_all()
    wanted = [OPERATORS[name](lane, 100 + left + lane) for lane in range(10)]
    assert_same(target.clone(), torch.tensor(wanted, dtype=dtype))
    assert untouched(whole[10:])


@triton.jit
def least_and_greatest(ctx, least, greatest, found, values, pe):
    lanes = tl.arange(0, 64)
    value = tl.load(values + lanes)
    tl.store(found + lanes, dev.atomic_fetch_min(ctx, least + lanes, value, pe))
    tl.store(found + 64 + lanes, dev.atomic_fetch_max(ctx, greatest + lanes, value, pe))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=ids)
def test_min_and_max_order_floats_down_to_signed_zeros_and_nans(dtype):
    """By IEEE 754's totalOrder, every pair of its kinds: negative NaN, -inf, a number, -0.0, and the same upwards."""
    _, _, right = neighbours()
    kinds = torch.tensor([-torch.nan, -torch.inf, -1.5, -0.0, 0.0, 1.5, torch.inf, torch.nan], dtype=dtype)
    kinds[0] = torch.copysign(kinds[0], kinds[1])
    old, values = kinds.repeat(8), kinds.repeat_interleave(8)
    least, greatest, found = shmem.array(old), shmem.array(old), torch.empty(128, dtype=dtype)
    least_and_greatest[(1,)](shmem.device_context(), least, greatest, found, values, right)
    shmem.barrier_all()
    place, value = torch.arange(64) % 8, torch.arange(64) // 8
    assert_same(found, old.repeat(2))
    assert_same(least.clone(), kinds[torch.minimum(place, value)])
    assert_same(greatest.clone(), kinds[torch.maximum(place, value)])


@triton.jit
def blocks(ctx, target, found, n):
    """Lane i goes to PE i % n; every lane of it counts on the same word there."""
    lanes = tl.arange(0, 8)
    dev.atomic_add(ctx, target, 1, lanes % n)
    dev.barrier_all(ctx)
    tl.store(found + lanes, dev.atomic_fetch(ctx, target, lanes % n))
    dev.barrier_all(ctx)
    tl.store(found + 8 + lanes, dev.atomic_compare_swap(ctx, target + 1 + lanes, 3, lanes + 5, dev.my_pe(ctx)))


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_pe_may_be_a_block_and_scalars_meet_blocks(dtype, me, npes):
    target, found = shmem.full(9, 3, dtype=dtype), torch.empty(16, dtype=dtype)
    blocks[(1,)](shmem.device_context(), target, found, npes)
    counts = [3 + npes * len(range(pe, 8, npes)) for pe in range(npes)]
    assert target[0].item() == counts[me]
    assert found.tolist() == [counts[lane % npes] for lane in range(8)] + [3] * 8
    assert target[1:].tolist() == list(range(5, 13))


@triton.jit
def whole_mask(ctx, target, pe, KEEP: tl.constexpr):
    dev.atomic_add(ctx, target, 1, pe, mask=KEEP)
    dev.atomic_inc(ctx, target + tl.arange(0, 4), pe, mask=KEEP)


@pytest.mark.parametrize("keep", [True, False])
def test_a_mask_may_be_one_python_bool(keep):
    target = shmem.zeros(4, dtype=torch.int32)
    whole_mask[(1,)](shmem.device_context(), target, shmem.my_pe(), KEEP=keep)
    assert target.tolist() == ([2, 1, 1, 1] if keep else [0] * 4)


@triton.jit
def default_order(ctx, target, pe):
    dev.atomic_add(ctx, target, 1, pe, sem=None, scope=None)


def test_sem_and_scope_none_are_tritons_defaults():
    target = shmem.zeros(1, dtype=torch.int32)
    default_order[(1,)](shmem.device_context(), target, shmem.my_pe())
    assert target.item() == 1


@triton.jit
def count_up(ctx, counter, tickets, turns):
    for turn in range(turns):
        tl.store(tickets + turn, dev.atomic_fetch_add(ctx, counter, 1, 0))


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_kernels_and_host_atomics_on_one_word_give_every_ticket_once(dtype, npes):
    """A kernel and a host thread of each PE at once, on a word of PE 0 that is also a kernel argument there."""
    turns = 150
    counter, tickets = shmem.zeros(1, dtype=dtype), shmem.zeros(2 * turns, dtype=dtype)

    def host():
        for turn in range(turns):
            shmem.p(tickets[turns + turn], shmem.atomic_fetch_add(counter, 1, 0), shmem.my_pe())

    thread = threading.Thread(target=aside(host))
    thread.start()
    for start in range(0, turns, 30):
        count_up[(1,)](shmem.device_context(), counter, tickets[start:], 30)
    thread.join()
    shmem.barrier_all()
    every = sorted(ticket for pe in range(npes) for ticket in from_pe(tickets, pe).tolist())
    assert every == list(range(2 * turns * npes))


@triton.jit
def mixed(ctx, word, turns):
    """Bits 0 to 3 of all PEs: xor twice. Above: add 16. Swapped in by compare_swap until it holds: add 65536."""
    for _ in range(turns):
        dev.atomic_xor(ctx, word, 5, 0)
        dev.atomic_add(ctx, word, 16, 0)
        dev.atomic_xor(ctx, word, 5, 0, sem="relaxed")
        seen = dev.atomic_fetch(ctx, word, 0)
        found = dev.atomic_compare_swap(ctx, word, seen, seen + 65536, 0)
        while found != seen:
            seen = found
            found = dev.atomic_compare_swap(ctx, word, seen, seen + 65536, 0)


@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=ids)
def test_no_update_is_lost_where_operators_are_mixed(dtype, npes):
    word, turns = shmem.zeros(1, dtype=dtype), 60
    for _ in range(2):
        mixed[(1,)](shmem.device_context(), word, turns // 2)
    shmem.barrier_all()
    assert shmem.atomic_fetch(word, 0) == turns * npes * (16 + 65536)
