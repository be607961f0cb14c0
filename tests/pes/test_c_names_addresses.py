"""What the C names take for an address, how they count and see elements there, and what they refuse."""

import ctypes

import numpy as np
import pytest
import torch

import pyshmem as shmem
import pyshmem.shmem as c
from c_interface import NUMPY
from support import GUARD, guarded, neighbours

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(
    "form", ["tensor", "numpy", "int", "ctypes array", "pointer", "void pointer", "bytearray", "interface"]
)
def test_a_source_may_be_any_object_with_memory(form):
    left, me, right = neighbours()
    values = np.arange(4, dtype=np.int64) + me
    array = (ctypes.c_int64 * 4)(*values.tolist())
    pointer = ctypes.cast(array, ctypes.POINTER(ctypes.c_int64))

    class Interface:
        __array_interface__ = values.__array_interface__

    source = {
        "tensor": torch.from_numpy(values), "numpy": values, "int": ctypes.addressof(array), "ctypes array": array,
        "pointer": pointer, "void pointer": ctypes.cast(array, ctypes.c_void_p), "bytearray": bytearray(values.tobytes()),
        "interface": Interface(),
    }[form]  # fmt: skip
    dest, whole = guarded(4, torch.int64)
    c.shmem_int64_put(dest, source, 4, right)
    shmem.barrier_all()
    assert dest.tolist() == [left, left + 1, left + 2, left + 3]
    assert whole[4] != left + 4


def test_an_address_in_the_middle_is_counted_in_bytes():
    left, me, right = neighbours()
    array = shmem.full(8, -1, dtype=torch.int32)
    c.shmem_int_p(array.data_ptr() + 3 * 4, me, right)
    shmem.barrier_all()
    assert array.tolist() == [-1] * 3 + [left] + [-1] * 4


@pytest.mark.parametrize("view", [lambda x: x[2], lambda x: x[2:], lambda x: x[2:3], lambda x: x.data_ptr() + 16])
def test_an_element_stands_for_all_that_follows_it(view):
    """C's &x[2]: however the tensor's view ends, the memory goes on to the end of the allocation."""
    left, me, right = neighbours()
    array = shmem.full(8, -1, dtype=torch.int64)
    c.shmem_long_put(view(array), torch.arange(6) + me, 6, right)
    shmem.barrier_all()
    assert array.tolist() == [-1, -1, *range(left, left + 6)]


def test_bytes_are_of_the_names_type():
    """C's casts: bytes of doubles move as longs, an int is the first half of a long."""
    left, me, right = neighbours()
    array = shmem.zeros(2, dtype=torch.float64)
    octets = array.view(torch.uint8)
    c.shmem_int_p(octets, 7 + me, right)
    c.shmem_long_atomic_fetch_add(octets[8:], 1 << 40, right)
    shmem.barrier_all()
    assert array.view(torch.int32)[:2].tolist() == [7 + left, 0]
    assert array.view(torch.int64)[1] == 1 << 40


def test_bytes_are_counted_whatever_the_tensors_are():
    left, me, right = neighbours()
    dest, whole = guarded(4, torch.float64)
    source = torch.arange(4, dtype=torch.float64) + me
    before = whole.clone()
    shmem.barrier_all()
    c.shmem_putmem(dest, source, 16, right)
    shmem.barrier_all()
    assert dest.tolist() == [left, left + 1, *before[2:4].tolist()]
    shmem.barrier_all()
    # one double and half of another
    c.shmem_int_put(dest[2:].view(torch.uint8), source[2:].view(torch.uint8), 3, right)
    shmem.barrier_all()
    wanted = np.arange(4, dtype=np.float64).__add__(left).view(np.int32)[4:7]
    assert dest.numpy().view(np.int32)[4:7].tolist() == wanted.tolist()
    assert whole.numpy().view(np.int32)[7:].tolist() == before.numpy().view(np.int32)[7:].tolist()


INTEGERS = "char schar short int long longlong uchar ushort uint ulong ulonglong int8 int16 int32 int64 uint8 uint16 uint32 uint64 size ptrdiff".split()  # noqa: SIM905


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_keep_their_range_and_sign(name):
    limits = np.iinfo(NUMPY[name])
    word = shmem.zeros(2, dtype=torch.uint64).numpy().view(NUMPY[name])
    for value in (int(limits.max), int(limits.min)):
        getattr(c, f"shmem_{name}_p")(word, value, shmem.my_pe())
        shmem.quiet()
        assert getattr(c, f"shmem_{name}_g")(word, shmem.my_pe()) == value
        with pytest.raises(shmem.DtypeError):
            getattr(c, f"shmem_{name}_p")(word, value + (1 if value > 0 else -1), shmem.my_pe())
    ends = shmem.array(np.array([limits.max, limits.min], NUMPY[name]))
    largest = shmem.zeros_like(ends)
    getattr(c, f"shmem_{name}_max_reduce")(c.SHMEM_TEAM_WORLD, largest, ends, 2)
    assert largest.tolist() == [limits.max, limits.min]
    if hasattr(c, f"shmem_{name}_atomic_swap"):
        assert getattr(c, f"shmem_{name}_atomic_swap")(word, int(limits.max), shmem.my_pe()) == limits.min
        assert getattr(c, f"shmem_{name}_test")(word, c.SHMEM_CMP_GT, 0) == 1


