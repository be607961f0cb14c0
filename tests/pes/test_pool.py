"""shmem.pool: what torch makes in it is symmetric, and its memory is used again when tensors die."""

import os

import numpy as np
import pytest
import torch

import pyshmem as shmem
from pyshmem.memory.heap import default
from support import here, live, neighbours, refuses

MIB = 1 << 20


def test_what_torch_makes_in_the_pool_is_symmetric(me):
    with shmem.pool(8 * MIB), here():
        net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
        x = torch.full((16, 64), float(me))
        y = net(x)
        y.square().sum().backward()
        made = [
            *net.parameters(),
            *(each.grad for each in net.parameters()),
            x,
            y,
            x[3:5].t(),
            torch.tensor([1.0, 2.0], device=here()),
        ]
    outside = torch.ones(4, device=here())
    assert all(map(shmem.is_symmetric, made))
    assert not shmem.is_symmetric(outside)


def test_puts_and_gets_reach_tensors_of_the_pool():
    left, me, right = neighbours()
    with shmem.pool(4 * MIB), here():
        x, inbox = torch.arange(1000.0) + me, torch.zeros(1000)
        flag = torch.zeros(1, dtype=torch.uint64)
    shmem.barrier_all()
    shmem.put_signal(inbox, x, right, flag, 1, shmem.SIGNAL_SET)
    shmem.signal_wait_until(flag, "==", 1)
    assert torch.equal(inbox, torch.arange(1000.0, device=here()) + left)
    got = torch.empty(1000, device=here())
    shmem.get(got, x, right)
    assert torch.equal(got, torch.arange(1000.0, device=here()) + right)


def test_memory_of_a_tensor_that_died_behind_its_last_put_is_used_again_clean():
    left, me, right = neighbours()
    taken = shmem.zeros(1, dtype=torch.uint64)
    places = set()
    pool = shmem.pool(4 * MIB)
    with pool, here():
        flag = torch.zeros(1, dtype=torch.uint64)
    shmem.barrier_all()
    for turn in range(1, 30):
        with pool, here():
            inbox = torch.zeros(300)
        assert not inbox.any(), f"turn {turn}: a late put"
        shmem.fence()  # the zeros come before what left writes
        shmem.signal_set(taken, turn, left)  # left may write inbox
        shmem.signal_wait_until(taken, ">=", turn)
        shmem.put_signal(
            inbox, torch.full((300,), float(turn * 100 + me), device=here()), right, flag, turn, shmem.SIGNAL_SET
        )
        shmem.signal_wait_until(flag, ">=", turn)  # the last access of a peer comes before the end of inbox
        assert inbox.unique().tolist() == [turn * 100 + left]
        places.add(inbox.data_ptr())
        del inbox
    assert len(places) < 29, "no memory was used again"


def test_pool_with_memory_is_returned_again_and_grows_by_what_is_asked():
    first = shmem.pool(2 * MIB)
    assert shmem.pool() is first
    assert first.size == 2 * MIB
    assert shmem.pool(3 * MIB) is first
    assert first.size == 6 * MIB, "a multiple of 2 MiB"


def test_pool_of_no_size_takes_a_quarter_of_what_is_free():
    if default().streams:
        pytest.skip("as much of a GPU's memory would be taken")
    free = default().allocator.largest_hole()
    assert free // 4 <= shmem.pool().size <= free // 4 + 2 * MIB


def test_pool_that_is_full_refuses_and_serves_again_after_tensors_have_died():
    pool = shmem.pool(2 * MIB)
    error = torch.OutOfMemoryError if default().streams else shmem.HeapExhaustedError
    with pool, here():
        first = torch.zeros(MIB // 4)
        with pytest.raises(error):
            torch.zeros(MIB)
        assert shmem.is_symmetric(first)
        del first
        assert shmem.is_symmetric(torch.zeros(MIB // 4))


def test_free_leaves_memory_of_the_pool_alone():
    with shmem.pool(2 * MIB), here():
        made = [torch.zeros(1000) for _ in range(3)]
    before = live()
    for each in made:
        with refuses("free", "array: got a tensor of the pool; expected nothing", shmem.NotSymmetricError):
            shmem.free(each)
    assert live() == before
    assert all(map(shmem.is_symmetric, made))


def test_pool_refuses_a_negative_size_and_a_heap_that_is_not_there():
    with refuses("pool", "size: got -1; expected 0 or more", shmem.OutOfRangeError):
        shmem.pool(-1)
    with refuses("pool", "device: got 'xla'"):
        shmem.pool(device="xla")


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a pool of its own for GPU memory")
def test_views_and_results_in_place_stay_where_their_tensors_are():
    before = torch.zeros(8)
    with shmem.pool(2 * MIB):
        view = before[2:6]
        view += 1
        torch.add(view, 1, out=view)
        one, two = torch.arange(8.0).split(4)
    assert not shmem.is_symmetric(view)
    assert before.tolist() == [0, 0, 2, 2, 2, 2, 0, 0]
    assert two.data_ptr() - one.data_ptr() == 16
    assert shmem.is_symmetric(one)
    assert shmem.is_symmetric(two)


class Labelled(torch.Tensor):
    """A class of tensors that adds nothing to operators."""


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a pool of its own for GPU memory")
def test_views_of_a_subclass_and_memory_of_numpy_stay_where_they_are():
    before, numbers = torch.zeros(8).as_subclass(Labelled), np.zeros(4, np.float32)
    with shmem.pool(2 * MIB):
        before[2:6].fill_(1)
        made = torch.zeros(6).as_subclass(Labelled)
        made.view(2, 3)[1].fill_(2)
        torch.from_numpy(numbers)[0] = 3
        torch.as_tensor(numbers)[1:2] = 4
    assert before.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    assert made.tolist() == [0, 0, 0, 2, 2, 2]
    assert numbers.tolist() == [3, 4, 0, 0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a pool of its own for GPU memory")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_parts_of_tensors_that_are_made_of_others_are_in_the_pool():
    with shmem.pool(2 * MIB):
        ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
        twice = ragged * 2
        padded = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])  # which has no sizes to copy
    assert shmem.is_symmetric(twice.values())
    assert twice.values().unique().tolist() == [2]
    assert padded.unbind()[1].tolist() == [1, 1, 1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a forked child has no GPU")
def test_a_forked_child_allocates_outside_of_the_pool():
    """It has the PE's memory, as a worker of a DataLoader: two processes would take the same block."""
    with shmem.pool(2 * MIB):
        child = os.fork()
        if not child:
            os._exit(shmem.is_symmetric(torch.zeros(8)))
        assert os.waitpid(child, 0)[1] == 0
        assert shmem.is_symmetric(torch.zeros(8))
