"""pyshmem.distributed.symm_mem: torch's symmetric memory in a symmetric heap."""

import gc
from types import SimpleNamespace

import pyshmem as shmem
import pyshmem.distributed  # adds the backend
import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as sm
import triton
import triton.language as tl
from pyshmem.distributed import symm_mem
from pyshmem.distributed.compiled import compiled, has_compiler
from pyshmem.memory.heap import default, heaps
from support import here, live, neighbours, on_one_node, refuses

pytestmark = [
    pytest.mark.skipif(not on_one_node(), reason="PEs of other nodes map nothing"),
    pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler"),
]
CHANNELS = 512  # words of a pad


@pytest.fixture(scope="module", autouse=True)
def world():
    before = live()
    dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
    symm_mem.enable(pads=40)
    yield
    shmem.barrier_all()
    dist.destroy_process_group()
    for name, start, _ in set(live()).difference(before):
        heaps[name].allocator.release(start)
        heaps[name].owned.pop(start, None)
    shmem.barrier_all()


def met(tensor, group=None):
    return sm.rendezvous(tensor, group or dist.group.WORLD)


def words(handle):
    return handle.get_signal_pad(handle.rank, (CHANNELS,), torch.int32)


def test_torch_names_our_heap():
    assert sm.get_backend(here()) == "PYSHMEM"


def test_buffers_of_all_members_are_reached_by_their_ranks(me, npes):
    tensor = shmem.zeros(3, 5)
    handle = met(tensor)
    assert (handle.rank, handle.world_size, handle.offset, handle.buffer_size) == (me, npes, 0, 60)
    assert handle.buffer_ptrs[me] == tensor.data_ptr() and handle.multicast_ptr == 0
    tensor += me
    handle.barrier()
    for rank in range(npes):
        part = handle.get_buffer(rank, (2, 2), torch.float32, 3)
        assert part.unique().tolist() == [rank]
        assert part.data_ptr() == handle.buffer_ptrs[rank] + 12
        assert handle.get_signal_pad(rank, (4,), torch.int64, 1).data_ptr() == handle.signal_pad_ptrs[rank] + 8
    assert met(tensor).signal_pad_ptrs == handle.signal_pad_ptrs  # no other pad


def test_group_of_some_members_in_another_order_counts_its_own_ranks(me, npes):
    members = list(range(npes))[::-1][: max(npes - 1, 1)]
    group = dist.new_group(members)
    tensor = shmem.zeros(4, dtype=torch.int64)
    tensor.fill_(me)
    shmem.barrier_all()
    if me in members:
        ranks = dist.get_process_group_ranks(group)
        for given in group, group.group_name:
            handle = met(tensor, given)
            assert (handle.rank, handle.world_size) == (ranks.index(me), len(members))
            assert [handle.get_buffer(i, (1,), torch.int64).item() for i in range(len(ranks))] == ranks
            handle.barrier()
    shmem.barrier_all()
    handle = met(tensor)  # members have taken one pad more than others
    handle.barrier()
    assert [handle.get_buffer(i, (1,), torch.int64).item() for i in range(npes)] == list(range(npes))
    if me in members:
        dist.destroy_process_group(group)


def test_groups_of_other_backends_take_our_memory(me, npes):
    if here().type == "cuda" and torch.cuda.device_count() < npes:
        pytest.skip("NCCL wants a GPU for each PE")
    group = dist.new_group(backend="nccl" if here().type == "cuda" else "gloo")
    tensor = shmem.full((2,), me)
    handle = met(tensor, group)
    handle.barrier()
    assert [handle.get_buffer(rank, (2,), tensor.dtype)[1].item() for rank in range(npes)] == list(range(npes))
    handle.barrier()


def test_barriers_order_accesses_of_all_members_on_each_channel_and_leave_pads_zero(me, npes):
    tensor = shmem.zeros(8, dtype=torch.int64)
    handle = met(tensor)
    for count in range(30):
        tensor.fill_(100 * count + me)
        handle.barrier(channel=count % 3)
        for rank in range(npes):
            assert handle.get_buffer(rank, (8,), torch.int64).unique().tolist() == [100 * count + rank]
        handle.barrier(channel=count % 3)
    shmem.barrier_all()
    assert not words(handle).any()


