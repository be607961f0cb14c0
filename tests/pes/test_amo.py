"""9.7 atomic memory operations: what each does to each type, and that no update is lost however they are mixed."""

import operator

import pytest
import torch
from support import (
    AMO_DTYPES, AMO_INTEGERS, GUARD, assert_same, element, from_pe, guarded, limits, name_of, neighbours, refuses,
    untouched,
)  # fmt: skip

import pyshmem as shmem

# operator: (old, value) -> new, for the calls (target, value, pe)
UPDATES = {
    "set": (lambda old, value: value, AMO_DTYPES),
    "add": (operator.add, AMO_DTYPES),
    "and": (operator.and_, AMO_INTEGERS),
    "or": (operator.or_, AMO_INTEGERS),
    "xor": (operator.xor, AMO_INTEGERS),
}
FETCHING = {**UPDATES, "swap": UPDATES["set"]}
del FETCHING["set"]
CASES = [(name, dtype) for name, (_, dtypes) in UPDATES.items() for dtype in dtypes]
FETCHING_CASES = [(name, dtype) for name, (_, dtypes) in FETCHING.items() for dtype in dtypes]
EVERY = [f"atomic_{name}" for name in ("set", "add", "and", "or", "xor", "swap", "inc", "fetch", "compare_swap")]
EVERY += [f"atomic_fetch_{name}" for name in ("add", "and", "or", "xor", "inc")]


def ids(each):
    return name_of(each) if isinstance(each, torch.dtype) else each


def one_word(dtype):
    """One symmetric element with a guard on either side."""
    _, whole = guarded(0, dtype, behind=3)
    return whole[1:2], whole[::2]


def unharmed(guards):
    return all(untouched(guards.clone()[i : i + 1]) for i in (0, 1))


