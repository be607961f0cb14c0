"""9.10 in kernels: waits and tests on many words, with one value for all and with one for each."""

import threading

import numpy as np
import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.base.job import job
from support import AMO_INTEGERS, GUARD, aside, interpreted, name_of, neighbours, work
from triton.runtime.errors import InterpreterError

pytestmark = pytest.mark.usefixtures("beside_the_heap")

COMPARISONS = {
    "CMP_EQ": np.equal,
    "CMP_NE": np.not_equal,
    "CMP_GT": np.greater,
    "CMP_GE": np.greater_equal,
    "CMP_LT": np.less,
    "CMP_LE": np.less_equal,
}
N = 500  # words: more than threads, and each warp has some behind those
NONE = 2**64 - 1
every_form = pytest.mark.parametrize("form", ["", "_vector"], ids=["one value", "a value each"])


@triton.jit
def three_tests(
    ctx,
    ALL: tl.constexpr,
    ANY: tl.constexpr,
    SOME: tl.constexpr,
    found,
    ivars,
    n,
    indices,
    back,
    status,
    CMP: tl.constexpr,
    value,
):
    tl.store(found, ALL(ctx, ivars, n, status, CMP, value).to(tl.uint64))
    tl.store(found + 1, ANY(ctx, ivars, n, status, CMP, value))
    tl.store(found + 2, SOME(ctx, ivars, n, indices, status, CMP, value))
    turn_round(indices, back, n)


@triton.jit
def wait_one(
    ctx, WAIT: tl.constexpr, found, ivars, n, indices, back, status, CMP: tl.constexpr, value, KIND: tl.constexpr
):
    """Any of the waits; what it gives to found."""
    if KIND == "all":
        WAIT(ctx, ivars, n, status, CMP, value)
    elif KIND == "any":
        tl.store(found, WAIT(ctx, ivars, n, status, CMP, value))
    else:
        tl.store(found, WAIT(ctx, ivars, n, indices, status, CMP, value))
        turn_round(indices, back, n)


@triton.jit
def turn_round(indices, back, n):
    """Each thread reads at once what others have written."""
    lane = tl.arange(0, 512)
    tl.store(back + lane, tl.load(indices + n - lane, mask=lane <= n), mask=lane <= n)


def routine(name, form):
    return getattr(dev, name + form)


def look(form, ivars, n, status, cmp, value):
    """(test_all, test_any, the indices of test_some); memory behind the indices is checked."""
    found, (indices, back) = torch.zeros(3, dtype=torch.uint64), torch.full((2, n + 1), GUARD, dtype=torch.uint64)
    three = (routine(f"test_{kind}", form) for kind in ("all", "any", "some"))
    ctx, sign = shmem.device_context(), getattr(dev, cmp)
    three_tests[(1,)](ctx, *three, found, ivars, n, indices, back, status, sign, value)
    every, some, count = found.tolist()
    assert all(index == GUARD for index in indices.tolist()[count:])
    assert back.tolist()[::-1] == indices.tolist()
    return every, some, indices.tolist()[:count]


def wait(kind, form, ivars, n, status, cmp, value):
    """What wait_until_any returns, or the indices of wait_until_some, or None."""
    found = torch.full((1,), GUARD, dtype=torch.uint64)
    indices, back = torch.full((2, n + 1), GUARD, dtype=torch.uint64)
    ctx, call, sign = shmem.device_context(), routine(f"wait_until_{kind}", form), getattr(dev, cmp)
    wait_one[(1,)](ctx, call, found, ivars, n, indices, back, status, sign, value, kind)
    assert indices.tolist()[n] == GUARD and (kind != "some" or back.tolist()[::-1] == indices.tolist())
    return {"all": None, "any": found.item(), "some": indices.tolist()[: found.item()]}[kind]


def words_of(dtype, n):
    """Numbers at both ends of the type and in its middle, in no order; the sign bit decides between some of them."""
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    numbers = [low, high, 5, high // 2 + 1, 4, low + 1, high - 1, 6]
    return np.array([numbers[i * i % 23 % 8] for i in range(n)], dtype=name_of(dtype))


def operand(form, values):
    """values: NumPy's, all equal where there is one for all."""
    return torch.from_numpy(values).to(torch.get_default_device()) if form else int(values[0])


@every_form
@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=name_of)
def test_the_tests_look_at_the_words_that_count_with_the_types_signedness(dtype, form):
    words = words_of(dtype, N)
    wanted = np.roll(words, 3) if form else np.full(N, 5, dtype=words.dtype)
    ivars, value = shmem.array(torch.from_numpy(words)), operand(form, wanted)
    for cmp, compare in COMPARISONS.items():
        for status in (None, np.arange(N, dtype=np.int32) % 3 - 1):
            counts = np.ones(N, dtype=bool) if status is None else status == 0
            places = np.flatnonzero(compare(words, wanted) & counts).tolist()
            given = None if status is None else torch.from_numpy(status).to(torch.get_default_device())
            every, some, found = look(form, ivars, N, given, cmp, value)
            assert every == (len(places) == counts.sum())
            assert some in places if places else some == NONE
            assert found == places, cmp


