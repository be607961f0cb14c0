"""An integer tensor or array of one element, as reading ``counts[i]`` gives it, serves as its number wherever one is wanted."""

import numpy as np
import pytest
import torch

import pyshmem as shmem
import pyshmem.shmem as c
from support import GUARD, neighbours

FORMS = {
    "torch, no dimension": torch.tensor,
    "torch, one dimension": lambda n: torch.tensor([n]),
    "torch, int32": lambda n: torch.tensor(n, dtype=torch.int32),
    "numpy, no dimension": np.array,
    "numpy, one dimension": lambda n: np.array([n], np.int16),
}
pytestmark = pytest.mark.parametrize("form", FORMS)


@pytest.fixture
def n(form):
    return FORMS[form]


def symmetric(count=8, dtype=torch.int64):
    return shmem.full(count, GUARD, dtype=dtype)


def test_sizes_pes_and_strides_may_be_arrays_of_one(n):
    left, me, right = neighbours()
    source = torch.arange(8) + me
    dest, apart, blocks, flat = (symmetric() for _ in range(4))
    shmem.put(dest, source, n(right), n(3))
    shmem.iput(apart, source, n(right), n(2), n(3), n(2))
    shmem.ibput(blocks, source, n(right), n(4), n(3), n(2), n(2))
    c.shmem_long_iput(flat, source, n(2), n(3), n(2), n(right))
    shmem.barrier_all()
    assert dest.tolist() == [left, left + 1, left + 2] + [GUARD] * 5
    assert apart[:4].tolist() == flat[:4].tolist() == [left, GUARD, left + 3, GUARD]
    assert blocks.tolist() == [left, left + 1, GUARD, GUARD, left + 3, left + 4, GUARD, GUARD]
    back = torch.zeros(2, dtype=torch.int64)
    shmem.iget(back, apart, n(right), n(1), n(2), n(2))
    assert back.tolist() == [me, me + 3]
    shmem.ibget(back, blocks, n(right), n(1), n(4), n(1), n(2))
    assert back.tolist() == [me, me + 3]
    there = shmem.ptr(dest, n(right))
    assert (there is None or there[0] == me) and shmem.pe_accessible(n(right))


def test_values_of_atomics_signals_and_waits_may_be_arrays_of_one(n):
    left, me, right = neighbours()
    word, signal, data = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64), symmetric(4)
    shmem.p(word, n(4), n(right))
    shmem.barrier_all()
    shmem.atomic_add(word, n(2), n(right))
    assert c.shmem_long_atomic_compare_swap(word, n(6), n(9), n(right)) == 6
    fetched = torch.zeros(1, dtype=torch.int64)
    shmem.atomic_fetch_add_nbi(fetched, word, n(1), n(right))
    shmem.put_signal(data, torch.arange(4), n(right), signal, n(5), shmem.SIGNAL.ADD, n(4))
    shmem.signal_add(signal, n(1), n(right))
    assert shmem.signal_wait_until(signal, ">=", n(6)) == 6
    shmem.barrier_all()
    assert fetched.item() == 9 and word.item() == 10 and data.tolist() == [0, 1, 2, 3]
    shmem.wait_until(word, "==", n(10))
    assert shmem.test_all(word, "==", n(10)) and c.shmem_long_test(word, c.SHMEM_CMP_LT, n(10)) == 0


def test_one_value_for_many_words_may_be_an_array_of_one(n):
    """It is no vector of values, one for each word: only the first would be there to read."""
    words = shmem.array(np.array([3, 4, 5]))
    assert shmem.test_some(words, ">=", n(4)) == [1, 2]
    shmem.wait_until_all(words, ">=", n(3))
    assert c.shmem_long_wait_until_any(words, n(3), None, c.SHMEM_CMP_EQ, n(5)) == 2