def test_signals_come_one_by_one_with_what_was_stored_before(me, npes):
    left, _, right = neighbours()
    handle = met(shmem.zeros(1, dtype=torch.int64))
    there, inbox = (handle.get_buffer(rank, (1,), torch.int64) for rank in (right, me))
    for count in range(20):
        there.fill_(count)
        handle.put_signal(right, channel=1)
        handle.wait_signal(left, channel=1)
        assert inbox.item() == count
        handle.put_signal(left, channel=2)  # it has been read
        handle.wait_signal(right, channel=2)


@pytest.mark.skipif(here().type == "cuda", reason="kernels wait for PYSHMEM_WAIT_TIMEOUT")
def test_wait_that_lasts_too_long_is_an_error(me):
    handle = met(shmem.zeros(1))
    with pytest.raises(Exception, match=r"wait_signal: PE \d+: channel: got no signal in 0.001 s"):
        handle.wait_signal(me, timeout_ms=1)
    handle.put_signal(me)
    with pytest.raises(Exception, match=r"put_signal: PE \d+: channel: got no signal in 0.001 s"):
        handle.put_signal(me, timeout_ms=1)
    handle.wait_signal(me)


def memory_of(tensor, pads, npes):
    return symm_mem.Memory(default(), tensor.data_ptr(), pads, range(npes))


def memory_by_kernels(tensor, pads, npes):
    """The memory of a heap whose barriers and signals are kernels: on CPUs they are interpreted."""
    heap = SimpleNamespace(streams=True, deltas=default().deltas)
    return symm_mem.Memory(heap, tensor.data_ptr(), pads, range(npes))


def ended():
    """What this PE has enqueued has ended."""
    if here().type == "cuda":
        torch.cuda.synchronize()


def test_kernels_meet_as_the_host_does(me, npes):
    tensor, pads = shmem.zeros(1, dtype=torch.int64), shmem.zeros(CHANNELS, dtype=torch.int32)
    memory = memory_by_kernels(tensor, pads, npes)
    for count in range(4):
        tensor.fill_(10 * count + me)
        memory.barrier(count % 2, 0)
        ended()
        assert [shmem.g(tensor, pe) for pe in range(npes)] == [10 * count + pe for pe in range(npes)]
        memory.barrier(count % 2, 0)
        ended()
    shmem.barrier_all()
    assert not pads.any()


def test_kernels_signal_and_wait_for_one_member_alone(npes):
    left, me, right = neighbours()
    tensor, pads = shmem.zeros(1, dtype=torch.int64), shmem.zeros(CHANNELS, dtype=torch.int32)
    memory = memory_by_kernels(tensor, pads, npes)
    for _ in range(2):
        memory.put_signal(right, 3, 0)
        ended()
        shmem.barrier_all()
        assert pads.nonzero().flatten().tolist() == [3 * npes + left]
        memory.wait_signal(left, 3, 0)
        ended()
        assert not pads.any()
        shmem.barrier_all()


def test_a_call_is_planned_once(me, npes, monkeypatch):
    tensor, pads = shmem.zeros(1), shmem.zeros(CHANNELS, dtype=torch.int32)
    memory = memory_of(tensor, pads, npes)
    made = []
    plan = memory._made
    monkeypatch.setattr(memory, "_made", lambda *key: made.append(key) or plan(*key))
    for _ in range(3):
        memory.barrier(1, 0)
        memory.put_signal(me, 0, 0)
        memory.wait_signal(me, 0, 0)
    assert made == [("barrier", 1, None), ("put_signal", 0, me), ("wait_signal", 0, me)]


@triton.jit
def total(out, buffers, count, BLOCK: tl.constexpr):
    """The sum of all members' buffers, by their addresses, as kernels on torch's symmetric memory take them."""
    lanes = tl.arange(0, BLOCK)
    table = buffers.to(tl.pointer_type(tl.uint64))
    found = tl.zeros((BLOCK,), tl.float32)
    for rank in range(count):
        found += tl.load(tl.load(table + rank).to(tl.pointer_type(tl.float32)) + lanes)
    tl.store(out + lanes, found)