def test_nelems_says_how_many_words_are_looked_at():
    words, status = shmem.array(np.array([1, 1, 1, 0, 0])), torch.zeros(9, dtype=torch.int32)
    c.shmem_long_wait_until_all(words, 3, status, c.SHMEM_CMP_EQ, 1)
    indices = torch.full((5,), GUARD, dtype=torch.int64)
    assert c.shmem_long_test_some(words, 3, indices, None, c.SHMEM_CMP_GE, 0) == 3
    assert indices.tolist() == [0, 1, 2, GUARD, GUARD]
    wanted = torch.tensor([1, 1, 1, 1, 1])
    assert c.shmem_long_test_all_vector(words, 3, None, c.SHMEM_CMP_EQ, wanted) == 1


def test_the_first_element_is_meant_where_c_has_one_word():
    left, me, right = neighbours()
    array = shmem.zeros(4, 2, dtype=torch.int64)
    c.shmem_long_atomic_add(array, 5, right)
    c.shmem_long_atomic_inc(array[1], right)
    shmem.barrier_all()
    assert array.flatten().tolist() == [5, 0, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_generic_names_move_and_reduce_half_types_too(dtype):
    left, me, right = neighbours()
    dest, whole = guarded(4, dtype)
    source = shmem.full(4, me + 1, dtype=dtype)
    c.shmem_put(dest, source, 3, right)
    c.shmem_put(c.SHMEM_CTX_DEFAULT, dest[3], source.data_ptr(), 1, right)
    shmem.barrier_all()
    assert dest.tolist() == [left + 1] * 4 and whole[4] != left + 1
    private = source.clone()
    shmem.barrier_all()
    c.shmem_put(dest, private.data_ptr(), 4, right)
    shmem.quiet()
    assert c.shmem_sum_reduce(c.SHMEM_TEAM_WORLD, dest, source, 4) == 0
    assert dest.tolist() == [sum(range(1, shmem.n_pes() + 1))] * 4


def test_null_is_for_no_elements():
    array = shmem.zeros(4)
    c.shmem_float_put(None, None, 0, 0)
    c.shmem_getmem(None, array, 0, 0)
    with pytest.raises(shmem.ArgumentError, match=r"shmem_float_put: PE \d+: source: got NULL"):
        c.shmem_float_put(array, None, 4, 0)


REFUSED = {  # what: (error, text, call of a symmetric array of 4 int64)
    "an address past its allocation": (shmem.OutOfRangeError, "target: .*at most 16, to the end of its allocation", lambda x: c.shmem_long_put(x.data_ptr() + 16, torch.zeros(4, dtype=torch.int64), 3, 0)),
    "more than the storage holds": (shmem.OutOfRangeError, "shmem_long_put: .* source: .*storage", lambda x: c.shmem_long_put(x, torch.zeros(2, dtype=torch.int64), 3, 0)),
    "more than the NumPy array holds": (shmem.OutOfRangeError, "shmem_long_put: .* source: .*array's 16", lambda x: c.shmem_long_put(x, np.zeros(2, int), 3, 0)),
    "a private dest": (shmem.NotSymmetricError, "private", lambda x: c.shmem_long_put(x.clone(), x, 1, 0)),
    "a small integer as an address": (shmem.ArgumentError, "shmem_long_put: .* source: got the integer 5; expected .*one element", lambda x: c.shmem_long_put(x, 5, 1, 0)),
    "an integer as an address where it is 0": (shmem.ArgumentError, "shmem_long_put: .* source: got the integer 0, which is NULL; expected .*one element", lambda x: c.shmem_long_put(x, 0, 1, 0)),
    "a list": (shmem.ArgumentError, "shmem_long_put: .* source: got a list", lambda x: c.shmem_long_put(x, [1, 2], 1, 0)),
    "a bool": (shmem.ArgumentError, "shmem_long_put: .* source: got a bool", lambda x: c.shmem_long_put(x, True, 1, 0)),
    "a transposed tensor": (shmem.ArgumentError, "contiguous", lambda x: c.shmem_long_put(x.view(2, 2).t(), x, 4, 0)),
    "a misaligned word": (shmem.ArgumentError, "aligned", lambda x: c.shmem_long_atomic_inc(x.data_ptr() + 4, 0)),
    "a negative count": (shmem.OutOfRangeError, "nelems: got -1", lambda x: c.shmem_long_put(x, x, -1, 0)),
    "a fraction of an element": (shmem.ArgumentError, "nelems", lambda x: c.shmem_long_put(x, x, 1.5, 0)),
    "a PE that is not": (shmem.OutOfRangeError, "pe", lambda x: c.shmem_long_p(x, 1, shmem.n_pes())),
    "a value the type cannot hold": (shmem.DtypeError, "value", lambda x: c.shmem_long_p(x, 1 << 70, 0)),
    "a stride of 0": (shmem.ArgumentError, "dst: got 0", lambda x: c.shmem_long_iput(x, x, 0, 1, 1, 0)),
    "a generic call of an int": (shmem.ArgumentError, "shmem_put: .* dest: got an int", lambda x: c.shmem_put(x.data_ptr(), x, 1, 0)),
    "a generic call of another type": (shmem.DtypeError, "shmem_atomic_add: .* dest: got torch.int16 elements; expected one of int32, int64, uint32, uint64$", lambda x: c.shmem_atomic_add(x.view(torch.int16), 1, 0)),
    "a context that is none": (shmem.ArgumentError, "ctx", lambda x: c.shmem_ctx_long_put(3, x, x, 1, 0)),
    "an active set without this PE": (shmem.ArgumentError, "PE_start", lambda x: c.shmem_barrier((shmem.my_pe() + 1) % shmem.n_pes(), 0, 1, x)),
    "an active set past the last PE": (shmem.OutOfRangeError, "PE_size", lambda x: c.shmem_barrier(0, 1, shmem.n_pes() + 1, x)),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_argument_is_refused_and_nothing_changes(what):
    error, text, call = REFUSED[what]
    array = shmem.full(4, GUARD, dtype=torch.int64)
    if what == "an active set without this PE" and shmem.n_pes() == 1:
        return
    with pytest.raises(error, match=text):
        call(array)
    shmem.barrier_all()
    assert array.tolist() == [GUARD] * 4


def test_a_call_with_too_few_or_too_many_arguments_is_a_type_error():
    array = shmem.zeros(4)
    for arguments in [(array, array, 4), (array, array, 4, 0, 0)]:
        with pytest.raises(TypeError):
            c.shmem_float_put(*arguments)


GIVEN = {  # as in C, where pointers say where the answers go: (the call, what is wanted)
    "shmem_ctx_create": ((0, None), r"got 2 arguments; expected \(options\), and returns \(status, ctx\)"),
    "shmem_init_thread": ((0, None), r"got 2 arguments; expected \(requested\), and returns \(status, provided\)"),
    "shmem_query_thread": ((None,), r"got 1 argument; expected \(\), and returns provided"),
    "shmem_info_get_version": ((None, None), r"got 2 arguments; expected \(\), and returns \(major, minor\)"),
    "shmem_team_split_strided": (
        (c.SHMEM_TEAM_WORLD, 0, 1, 1, None, 0, None),
        r"got 7 arguments; expected \(parent_team, .*, config_mask\), and returns \(status, new_team\)",
    ),
    "shmem_team_split_2d": (
        (c.SHMEM_TEAM_WORLD, 1, None, 0, None, None, 0, None),
        r"got 8 arguments; expected \(parent_team, .*\), and returns \(status, xaxis_team, yaxis_team\)",
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_call_that_gives_c_pointers_to_write_to_is_told_what_is_returned(name):
    arguments, text = GIVEN[name]
    with pytest.raises(TypeError, match=f"^{name}: {text}: what C writes through pointers is returned$"):
        getattr(c, name)(*arguments)


def test_c_has_no_keywords_and_memory_has_one():
    x = c.shmem_calloc(4, 4, dtype=torch.int32)
    signal = shmem.zeros(1, dtype=torch.uint64)
    for call in (
        lambda: c.shmem_int_put(dest=x, source=x, nelems=1, pe=0),
        lambda: c.shmem_put(x, x, nelems=1, pe=0),
        lambda: c.shmem_signal_set(signal, 1, pe=0),
        lambda: c.shmem_int_test(x, c.SHMEM_CMP_EQ, cmp_value=0),
        lambda: c.shmem_int_sum_reduce(c.SHMEM_TEAM_WORLD, x, x, nreduce=1),
        lambda: c.shmem_ctx_create(options=0),
        lambda: c.shmem_malloc(size=4),
        lambda: c.shmem_set_lock(lock=signal),
    ):
        with pytest.raises(TypeError, match="keyword"):
            call()


@pytest.mark.parametrize("name", ["shmem_int_put", "shmem_ctx_int_put", "shmem_put", "shmem_signal_set"])
def test_a_wrong_number_of_arguments_is_told_under_the_name_of_c(name):
    x = shmem.zeros(1, dtype=torch.int32)
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing . required positional argument"):
        getattr(c, name)(*[c.SHMEM_CTX_DEFAULT] * ("ctx" in name), x)
