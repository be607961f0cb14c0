"""shmem.partitioned: who has which part, the whole written and read by one PE or all, and the memory behind it."""

import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyshmem as shmem
import pytest
import torch
from pyshmem.host.partitioned.layout import Cut, layout_of
from support import DTYPES, assert_same, from_pe, here, live, name_of, payload, refuses, work
from team_shapes import SHAPES

SHAPES_OF_TENSORS = [(12, 5), (1, 3), (3, 7), (13,), (0, 4), (6, 0)]
CUTS = st.builds(Cut, st.integers(0, 60), st.integers(1, 30), st.integers(1, 9))


def whole(shape, dtype, turn=1, device=None):
    """A tensor whose elements tell their place in it, the same on all PEs."""
    return payload(0, turn, int(np.prod(shape)), dtype, device).view(shape)


@hypothesis.given(CUTS)
def test_a_cut_gives_every_index_to_one_pe_at_one_place(layout):
    places = [(layout.owner(i), layout.local_index(i)) for i in range(layout.extent)]
    assert sorted(places) == [(pe, i) for pe in range(layout.n_pes) for i in range(layout.n_local(pe))]
    assert [layout.global_index(number, pe) for pe, number in places] == list(range(layout.extent))
    assert [layout.global_index(i, 0) for i in range(layout.n_local(0))] == layout.indices(0).tolist()


@hypothesis.given(CUTS)
def test_a_layouts_blocks_go_round_the_pes_in_order(layout):
    for i in range(layout.extent):
        assert (
            layout.owner(i)
            == [pe for pe in range(layout.n_pes) for _ in range(layout.block)][i % (layout.block * layout.n_pes)]
        )
    assert layout.n_local(0) == max(layout.n_local(pe) for pe in range(layout.n_pes)) <= layout.rounds * layout.block


def test_a_layout_says_who_has_what():
    assert (
        str(layout_of("", (10,), None, 4, None, 3))
        == "10 in blocks of 4 over 3 PEs\nPE 0: 0 to 3\nPE 1: 4 to 7\nPE 2: 8 to 9"
    )
    assert str(layout_of("", (9,), None, 1, None, 2)).endswith(
        "\nPE 0: 0 to 0, 2 to 2, 4 to 4, 6 to 6, ...\nPE 1: 1 to 1, 3 to 3, 5 to 5, 7 to 7"
    )
    assert str(layout_of("", (2,), None, 1, None, 3)).endswith("\nPE 2: none")


@pytest.mark.parametrize("call", [("owner", 10), ("owner", -1), ("local_index", 10), ("n_local", 3), ("n_local", -1),
                                  ("global_index", 4, 0), ("global_index", 2, 2), ("global_index", -1, 0)], ids=str)  # fmt: skip
def test_a_layout_refuses_what_is_not_there(call):
    name, *arguments = call
    with refuses(name, r"\w+: got -?\d+; expected ", shmem.OutOfRangeError):
        getattr(layout_of("", (10,), None, 4, None, 3), name)(*arguments)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("block", [None, 1, 2, 100])
@pytest.mark.parametrize("shape", SHAPES_OF_TENSORS, ids=str)
def test_partitioned_scatters_to_where_the_layout_says_and_gathers_the_same(shape, block, dim, me, npes):
    if dim == 1 and len(shape) == 1:
        return
    root, dtype = npes - 1, torch.float32
    tensor = shmem.partitioned(shape, dtype=dtype, dim=dim, block=block)
    layout, axis = tensor.layout, dim % len(shape)
    assert tensor.shape == shape and layout.dim == axis and not tensor.local.any()
    tensor.scatter(whole(shape, dtype, 5) if me == root else None, root)
    indices = [layout.global_index(i, me) for i in range(layout.n_local(me))]
    assert_same(
        tensor.local.contiguous(),
        whole(shape, dtype, 5).index_select(axis, torch.tensor(indices, dtype=torch.long, device=here())),
    )
    assert_same(tensor.gather(), whole(shape, dtype, 5))
    tensor.local.mul_(2)
    found = tensor.gather(root)
    assert (found is None) == (me != root)
    if me == root:
        assert_same(found, whole(shape, dtype, 5) * 2)
    tensor.free()