@every_form
@pytest.mark.parametrize("place", [0, N - 1])
def test_one_word_among_many_is_found_and_missed(place, form):
    """The first and the last: one that holds among those that do not, and one that does not among those that do."""
    values = np.full(N, 7, dtype=np.int64)
    ivars, value = shmem.zeros(N, dtype=torch.int64), operand(form, values)
    shmem.p(ivars[place], 7, shmem.my_pe())
    assert look(form, ivars, N, None, "CMP_EQ", value) == (0, place, [place])
    assert look(form, ivars, N, None, "CMP_NE", value)[0] == 0
    assert wait("any", form, ivars, N, None, "CMP_EQ", value) == place
    assert wait("some", form, ivars, N, None, "CMP_EQ", value) == [place]
    assert wait("some", form, ivars, N, None, "CMP_NE", value) == [i for i in range(N) if i != place]
    status = torch.ones(N, dtype=torch.int32)
    status[place] = 0
    assert look(form, ivars, N, status, "CMP_EQ", value) == (1, place, [place])
    wait("all", form, ivars, N, status, "CMP_EQ", value)


@every_form
def test_where_no_word_counts_waits_end_at_once(form):
    ivars, values = shmem.zeros(5, dtype=torch.uint32), np.full(5, 9, dtype=np.uint32)
    for n, status in ((0, None), (5, torch.full((5,), 3, dtype=torch.int32))):
        assert look(form, ivars, n, status, "CMP_EQ", operand(form, values)) == (1, NONE, [])
        wait("all", form, ivars, n, status, "CMP_EQ", operand(form, values))
        assert wait("any", form, ivars, n, status, "CMP_EQ", operand(form, values)) == NONE
        assert wait("some", form, ivars, n, status, "CMP_EQ", operand(form, values)) == []


@triton.jit
def gather(ctx, WAIT: tl.constexpr, KIND: tl.constexpr, words, taken, status, indices, values, order, turns):
    """turns of: a word to each PE, and waits until all of theirs are here; status leaves out what was found."""
    me, n = dev.my_pe(ctx), dev.n_pes(ctx)
    for turn in range(1, turns + 1):
        for pe in range(n):
            dev.p(ctx, words + me, turn * 10 + me, pe)
            tl.store(values + pe, turn * 10 + pe)
            tl.store(status + pe, 0)
        left = n
        while left > 0:
            if KIND == "any":
                found = WAIT(ctx, words, n, status, dev.CMP_EQ, values)
                tl.store(indices, found)
                count = 1
            else:
                count = WAIT(ctx, words, n, indices, status, dev.CMP_EQ, values).to(tl.int32)
            for i in range(count):
                index = tl.load(indices + i)
                tl.store(order + (turn - 1) * n + n - left, index)
                tl.store(status + index, 1)
                left -= 1
        for pe in range(n):
            dev.atomic_inc(ctx, taken, pe)
        dev.wait_until(ctx, taken, dev.CMP_EQ, turn * n)


