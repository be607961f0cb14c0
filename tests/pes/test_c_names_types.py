"""Which arrays a typed C name takes: those of its own elements, signed or not, and bytes, as C's compiler would."""

import ctypes

import numpy as np
import pytest
import torch

import pyshmem as shmem
import pyshmem.shmem as c
from support import GUARD, neighbours, refuses

INT, BYTES = r"int \(int32\) elements", r"or their bytes by \.view\(torch\.uint8\)$"
LONGS = (ctypes.c_int64 * 4)(1, 2, 3, 4)


def symmetric(dtype=torch.int32, count=8):
    return shmem.full(count, GUARD, dtype=dtype)


SOURCES = {  # what: (source of 2 elements for an int * name, what is said of it)
    "longs": (lambda: torch.tensor([3, 7]), rf"got int64 elements; expected {INT}, {BYTES}"),
    "floats of as many bytes": (lambda: torch.tensor([3.0, 7.0]), rf"got float32 elements; expected {INT}, {BYTES}"),
    "complex": (lambda: torch.zeros(2, dtype=torch.complex64), "got complex64 elements"),
    "halves": (lambda: np.zeros(2, np.float16), r"got float16 elements.*by \.view\(np\.uint8\)$"),
    "booleans": (lambda: torch.ones(8, dtype=torch.bool), rf"got bool elements; expected {INT}, {BYTES}"),
    "longs of NumPy": (lambda: np.array([3, 7]), rf"got int64 elements; expected {INT}, or their bytes by \.view\(np\.uint8\)$"),
    "longs in foreign order": (lambda: np.zeros(2, ">i4"), "got >i4 elements"),
    "records": (lambda: np.zeros(2, [("a", "i4")]), r"got \[\('a', '<i4'\)\] elements"),
    "longs of ctypes": (lambda: LONGS, r"got c_long_Array_4's 64-bit integer elements.*ctypes\.c_void_p\)$"),
    "a pointer to longs": (lambda: ctypes.pointer(ctypes.c_int64(3)), "got LP_c_long's 64-bit integer elements"),
    "a memoryview of longs": (lambda: memoryview(LONGS), "got memoryview's 64-bit integer elements"),
}  # fmt: skip


@pytest.mark.parametrize("what", SOURCES)
def test_elements_of_another_type_are_refused_and_nothing_changes(what, me):
    """torch.tensor([3, 7]) is of longs: as ints it would be 3 and 0."""
    make, text = SOURCES[what]
    dest = symmetric()
    for call in (
        lambda: c.shmem_int_put(dest, make(), 2, me),
        lambda: c.shmem_int_iput(dest, make(), 1, 1, 2, me),
        lambda: c.shmem_put(dest, make(), 2, me),
        lambda: c.shmem_int_get(make(), dest, 2, me),
        lambda: c.shmem_int_sum_reduce(c.SHMEM_TEAM_WORLD, dest, make(), 2),
    ):
        with refuses(r"shmem_\w+", f"(source|dest): {text}", shmem.DtypeError):
            call()
    shmem.barrier_all()
    assert dest.tolist() == [GUARD] * 8


WORDS = {
    "p": lambda x: c.shmem_int_p(x, 1, 0),
    "g": lambda x: c.shmem_int_g(x, 0),
    "atomic": lambda x: c.shmem_int_atomic_inc(x, 0),
    "swap": lambda x: c.shmem_uint_atomic_compare_swap(x, GUARD, 1, 0),
    "fetch": lambda x: c.shmem_int_atomic_fetch_nbi(torch.zeros(1, dtype=torch.int32), x, 0),
    "wait": lambda x: c.shmem_int_wait_until(x, c.SHMEM_CMP_EQ, GUARD),
    "test": lambda x: c.shmem_int_test(x, c.SHMEM_CMP_EQ, GUARD),
    "float": lambda x: c.shmem_float_p(x, 1.0, 0),
    "many": lambda x: c.shmem_int_test_all(x, 2, None, c.SHMEM_CMP_EQ, GUARD),
    "put32": lambda x: c.shmem_put32(x, x, 1, 0),
    "put128": lambda x: c.shmem_put128(x, x, 1, 0),
    "long double": lambda x: c.shmem_longdouble_g(x, 0),
}


@pytest.mark.parametrize("what", WORDS)
def test_a_word_of_another_type_is_refused(what):
    array = symmetric(torch.int64)
    with refuses(r"shmem_\w+", r"\w+: got int64 elements; expected .*elements", shmem.DtypeError):
        WORDS[what](array)
    assert array.tolist() == [GUARD] * 8


