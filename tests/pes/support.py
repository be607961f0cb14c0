"""What the tests share: values that name their sender and turn, and the element types of the specification."""

import ctypes
import mmap
import socket

import numpy as np
import pytest
import torch
import torch.distributed as dist

import pyshmem as shmem
from pyshmem.base import interpreter
from pyshmem.memory.heap import default, heaps
from pyshmem.base.job import job

# Only the interpreter looks at addresses and PEs, and gives constants of a kernel's own a value when it runs.
interpreted = pytest.mark.skipif(not interpreter.active(), reason="kernels are compiled")

GUARD = 77  # follows every buffer: a call that writes too much is seen

RMA_DTYPES = [
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
FP8_DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
DTYPES = [torch.bool, *RMA_DTYPES, *FP8_DTYPES]
NUMPY_DTYPES = [torch.uint16, torch.uint32, torch.uint64]  # torch cannot compute on these, NumPy can
AMO_INTEGERS = [torch.int32, torch.int64, torch.uint32, torch.uint64]
AMO_DTYPES = [*AMO_INTEGERS, torch.float32, torch.float64]


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def here():
    """The device of the default heap: private arrays of the tests are beside the symmetric ones."""
    return torch.device(default().device, default().index)


def payload(pe, turn, count, dtype, device=None):
    """``count`` values that tell who sent them, when, and each its place; small enough for 8 bits."""
    return as_dtype((torch.arange(count) * 7 + pe * 31 + turn * 13) % 100, dtype).to(device or here())


def as_dtype(values, dtype):
    """The tensor ``values``, small integers, in ``dtype``; their parity in bool."""
    if dtype is torch.bool:
        return values % 2 == 1
    if dtype in NUMPY_DTYPES:
        return torch.from_numpy(values.cpu().numpy().astype(name_of(dtype))).to(values.device)
    return values.to(dtype)


def limits(dtype):
    """Pairs of (old, value) that reach every bit, the sign and the wrap-around."""
    if dtype.is_floating_point:
        return [(0.0, 0.5), (1.5, -2.25), (-0.0, 2.0**-10), (3.0, float("inf")), (2.0**24, 1.0)]
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return [(0, 1), (5, 3), (high, 1), (low, high), (high, high), (low, low), (low + 9, high - 9)]


def element(value, dtype):
    """``value`` wrapped or rounded into one element of ``dtype``."""
    if not dtype.is_floating_point:
        bits = 8 * dtype.itemsize
        value &= (1 << bits) - 1
        value -= 1 << bits if dtype.is_signed and value >> (bits - 1) else 0
    return torch.tensor([value], dtype=dtype)


def neighbours():
    """(left, me, right) in the ring of all PEs."""
    me, n = shmem.my_pe(), shmem.n_pes()
    return (me - 1) % n, me, (me + 1) % n


def near_neighbours():
    """(left, me, right) in the ring of the PEs that share memory with this one: of all PEs in a job on one node."""
    team, world = shmem.TEAM_SHARED, shmem.TEAM_WORLD
    left, right = ((team.my_pe() + step) % team.n_pes() for step in (-1, 1))
    return team.translate_pe(left, world), shmem.my_pe(), team.translate_pe(right, world)


def alone():
    """Whether some PE is the only one of its node; the same on all PEs."""
    return any(job.nodes.count(node) == 1 for node in job.nodes)


def on_one_node():
    """Whether all PEs share memory."""
    return len(set(job.nodes)) == 1


def torch_store():
    """A store of torch.distributed at PE 0, which PEs of other hosts reach by its host's address. Collective."""
    place, store = shmem.zeros(5, dtype=torch.int64, device="cpu"), None
    if shmem.my_pe() == 0:
        host = "127.0.0.1" if on_one_node() else socket.gethostbyname(socket.gethostname())
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        place.copy_(torch.tensor([store.port, *socket.inet_aton(host)]))
    shmem.broadcast(place, place.clone(), 0)
    port, *host = place.tolist()
    shmem.free(place)
    return store or dist.TCPStore(socket.inet_ntoa(bytes(host)), port, is_master=False)


def octets(array):
    """The memory of a contiguous tensor, of any dtype: what is compared where only bits move."""
    return (
        array.reshape(-1).view(torch.uint8) if array.numel() else torch.empty(0, dtype=torch.uint8, device=array.device)
    )


def guarded(count, dtype, behind=1):
    """A symmetric array of ``count`` elements and the same with ``behind`` more; every byte of it is GUARD."""
    local = torch.empty(count + behind, dtype=dtype)
    octets(local).fill_(1 if dtype is torch.bool else GUARD)
    whole = shmem.array(local)
    return whole[:count], whole


def at_the_end_of_memory(array):
    """A copy of a private array in CPU memory. What lies behind it can be neither read nor written: the process ends."""
    nbytes = array.numel() * array.element_size()
    room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + room), mmap.PAGESIZE, 0)
    copy = torch.frombuffer(memory, dtype=torch.uint8)[room - nbytes : room]
    return copy.view(array.dtype).view(array.shape).copy_(array)


def foreign(array):
    """The same memory as another library has it: NumPy's, on a GPU CuPy's."""
    if array.device.type == "cpu":
        return array.numpy()
    import cupy

    return cupy.asarray(array)


def stretched(array, shape, strides):
    """foreign with a shape and byte strides that may reach past the array."""
    seen = foreign(array)
    if array.device.type == "cpu":
        return np.lib.stride_tricks.as_strided(seen, shape, strides)
    import cupy

    return cupy.lib.stride_tricks.as_strided(seen, shape, strides)


def aside(function):
    """``function`` on a stream of its own, for a thread that writes while a kernel waits: on the current stream, which all
    threads share, its calls would come after that kernel."""

    def alone():
        if default().device == "cpu":
            return function()
        with torch.cuda.stream(torch.cuda.Stream(here())):  # which makes the thread's device this one
            return function()

    return alone


def untouched(array):
    """Whether every byte is still as ``guarded`` made it."""
    return bool((octets(array) == (1 if array.dtype is torch.bool else GUARD)).all())


def assert_same(got, wanted):
    """Equal in dtype, shape and every bit; NaN, -0.0 and what torch cannot compare included."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert torch.equal(octets(got).cpu(), octets(wanted).cpu()), f"PE {shmem.my_pe()}: got {got}, wanted {wanted}"


def refuses(routine, text, error=shmem.ArgumentError):
    """A context in which this PE's call of ``routine`` is refused. text: a pattern of the message after the PE."""
    return pytest.raises(error, match=rf"^{routine}: PE {shmem.my_pe()}: {text}")


def refused_by_all(error, pattern, call, *arrays):
    """The call raises on every PE alike, nobody waits in it, and no array has changed."""
    before = [array.clone() for array in arrays]
    with pytest.raises(error, match=pattern):
        call()
    shmem.barrier_all()
    for array, old in zip(arrays, before, strict=True):
        assert_same(array.clone(), old)


def from_pe(array, pe):
    """A private copy of the symmetric ``array`` on ``pe``."""
    copy = torch.empty(array.shape, dtype=array.dtype, device=array.device)
    shmem.get(copy, array, pe)
    return copy


def work(amount):
    """Keep this PE busy: what makes it late, without a clock."""
    return sum(i * i for i in range(amount))


def be_late(amount):
    """Work if other PEs could be early."""
    work(amount if shmem.n_pes() > 1 else 0)


def live():
    """All that is allocated, as (heap, start, end): a refused call must leave it as it was."""
    return [(name, *block) for name, heap in heaps.items() for block in heap.allocator.live()]
