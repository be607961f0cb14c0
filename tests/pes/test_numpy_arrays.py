"""Arrays of NumPy are arguments as tensors are: the native module checks them, in each layout, and refuses what tensors cannot be.

All arrays are in CPU memory, on machines with GPUs too.
"""

import numpy as np
import pytest
import torch
from support import DTYPES, assert_same, name_of, neighbours, payload, refuses

import pyshmem as shmem
from pyshmem.host import collectives, rma
from pyshmem.memory import arguments

LAYOUT = r"got an array of shape .* that is not C-contiguous; expected a contiguous one; for iput and iget a\.reshape\(-1\)\[k:\]"


def symmetric(*shape, dtype=torch.float64):
    return shmem.zeros(*shape, dtype=dtype, device="cpu").numpy()


@pytest.fixture
def undescribed(monkeypatch):
    """No call may describe an array in Python."""

    def described(routine, argument, *_):
        raise AssertionError(f"{routine}: {argument} was described in Python")

    for module in (arguments, rma):
        monkeypatch.setattr(module, "describe", described)
    monkeypatch.setattr(collectives, "any_pair", lambda routine, *_: described(routine, "target"))


ONE_SIDED = {  # in target and source each element i of the sender's 8 is at 2 * i
    "put": lambda to, own, pe: shmem.put(to, own, pe),
    "put_nbi": lambda to, own, pe: shmem.put_nbi(to, own, pe),
    "put of a size": lambda to, own, pe: shmem.put(to, own, np.int32(pe), np.int64(16)),
    "get": lambda to, own, pe: shmem.get(own, to, pe),
    "get_nbi": lambda to, own, pe: shmem.get_nbi(own, to, pe),
    "iput": lambda to, own, pe: shmem.iput(to, own, pe, 2, 2),
    "iget": lambda to, own, pe: shmem.iget(own, to, pe, np.int64(2), 2, np.uint8(8)),
    "ibput": lambda to, own, pe: shmem.ibput(to, own, pe, 4, 4, 2, 4),
    "ibget": lambda to, own, pe: shmem.ibget(own, to, pe, 4, 4, 2, np.int64(4)),
}


@pytest.mark.parametrize("name", ONE_SIDED)
@pytest.mark.parametrize("private", ["numpy", "torch"])
def test_the_native_module_checks_numpy_arrays_of_one_sided_calls(name, private, undescribed):
    left, me, right = neighbours()
    there, own = symmetric(16), np.zeros(16)
    gets = "get" in name
    (there if gets else own)[::2] = payload(me, 1, 8, torch.float64, "cpu").numpy()
    shmem.barrier_all()
    ONE_SIDED[name](there, own if private == "numpy" else torch.from_numpy(own), right)
    shmem.barrier_all()
    found = own if gets else there
    blocks = np.array([1, 0] * 8) if not name.startswith("ib") else np.array([1, 1, 0, 0] * 4)
    wanted = np.zeros(16)
    wanted[::2] = payload(right if gets else left, 1, 8, torch.float64, "cpu").numpy()
    np.testing.assert_array_equal(found, wanted * blocks if name.startswith("i") else wanted)


def test_the_native_module_checks_numpy_words_and_signals(undescribed):
    left, me, right = neighbours()
    word, inbox, signal = symmetric(2, dtype=torch.int64), symmetric(4), symmetric(1, dtype=torch.uint64)
    shmem.p(word[:1], np.int64(7), right)
    shmem.atomic_fetch_add(word[1:], np.uint8(me + 1), right)
    shmem.wait_until(word[1:], "==", np.int64(left + 1))
    shmem.put_signal(inbox, np.full(4, me + 0.5), right, signal, np.uint64(1), shmem.SIGNAL_ADD)
    assert shmem.signal_wait_until(signal, ">=", np.uint64(1)) == 1
    assert inbox.tolist() == [left + 0.5] * 4
    assert shmem.test(word[1:], "==", np.int16(left + 1)) and shmem.signal_fetch(signal) == 1
    shmem.barrier_all()
    assert word.tolist() == [7, left + 1] and shmem.g(word[1:], right) == me + 1
    shmem.barrier_all()
    assert shmem.atomic_compare_swap(word[:1], np.int64(7), np.int32(8), right) == 7
    shmem.barrier_all()
    assert word[0] == 8


def test_the_native_module_checks_symmetric_numpy_arrays_of_collectives(undescribed, me, npes):
    if shmem.TEAM_SHARED.n_pes() < npes:
        pytest.skip("collectives between nodes take Python's route")
    own, one, all_of_them = symmetric(2), symmetric(2), symmetric(2 * npes)
    own[:] = me, 1
    shmem.sum_reduce(one, own, np.int64(2))
    assert one.tolist() == [npes * (npes - 1) / 2, npes]
    shmem.fcollect(all_of_them, own)
    assert all_of_them[::2].tolist() == list(range(npes))
    shmem.barrier_all()
    shmem.broadcast(one, own, npes - 1)
    assert one.tolist() == [npes - 1, 1]


