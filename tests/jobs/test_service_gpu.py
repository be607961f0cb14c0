"""The requests of far PEs on a GPU heap: what the service thread asks of the driver, in what order, and what it refuses."""

import operator
import struct
from itertools import product

import numpy as np
import pytest
from far_peer import (
    ADD_UINT64, FETCH, FLUSH, GET, GPU, POST, PUT, PUT_STRIDED, UPDATE, Peer, Service,
)  # fmt: skip
from pyshmem.native import _native
from pyshmem.base.far import OPERATORS, STAGE
from standin_gpu import TYPES, Gpu
from test_service import in_child

RESULTS = {
    "fetch": lambda old, value: old, "set": lambda old, value: value, "swap": lambda old, value: value,
    "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "compare_swap": lambda old, value: value,
}  # fmt: skip


@pytest.fixture
def gpu(service):
    found = Gpu()
    service.open_gpu(found)
    return found


@pytest.fixture
def peer(service, gpu):
    connected = Peer(service.port)
    connected.reply()
    yield connected
    connected.leave()


@pytest.mark.parametrize("nbytes", [1, 2, 4, 8, 13, 8192, 8193, 100_000, STAGE + 5, 900_001])
@pytest.mark.parametrize("start", [64, 67])
def test_a_put_is_in_place_when_its_acknowledgement_comes_and_a_get_reads_it(nbytes, start, gpu, peer, service):
    data = (np.arange(nbytes) % 251).astype(np.uint8).tobytes()
    peer.put(GPU + start, data, asks=1)
    assert peer.reply() == (2, 0, b"")
    assert gpu.heap[start : start + nbytes].tobytes() == data
    assert not gpu.heap[:start].any() and not gpu.heap[start + nbytes :].any() and not service.heap.any()
    peer.send(GET, GPU + start, nbytes)
    assert peer.reply() == (3, 0, data)


@pytest.mark.parametrize("is_hip", [False, True], ids=["cuda", "hip"])
def test_the_thread_enters_the_device_once_and_waits_for_each_request(is_hip, service):
    gpu = Gpu(is_hip=is_hip)
    service.open_gpu(gpu)
    peer = Peer(service.port)
    peer.reply()
    assert gpu.done == [] and service.first_calls[:2] == ["attach", "relax"]
    peer.put(GPU, bytes(8))
    peer.send(UPDATE, GPU + 8, detail=ADD_UINT64, value=1)
    peer.put(GPU + 64, bytes(10000))
    peer.send(GET, GPU, 8)
    assert peer.reply()[0] == 5
    copies = [call for call in gpu.done if call.startswith("copy")]
    assert sum(int(call.split()[1]) for call in copies) == 10000
    rest = [call for call in gpu.done if not call.startswith("copy")]
    waits = ["idle"] * len(copies)
    assert rest == ["move 8", "idle", "perform", "idle", *waits, "move 8", "idle"]
    peer.leave()


