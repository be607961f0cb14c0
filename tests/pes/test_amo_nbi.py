"""9.7 the fetching atomics with a place for what they fetch: the same operators, the result in memory after quiet."""

import inspect

import pytest
import torch
from support import AMO_DTYPES, AMO_INTEGERS, GUARD, assert_same, here, name_of, neighbours, refuses

import pyshmem as shmem

# name: (arguments after the target, what 12 becomes, types)
OPERATORS = {
    "atomic_fetch": ((), 12, AMO_DTYPES),
    "atomic_compare_swap": ((12, 5), 5, AMO_DTYPES),
    "atomic_swap": ((5,), 5, AMO_DTYPES),
    "atomic_fetch_inc": ((), 13, AMO_DTYPES),
    "atomic_fetch_add": ((5,), 17, AMO_DTYPES),
    "atomic_fetch_and": ((5,), 4, AMO_INTEGERS),
    "atomic_fetch_or": ((5,), 13, AMO_INTEGERS),
    "atomic_fetch_xor": ((5,), 9, AMO_INTEGERS),
}
CASES = [(name, dtype) for name, (_, _, dtypes) in OPERATORS.items() for dtype in dtypes]
ids = {"ids": lambda each: name_of(each) if isinstance(each, torch.dtype) else str(each)}


@pytest.mark.parametrize("where", ["private", "symmetric"])
@pytest.mark.parametrize("name, dtype", CASES, **ids)
def test_the_word_changes_and_what_was_there_is_in_fetch_after_quiet(name, dtype, where):
    arguments, after, _ = OPERATORS[name]
    left, _, right = neighbours()
    word = shmem.full(2, 12, dtype=dtype)
    fetch = (torch if where == "private" else shmem).full(
        (3,), GUARD, dtype=dtype, **({"device": here()} if where == "private" else {})
    )
    assert getattr(shmem, name + "_nbi")(fetch[1:2], word[:1], *arguments, right) is None
    shmem.quiet()
    shmem.barrier_all()
    assert fetch.tolist() == [GUARD, 12, GUARD] and word.tolist() == [after, 12]


@pytest.mark.many
def test_no_fetch_is_lost_and_none_comes_twice(npes):
    word, fetched = shmem.zeros(1, dtype=torch.int64), shmem.full(300, -1, dtype=torch.int64)
    for i in range(300):
        shmem.atomic_fetch_add_nbi(fetched[i : i + 1], word, 1, 0)
    shmem.quiet()
    whole = shmem.zeros(300 * npes, dtype=torch.int64)
    shmem.fcollect(whole, fetched)
    assert sorted(whole.tolist()) == list(range(300 * npes))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_refused_call_changes_neither_word_nor_fetch(name, me, npes):
    arguments, _, _ = OPERATORS[name]
    word, call = shmem.full(1, 12, dtype=torch.int64), getattr(shmem, name + "_nbi")
    for fetch, target, pe, error, text in (
        (torch.zeros(2, dtype=torch.int64), word, me, shmem.ArgumentError,
         r"fetch: got an array of shape \(2,\); expected exactly one element"),
        (torch.zeros(1, dtype=torch.int32), word, me, shmem.DtypeError,
         "fetch: got int32 elements; expected the int64 of (target|source)"),
        (torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), me, shmem.NotSymmetricError,
         "(target|source): got .* private"),
        (torch.zeros(1, dtype=torch.int64), word, npes, shmem.OutOfRangeError, f"pe: got {npes}; expected a PE"),
        (torch.zeros(1, dtype=torch.int16), shmem.zeros(1, dtype=torch.int16), me, shmem.DtypeError,
         "(target|source): got int16 elements"),
        ([0], word, me, shmem.ArgumentError, "fetch: got a list"),
    ):  # fmt: skip
        before = fetch.clone() if isinstance(fetch, torch.Tensor) else None
        with refuses(f"{name}_nbi", text, error):
            call(fetch, target, *arguments, pe)
        if before is not None:
            assert_same(fetch, before)
        assert word.item() == 12
    if arguments:
        with refuses(f"{name}_nbi", "(value|cond): got 1.5", shmem.DtypeError):
            call(torch.zeros(1, dtype=torch.int64), word, *([1.5] * len(arguments)), me)
    assert word.item() == 12


@pytest.mark.parametrize("name", OPERATORS)
def test_the_arguments_are_those_of_the_blocking_form_after_fetch(name):
    blocking, nbi = (list(inspect.signature(getattr(shmem, each)).parameters) for each in (name, name + "_nbi"))
    assert nbi == ["fetch", *blocking]