@pytest.mark.parametrize("name, dtype", CASES, ids=ids)
def test_atomic_update_gives_what_the_operator_gives(name, dtype):
    left, me, right = neighbours()
    target, guards = one_word(dtype)
    for old, value in limits(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        assert getattr(shmem, "atomic_" + name)(target, value, right) is None
        shmem.barrier_all()
        assert_same(target, element(UPDATES[name][0](old, value), dtype))
    assert unharmed(guards)


@pytest.mark.parametrize("name, dtype", FETCHING_CASES, ids=ids)
def test_fetching_atomic_returns_the_value_before(name, dtype):
    left, me, right = neighbours()
    target, guards = one_word(dtype)
    routine = getattr(shmem, "atomic_swap" if name == "swap" else "atomic_fetch_" + name)
    for old, value in limits(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        fetched = routine(target, value, right)
        assert fetched == old and type(fetched) is (float if dtype.is_floating_point else int)
        assert_same(from_pe(target, right), element(FETCHING[name][0](old, value), dtype))  # it has happened already
        shmem.barrier_all()
    assert unharmed(guards)


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_inc_and_fetch_inc_add_one_and_wrap_around(dtype):
    left, me, right = neighbours()
    target, guards = one_word(dtype)
    for old, _ in limits(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        assert shmem.atomic_inc(target, right) is None
        assert shmem.atomic_fetch_inc(target, right) == element(old + 1, dtype).item()
        shmem.barrier_all()
        assert_same(target, element(element(old + 1, dtype).item() + 1, dtype))
    assert unharmed(guards)


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_compare_swap_writes_only_where_the_element_equals_cond(dtype):
    left, me, right = neighbours()
    target, guards = one_word(dtype)
    for old, value in limits(dtype):
        shmem.p(target, old, me)
        shmem.barrier_all()
        assert shmem.atomic_compare_swap(target, value, GUARD, right) == old  # value differs from old, or is the same
        expected = GUARD if value == old else old
        assert shmem.atomic_fetch(target, right) == expected
        assert shmem.atomic_compare_swap(target, expected, value, right) == expected
        assert_same(from_pe(target, right), element(value, dtype))
        shmem.barrier_all()
    assert unharmed(guards)


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_set_and_fetch_carry_every_value_of_the_type(dtype):
    left, me, right = neighbours()
    target = shmem.zeros((), dtype=dtype)  # a 0-d array is one element too
    for turn, (old, value) in enumerate(limits(dtype)):
        for each in (old, value, turn):
            shmem.atomic_set(target, each, right)
            assert shmem.atomic_fetch(target, right) == each
    shmem.barrier_all()


TURNS = 4000  # of a hot loop: long enough that the PEs' loops overlap where they share cores


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_no_add_is_lost_among_all_pes(dtype, npes):
    count = shmem.zeros(1, dtype=dtype)
    for _ in range(TURNS):
        shmem.atomic_add(count, 3, 0)
        shmem.atomic_inc(count, 0)
        shmem.atomic_fetch_add(count, 2, 0)
        shmem.atomic_fetch_inc(count, 0)
    shmem.barrier_all()
    assert shmem.g(count, 0) == 7 * TURNS * npes


def test_fetch_inc_gives_every_ticket_once(npes):
    counter = shmem.zeros(1, dtype=torch.int64)
    mine = shmem.zeros(TURNS, dtype=torch.int64)
    for i in range(TURNS):
        mine[i] = shmem.atomic_fetch_inc(counter, npes - 1)
    shmem.barrier_all()
    tickets = torch.cat([from_pe(mine, pe) for pe in range(npes)])
    assert (mine.diff() > 0).all()  # each PE's own come in order
    assert tickets.sort().values.tolist() == list(range(TURNS * npes))


@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=ids)
def test_no_update_is_lost_where_operators_are_mixed_on_one_word(dtype, me, npes):
    """Fields of one word: one is added to, one counted by compare_swap; each PE toggles a bit, and sets and clears one."""
    width = (8 * dtype.itemsize - 1 - 2 * npes) // 2
    if width < 6:
        pytest.skip("no room for the bits of so many PEs in a word of this type")
    turns = min(TURNS // 4, ((1 << width) - 1) // npes) - 1 | 1  # odd, and the fields do not overflow
    swapped, toggled, marked = 1 << width, 1 << (2 * width + me), 1 << (2 * width + npes + me)
    cleared = ~marked if dtype.is_signed else torch.iinfo(dtype).max ^ marked
    for word in shmem.zeros(8, dtype=dtype):
        for _ in range(turns):
            shmem.atomic_add(word, 1, 0)
            seen = shmem.atomic_fetch(word, 0)
            while (found := shmem.atomic_compare_swap(word, seen, seen + swapped, 0)) != seen:
                seen = found
            shmem.atomic_xor(word, toggled, 0)
            assert not shmem.atomic_fetch_or(word, marked, 0) & marked
            assert shmem.atomic_fetch_and(word, cleared, 0) & marked
        shmem.barrier_all()
        assert shmem.g(word, 0) == turns * npes * (1 + swapped) + (((1 << npes) - 1) << (2 * width))


@pytest.mark.parametrize("dtype, step", [(torch.float32, 1), (torch.float64, 2.0**-20)], ids=ids)
def test_float_adds_and_compare_swaps_share_one_word_and_lose_nothing(dtype, step, npes):
    word = shmem.zeros(1, dtype=dtype)
    for _ in range(TURNS):
        shmem.atomic_add(word, step, 0)
        seen = shmem.atomic_fetch(word, 0)
        while (found := shmem.atomic_compare_swap(word, seen, seen + step, 0)) != seen:
            seen = found
    shmem.barrier_all()
    assert shmem.g(word, 0) == 2 * TURNS * npes * step


def arguments(name, cond, value):
    """What stands between target and pe."""
    short = {"atomic_fetch": (), "atomic_inc": (), "atomic_fetch_inc": (), "atomic_compare_swap": (cond, value)}
    return short.get(name, (value,))


@pytest.mark.parametrize("dtype", AMO_DTYPES, ids=ids)
def test_atomics_refuse_values_that_the_element_cannot_hold(dtype, me):
    word = shmem.full(1, 3, dtype=dtype)
    values = [1j, "1", None]
    values += [1e39] if dtype is torch.float32 else [2**64, 0.5] if dtype in AMO_INTEGERS else [2**53 + 1]
    values += [-1] if dtype in AMO_INTEGERS and not dtype.is_signed else []
    for value in values:
        for name in ("atomic_set", "atomic_add", "atomic_swap", "atomic_fetch_add"):
            with refuses(name, "value: got ", shmem.DtypeError):
                getattr(shmem, name)(word, value, me)
        with refuses("atomic_compare_swap", "cond: got ", shmem.DtypeError):
            shmem.atomic_compare_swap(word, value, 3, me)
        with refuses("atomic_compare_swap", "value: got ", shmem.DtypeError):
            shmem.atomic_compare_swap(word, 3, value, me)
    assert word.item() == 3


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.bool, torch.float16, torch.complex64], ids=ids)
def test_atomics_refuse_other_element_types(name, dtype, me):
    word = shmem.ones(1, dtype=dtype)
    with refuses(name, rf"\w+: got {name_of(dtype)} elements; expected one of int32, ", shmem.DtypeError):
        getattr(shmem, name)(word, *arguments(name, 1, 0), me)
    assert word.item() == 1


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_bitwise_atomics_refuse_floats(name, me):
    word = shmem.ones(1, dtype=torch.float64)
    for routine in (f"atomic_{name}", f"atomic_fetch_{name}"):
        with pytest.raises(
            shmem.DtypeError, match=rf"^{routine}: .* float64 elements; expected one of int32, int64, uint32, uint64$"
        ):
            getattr(shmem, routine)(word, 1, me)
    assert word.item() == 1
