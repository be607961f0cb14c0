"""shmem.register: memory of others as symmetric memory, without a copy."""

import os

import pytest
import torch

import pyshmem as shmem
import triton
import triton.language as tl
from pyshmem import device as dev
from pyshmem.host import registration
from pyshmem.memory.heap import default
from support import neighbours, on_one_node, refuses

pytestmark = pytest.mark.skipif(not on_one_node(), reason="PEs of other nodes map nothing")
DEVICE = "cuda" if default().streams and os.environ.get("PYTORCH_CUDA_ALLOC_CONF") else "cpu"


@pytest.fixture(autouse=True)
def no_registration_is_left():
    yield
    shmem.barrier_all()
    registration._forget(False)


def ordinary(*shape, dtype=torch.float32, value=0):
    """A tensor that torch has made, in memory that can be registered."""
    made = torch.full(shape, value, dtype=dtype, device=DEVICE)
    return made if DEVICE == "cuda" else made.share_memory_()


def test_peers_read_and_write_the_memory_of_a_registered_tensor():
    left, me, right = neighbours()
    tensor, word = ordinary(3, 500, value=me), ordinary(4, dtype=torch.int64)
    x, counter = shmem.register(tensor), shmem.register(word)
    assert x.shape == (3, 500)
    assert shmem.is_symmetric(x)
    assert not shmem.is_symmetric(tensor)
    got = torch.empty(3, 500, device=DEVICE)
    shmem.get(got, x, right)
    assert got.unique().tolist() == [right]
    shmem.barrier_all()
    shmem.put(x[1], torch.full((500,), 100.0 + me, device=DEVICE), right)
    shmem.atomic_add(counter[2], 5, right)
    shmem.barrier_all()
    assert tensor[:, 7].tolist() == [me, 100 + left, me]
    assert word.tolist() == [0, 0, 5, 0]
    near = shmem.ptr(x, right)
    assert near[1, 3] == 100 + me