def test_locks_signals_and_index_arrays_have_64_bits_signed_or_not():
    words, shorts = shmem.zeros(4, dtype=torch.uint64), shmem.zeros(4, dtype=torch.int32)
    c.shmem_set_lock(words)
    c.shmem_clear_lock(words)
    signal, wide = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    c.shmem_signal_set(signal, 5, shmem.my_pe())
    assert c.shmem_signal_fetch(signal) == 5
    for indices in (torch.zeros(1, dtype=torch.int64), np.zeros(1, np.uint64)):
        assert c.shmem_long_test_some(wide, 1, indices, None, c.SHMEM_CMP_EQ, 0) == 1
    for call in (
        lambda: c.shmem_set_lock(shorts),
        lambda: c.shmem_signal_set(shorts, 1, 0),
        lambda: c.shmem_long_test_some(wide, 1, shorts, None, c.SHMEM_CMP_EQ, 0),
        lambda: c.shmem_long_test_all(wide, 1, torch.zeros(1, dtype=torch.int64), c.SHMEM_CMP_EQ, 0),
        lambda: c.shmem_pe_quiet(torch.zeros(1, dtype=torch.int64), 1),
    ):
        with pytest.raises(shmem.DtypeError, match=r"got int(32|64) elements; expected "):
            call()


ACCEPTED = {
    "unsigned": lambda: torch.tensor([3, 7], dtype=torch.int32).view(torch.uint32),
    "bytes": lambda: torch.tensor([3, 7], dtype=torch.int32).view(torch.uint8),
    "chars": lambda: torch.tensor([3, 7], dtype=torch.int32).view(torch.int8),
    "bytes of Python": lambda: np.array([3, 7], np.int32).tobytes(),
    "void of NumPy": lambda: np.array([3, 7], np.int32).view("V4"),
    "ctypes": lambda: (ctypes.c_uint32 * 2)(3, 7),
    "a char pointer": lambda: ctypes.cast((ctypes.c_int32 * 2)(3, 7), ctypes.c_char_p),
    "a void pointer": lambda: ctypes.cast((ctypes.c_int64 * 1)(3 + (7 << 32)), ctypes.c_void_p),
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_bytes_and_the_other_sign_are_taken(what):
    left, me, right = neighbours()
    dest = symmetric()
    c.shmem_int_put(dest, ACCEPTED[what](), 2, right)
    shmem.barrier_all()
    assert dest.tolist() == [3, 7] + [GUARD] * 6


def test_names_that_count_bits_take_elements_of_that_size_and_mem_takes_all():
    left, me, right = neighbours()
    dest = symmetric(torch.float32)
    c.shmem_put32(dest, torch.tensor([me + 0.5]), 1, right)
    c.shmem_putmem(dest[1:], np.array([me, 7]), 12, right)
    shmem.barrier_all()
    assert dest[0] == left + 0.5 and dest[1:4].view(torch.int32).tolist() == [left, 0, 7]
    with pytest.raises(
        shmem.DtypeError, match=r"source: got int64 elements; expected elements of 4 bytes, or their bytes by"
    ):
        c.shmem_put32(dest, torch.tensor([3, 7]), 1, right)


def test_a_structure_moves_as_bytes():
    class Body(ctypes.Structure):
        _fields_ = (("place", ctypes.c_double), ("number", ctypes.c_int))

    left, me, right = neighbours()
    dest, whole = shmem.zeros(16, dtype=torch.uint8), Body(me + 0.5, me)
    c.shmem_putmem(dest, whole, ctypes.sizeof(Body), right)
    shmem.barrier_all()
    seen = Body.from_buffer(dest.numpy())
    assert (seen.place, seen.number) == (left + 0.5, left)
    c.shmem_getmem(whole, dest, ctypes.sizeof(Body), right)
    assert whole.number == me


def test_a_numpy_scalar_is_no_address(me):
    """a.numpy()[i] is a copy of the element, and its number may happen to be an address of something."""
    dest = symmetric()
    for scalar, got in ((np.int64(70000), "integer 70000"), (np.float32(7), "float32 7.0")):
        with refuses("shmem_int_put", rf"source: got the NumPy {got}; expected an address: A\[i:\] is C's &A\[i\]$"):
            c.shmem_int_put(dest, scalar, 1, me)
    assert dest.tolist() == [GUARD] * 8


@pytest.mark.parametrize("call", [
    lambda: c.shmem_malloc(10, torch.int32),
    lambda: c.shmem_malloc_with_hints(10, 0, torch.int32),
    lambda: c.shmem_calloc(1, 10, torch.int32),
    lambda: c.shmem_align(64, 10, torch.int32),
    lambda: c.shmem_realloc(symmetric(), 10),
])  # fmt: skip
def test_an_allocation_of_no_whole_number_of_elements_is_refused(call):
    text = r"^shmem_\w+: PE \d+: size: got 10 bytes; expected a multiple of 4, the bytes of an element of int32$"
    with pytest.raises(shmem.ArgumentError, match=text):
        call()
