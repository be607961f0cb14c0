"""pyshmem.distributed.symm_mem: torch's symmetric memory in a symmetric heap."""

import pyshmem as shmem
import pyshmem.distributed  # adds the backend
import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl
from pyshmem.distributed import symm_mem
from support import here, neighbours, on_one_node, refuses

pytestmark = pytest.mark.skipif(not on_one_node(), reason="PEs of other nodes map nothing")


@pytest.fixture(scope="module", autouse=True)
def world():
    dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
    yield
    shmem.barrier_all()
    dist.destroy_process_group()
    shmem.barrier_all()


def made(*shape, dtype=torch.float32):
    return symm_mem.empty(*shape, dtype=dtype, device=here().type)


def test_buffers_of_all_members_are_reached_by_their_ranks(me, npes):
    tensor = made(3, 5)
    assert not tensor.any()
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
    assert (handle.rank, handle.world_size, handle.offset, handle.buffer_size) == (me, npes, 0, 64)
    assert handle.buffer_ptrs[me] == tensor.data_ptr()
    assert not handle.has_multicast_support()
    tensor += me
    handle.barrier()
    for rank in range(npes):
        part = handle.get_buffer(rank, (2, 2), torch.float32, 3)
        assert part.unique().tolist() == [rank]
        assert part.data_ptr() == handle.buffer_ptrs[rank] + 12
        assert handle.get_signal_pad(rank).shape == (512,)
        assert handle.get_signal_pad(rank, (4,), torch.int64, 1).data_ptr() == handle.signal_pad_ptrs[rank] + 8
    shmem.free(tensor)


def test_group_of_some_members_in_another_order_counts_its_own_ranks(me, npes):
    members = list(range(npes))[::-1][: max(npes - 1, 1)]
    group = dist.new_group(members)
    tensor = made(4, dtype=torch.int64)
    tensor.fill_(me)
    shmem.barrier_all()
    if me in members:
        ranks = dist.get_process_group_ranks(group)
        for given in group, group.group_name:
            handle = symm_mem.rendezvous(tensor, given)
            assert (handle.rank, handle.world_size) == (ranks.index(me), len(members))
            assert [handle.get_buffer(i, (1,), torch.int64).item() for i in range(len(ranks))] == ranks
            handle.barrier()
    shmem.barrier_all()
    shmem.free(tensor)


def test_part_of_a_tensor_is_found_at_its_place_in_the_buffer(npes):
    _, me, right = neighbours()
    part = made(10, 4, dtype=torch.int32)[6]
    handle = symm_mem.rendezvous(part)
    assert handle.offset == 96
    part.fill_(me)
    handle.barrier()
    assert handle.get_remote_tensor(right, (4,), torch.int32).tolist() == [right] * 4
    assert not handle.get_buffer(right, (24,), torch.int32).any()


def test_barriers_order_accesses_of_all_members_on_each_channel_and_leave_pads_zero(me, npes):
    tensor = made(8, dtype=torch.int64)
    handle = symm_mem.rendezvous(tensor)
    for count in range(30):
        tensor.fill_(100 * count + me)
        handle.barrier(channel=count % 3)
        for rank in range(npes):
            assert handle.get_buffer(rank, (8,), torch.int64).unique().tolist() == [100 * count + rank]
        handle.barrier(channel=count % 3)
    shmem.barrier_all()
    assert not handle.get_signal_pad(me, dtype=torch.int32).any()


def test_signals_come_one_by_one_with_what_was_stored_before(me, npes):
    left, _, right = neighbours()
    handle = symm_mem.rendezvous(made(1, dtype=torch.int64))
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
    handle = symm_mem.rendezvous(made(1))
    with refuses("wait_signal", "channel: got no signal in 0.001 s", shmem.WaitTimeoutError):
        handle.wait_signal(me, timeout_ms=1)
    handle.put_signal(me)
    with refuses("put_signal", "channel: got no signal in 0.001 s", shmem.WaitTimeoutError):
        handle.put_signal(me, timeout_ms=1)


def test_kernels_meet_as_the_host_does(me, npes):
    handle = symm_mem.rendezvous(made(1, dtype=torch.int64))
    own = handle.get_buffer(me, (1,), torch.int64)
    words = handle._words[npes : 2 * npes]

    def meet():
        symm_mem._meet[(npes,)](shmem.device_context(), words, handle._arrays[2], me, 0, PUT=True, TAKE=True)
        if here().type == "cuda":
            torch.cuda.synchronize()

    for count in range(3):
        own.fill_(10 * count + me)
        meet()
        found = [handle.get_buffer(rank, (1,), torch.int64).item() for rank in range(npes)]
        assert found == [10 * count + rank for rank in range(npes)]
        meet()
    shmem.barrier_all()
    assert not handle.get_signal_pad(me, dtype=torch.int32).any()


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
    tensor = made(16)
    handle = symm_mem.rendezvous(tensor)
    tensor.fill_(me + 1)
    handle.barrier()
    out = torch.zeros(16, device=here())
    total[(1,)](out, handle.buffer_ptrs_dev, npes, BLOCK=16)
    assert out.unique().tolist() == [npes * (npes + 1) / 2]
    handle.barrier()


def test_other_memory_channels_without_room_and_parts_beyond_a_buffer_are_refused(me, npes):
    with refuses("rendezvous", "tensor: got a tensor of shape .4,. that is not of", shmem.NotSymmetricError):
        symm_mem.rendezvous(shmem.zeros(4))
    tensor = made(4)
    handle = symm_mem.rendezvous(tensor)
    most = 512 // npes - 1
    with refuses("barrier", f"channel: got {most + 1}; wants 0 to {most}", shmem.OutOfRangeError):
        handle.barrier(channel=most + 1)
    with refuses("get_buffer", "sizes: got 20 bytes from byte 0 on; wants at most the 16", shmem.OutOfRangeError):
        handle.get_buffer(me, (5,), torch.float32)
    shmem.free(tensor)
    with refuses("rendezvous", "tensor: got a tensor of shape .4,.", shmem.NotSymmetricError):
        symm_mem.rendezvous(tensor)
    later = shmem.zeros(4096, dtype=torch.uint8)
    with refuses("rendezvous", "tensor: got a tensor of shape .4096,. that is not of", shmem.NotSymmetricError):
        symm_mem.rendezvous(later)
    shmem.free(later)
