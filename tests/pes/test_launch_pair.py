"""Calls on a stream whose plan is known: one native call checks the arrays, finds the plan and launches it."""

import ctypes
import struct

import pyshmem as shmem
import pytest
import torch
from pyshmem.host import _native
from pyshmem.host.heap import default, views

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *[ctypes.c_uint64] + [ctypes.c_uint] * 7 + [ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)],
    ctypes.c_void_p,
)
ASKED = ("reduce", "sum", None, (1, 2, 3, 4), 5)
HELD, COUNTS = (21, 22), (33, -1)


@pytest.fixture
def driver():
    """(the address of what stands for cuLaunchKernel, what it was called with)."""
    calls = []

    @LAUNCH
    def called(*args):
        words = [ctypes.cast(args[9][i], ctypes.POINTER(ctypes.c_uint64))[0] for i in range(7)]
        calls.append((args[:9], words))
        return args[0]  # the kernel's handle, for a code

    yield ctypes.cast(called, ctypes.c_void_p).value, calls
    assert called  # alive until here


def ask(plans, target, source, asked=ASKED):
    return _native.launch_pair(views, plans, asked, default(), 77, target, source)


def test_a_call_whose_plan_is_known_is_launched_with_its_arrays_addresses(driver):
    address, calls = driver
    target, source, other = (shmem.zeros(16) for _ in range(3))
    key = ask({}, target, source)
    plan = struct.pack("<10Q", address, 0, 4, 1, 1, 256, 512, False, *HELD)
    for to, of in ((target, source), (source, target), (other, other)):
        assert ask({key: (plan, COUNTS)}, to, of) == 0
        words = [*HELD, to.data_ptr(), of.data_ptr(), 33, 2**64 - 1, 0]
        assert calls.pop() == ((0, 4, 1, 1, 256, 1, 1, 512, 77), words)
    refused = struct.pack("<10Q", address, 701, 4, 1, 1, 256, 512, False, *HELD)
    assert ask({key: (refused, COUNTS)}, target, source) == 701


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


def test_a_plan_of_too_many_words_or_of_none_is_refused(driver):
    address, calls = driver
    x = shmem.zeros(4)
    key = ask({}, x, x)
    for plan, counts in (
        (struct.pack("<7Q", *[address] * 7), ()),
        (struct.pack("<70Q", *[address] * 70), (1,)),
        ("x", ()),
    ):
        with pytest.raises(TypeError):
            ask({key: (plan, counts)}, x, x)
    assert not calls