@pytest.mark.parametrize("kind", ["any", "some"])
def test_a_kernel_takes_each_word_once_as_it_comes(kind, npes):
    """status is written by the kernel between its waits: a wait that does not heed it finds a word twice."""
    turns = 10
    words, taken = shmem.zeros(npes, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    status, values = torch.zeros(npes, dtype=torch.int32), torch.zeros(npes, dtype=torch.int64)
    indices, order = torch.zeros(npes, dtype=torch.uint64), torch.zeros(turns * npes, dtype=torch.uint64)
    call = routine(f"wait_until_{kind}", "_vector")
    gather[(1,)](shmem.device_context(), call, kind, words, taken, status, indices, values, order, turns)
    for turn in range(turns):
        assert sorted(order.tolist()[turn * npes : turn * npes + npes]) == list(range(npes))


@triton.jit
def wait_and_read(ctx, WAIT: tl.constexpr, KIND: tl.constexpr, ivars, n, indices, status, value, data, seen):
    if KIND == "some":
        WAIT(ctx, ivars, n, indices, status, dev.CMP_GE, value)
    else:
        WAIT(ctx, ivars, n, status, dev.CMP_GE, value)
    tl.store(seen, tl.load(data))


@every_form
@pytest.mark.parametrize("kind", ["all", "any", "some"])
def test_waits_are_acquires_and_wait_for_a_late_writer(kind, form):
    """The left neighbour's host writes data, then the last word; a wait that ends too early finds no data."""
    left, _, right = neighbours()
    ivars, data = shmem.zeros(N, dtype=torch.uint64), shmem.full(1, -1, dtype=torch.int32)
    seen, status = torch.zeros(1, dtype=torch.int32), torch.ones(N, dtype=torch.int32)
    status[1] = status[-1] = 0
    value = torch.from_numpy(np.arange(N, dtype=np.uint64)).to(torch.get_default_device()) if form else 1

    def write():
        work(100000)
        if kind == "all":
            shmem.p(ivars[1], 1, right)
            work(10000)
        shmem.p(data, shmem.my_pe(), right)
        shmem.fence()
        shmem.p(ivars[-1], N, right)

    writer = threading.Thread(target=aside(write))
    writer.start()
    call, indices = routine(f"wait_until_{kind}", form), torch.zeros(N, dtype=torch.uint64)
    wait_and_read[(1,)](shmem.device_context(), call, kind, ivars, N, indices, status, value, data, seen)
    writer.join()
    assert seen.item() == left


@triton.jit
def choose(ctx, CALL: tl.constexpr, ivars, found, turns):
    for turn in range(turns):
        tl.store(found + turn, CALL(ctx, ivars, 5, None, dev.CMP_EQ, 0))


@pytest.mark.parametrize("name", ["wait_until_any", "test_any"])
def test_any_starves_no_index_of_those_that_always_hold(name):
    ivars, found = shmem.zeros(5, dtype=torch.int32), torch.zeros(100, dtype=torch.uint64)
    choose[(1,)](shmem.device_context(), getattr(dev, name), ivars, found, 100)
    assert set(found.tolist()) == set(range(5))


@interpreted
@every_form
def test_waits_on_many_words_refuse_what_does_not_fit(form, me):
    ivars, ones = shmem.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.int32)
    value = torch.ones(5, dtype=torch.int64) if form else 1
    bad, got = (ones, "a pointer to int32") if form else (1.5, "a value of fp32")
    name, argument = ("wait_until_some", "cmp_values") if form else ("wait_until_some", "value")
    cases = [
        (shmem.NotSymmetricError, "ivars: got 48 bytes at .*", (ivars, 6, ones, "CMP_EQ", value)),
        (shmem.OutOfRangeError, "nelems: got -1; expected 0 or more", (ivars, -1, ones, "CMP_EQ", value)),
        (shmem.DtypeError, "ivars: got a pointer to fp64; expected one to int32, .*", (ivars.double(), 0, ones, "CMP_EQ", value)),
        (shmem.DtypeError, "status: got a pointer to int64; expected a pointer to int32", (ivars, 5, ivars, "CMP_EQ", value)),
        (shmem.DtypeError, f"{argument}: got {got}; expected .*", (ivars, 5, None, "CMP_EQ", bad)),
    ]  # fmt: skip
    for kind, words, (first, n, status, cmp, values) in cases:
        with pytest.raises(InterpreterError, match=rf"kernel wait_one: {name}{form}: PE {me}: {words}") as caught:
            wait("some", form, first, n, status, cmp, values)
        assert type(caught.value.__cause__) is kind
    with pytest.raises(
        InterpreterError, match=rf"test_some{form}: PE {me}: indices: got a pointer to int64; expected a .*uint64"
    ):
        three = (routine(f"test_{kind}", form) for kind in ("all", "any", "some"))
        three_tests[(1,)](
            shmem.device_context(), *three, torch.zeros(3), ivars, 5, ivars, ivars, None, dev.CMP_EQ, value
        )


@interpreted
@every_form
@pytest.mark.parametrize("kind", ["all", "any", "some"])
def test_a_wait_over_its_limit_says_what_it_saw(kind, form, me, monkeypatch):
    ivars = shmem.zeros(3, dtype=torch.int64)
    monkeypatch.setattr(job, "timeout", 0.05)
    value = torch.full((3,), 5) if form else 5
    said = r"ivars\[0\]: got 0 in 0.05 s" if kind == "all" else "ivars: got none in 0.05 s"
    with pytest.raises(
        InterpreterError, match=rf"kernel wait_one: wait_until_{kind}{form}: PE {me}: {said}; expected a value == "
    ) as caught:
        wait(kind, form, ivars, 3, None, "CMP_EQ", value)
    assert type(caught.value.__cause__) is shmem.WaitTimeoutError
