"""Calls on a stream whose plan is known: one native call checks the arrays, finds the plan and launches it."""

import struct

import pyshmem as shmem
import pytest
import torch
from pyshmem.runtime import _native
from pyshmem.runtime.heap import default, views
from standin_driver import Driver

ASKED = ("reduce", "sum", None, (1, 2, 3, 4), 5)
HELD, COUNTS = (21, 22), (33, -1)


def ask(plans, target, source, asked=ASKED):
    return _native.launch_pair(views, plans, asked, default(), 77, target, source)


def test_a_call_whose_plan_is_known_is_launched_with_its_arrays_addresses():
    driver = Driver()
    target, source, other = (shmem.zeros(16) for _ in range(3))
    plan = struct.pack("<10Q", driver.address, 11, 4, 1, 1, 256, 512, False, *HELD)
    plans = {ask({}, target, source): (plan, COUNTS)}
    for to, of in ((target, source), (source, target), (other, other)):
        assert ask(plans, to, of) == 0
        words = [*HELD, to.data_ptr(), of.data_ptr(), 33, 2**64 - 1, 0, 0]
        assert driver.calls.pop() == (11, (4, 1, 1), 256, 512, 77, words)
    driver.code = 701
    assert ask(plans, target, source) == 701


def test_what_differs_in_what_was_asked_or_in_the_arrays_needs_a_plan_of_its_own():
    x, y = shmem.zeros(32), shmem.zeros(32)
    asked = [ASKED, (*ASKED[:4], 6), ("reduce", "max", *ASKED[2:])]
    pairs = [(x, y), (x[:16], y), (x, y[:16]), (x[1:17], y[:16]), (x.view(torch.int32), y.view(torch.int32))]
    keys = [ask({}, x, y, each) for each in asked] + [ask({}, *pair) for pair in pairs[1:]]
    assert len(set(keys)) == len(asked) + len(pairs) - 1
    assert ask({}, y, x) == keys[0]


def test_arrays_that_are_no_plain_pair_on_that_heap_are_left_to_python(me, npes):
    x, freed = shmem.zeros(32), shmem.zeros(32)
    shmem.free(freed)
    strange = [torch.zeros(32), x[::2], x.view(torch.int32), x.new_zeros(32), [1.0], None, 3, freed]
    for other in strange:
        assert ask({}, x, other) is None
        assert ask({}, other, x) is None
    assert _native.launch_pair(views, {}, ASKED, "another heap", 77, x, x) is None


def test_a_plan_of_too_many_words_or_of_none_is_refused():
    driver, x = Driver(), shmem.zeros(4)
    key = ask({}, x, x)
    for plan, counts in (
        (struct.pack("<7Q", *[driver.address] * 7), ()),
        (struct.pack("<70Q", *[driver.address] * 70), (1,)),
        ("x", ()),
    ):
        with pytest.raises(TypeError):
            ask({key: (plan, counts)}, x, x)
    assert not driver.calls
