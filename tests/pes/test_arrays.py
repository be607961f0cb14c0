"""Symmetric arrays: each constructor gives what torch's of the same name gives, on memory that peers may use at once."""

import numpy as np
import pytest
import torch
from support import (
    DTYPES, FP8_DTYPES, NUMPY_DTYPES, as_dtype, assert_same, foreign, from_pe, here, live, name_of, neighbours,
    payload, refuses, work,
)  # fmt: skip

import pyshmem as shmem

SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (1, 2, 3, 4)]
TORCH = [dtype for dtype in DTYPES if dtype not in (*NUMPY_DTYPES, *FP8_DTYPES)]  # torch makes these itself
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NAMED = [(np.float32, torch.float32), ("int16", torch.int16), (np.dtype("uint64"), torch.uint64), (float, torch.float64),
         (int, torch.int64), (bool, torch.bool), (complex, torch.complex128), (None, torch.float32)]  # fmt: skip
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)


def assert_made(array, wanted):
    """A plain symmetric tensor with the bits of ``wanted``."""
    assert type(array) is torch.Tensor and array.is_contiguous() and not array.requires_grad
    assert shmem.is_symmetric(array) or not array.numel()
    assert_same(array, wanted)


@dtypes
@pytest.mark.parametrize("value", [0, 1])
def test_zeros_and_ones_hold_them(value, dtype):
    make, make_like = (shmem.ones, shmem.ones_like) if value else (shmem.zeros, shmem.zeros_like)
    for shape in SHAPES:
        wanted = as_dtype(torch.full(shape, value), dtype)
        assert_made(make(shape, dtype=dtype), wanted)
        assert_made(make(*shape, dtype=dtype), wanted)
        assert_made(make(list(shape), dtype=dtype), wanted)
        assert_made(make_like(torch.empty(shape, dtype=dtype)), wanted)


@dtypes
def test_empty_has_shape_and_dtype(dtype):
    for shape in SHAPES:
        like = torch.zeros(shape, dtype=dtype)
        for array in (shmem.empty(shape, dtype=dtype), shmem.empty(*shape, dtype=dtype), shmem.empty_like(like)):
            assert (array.shape, array.dtype) == (shape, dtype)
            assert shmem.is_symmetric(array) or not array.numel()


@dtypes
def test_full_holds_the_value(dtype):
    value = dtype is torch.bool or 7
    for shape in SHAPES:
        wanted = as_dtype(torch.full(shape, 7), dtype)
        assert_made(shmem.full(shape, value, dtype=dtype), wanted)
        assert_made(shmem.full(shape, np.int16(value), dtype=dtype), wanted)
        assert_made(shmem.full_like(torch.empty(shape, dtype=dtype), value), wanted)


@pytest.mark.parametrize("value", [2, 1.5, True, 1j, np.float64(0.5), np.int32(3)])
def test_full_takes_the_dtype_from_its_value_as_torch_does(value):
    assert_made(shmem.full((2, 2), value), torch.full((2, 2), value))
    assert_made(shmem.full(3, value), torch.full((3,), value))


@pytest.mark.parametrize(
    "dtype, value", [(torch.uint8, 256), (torch.uint64, -1), (torch.int32, 0.5), (torch.float16, 1e6)], ids=str
)
def test_full_refuses_a_value_that_the_dtype_cannot_hold(dtype, value):
    before = live()
    with refuses(
        "full", f"fill_value: got {value}.*; expected a value that {name_of(dtype)} can hold$", shmem.DtypeError
    ):
        shmem.full(4, value, dtype=dtype)
    assert live() == before


@pytest.mark.parametrize("value", [2**64 - 1, 2**63])
def test_full_and_array_hold_unsigned_values_above_half_the_range(value):
    assert shmem.full(2, value, dtype=torch.uint64).tolist() == [value] * 2
    assert shmem.array(np.array([value], np.uint64)).tolist() == [value]


@pytest.mark.parametrize("given, dtype", NAMED, ids=str)
def test_dtypes_may_be_numpys_and_pythons_and_none_is_torchs_default(given, dtype):
    for make in (shmem.zeros, shmem.ones, shmem.empty):
        assert make(3, dtype=given).dtype == dtype
    assert shmem.full(3, 1, dtype=given).dtype == (torch.int64 if given is None else dtype)
    assert shmem.zeros_like(np.zeros(3), dtype=given).dtype == (torch.float64 if given is None else dtype)
    assert shmem.array([1, 0], dtype=given).dtype == (torch.int64 if given is None else dtype)