def test_kernels_take_the_addresses_of_all_buffers(me, npes):
    tensor = shmem.zeros(16)
    handle = met(tensor)
    tensor.fill_(me + 1)
    handle.barrier()
    out = torch.zeros(16, device=here())
    total[(1,)](out, handle.buffer_ptrs_dev, npes, BLOCK=16)
    assert out.unique().tolist() == [npes * (npes + 1) / 2]
    handle.barrier()


@pytest.mark.skipif(here().type != "cuda", reason="torch's operators have no kernels for CPUs")
def test_operators_of_torch_take_symmetric_tensors(me, npes):
    name = dist.group.WORLD.group_name
    for tensor in (shmem.zeros(4096), shmem.zeros(9, 4096)[4]):
        tensor.fill_(me + 1)
        assert torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", name).unique().tolist() == [npes * (npes + 1) / 2]
        torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", name)
        assert tensor.unique().tolist() == [npes * (npes + 1) / 2]


def test_channels_and_members_that_there_are_not_are_refused(npes):
    tensor, pads = shmem.zeros(4), shmem.zeros(CHANNELS, dtype=torch.int32)
    memory = memory_of(tensor, pads, npes)
    most = CHANNELS // npes - 1
    with refuses("barrier", f"channel: got {most + 1}; expected 0 to {most}", shmem.OutOfRangeError):
        memory.barrier(most + 1, 0)
    with refuses("put_signal", f"rank: got {npes}; expected 0 to {npes - 1}", shmem.OutOfRangeError):
        memory.put_signal(npes, 0, 0)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PYSHMEM_CXX", "no-such-program", "PYSHMEM_CXX: got no program 'no-such-program'; expected a C.. compiler.*"),
        ("PYSHMEM_CXX", "false", "torch: got torch .*, with which false fails: .*; expected torch 2.11 or newer.*"),
        (
            "TRITON_CACHE_DIR",
            "/dev/null",
            "TRITON_CACHE_DIR: got .*/dev/null.*; expected a folder to compile a module in",
        ),
    ],
)
def test_what_cannot_be_compiled_is_one_error_that_says_why(name, value, words, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(name, value)
    with refuses("enable", words, shmem.ArgumentError):
        compiled()


def test_private_memory_has_no_peers():
    assert met(torch.zeros(4, device=here())) is None


def test_memory_of_empty_comes_back_when_its_tensor_has_died_on_all_pes(me, npes):
    places = set()
    for count in range(6):
        tensor = sm.empty(1000, dtype=torch.int32, device=here().type)
        assert shmem.is_symmetric(tensor)
        handle = met(tensor)
        tensor.fill_(me + count)
        handle.barrier()
        found = [handle.get_buffer(pe, (1,), torch.int32).item() for pe in range(npes)]
        assert found == [pe + count for pe in range(npes)]
        handle.barrier()
        places.add(tensor.data_ptr())
        del tensor, handle
        gc.collect()
    assert len(places) <= 2
    kept = [sm.empty(1000, dtype=torch.int32, device=here().type) for _ in range(3)]
    assert len({each.data_ptr() for each in kept}) == 3


@pytest.mark.parametrize(("routine", "more"), [("free", ()), ("realloc", (64,))])
def test_free_leaves_memory_of_empty_alone(routine, more, me):
    tensor = sm.empty(100, dtype=torch.int32, device=here().type).fill_(me)
    for part in (tensor, tensor[40:]):
        with refuses(routine, "array: got a tensor of torch's symmetric memory", shmem.NotSymmetricError):
            getattr(shmem, routine)(part, *more)
    assert tensor.tolist() == [me] * 100
    assert shmem.is_symmetric(tensor)


def test_pads_come_to_an_end():
    with pytest.raises(Exception, match=r"one more pair of a tensor and a group, 41; expected at most the 40"):
        for tensor in [shmem.zeros(16) for _ in range(80)]:  # other tests have had pads for some of these places
            met(tensor)