def test_everything_that_a_request_uses_has_been_used_before_the_first_one(service):
    """A driver loads lazily, and may wait then for a kernel that waits for the request."""
    gpu, asked = Gpu(), []
    performed = gpu._perform
    gpu._perform = lambda *words: (asked.append(words[4]), performed(*words))
    service.open_gpu(gpu)
    assert {(OPERATORS[detail // 16], TYPES[detail % 16]) for detail in asked} == set(product(OPERATORS, TYPES))
    calls = {"attach", "relax", "perform", "idle", "copy 32", *(f"move {size}" for size in (1, 2, 4, 8))}
    assert set(service.first_calls) == calls
    assert not gpu.heap.any()


def test_a_busy_gpu_delays_no_request_for_cpu_memory_of_another_pe(service, gpu, peer):
    """And those of other PEs for the GPU are executed after it, all of them."""
    others = [Peer(service.port, pe) for pe in (2, 3)]
    for each in others:
        each.reply()
    gpu.busy = True
    peer.put(GPU, b"the GPU's", asks=1)
    others[0].put(GPU + 64, bytes([7]) * 20_000, asks=1)
    others[0].send(GET, GPU + 64, 20_000)
    for turn in range(100):
        others[1].put(8, struct.pack("=Q", turn), asks=1)
        assert others[1].reply()[0] == 2 + turn
    assert service.words[1] == 99 and not gpu.heap.any()
    others[1].send(GET, GPU, 9)
    gpu.busy = False
    assert peer.reply()[0] == 2 and others[0].reply()[0] == 2
    assert others[0].reply()[2] == bytes([7]) * 20_000
    assert others[1].reply()[2] == b"the GPU's"
    for each in others:
        each.leave()


def test_a_pe_that_is_lost_while_the_gpu_is_busy_ends_this_one_with_a_message():
    kept = []

    def program():
        kept.append(with_gpu(1 << 20))
        kept[0].gpu.busy = True
        other = Peer(kept[0].port, 2)
        other.reply()
        kept[0].put(GPU, bytes(8))
        other.socket.close()

    status, said = in_child(program)
    assert (status, said) == (1, "PE 0: lost PE 2 on host2, whose connection has ended\n")


@pytest.mark.parametrize(
    "at, nbytes, size", [(0, 8, 8), (4, 8, 4), (0, 4, 4), (2, 4, 2), (1, 4, 1), (0, 24, 8), (0, 6, 2)]
)
def test_words_are_moved_whole(at, nbytes, size, gpu, peer):
    """By the widest words that address and length allow."""
    peer.put(GPU + at, bytes(nbytes), asks=1)
    peer.reply()
    assert f"move {size}" in gpu.done


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", RESULTS)
def test_an_atomic_returns_the_previous_value_and_writes_its_result(name, dtype, gpu, peer):
    if name in ("and", "or", "xor") and "float" in dtype:
        return
    kind, detail = np.dtype(dtype), OPERATORS.index(name) * 16 + TYPES.index(dtype)
    word = gpu.heap[16 : 16 + kind.itemsize].view(kind)
    word[0] = 5
    value, cond = (int.from_bytes(kind.type(each).tobytes(), "little") for each in (3, 5))
    peer.send(FETCH, GPU + 16, detail=detail, value=value, cond=cond)
    old = peer.reply()[1].to_bytes(8, "little")[: kind.itemsize]
    assert np.frombuffer(old, kind)[0] == 5
    assert word[0] == RESULTS[name](kind.type(5), kind.type(3))
    assert not gpu.heap[:16].any() and not gpu.heap[16 + kind.itemsize :].any()


def test_requests_on_both_kinds_of_memory_are_executed_in_order(gpu, peer, service):
    """When a later one takes effect, the earlier one has."""
    seen = []
    gpu.on_idle = lambda: seen.append(int(service.words[0]))
    for turn in range(1, 101):
        peer.put(GPU, struct.pack("=Q", turn))
        peer.put(0, struct.pack("=Q", turn))
    peer.send(FLUSH, asks=1)
    assert peer.reply()[0] == 202
    assert seen == list(range(100)) and gpu.words[0] == service.words[0] == 100


def test_parts_of_long_payloads_do_not_mix(gpu, service, peer):
    """One buffer serves all PEs: the payloads of two come in turn, and the replies to both wait for full sockets."""
    gpu.words[:] = np.arange(1 << 17)
    other = Peer(service.port, pe=2)
    other.reply()
    for _ in range(8):
        for each in (peer, other):
            each.send(GET, GPU, 1 << 20)
    for _ in range(8):
        for each in (peer, other):
            assert each.reply()[2] == gpu.heap.tobytes()
    halves = [bytes([each]) * 400_000 for each in (1, 2)]
    for each, start, data in ((peer, 0, halves[0]), (other, 500_000, halves[1])):
        each.send(PUT, GPU + start, 400_000, payload=data[:150_000], asks=1)
    for each, data in ((peer, halves[0]), (other, halves[1])):
        each.socket.sendall(data[150_000:])
    assert peer.reply()[0] == other.reply()[0] == 10
    assert gpu.heap[:400_000].tobytes() == halves[0] and gpu.heap[500_000:900_000].tobytes() == halves[1]
    other.leave()


def test_data_that_a_full_socket_does_not_take_are_not_copied_from_the_gpu_again(gpu, peer):
    for _ in range(16):
        peer.send(GET, GPU, 1 << 20)
    for _ in range(16):
        assert len(peer.reply()[2]) == 1 << 20
    assert sum(int(call.split()[1]) for call in gpu.done if call.startswith("copy")) == 16 << 20


def test_a_later_get_of_the_same_memory_reads_it_anew(gpu, peer):
    for turn in range(1, 4):
        gpu.heap[:] = turn
        peer.send(GET, GPU, 100_000)
        assert peer.reply()[2] == bytes([turn]) * 100_000


def test_the_heap_grows(service):
    gpu = Gpu(length=4096)
    service.open_gpu(gpu)
    peer = Peer(service.port)
    peer.reply()
    _native.far_extend_gpu(1 << 20)
    peer.put(GPU + 4096, b"12345678", asks=1)
    peer.reply()
    assert gpu.heap[4096:4104].tobytes() == b"12345678"
    peer.leave()


def with_gpu(length=4096, **failing):
    """A PE with a GPU heap of so many bytes, whose driver fails so, and PE 1."""
    service, gpu = Service(), Gpu(length=length)
    service.open_gpu(gpu)
    gpu.fails = failing
    peer = Peer(service.port)
    peer.reply()
    peer.gpu, peer.port = gpu, service.port  # kept
    return peer


@pytest.mark.parametrize(
    "op, offset, nbytes, fields",
    [
        (PUT, GPU + 4092, 8, {"payload": bytes(8)}),
        (GET, GPU + 4096, 1, {}),
        (GET, GPU + 8, 2**64 - 8, {}),
        (GET, GPU + (1 << 48), 8, {}),
        (PUT_STRIDED, GPU, 16, {"detail": 8, "value": 4096, "payload": bytes(16)}),
        (FETCH, GPU + 4096, 0, {"detail": 3}),
        (POST, GPU + 8, 0, {"cond": 16}),
        (POST, 8, 0, {"cond": GPU + 16}),
    ],
)
def test_a_request_outside_the_gpu_heap_ends_the_pe_with_a_message(op, offset, nbytes, fields):
    status, said = in_child(lambda: with_gpu().send(op, offset, nbytes, **fields))
    assert status == 1 and said == "PE 0: invalid request from PE 1\n"


@pytest.mark.parametrize("op, offset, detail", [(FETCH, GPU + 4, 3), (UPDATE, GPU + 1, 3), (FETCH, GPU + 2, 2)])
def test_an_atomic_of_a_word_that_is_not_aligned_is_answered_and_not_performed(op, offset, detail, gpu, peer):
    gpu.heap[:16] = 7
    peer.send(op, offset, detail=detail, value=1)
    assert struct.unpack("=QQQ", peer.bytes(24)) == (2, 0, 2**64 - 1)
    peer.send(FETCH, GPU + 8, detail=3)
    assert peer.reply()[:2] == (3, 0x0707070707070707)


def test_a_request_for_gpu_memory_is_invalid_without_a_gpu():
    def program():
        peer = Peer(Service().port)
        peer.reply()
        peer.send(GET, GPU, 8)

    status, said = in_child(program)
    assert status == 1 and said == "PE 0: invalid request from PE 1\n"


REQUESTS = {
    "put": lambda peer: peer.put(GPU, bytes(8)),
    "long put": lambda peer: peer.put(GPU, bytes(12000)),
    "get": lambda peer: peer.send(GET, GPU, 8),
    "long get": lambda peer: peer.send(GET, GPU, 8200),
    "atomic": lambda peer: peer.send(UPDATE, GPU, detail=ADD_UINT64),
}


@pytest.mark.parametrize(
    "call, request_",
    [
        ("move", "put"),
        ("move", "get"),
        ("copy", "long put"),
        ("copy", "long get"),
        ("perform", "atomic"),
        ("idle", "put"),
        ("idle", "atomic"),
    ],
)
def test_an_error_of_the_driver_ends_the_pe_with_a_message(call, request_):
    kept = []  # the connection does not end by itself

    def program():
        kept.append(with_gpu(1 << 20, **{call: 719}))
        REQUESTS[request_](kept[0])

    status, said = in_child(program)
    assert status == 1 and said == "PE 0: the GPU driver returned error 719 for a request from PE 1\n"


@pytest.mark.parametrize("call", ["attach", "relax", "perform", "move", "copy", "idle"])
def test_an_error_of_the_driver_at_the_first_use_is_returned(call, service):
    gpu = Gpu()
    gpu.fails = {call: 719}
    assert gpu.open()[0] == 719
