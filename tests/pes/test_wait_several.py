"""9.10 waits for several words and tests of them: every form of arguments has one answer, and what changes during a wait."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from support import AMO_INTEGERS, as_dtype, assert_same, foreign, name_of, neighbours, payload

import pyshmem as shmem
from pyshmem.host import wait
from pyshmem.native import _native
from pyshmem.diagnosis import host_timeouts

NAMES = ("all", "any", "some")
IVARS = {
    "tensor": lambda words: words,
    "foreign": foreign,
    "rows": lambda words: words.view(2, 3),
    "subclass": lambda words: torch.nn.Parameter(words, requires_grad=False),
}
STATUS = {
    "list": list,
    "tuple": tuple,
    "bools": lambda status: [bool(each) for each in status],
    "NumPy's bools": lambda status: [np.bool_(each) for each in status],
    "floats": lambda status: [each / 2 for each in status],
    **{f"NumPy's {kind}": lambda status, kind=kind: np.array(status, kind) for kind in ("i1", "?", "<i4", ">i4", "f4")},
    "high bits": lambda status: np.array(status, np.uint64) << 40,
    **{
        f"torch's {kind}": lambda status, kind=kind: torch.tensor(status).to(kind) for kind in (torch.bool, torch.int32)
    },
    "every other": lambda status: np.repeat(np.array(status), 2)[::2],
}
VALUES = {
    "list": list,
    "tuple": tuple,
    "NumPy's ints": lambda values: [np.int16(each) for each in values],
    "floats": lambda values: [float(each) for each in values],
    "tensor": lambda values: values,
    "column": lambda values: values.view(-1, 1),
    "NumPy": lambda values: values.numpy(),
    "every other": lambda values: np.repeat(values.numpy(), 2)[::2].copy(),
}
VALUE = {"int": int, "NumPy's": np.int32, "float": float, "array": lambda value: np.array([value])}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", AMO_INTEGERS, ids=name_of)
def test_every_form_of_arguments_has_one_answer(name, dtype):
    seen, numbers = [4, 9, 4, 4, 0, 7], [4, 9, 5, 4, 1, 7]
    words = shmem.array(as_dtype(torch.tensor(seen), dtype))
    each = as_dtype(torch.tensor(numbers), dtype)
    for status in ([0] * 6, [0, 3, 1, 0, 1, 7], [1] * 6):
        one, own = ([i for i in range(6) if seen[i] == want[i] and not status[i]] for want in ([4] * 6, numbers))
        for array in IVARS.values():
            for left_out in STATUS.values():
                ivars, ignored = array(words), left_out(status)
                for form in VALUE.values():
                    has_the_answer(name, one, status.count(0), ivars, "==", form(4), ignored)
                for form in VALUES.values():
                    has_the_answer(f"{name}_vector", own, status.count(0), ivars, "==", form(each), ignored)


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}_vector" for name in NAMES)])
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_plain_call_is_one_native_call(name, kind, monkeypatch):
    """Python's own checks take ten times as long."""
    words = shmem.array([1, 1, 0], device="cpu")
    monkeypatch.setattr(wait, "_checked", None)
    for array in (words, words.numpy()):
        for status in (None, kind([0, 0, 1])):
            given = array, "<=", kind([1, 1, 1]) if "vector" in name else 1, status
            assert getattr(shmem, f"test_{name}")(*given) is not None
            getattr(shmem, f"wait_until_{name}")(*given)


def has_the_answer(name, places, included, *given):
    """The test, and the wait where it need not wait. places: where the comparison holds.  included: of how many words."""
    kind, tested = name.split("_")[0], getattr(shmem, f"test_{name}")(*given)
    answers = {"all": [len(places) == included], "any": places or [None], "some": [places]}[kind]
    assert tested in answers and type(tested) is type(answers[0])
    if len(places) == included or (places and kind != "all"):
        waited = getattr(shmem, f"wait_until_{name}")(*given)
        assert waited is None if kind == "all" else waited in answers


@contextmanager
def within_the_wait(act):
    """``act`` is called once in the next wait of this PE that has to wait."""
    _native.tell_of_waits(0.001, act)
    try:
        yield
    finally:
        host_timeouts.listen(None, 0)


@pytest.mark.parametrize("kind", ["list", "NumPy"])
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}_vector" for name in NAMES)])
def test_what_the_program_does_to_its_arguments_during_a_wait_changes_nothing(name, kind, me):
    words = shmem.zeros(3, dtype=torch.int64, device="cpu")
    status, values = ([0, 1, 1], [5, 6, 7]) if kind == "list" else (np.array([0, 1, 1]), np.array([5, 6, 7]))

    def act():
        status[:], values[:] = [1, 0, 0], [7, 7, 7]
        shmem.p(words[0], 5, me)

    with within_the_wait(act):
        found = getattr(shmem, f"wait_until_{name}")(words, "==", values if "vector" in name else 5, status)
    assert found == {"all": None, "any": 0, "some": [0]}[name.removesuffix("_vector")]


@pytest.mark.parametrize("value", [1, 1.0], ids=["int", "float"])
def test_a_word_that_has_compared_may_change_while_all_others_are_waited_for(value, me):
    words = shmem.array(torch.tensor([1, 0]), device="cpu")

    def act():
        shmem.p(words[0], 0, me)
        shmem.p(words[1], 1, me)

    with within_the_wait(act):
        shmem.wait_until_all(words, "==", value)
    assert words.tolist() == [0, 1]


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}_vector" for name in NAMES)])
def test_what_precedes_the_words_is_there_after_the_wait(name):
    """No barrier between the data and the words: the wait alone orders them."""
    left, me, right = neighbours()
    data, flags, taken = (
        shmem.zeros(100, dtype=torch.int64),
        shmem.zeros(2, dtype=torch.int64),
        shmem.zeros(1, dtype=torch.int64),
    )
    for turn in range(1, 101):
        shmem.put(data, payload(me, turn, 100, torch.int64), right)
        shmem.fence()
        for flag in flags:
            shmem.p(flag, turn, right)
        getattr(shmem, f"wait_until_{name}")(flags, ">=", [turn, turn] if "vector" in name else turn)
        assert_same(data.clone(), payload(left, turn, 100, torch.int64))
        shmem.wait_until_all(flags, ">=", turn)  # all of them have come, before the next ones may
        shmem.p(taken, turn, left)
        shmem.wait_until(taken, ">=", turn)