@pytest.mark.parametrize("value", [0.1, 1e300, 16777217.0, 0.1 + 1e300j], ids=str)
def test_array_rounds_numbers_of_a_sequence_once_to_its_dtype(value):
    """Not by way of torch's default, float32."""
    dtype = torch.complex128 if isinstance(value, complex) else torch.float64
    assert shmem.array([value], dtype=dtype).tolist() == [value]


def test_the_default_dtype_is_torchs(monkeypatch):
    torch.set_default_dtype(torch.float64)
    try:
        for make in (shmem.zeros, shmem.rand, lambda n: shmem.array([0.5] * n), lambda n: shmem.linspace(0, 1, n)):
            assert make(3).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "dtype", ["nonsense", np.longdouble, object, torch.quint8, "S3", 7, torch.float32.__class__], ids=str
)
def test_constructors_refuse_dtypes_that_have_no_place(dtype):
    before = live()
    calls = {
        "zeros": lambda: shmem.zeros(3, dtype=dtype),
        "full": lambda: shmem.full(3, 1, dtype=dtype),
        "array": lambda: shmem.array([1], dtype=dtype),
        "arange": lambda: shmem.arange(3, dtype=dtype),
        "linspace": lambda: shmem.linspace(0, 1, 3, dtype=dtype),
        "rand": lambda: shmem.rand(3, dtype=dtype),
        "randint": lambda: shmem.randint(0, 3, (3,), dtype=dtype),
        "malloc": lambda: shmem.malloc(3, dtype),
        "ones_like": lambda: shmem.ones_like(torch.zeros(3), dtype=dtype),
    }
    for routine, call in calls.items():
        with refuses(routine, "dtype: got .*; expected a boolean, integer, floating or complex", shmem.DtypeError):
            call()
    assert live() == before


@pytest.mark.parametrize("size, error", [((-1,), shmem.OutOfRangeError), ((2, -3), shmem.OutOfRangeError), ((1.5,), shmem.ArgumentError),
                                         (("3",), shmem.ArgumentError), ((2, None), shmem.ArgumentError), ((True,), shmem.ArgumentError)],
                         ids=str)  # fmt: skip
def test_constructors_refuse_shapes_that_are_none(size, error):
    before = live()
    for name in ("empty", "zeros", "ones", "rand", "randn"):
        for arguments in (size, (size,)):
            with refuses(name, "size: got .*; expected (0 or more|an int|ints, or one tuple.*)$", error):
                getattr(shmem, name)(*arguments)
    with refuses("full", "size: got ", error):
        shmem.full(size, 1)
    assert live() == before


# ---- array, as_symmetric ----

DATA = [3, 2.5, True, 1j, [], [1, 2, 3], [[1.0, 2.0], [3.0, 4.0]], (1, (2)), [True, False], [1, 2.5], [1j, 2]]


@pytest.mark.parametrize("data", DATA, ids=str)
def test_array_takes_numbers_and_nested_sequences_as_torch_does(data):
    assert_made(shmem.array(data), torch.tensor(data))


@dtypes
def test_array_copies_tensors_of_every_dtype_and_shape(dtype):
    for shape in SHAPES:
        data = payload(shmem.my_pe(), 1, int(np.prod(shape)), dtype).reshape(shape)
        made = shmem.array(data)
        assert_made(made, data)
        assert made.data_ptr() != data.data_ptr() or not made.numel()


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each not in (torch.bfloat16, *FP8_DTYPES)], ids=name_of)
def test_array_copies_numpy_arrays_of_every_dtype_shape_and_layout(dtype):
    for shape in SHAPES:
        data = payload(shmem.my_pe(), 1, int(np.prod(shape)), dtype, "cpu").reshape(shape)
        assert_made(shmem.array(data.numpy()), data)
        assert_made(shmem.array(np.array(data.numpy(), order="F")), data)
        fixed = data.numpy().copy()
        fixed.flags.writeable = False
        assert_made(shmem.array(fixed), data)
        backwards = data.numpy()[::-1] if shape else fixed
        assert_made(shmem.array(backwards), torch.from_numpy(backwards.copy()))


