"""Defaults, with-statements and ends of objects as users of shmem4py expect them."""

import numpy as np
import pytest
import pyshmem as shmem
import torch
from support import refuses


def test_reduce_adds_by_default(npes):
    target = shmem.zeros(3, dtype=torch.int64)
    shmem.reduce(target, shmem.ones(3, dtype=torch.int64))
    assert target.tolist() == [npes] * 3


def test_iput_and_iget_copy_all_of_source_by_default(me, npes):
    right = (me + 1) % npes
    target, source = shmem.zeros(6, dtype=torch.int64), shmem.arange(5) + 10 * me
    shmem.iput(target, source, right)
    shmem.barrier_all()
    left = (me - 1) % npes
    assert target.tolist() == [*(10 * left + i for i in range(5)), 0]
    shmem.barrier_all()
    shmem.iput(target, source, right, 1, 2)  # elements 0, 2 and 4
    shmem.barrier_all()
    assert target[:3].tolist() == [10 * left, 10 * left + 2, 10 * left + 4]
    copy = torch.zeros(5, dtype=torch.int64, device=target.device)
    symmetric = shmem.array(source)
    shmem.iget(copy, symmetric, right)
    assert copy.tolist() == [10 * right + i for i in range(5)]


def test_iput_begins_at_a_view_of_one_element_as_in_c(me, npes):
    target, source = shmem.zeros(8, dtype=torch.int64), shmem.arange(8)
    shmem.iput(target[1:2], source[3:4], (me + 1) % npes, 3, 2, 3)
    shmem.barrier_all()
    assert target.tolist() == [0, 3, 0, 0, 5, 0, 0, 7]
    with pytest.raises(shmem.OutOfRangeError, match=r"source: got 5 elements; expected at least 7"):
        shmem.iput(target, source[3:4], me, 1, 2, 4)


def test_alltoalls_exchanges_all_of_source_by_default(me, npes):
    target, source = shmem.zeros(2 * npes, dtype=torch.int64), shmem.array(torch.arange(2 * npes) + 100 * me)
    shmem.alltoalls(target, source)
    assert target.tolist() == [100 * pe + 2 * me + i for pe in range(npes) for i in (0, 1)]


def test_translate_pe_is_of_this_pe_into_the_world_by_default(me, npes):
    odd = shmem.TEAM_WORLD.split_strided(npes - 1, -1)
    assert odd.translate_pe() == me and odd.translate_pe(0) == npes - 1
    assert shmem.TEAM_WORLD.translate_pe(team=odd) == npes - 1 - me
    assert shmem.TEAM_INVALID.translate_pe() == -1


def test_with_destroys_teams_and_contexts():
    with shmem.TEAM_WORLD.split_strided() as team, team.create_ctx() as ctx:
        assert team and ctx
    assert not team and not ctx


def test_a_destroyed_context_equals_the_invalid_one_and_live_ones_only_themselves():
    first, second = shmem.Ctx.create(), shmem.Ctx.create()
    assert first == first and first != second and first != shmem.CTX_DEFAULT and first != shmem.CTX_INVALID
    assert len({first, second, shmem.CTX_INVALID}) == 3
    first.destroy()
    assert first == shmem.CTX_INVALID and first != second and first != 0
    second.destroy()


@pytest.mark.parametrize("value", [np.arange(3), [1, 2], torch.arange(2)], ids=["numpy", "list", "torch"])
def test_full_with_an_array_is_refused(value):
    with pytest.raises(
        shmem.ArgumentError, match=r"full: PE \d+: fill_value: got .* elements; expected one number; shmem.array"
    ):
        shmem.full(3, value)


@pytest.mark.parametrize("size", [((2, 3), "i"), (3, torch.int64), ((2,), np.float32), ("f",)])
def test_a_dtype_among_the_sizes_is_told_its_name(size):
    with refuses("zeros", "size: got .*; expected ints, or one tuple .*dtype="):
        shmem.zeros(*size)


def test_constants_have_the_names_of_kernels():
    assert [getattr(shmem, f"CMP_{each.name}") for each in shmem.CMP] == list(shmem.CMP)
    assert (shmem.SIGNAL_SET, shmem.SIGNAL_ADD) == (shmem.SIGNAL.SET, shmem.SIGNAL.ADD)


def test_align_beyond_the_heap_does_not_fit_and_hints_may_be_any_int():
    from pyshmem import shmem as c

    with pytest.raises(shmem.HeapExhaustedError, match=rf"alignment: got {1 << 50}; expected at most "):
        shmem.align(1 << 50, 64)
    assert c.shmem_align(1 << 50, 64) is None
    for hints in (-1, 1 << 40):
        shmem.free(shmem.malloc_with_hints(8, hints))
