"""9.1: what may be asked about an address or a PE, and a peer's memory through ptr."""

import numpy as np
import pytest
import torch
from support import GUARD, alone, assert_same, foreign, near_neighbours, payload, refuses, stretched

import pyshmem as shmem


def test_ptr_gives_memory_of_the_peer_where_loads_and_stores_work(npes):
    left, me, right = near_neighbours()
    block = shmem.array(payload(me, 1, 12, torch.float64).view(3, 4))
    there = shmem.ptr(block[1:], right)
    assert there.shape == (2, 4) and there.dtype == torch.float64
    assert_same(there.clone(), payload(right, 1, 12, torch.float64).view(3, 4)[1:])
    shmem.barrier_all()
    there[1, 3] = GUARD + me
    shmem.barrier_all()
    assert block[2, 3].item() == GUARD + left
    assert_same(block[:2].clone(), payload(me, 1, 12, torch.float64).view(3, 4)[:2])


def test_ptr_to_this_pe_is_the_memory_itself(me):
    block = shmem.zeros(5)
    assert shmem.ptr(block, me).data_ptr() == block.data_ptr()
    assert shmem.ptr(foreign(block), me).shape == (5,)


def test_what_ptr_gives_is_not_symmetric():
    _, me, right = near_neighbours()
    there = shmem.ptr(shmem.zeros(5), right)
    if alone():
        pytest.skip("a PE is the only one of its node")
    assert not shmem.is_symmetric(there) and not shmem.addr_accessible(there, right)
    for call in (
        lambda: shmem.put(there, torch.ones(5), right),
        lambda: shmem.ptr(there, me),
        lambda: shmem.p(there[:1], 1.0, me),
    ):
        with pytest.raises(
            shmem.NotSymmetricError, match=r"not symmetric: another PE's memory, as shmem\.ptr returns it; expected "
        ):
            call()
    shmem.barrier_all()


def test_a_pes_memory_through_ptr_is_a_source_like_any_other(npes):
    _, me, right = near_neighbours()
    block = shmem.full(3, me, dtype=torch.int64)
    copy = shmem.zeros(3, dtype=torch.int64)
    shmem.put(copy, shmem.ptr(block, right), me)
    shmem.quiet()
    assert copy.tolist() == [right] * 3
    shmem.barrier_all()


def test_ptr_refuses_pes_that_do_not_exist_and_private_memory(me, npes):
    block = shmem.zeros(5)
    refusals = dict.fromkeys((-1, npes), (shmem.OutOfRangeError, f"a PE from 0 to {npes - 1}"))
    refusals |= dict.fromkeys((None, "0", 0.5), (shmem.ArgumentError, "an int"))
    for pe, (error, wants) in refusals.items():
        with refuses("ptr", f"pe: got {pe!r}; expected {wants}$", error):
            shmem.ptr(block, pe)
    with refuses(
        "ptr",
        r"target: got a float32 array of shape \(5,\) that is not symmetric: private memory",
        shmem.NotSymmetricError,
    ):
        shmem.ptr(torch.zeros(5), me)


def test_pe_accessible_answers_for_anything(npes):
    assert all(shmem.pe_accessible(pe) for pe in range(npes)) and shmem.pe_accessible(np.int16(npes - 1))
    for pe in (-1, npes, 2**70, None, "0", 0.0, [0], np.array([0, 0])):
        assert shmem.pe_accessible(pe) is False


def test_addr_accessible_answers_for_any_address_and_any_pe(npes):
    block, freed = shmem.zeros(4, 5), shmem.zeros(4)
    shmem.free(freed)
    for part in (
        block,
        block[1],
        block[2:, 3],
        block.T,
        block[0, 0],
        foreign(block)[::-1, ::2],
        block.view(torch.uint8),
    ):
        assert shmem.is_symmetric(part) is True
        assert all(shmem.addr_accessible(part, pe) is True for pe in range(npes))
        assert not any(shmem.addr_accessible(part, pe) for pe in (-1, npes, None, "0"))
    beyond = stretched(block, (3, 20), (80, 4))  # runs on past the allocation
    rubbish = [torch.zeros(4), freed, np.zeros(3), [1], "x", None, 7, object(), torch.zeros(2).to_sparse(), np.array(["a"], object),
               torch.zeros(2, device="meta"), beyond, shmem.zeros(0), block[:0], shmem.TEAM_WORLD]  # fmt: skip
    for each in rubbish:
        assert shmem.is_symmetric(each) is False
        assert not any(shmem.addr_accessible(each, pe) for pe in (*range(npes), -1, None))


def test_an_address_for_c_and_the_array_at_it_are_the_same_memory(npes):
    block = shmem.arange(2 * npes, dtype=torch.int32)
    address = shmem.c_address(block[npes:])
    assert address == block.data_ptr() + 4 * npes
    again = shmem.from_address(address, (1, npes), torch.int32)
    assert shmem.is_symmetric(again) and again.tolist() == [list(range(npes, 2 * npes))]
    again[0, 0] = 7
    assert block[npes] == 7
    shmem.barrier_all()
    shmem.free(block)


def test_what_c_cannot_take_for_symmetric_memory_is_refused():
    block, private = shmem.zeros(4), torch.zeros(4)
    with refuses("c_address", "array: got .* that is not symmetric: private memory", shmem.NotSymmetricError):
        shmem.c_address(private)
    for address, size in ((private.data_ptr(), 4), (block.data_ptr(), 5), (block.data_ptr() + 2, 1)):
        with refuses(
            "from_address", f"address: got {4 * size} bytes at {address:#x}; expected live", shmem.NotSymmetricError
        ):
            shmem.from_address(address, size, torch.float32)
    for address, shape, error in ((1.5, 4, shmem.ArgumentError), (block.data_ptr(), -1, shmem.OutOfRangeError)):
        with pytest.raises(error, match="^from_address: PE "):
            shmem.from_address(address, shape, torch.float32)
    shmem.free(block)