def test_teams_and_roots_may_be_given_by_arrays_of_one(n, me, npes):
    status, team = c.shmem_team_split_strided(c.SHMEM_TEAM_WORLD, n(0), n(1), n(npes), None, 0)
    assert status == 0 and team.translate_pe(n(me), shmem.TEAM_WORLD) == me
    dest, source = symmetric(2), shmem.full(2, me, dtype=torch.int64)
    shmem.broadcast(dest, source, n(npes - 1), n(2), team)
    assert dest.tolist() == [npes - 1] * 2
    shmem.barrier_all()
    c.shmem_long_sum_reduce(team, dest, source, n(1))
    assert dest.tolist() == [sum(range(npes)), npes - 1]
    x, y = team.split_2d(n(2))
    ctx = team.create_ctx()
    shmem.p(dest[1:], me, n((me + 1) % npes), ctx)
    shmem.pe_quiet(np.array([(me + 1) % npes]), ctx)
    shmem.barrier_all()
    assert dest[1] == (me - 1) % npes
    for each in (x, y, team):
        each.destroy()


@pytest.mark.filterwarnings("ignore:shmem_:DeprecationWarning")
def test_active_sets_may_be_given_by_arrays_of_one(n, me, npes):
    psync = shmem.zeros(c.SHMEM_SYNC_SIZE, dtype=torch.int64)
    dest, source = symmetric(2 * npes), shmem.full(2 * npes, me, dtype=torch.int64)
    everybody = (n(0), n(0), n(npes))
    c.shmem_broadcast64(dest, source, n(2), n(0), *everybody, psync)
    assert dest[:2].tolist() == [GUARD if me == 0 else 0] * 2
    c.shmem_barrier_all()
    c.shmem_fcollect64(dest, source, n(1), *everybody, psync)
    assert dest[:npes].tolist() == list(range(npes))
    c.shmem_barrier_all()
    c.shmem_alltoalls64(dest, source, n(2), n(2), n(1), *everybody, psync)
    assert dest[::2].tolist() == list(range(npes))
    c.shmem_barrier_all()
    c.shmem_long_sum_to_all(dest, source, n(1), *everybody, None, psync)
    assert dest[0] == sum(range(npes))


def test_float_arrays_of_one_are_values_of_floats(n):
    left, me, right = neighbours()
    real = shmem.zeros(3, dtype=torch.float64)
    shmem.p(real[0], n(3), right)
    shmem.p(real[1], torch.tensor(me + 0.5), right)
    c.shmem_double_atomic_set(real[2:], np.array([me + 0.25]), right)
    shmem.barrier_all()
    assert real.tolist() == [3, left + 0.5, left + 0.25]


REFUSED = [
    (lambda one: shmem.put(one, one, 0, torch.tensor([1, 1])), shmem.ArgumentError, r"size: got tensor\(\[1, 1\]\); expected an int"),
    (lambda one: shmem.put(one, one, 0, torch.tensor(1.0)), shmem.ArgumentError, r"size: got tensor\(1\.\); expected an int"),
    (lambda one: shmem.put(one, one, 0, torch.tensor(True)), shmem.ArgumentError, r"size: got tensor\(True\); expected an int"),
    (lambda one: shmem.put(one, one, np.array([0, 0])), shmem.ArgumentError, r"pe: got array\(\[0, 0\]\); expected an int"),
    (lambda one: shmem.put(one, one, np.array(0.0)), shmem.ArgumentError, r"pe: got array\(0\.\); expected an int"),
    (lambda one: shmem.put(one, one, torch.tensor(-1)), shmem.OutOfRangeError, r"pe: got -1; expected a PE"),
    (lambda one: shmem.p(one, torch.tensor([1, 2]), 0), shmem.DtypeError, r"value: got a Tensor; expected a Python or NumPy scalar, or an array of one"),
    (lambda one: shmem.p(one, torch.tensor(0.5), 0), shmem.DtypeError, r"value: got 0\.5; expected a value that int64 can hold"),
]  # fmt: skip


def test_what_is_no_integer_of_one_element_is_refused(form):
    one = symmetric(1)
    for call, error, text in REFUSED:
        with pytest.raises(error, match=text):
            call(one)
    shmem.barrier_all()
    assert one.item() == GUARD