def test_array_copies_views_gradients_and_lazy_conjugates_by_value():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert_made(shmem.array(z.conj()), torch.tensor([1 - 2j, 3 + 4j]))
    assert_made(shmem.array(z.conj().imag), torch.tensor([-2.0, 4.0]))
    assert_made(shmem.array(torch.arange(6).view(2, 3).T), torch.arange(6).view(2, 3).T.contiguous())
    assert_made(shmem.array(torch.tensor([1]).expand(3)), torch.tensor([1, 1, 1]))
    assert_made(shmem.array(torch.nn.Parameter(torch.ones(2))), torch.ones(2))
    assert_made(shmem.array(torch.ones(2, requires_grad=True) * 2), torch.full((2,), 2.0))
    assert_made(shmem.array(np.float32(1.5)), torch.tensor(1.5))


@pytest.mark.parametrize("dtype", TORCH, ids=name_of)
def test_array_converts_to_the_dtype_asked_for(dtype):
    assert_made(shmem.array([1, 0, 3], dtype=dtype), torch.tensor([1, 0, 3]).to(dtype))
    assert_made(
        shmem.array(np.array([1, 0, 3]), dtype=name_of(dtype) if dtype is not torch.bfloat16 else dtype),
        torch.tensor([1, 0, 3]).to(dtype),
    )


@pytest.mark.parametrize("data", ["abc", None, {1: 2}, [[1], [2, 3]], object(), [1, "2"]], ids=str)
def test_array_refuses_what_is_no_numbers(data):
    before = live()
    with refuses("array", r"data: got an? \w+: (?s:.*); expected a tensor, a NumPy array or nested"):
        shmem.array(data)
    assert live() == before


@pytest.mark.parametrize(
    "data",
    [np.ones(3, np.longdouble), np.ones(3, ">f4"), np.array(["a"]), np.array([None])],
    ids=lambda a: str(a.dtype),
)
def test_array_refuses_numpy_types_that_torch_lacks(data):
    before = live()
    with refuses("array", "dtype: got .*; expected a boolean, ", shmem.DtypeError):
        shmem.array(data)
    assert live() == before


def test_array_refuses_sparse_tensors_and_other_devices():
    before = live()
    for data in (torch.eye(2).to_sparse(), torch.ones(2, device="meta")):
        with refuses("array", r"data: got a torch\.\w+ tensor on \w+; expected dense data in CPU or GPU memory$"):
            shmem.array(data)
    assert live() == before


def test_as_symmetric_gives_a_symmetric_array_itself_and_copies_any_other():
    array = shmem.arange(6)
    for same in (array, array[2:4], array.view(2, 3)):
        assert shmem.as_symmetric(same) is same
    for other in (torch.arange(6), array.view(2, 3).T, foreign(array), [1, 2], np.arange(3.0)):
        made = shmem.as_symmetric(other)
        assert_made(made, torch.as_tensor(other).contiguous())
        assert made.data_ptr() != array.data_ptr()


# ---- ranges and random numbers ----


@pytest.mark.parametrize("bounds", [(5,), (2, 9), (2, 9, 3), (0.0, 4.0, 1.5), (5, 0, -2), (0,)], ids=str)
@pytest.mark.parametrize(
    "dtype", [None, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64], ids=str
)
def test_arange_is_torchs(bounds, dtype):
    assert_made(shmem.arange(*bounds, dtype=dtype), torch.arange(*bounds, dtype=dtype))


@pytest.mark.parametrize("bounds", [(5,), (2, 9, 3), (5, 0, -2), (0,)], ids=str)
@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=name_of)
def test_arange_of_unsigned_types_is_numpys(bounds, dtype):
    assert_made(shmem.arange(*bounds, dtype=dtype), torch.from_numpy(np.arange(*bounds, dtype=name_of(dtype))))


@pytest.mark.parametrize("dtype", [None, torch.int32, torch.float16, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("arguments", [(0, 1, 5), (-3.5, 10, 28), (2, 2, 1), (0, 9, 0)], ids=str)
def test_linspace_is_torchs(arguments, dtype):
    assert_made(shmem.linspace(*arguments, dtype=dtype), torch.linspace(*arguments, dtype=dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.complex128], ids=name_of)
@pytest.mark.parametrize("name", ["rand", "randn"])
def test_rand_and_randn_draw_what_torch_draws(name, dtype, me):
    """Each PE's own numbers, from the generator given or torch's own."""
    drawn = getattr(shmem, name)(3, 50, dtype=dtype, generator=torch.Generator(here()).manual_seed(me))
    wanted = getattr(torch, name)(3, 50, dtype=dtype, generator=torch.Generator(here()).manual_seed(me), device=here())
    torch.manual_seed(me)
    again = getattr(shmem, name)((3, 50), dtype=dtype)
    assert_made(drawn, wanted)
    assert_made(again, wanted)
    parts = torch.view_as_real(drawn) if dtype.is_complex else drawn
    assert parts.isfinite().all() and (name == "randn" or bool(((parts >= 0) & (parts <= 1)).all()))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.uint64, torch.float8_e5m2], ids=name_of)