@pytest.mark.parametrize(
    "dtype", [each for each in DTYPES if hasattr(np, name_of(each).replace("bool", "bool_"))], ids=name_of
)
def test_each_type_that_numpy_has_passes_between_arrays_and_tensors(dtype, undescribed):
    left, me, right = neighbours()
    target = shmem.zeros(9, dtype=dtype, device="cpu")
    shmem.put(target, payload(me, 1, 9, dtype, "cpu").numpy(), right)
    shmem.barrier_all()
    assert_same(target, payload(left, 1, 9, dtype, "cpu"))
    back = np.empty(9, name_of(dtype))
    shmem.get(back, target, right)
    assert_same(torch.from_numpy(back), payload(me, 1, 9, dtype, "cpu"))


def test_types_of_c_with_equal_elements_are_one_type(undescribed):
    _, me, right = neighbours()
    target = shmem.zeros(4, dtype=torch.int64, device="cpu")
    for kind in (np.longlong, np.int_, np.intp, "=i8"):
        shmem.put(target, np.ones(4, kind), right)
        shmem.fence()
    shmem.barrier_all()
    assert target.tolist() == [1] * 4


def misaligned(values):
    room = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    room[...] = values
    return room


DENSE = {
    "two dimensions": lambda: np.arange(12.0).reshape(3, 4),
    "rows": lambda: np.arange(24.0).reshape(6, 4)[3:],
    "no dimension": lambda: np.array(3.0),
    "extents of 1": lambda: np.asfortranarray(np.arange(12.0).reshape(1, 12, 1)),
    "misaligned": lambda: misaligned(np.arange(12.0)),
    "read-only": lambda: np.frombuffer(np.arange(12.0).tobytes()),
    "records": lambda: np.arange(12.0).view(np.recarray),
    "record field": lambda: np.arange(12.0).view([("x", "f8")])["x"],
}


@pytest.mark.parametrize("layout", DENSE)
def test_a_put_takes_numpy_arrays_that_are_c_contiguous(layout):
    _, me, right = neighbours()
    target, source = symmetric(12), DENSE[layout]()
    shmem.put(target, source, right)
    shmem.barrier_all()
    assert target[: source.size].tolist() == np.asarray(source).reshape(-1).tolist()


def test_a_get_fills_a_file_that_numpy_maps(tmp_path):
    _, me, right = neighbours()
    there = symmetric(8)
    there[:] = me
    shmem.barrier_all()
    with open(tmp_path / "mapped", "wb+") as file:
        file.truncate(64)
        mapped = np.memmap(file, np.float64, "r+", shape=8)
        shmem.get(mapped, there, right)
        mapped.flush()
    assert np.fromfile(tmp_path / "mapped").tolist() == [float(right)] * 8
    shmem.barrier_all()


SCATTERED = {
    "strided": lambda: np.arange(24.0)[::2],
    "reversed": lambda: np.arange(12.0)[::-1],
    "column": lambda: np.arange(24.0).reshape(12, 2)[:, 0],
    "Fortran": lambda: np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "transposed": lambda: np.arange(12.0).reshape(3, 4).T,
    "broadcast": lambda: np.broadcast_to(np.float64(1), 12),
}


@pytest.mark.parametrize("layout", SCATTERED)
@pytest.mark.parametrize("routine", ["put", "get", "put_nbi", "get_nbi", "iput", "iget"])
def test_numpy_arrays_that_are_not_c_contiguous_are_refused(routine, layout, me):
    there, own = symmetric(12), SCATTERED[layout]()
    before, gets = own.copy(), "get" in routine
    name = "target" if gets else "source"
    with pytest.raises(shmem.ArgumentError, match=rf"^{routine}: PE {me}: {name}: {LAYOUT}"):
        getattr(shmem, routine)(*((own, there) if gets else (there, own)), me)
    assert (own == before).all() and not there.any()


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_an_empty_numpy_array_moves_nothing(shape, me):
    there = symmetric(4)
    shmem.put(there, np.empty(shape), me)
    shmem.get(np.empty(shape), there, me)
    shmem.iput(there, np.empty(shape), me)
    assert not there.any()


@pytest.mark.parametrize("routine", ["put", "get"])
def test_swapped_bytes_are_refused(routine, me):
    there, own = symmetric(4), np.ones(4, ">f8")
    with pytest.raises(
        shmem.DtypeError,
        match=rf"^{routine}: PE {me}: \w+: got >f8; expected elements of fixed size in native byte order$",
    ):
        getattr(shmem, routine)(*((there, own) if routine == "put" else (own, there)), me)
    assert not there.any() and (own == 1).all()