def test_partitioned_without_a_block_gives_each_pe_one(npes):
    tensor = shmem.partitioned((4 * npes + 1, 2))
    assert tensor.layout.cuts == (Cut(4 * npes + 1, -(-(4 * npes + 1) // npes), npes), Cut(2, 2, 1))
    assert tensor.dtype is torch.get_default_dtype()


def test_a_block_larger_than_the_tensor_is_the_tensors():
    assert shmem.partitioned((3, 2), block=1 << 50).layout.cuts[0].block == 3
    assert shmem.partitioned((0, 2), block=1 << 50).layout.cuts[0].block == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_partitioned_moves_every_dtype(dtype, me):
    tensor = shmem.partitioned((5, 6), dtype=dtype, dim=1, block=1)
    tensor.scatter(whole((5, 6), dtype) if me == 0 else None)
    assert_same(tensor.gather(), whole((5, 6), dtype))


def test_scatter_takes_any_array_of_the_tensors_shape_and_type(me):
    tensor = shmem.partitioned((7, 4), dtype=torch.int32)
    local = whole((7, 4), torch.int32, 3, "cpu")
    read_only = local.numpy().copy()
    read_only.flags.writeable = False
    for source in (local.numpy(), read_only, local.numpy()[::-1], local.T.contiguous().T, local):
        tensor.scatter(source if me == 0 else None)
        assert_same(
            tensor.gather().cpu(), source if isinstance(source, torch.Tensor) else torch.from_numpy(source.copy())
        )


def test_gather_sees_what_all_have_written_before_and_no_more(me, npes):
    """PEs come late, and write on as soon as they are back."""
    tensor = shmem.partitioned((npes, 3), dtype=torch.int64)
    for turn in range(20):
        tensor.local.fill_(100 * turn + me)
        if me == turn % npes:
            work(5000)
        found = tensor.gather()
        tensor.local.fill_(-1)
        assert found[:, 0].tolist() == [100 * turn + pe for pe in range(npes)]


def test_scatter_writes_nothing_before_all_have_called_and_all_is_there_on_return(me, npes):
    tensor = shmem.partitioned((npes, 3), dtype=torch.int64)
    for turn in range(1, 21):
        if me == turn % npes:
            work(5000)
        assert (tensor.local == 1000 * (turn - 1)).all()
        root = (turn + 1) % npes
        tensor.scatter(torch.full((npes, 3), 1000 * turn, device=here()) if me == root else None, root)
        assert (tensor.local == 1000 * turn).all()


@pytest.mark.parametrize("name", SHAPES)
def test_partitioned_over_a_team_counts_its_pes(name, npes):
    start, stride, size = SHAPES[name](npes)
    team = shmem.TEAM_WORLD.split_strided(start, stride, size)
    before = live()
    tensor = shmem.partitioned((11, 2), dtype=torch.int32, block=2, team=team)
    if team:
        assert tensor and tensor.layout.n_pes == size
        tensor.scatter(whole((11, 2), torch.int32, 4) if team.my_pe() == size - 1 else None, size - 1)
        assert_same(tensor.gather(), whole((11, 2), torch.int32, 4))
    else:
        assert not tensor and tensor.local.numel() == 0
        with refuses("gather", "team: got .*; expected a team this PE is in"):
            tensor.gather()
    tensor.free()
    assert live() == before
    team.destroy()


def test_every_team_of_split_2d_has_a_tensor_of_its_own(me, npes):
    """The last row may be short: then its PEs have larger parts, and every PE the memory that those need."""
    row, column = shmem.TEAM_WORLD.split_2d(2)
    before = live()
    tensor = shmem.partitioned((8, 3), dtype=torch.int16, team=row)
    tensor.scatter(whole((8, 3), torch.int16, me) if row.my_pe() == 0 else None)
    assert_same(tensor.gather(), whole((8, 3), torch.int16, me - row.my_pe()))
    after_it = shmem.zeros(1)
    assert from_pe(after_it, (me + 1) % npes).item() == 0  # at the same place on every PE
    shmem.free(after_it)
    tensor.free()
    assert live() == before
    row.destroy()
    column.destroy()


def test_the_parts_are_at_one_place_on_all_pes_and_may_be_put_to(me, npes):
    tensor = shmem.partitioned((2 * npes, 3), dtype=torch.int32)
    shmem.put(tensor.local, whole((2, 3), torch.int32, me), (me + 1) % npes)
    shmem.barrier_all()
    assert_same(tensor.local.clone(), whole((2, 3), torch.int32, (me - 1) % npes))


REFUSED = [
    (shmem.ArgumentError, {"shape": (1, 2, 3, 4, 5)}, r"shape: got \(1, 2, 3, 4, 5\); expected one to four extents"),
    (shmem.ArgumentError, {"shape": ()}, r"shape: got \(\); expected one to four extents"),
    (shmem.OutOfRangeError, {"shape": (-1, 2)}, "size: got -1; expected 0 or more"),
    (shmem.OutOfRangeError, {"shape": 5, "dim": 1}, "dim: got 1; expected a dimension from 0 to 0"),
    (shmem.OutOfRangeError, {"shape": (2, 2), "dim": "rows"}, "dim: got 'rows'; expected a dimension from 0 to 1"),
    (shmem.OutOfRangeError, {"shape": (2, 2), "block": 0}, "block: got 0; expected 1 or more"),
    (shmem.ArgumentError, {"shape": (2, 2), "block": 1.5}, "block: got 1.5; expected an int"),
    (shmem.ArgumentError, {"shape": (2, 2), "team": "world"}, "team: got str; expected a Team"),
    (shmem.ArgumentError, {"shape": (2, 2), "device": "disk"}, "device: got 'disk'; expected "),
    (shmem.DtypeError, {"shape": (2, 2), "dtype": "U5"}, "dtype: got "),
    (shmem.HeapExhaustedError, {"shape": (1 << 40, 2)}, "size: got "),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "words"), REFUSED, ids=str)
def test_partitioned_refuses_what_makes_no_tensor(kind, arguments, words):
    before = live()
    with refuses("partitioned", words, kind):
        shmem.partitioned(**arguments)
    assert live() == before


def test_scatter_and_gather_refuse_before_anybody_waits(me, npes):
    tensor = shmem.partitioned((4, 3), dtype=torch.float32)
    for root in (-1, npes):
        words = rf": PE {me}: root: got {root}; expected a PE from 0 to {npes - 1} "
        with pytest.raises(shmem.OutOfRangeError, match="^scatter" + words):
            tensor.scatter(None, root)
        with pytest.raises(shmem.OutOfRangeError, match="^gather" + words):
            tensor.gather(root)
    cases = [
        (shmem.ArgumentError, torch.zeros(3, 4), "an array of shape (3, 4); expected one of (4, 3)"),
        (shmem.DtypeError, torch.zeros(4, 3).double(), "float64 elements; expected float32"),
        (shmem.DtypeError, np.zeros((4, 3)), "float64 elements; expected float32"),
        (shmem.ArgumentError, None, "a NoneType; expected a torch tensor or a NumPy array"),
    ]
    for kind, source, words in cases:
        with refuses("scatter", f"source: got {re.escape(words)}", kind):
            tensor.scatter(source, me)
    assert not tensor.local.any()


def test_free_gives_the_memory_back_and_refuses_a_second_time():
    before = live()
    tensor = shmem.partitioned((8, 8))
    tensor.free()
    assert live() == before
    with pytest.raises(shmem.NotSymmetricError, match=r"^free: "):
        tensor.free()