@pytest.mark.parametrize("name", ["rand", "randn"])
def test_rand_and_randn_refuse_types_without_fractions(name, dtype):
    before = live()
    with refuses(name, f"dtype: got {name_of(dtype)} elements; expected one of float16, ", shmem.DtypeError):
        getattr(shmem, name)(3, dtype=dtype)
    assert live() == before


@pytest.mark.parametrize(
    "dtype", [each for each in DTYPES if each is not torch.bool and not each.is_complex], ids=name_of
)
def test_randint_draws_what_torch_draws_within_its_bounds(dtype, me):
    drawn = shmem.randint(2, 9, (200,), dtype=dtype, generator=torch.Generator().manual_seed(me))
    assert_made(drawn, as_dtype(torch.randint(2, 9, (200,), generator=torch.Generator().manual_seed(me)), dtype))
    assert set(drawn.to(torch.float64).tolist()) == set(range(2, 9))
    assert shmem.randint(-5, 5, 7).shape == (7,)


@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "ones_like", "full_like"])
@pytest.mark.parametrize("other", [3, (2, 3), [1.0], None], ids=repr)
def test_like_refuses_what_is_no_array(name, other):
    more = (3,) if name == "full_like" else ()
    with refuses(name, f"other: got an? {type(other).__name__}; expected a tensor"):
        getattr(shmem, name)(other, *more)


@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "ones_like", "full_like"])
def test_like_takes_shape_and_dtype_from_any_array(name):
    more = (3,) if name == "full_like" else ()
    for other in (
        torch.ones(2, 3, dtype=torch.int16),
        np.ones((2, 3), np.int16),
        shmem.ones(2, 3, dtype=torch.int16),
        torch.ones(3, 2).T.short(),
    ):
        made = getattr(shmem, name)(other, *more)
        assert (made.shape, made.dtype, made.is_contiguous()) == ((2, 3), torch.int16, True)
        assert getattr(shmem, name)(other, *more, dtype=torch.float64).dtype == torch.float64


# ---- with the peers ----

COUNT = 1 << 18  # a fill of so many takes its time
MADE = {
    "empty": lambda: shmem.empty(COUNT), "zeros": lambda: shmem.zeros(COUNT), "ones": lambda: shmem.ones(COUNT),
    "full": lambda: shmem.full(COUNT, 2.5), "array": lambda: shmem.array([1.5] * COUNT),
    "as_symmetric": lambda: shmem.as_symmetric(torch.ones(COUNT)),
    "arange": lambda: shmem.arange(float(COUNT)), "linspace": lambda: shmem.linspace(0, 1, COUNT),
    "rand": lambda: shmem.rand(COUNT), "randn": lambda: shmem.randn(COUNT),
    "randint": lambda: shmem.randint(0, 9, COUNT, dtype=torch.float32),
    "empty_like": lambda: shmem.empty_like(torch.ones(COUNT)),
    "zeros_like": lambda: shmem.zeros_like(torch.ones(COUNT)), "ones_like": lambda: shmem.ones_like(torch.ones(COUNT)),
    "full_like": lambda: shmem.full_like(torch.ones(COUNT), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_peers_may_write_to_a_new_array_at_once(name, me, npes):
    """One PE comes late; a fill of its array after the others have returned would undo what they wrote there."""
    left, _, right = neighbours()
    for turn in range(8):
        if me == turn % npes:
            work(5000)
        made = MADE[name]()
        shmem.p(made[-1], 100 + me, right)
        shmem.barrier_all()
        assert made[-1].item() == 100 + left
        shmem.free(made)


@pytest.mark.parametrize("name", [name for name in MADE if "empty" not in name and "rand" not in name])
def test_peers_may_read_a_new_array_at_once(name, me, npes):
    _, _, right = neighbours()
    for turn in range(8):
        if me == turn % npes:
            work(5000)
        made = MADE[name]()
        assert_same(from_pe(made, right), made.clone())
        shmem.free(made)
