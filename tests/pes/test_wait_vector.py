"""9.10 the vector forms of wait and test: each element has a value of its own."""

import numpy as np
import pytest
import torch
from support import AMO_INTEGERS, as_dtype, foreign, name_of, refuses, work

import pyshmem as shmem
from pyshmem.base.job import job

ids = {"ids": lambda each: name_of(each) if isinstance(each, torch.dtype) else str(each)}
SIGNS = {"==": np.equal, "!=": np.not_equal, ">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}


def values_for(kind, numbers, dtype):
    array = as_dtype(torch.tensor(numbers), dtype)
    return {"list": numbers, "torch": array, "numpy": array.cpu().numpy(), "strange shape": array.view(-1, 1)}[kind]


@pytest.mark.parametrize("kind", ["list", "torch", "numpy", "strange shape"])
@pytest.mark.parametrize("dtype", AMO_INTEGERS, **ids)
@pytest.mark.parametrize("sign", SIGNS)
def test_each_element_is_compared_with_its_own_value(sign, dtype, kind):
    seen, numbers = [0, 1, 2, 3, 4, 100, 6], [0, 2, 1, 3, 5, 4, 6]
    ivars, wanted = shmem.array(as_dtype(torch.tensor(seen), dtype)), values_for(kind, numbers, dtype)
    for status in (None, [0] * 7, [0, 1, 0, 1, 0, 0, 1], [1] * 7):
        holds = SIGNS[sign](np.array(seen), np.array(numbers)) & (np.array(status or [0] * 7) == 0)
        places = np.flatnonzero(holds).tolist()
        included = 7 - sum(status or [])
        assert shmem.test_some_vector(ivars, sign, wanted, status) == places
        assert shmem.test_all_vector(ivars, sign, wanted, status) is (len(places) == included)
        assert shmem.test_any_vector(ivars, sign, wanted, status) in (places or [None])
        if places or not included:
            assert shmem.wait_until_some_vector(ivars, sign, wanted, status) == places
            assert shmem.wait_until_any_vector(ivars, sign, wanted, status) in (places or [None])
        if len(places) == included:
            shmem.wait_until_all_vector(ivars, sign, wanted, status)


def test_unsigned_values_beyond_the_signed_range():
    ivars = shmem.array(torch.from_numpy(np.array([2**64 - 1, 2**63, 5], dtype=np.uint64)))
    assert shmem.test_some_vector(ivars, ">", [2**63, 2**63, 4]) == [0, 2]
    assert shmem.test_all_vector(ivars, "==", foreign(ivars))


def test_an_empty_set_is_all_and_none():
    empty = shmem.zeros(0, dtype=torch.int64)
    shmem.wait_until_all_vector(empty, "==", [])
    assert shmem.test_all_vector(empty, "==", []) is True and shmem.test_some_vector(empty, "==", []) == []
    assert shmem.wait_until_any_vector(empty, "==", []) is None and shmem.test_any_vector(empty, "==", []) is None
    assert shmem.wait_until_some_vector(empty, "==", []) == []


@pytest.mark.parametrize("name", ["all", "any", "some"])
def test_waits_end_when_the_peers_values_have_come(name, me, npes):
    """Each PE writes turn * 10 + its number into its place on all; nothing orders them but the wait."""
    words, taken = shmem.zeros(npes, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    for turn in range(1, 31):
        if me == turn % npes:
            work(3000)
        for pe in range(npes):
            shmem.p(words[me : me + 1], turn * 10 + me, pe)
        wanted = [turn * 10 + pe for pe in range(npes)]
        if name == "all":
            shmem.wait_until_all_vector(words, "==", wanted)
        status, found = [0] * npes, []
        while name != "all" and len(found) < npes:
            if name == "any":
                new = [shmem.wait_until_any_vector(words, "==", wanted, status)]
            else:
                new = shmem.wait_until_some_vector(words, "==", wanted, status)
            assert new and not set(new) & set(found), "an index that status leaves out, or none"
            found += new
            for i in new:
                status[i] = 1
        assert words.tolist() == wanted
        for pe in range(npes):
            shmem.atomic_inc(taken, pe)
        shmem.wait_until(taken, "==", turn * npes)  # all have looked: the words may be written again


def test_what_does_not_fit_is_refused():
    ivars = shmem.zeros(3, dtype=torch.int32)
    for name in ("wait_until_all", "wait_until_any", "wait_until_some", "test_all", "test_any", "test_some"):
        call = getattr(shmem, name + "_vector")
        for values, error, text in (
            ([1, 2], shmem.ArgumentError, "cmp_values: got 2 elements; expected one for each of the 3 of ivars"),
            ([1, 2, 2**31], shmem.DtypeError, "cmp_values: got 2147483648; expected a value that int32 can hold"),
            ([1, 2, 0.5], shmem.DtypeError, "cmp_values: got 0.5; expected a value that int32 can hold"),
            (torch.zeros(3), shmem.DtypeError, "cmp_values: got float32 elements; expected the int32 of ivars"),
            (7, shmem.ArgumentError, "cmp_values: got an int; expected"),
        ):
            with refuses(f"{name}_vector", text, error):
                call(ivars, "==", values)
        with refuses(f"{name}_vector", "cmp: got '='"):
            call(ivars, "=", [0, 0, 0])


@pytest.mark.parametrize("name, text", [
    ("all", r"ivars\[1\]: got 0 in 0.05 s; expected a value == 5"), ("any", r"ivars: got none in 0.05 s; expected a value == cmp_values among 2"),
])  # fmt: skip
def test_a_wait_gives_up_and_says_what_it_saw(name, text, monkeypatch):
    ivars = shmem.zeros(3, dtype=torch.int64)
    monkeypatch.setattr(job, "timeout", 0.05)
    values, status = ([0, 5, 5], None) if name == "all" else ([5, 5, 0], [0, 0, 1])
    with refuses(f"wait_until_{name}_vector", text, shmem.WaitTimeoutError):
        getattr(shmem, f"wait_until_{name}_vector")(ivars, "==", values, status)