@pytest.mark.parametrize("kind", [[("x", "f8")], "M8[s]", "V8", "S8"], ids=str)
def test_elements_that_are_no_numbers_are_refused_beside_numbers(kind, me):
    there, own = symmetric(4), np.zeros(4, kind)
    with pytest.raises(
        shmem.DtypeError, match=rf"^put: PE {me}: source: got .* elements; expected the float64 of target"
    ):
        shmem.put(there, own, me)
    with pytest.raises(
        shmem.DtypeError, match=rf"^get: PE {me}: target: got .* elements; expected the float64 of source"
    ):
        shmem.get(own, there, me)


READ_ONLY = {
    "get": lambda target, there, pe: shmem.get(target, there, pe),
    "get_nbi": lambda target, there, pe: shmem.get_nbi(target, there, pe),
    "iget": lambda target, there, pe: shmem.iget(target, there, pe),
    "ibget": lambda target, there, pe: shmem.ibget(target, there, pe, 2, 2, 2, 2),
    "broadcast": lambda target, there, pe: shmem.broadcast(target, there, 0),
    "sum_reduce": lambda target, there, pe: shmem.sum_reduce(target, there),
    "fcollect": lambda target, there, pe: shmem.fcollect(target, there[: 4 // shmem.n_pes()]),
    "collect": lambda target, there, pe: shmem.collect(target, there[:1]),
}


@pytest.mark.parametrize("routine", READ_ONLY)
@pytest.mark.parametrize("where", ["private", "symmetric"])
def test_a_read_only_numpy_array_is_refused_as_a_target(routine, where, me):
    there, held = symmetric(4), symmetric(4)
    there[:] = 1
    target = (held if where == "symmetric" else np.zeros(4)).view()
    target.flags.writeable = False
    with pytest.raises(
        shmem.ArgumentError, match=rf"^{routine}: PE {me}: target: got a read-only array; expected a writable array$"
    ):
        READ_ONLY[routine](target, there, me)
    assert not target.any()
    shmem.barrier_all()


@pytest.mark.parametrize("made", [bytes, bytearray, memoryview], ids=lambda made: made.__name__)
def test_a_buffer_is_refused_with_numpys_call_that_makes_an_array_of_it(made, me):
    there = symmetric(4)
    buffer = made(b"\0" * 32)
    with pytest.raises(
        shmem.ArgumentError,
        match=rf"^put: PE {me}: source: got a {made.__name__}; expected a torch tensor or a NumPy array, such as np\.frombuffer",
    ):
        shmem.put(there, buffer, me)
    shmem.put(there, np.frombuffer(buffer, there.dtype), me)


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
def test_words_that_are_not_aligned_are_refused_before_any_pe_is_asked(tensors):
    """On other nodes, too. The bytes stay as they are."""
    _, _, right = neighbours()
    room = symmetric(32, dtype=torch.uint8)
    shmem.barrier_all()
    word, signal = room[1:9].view(np.int64), room[1:9].view(np.uint64)
    if tensors:
        word, signal = (torch.frombuffer(room, dtype=kind, count=1, offset=1) for kind in (torch.int64, torch.uint64))
    calls = {
        "atomic_add": lambda: shmem.atomic_add(word, 1, right), "atomic_fetch": lambda: shmem.atomic_fetch(word, right),
        "p": lambda: shmem.p(word, 5, right), "g": lambda: shmem.g(word, right), "set_lock": lambda: shmem.set_lock(word),
        "test_lock": lambda: shmem.test_lock(word), "clear_lock": lambda: shmem.clear_lock(word),
        "signal_set": lambda: shmem.signal_set(signal, 1, right), "signal_fetch": lambda: shmem.signal_fetch(signal),
        "put_signal": lambda: shmem.put_signal(room[16:24], room[16:24].copy(), right, signal, 1, shmem.SIGNAL.SET),
        "wait_until": lambda: shmem.wait_until(word, "==", 0), "test": lambda: shmem.test(word, "==", 0),
        "wait_until_all": lambda: shmem.wait_until_all(word, "==", 0), "test_any": lambda: shmem.test_any(word, "==", 0),
        "signal_wait_until": lambda: shmem.signal_wait_until(signal, "==", 0),
    }  # fmt: skip
    for routine, call in calls.items():
        with refuses(
            routine,
            r"\w+: got the address 0x\w+1, which is not aligned; expected a multiple of 8, the size of the word",
        ):
            call()
    shmem.barrier_all()
    assert not room.any()


@pytest.mark.parametrize(
    "fetch", [np.zeros(1, np.int64), misaligned(np.zeros(1, np.int64))], ids=["plain", "misaligned"]
)
def test_a_non_blocking_atomic_fetches_into_a_private_element(fetch, me):
    word = symmetric(1, dtype=torch.int64)
    word[0] = 7
    shmem.atomic_fetch_add_nbi(fetch, word, np.int64(-(2**62)), me)
    shmem.quiet()
    assert fetch[0] == 7 and word[0] == 7 - 2**62
    shmem.atomic_fetch_nbi(fetch, word, me)
    shmem.quiet()
    assert fetch[0] == 7 - 2**62