def test_collectives_and_signals_take_registered_arrays(npes):
    left, me, right = neighbours()
    tensor, flags = ordinary(64, dtype=torch.int64, value=me + 1), ordinary(2, dtype=torch.uint64)
    x, flag = shmem.register(tensor), shmem.register(flags)
    shmem.sum_reduce(x, x)
    assert tensor.unique().tolist() == [npes * (npes + 1) // 2]
    every = shmem.register(ordinary(64 * npes, dtype=torch.int64))
    x.fill_(me)
    shmem.fcollect(every, x)
    assert every[::64].tolist() == list(range(npes))
    shmem.barrier_all()
    shmem.put_signal(x, torch.full((64,), 50 + me, device=DEVICE), right, flag[1], 3, shmem.SIGNAL_SET)
    shmem.signal_wait_until(flag[1], "==", 3)
    assert tensor.unique().tolist() == [50 + left]
    shmem.reduce_on_stream(every, every, "max")
    assert every[-1] == npes - 1


@triton.jit
def push(ctx, inbox, value, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.store(ctx, inbox + lanes, lanes + value, right)
    dev.atomic_add(ctx, inbox + BLOCK, 1, right)


@pytest.mark.skipif(default().device != DEVICE, reason="the default heap is in GPU memory, without expandable_segments")
def test_kernels_store_into_registered_memory():
    left, me, _ = neighbours()
    tensor = ordinary(9, dtype=torch.int32)
    x = shmem.register(tensor)
    push[(1,)](shmem.device_context(), x, 10 * me, BLOCK=8)
    shmem.barrier_all()
    assert tensor.tolist() == [*(10 * left + lane for lane in range(8)), 1]


def test_tensors_of_different_sizes_give_the_elements_that_all_have(me, npes):
    tensor = ordinary(10 + me, 3, dtype=torch.int16, value=me)
    x = shmem.register(tensor)
    assert x.shape == ((30,) if npes > 1 else (10, 3))
    target = (me + 1) % npes
    with refuses("put", "source: got 31 elements", shmem.OutOfRangeError):
        shmem.put(x, torch.zeros(31, dtype=torch.int16, device=DEVICE), target)


def test_tensor_that_begins_within_its_storage_and_its_pages():
    left, me, right = neighbours()
    storage = ordinary(5000, dtype=torch.int32)
    x = shmem.register(storage[3000:3100])
    shmem.put(x, torch.full((100,), 7 + me, dtype=torch.int32, device=DEVICE), right)
    shmem.barrier_all()
    assert storage.nonzero().flatten().tolist() == list(range(3000, 3100))
    assert storage[3050] == 7 + left


def test_unregistered_memory_is_private_again_and_keeps_its_values(me):
    tensor = ordinary(100, value=me)
    x = shmem.register(tensor)
    x += 1
    shmem.unregister(x)
    assert tensor.unique().tolist() == [me + 1]
    assert not shmem.is_symmetric(x)
    with refuses(
        "unregister", "array: got a float32 array of shape .100,. that is not registered", shmem.NotSymmetricError
    ):
        shmem.unregister(tensor)


def test_registered_memory_outlives_its_tensor():
    left, me, right = neighbours()
    x = shmem.register(ordinary(1000, value=me))  # nobody else holds the tensor
    shmem.put(x, torch.full((1000,), 9.0 + me, device=DEVICE), right)
    shmem.barrier_all()
    assert x.unique().tolist() == [9 + left]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_tensors_in_the_same_pages_share_one_mapping_which_lasts_as_long_as_any_is_registered(first, me, npes):
    storage = ordinary(96, dtype=torch.int32, value=me)
    arrays = [shmem.register(storage[at : at + 32]) for at in (64, 0, 32)]
    places = registration._windows[DEVICE].places
    assert len(places.live()) == 1
    assert arrays[0].data_ptr() - arrays[1].data_ptr() == 256
    for ended in range(3):
        shmem.put(arrays[-1][4:8], torch.full((4,), 10 * ended + me, dtype=torch.int32, device=DEVICE), (me + 1) % npes)
        shmem.barrier_all()
        assert arrays[-1][4:8].unique().tolist() == [10 * ended + (me - 1) % npes]
        shmem.unregister(arrays.pop(first % len(arrays) if len(arrays) > 1 else 0))
        assert len(places.live()) == (1 if arrays else 0)
    with refuses("unregister", "array: got an int32 array of shape", shmem.NotSymmetricError):
        shmem.unregister(storage)


def test_tensor_registered_twice_has_two_arrays_that_end_one_by_one(me, npes):
    tensor = ordinary(16, dtype=torch.int64, value=me)
    one, other = shmem.register(tensor), shmem.register(tensor[2:])
    assert one.data_ptr() + 16 != other.data_ptr()
    shmem.unregister(one)
    shmem.put(other[:1], torch.full((1,), 70 + me, device=DEVICE), (me + 1) % npes)
    shmem.barrier_all()
    assert tensor[2] == 70 + (me - 1) % npes


@pytest.mark.skipif(
    DEVICE == "cuda", reason="the pages of GPUs are larger, and these tensors would not begin alike in them"
)
def test_pages_shared_on_some_pes_only_are_mapped_anew(me, npes):
    pages = ordinary(2, 1024, 4, dtype=torch.int32)
    kept = shmem.register(pages[0, :8])
    x = shmem.register(pages[int(me > 0), 8:16])
    shmem.put(x[0], torch.full((4,), 5 + me, dtype=torch.int32, device=DEVICE), (me + 1) % npes)
    shmem.barrier_all()
    assert pages[int(me > 0), 8].unique().tolist() == [5 + (me - 1) % npes]
    shmem.unregister(kept)


def test_registrations_end_in_any_order_and_leave_nothing(me, npes):
    kept = [ordinary(1 + number % 7, dtype=torch.int32, value=number) for number in range(60)]
    shmem.unregister(shmem.register(kept[0]))  # makes the window
    before, maps = len(os.listdir("/proc/self/fd")), _maps()
    arrays = [shmem.register(each) for each in kept]
    assert len(os.listdir("/proc/self/fd")) <= before  # what came before may close one meanwhile
    for array in arrays:
        shmem.atomic_add(array[0], 1000 * (me + 1), (me + 1) % npes)
    shmem.barrier_all()
    assert [each[0].item() for each in kept] == [number + 1000 * ((me - 1) % npes + 1) for number in range(60)]
    for number in sorted(range(60), key=lambda number: number * 7 % 60):
        shmem.unregister(arrays[number])
    assert len(os.listdir("/proc/self/fd")) <= before
    assert _maps() <= maps + 2
    assert registration._windows[DEVICE].places.live() == []


def test_a_thousand_registrations_in_another_order_with_allocations_between_leave_nothing(me, npes):
    """All in one storage, a page or more each: torch keeps a descriptor for each storage that it shares."""
    pages = ordinary(1000, 1024, dtype=torch.int32)
    shmem.unregister(shmem.register(pages[0]))  # makes the window
    assert pages[[0, 1], 0].unique().tolist() == [0]  # torch's first unique and first index take 28 MB on a GPU each
    before = _held()
    arrays, allocated = {}, []
    for number in range(1000):
        arrays[number] = shmem.register(pages[number])
        if number % 100 == 0:
            allocated.append(shmem.full(1000 + number, 5, dtype=torch.int32, device=DEVICE))
        if number % 3 == 2:
            earlier = number * 7 % (number + 1)
            shmem.unregister(arrays.pop(earlier if earlier in arrays else number))
    assert all(each.unique().tolist() == [5] for each in allocated)
    kept = sorted(arrays, key=lambda number: number * 7 % 1000)
    for number in kept:
        shmem.put(arrays[number][:1], torch.full((1,), number, dtype=torch.int32, device=DEVICE), (me + 1) % npes)
    shmem.barrier_all()
    assert pages[kept, 0].tolist() == kept
    for number in kept:
        shmem.unregister(arrays[number])
    for each in allocated:
        shmem.free(each)
    assert registration._windows[DEVICE].places.live() == []
    after = _held()
    assert after["descriptors"] == before["descriptors"]
    assert after["maps"] <= before["maps"] + 20  # those of malloc; what is left of registrations would be 1000
    assert after["kB"] < before["kB"] + 4096  # each mapping left on a GPU would have 2 MiB at least


def _held():
    """Descriptors, mappings, and kB of address space of this process."""
    with open("/proc/self/status") as lines:
        size = next(int(line.split()[1]) for line in lines if line.startswith("VmSize"))
    return {"descriptors": len(os.listdir("/proc/self/fd")), "maps": _maps(), "kB": size}


def _maps():
    with open("/proc/self/maps") as lines:
        return sum("/torch_" in line or " 00:00 0 " in line for line in lines)


@pytest.mark.skipif(DEVICE == "cuda", reason="a strategy for CPU memory")
def test_register_refuses_memory_that_torch_shares_by_name_and_leaves_it_where_it_is():
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        tensor = ordinary(1000)
    finally:
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
    place = tensor.data_ptr()
    with refuses("register", 'tensor: got a tensor in memory that .* was "file_system", not "file_descriptor"'):
        shmem.register(tensor)
    assert tensor.data_ptr() == place


def test_register_refuses_what_cannot_be_shared_or_differs(me, npes, tmp_path):
    with refuses("register", "tensor: got a tensor that is symmetric already.*; expected private memory"):
        shmem.register(shmem.zeros(3, device=DEVICE))
    with refuses("register", "tensor: got an empty tensor.*; expected one element or more"):
        shmem.register(ordinary(0))
    if DEVICE == "cpu":
        with refuses("register", "tensor: got a tensor in memory that cannot be shared: it is private"):
            shmem.register(torch.zeros(8))
        with refuses("register", "tensor: got a tensor in memory that cannot be shared: it is the memory of a file"):
            shmem.register(torch.from_file(os.path.join(tmp_path, "file"), shared=True, size=8))
    if npes > 1:
        with refuses("register", "dtype: got int8 on PE 0", shmem.DtypeError):
            shmem.register(ordinary(8, dtype=torch.int8 if me == 0 else torch.uint8))
        with refuses("register", "tensor: got 0 bytes after the start of its memory on PE 0"):
            shmem.register(ordinary(8)[int(me > 0) :])
    with refuses("free", "array: got a registered array; expected shmem.unregister", shmem.NotSymmetricError):
        shmem.free(shmem.register(ordinary(8)))
