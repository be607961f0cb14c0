"""Tensors over meshes of PEs: layouts against ScaLAPACK's formulas, and what moves against a dense tensor."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyshmem as shmem
import pytest
import torch
from pyshmem.host.partitioned.copies import by_kernel
from pyshmem.host.partitioned.layout import layout_of
from support import DTYPES, assert_same, here, interpreted, live, name_of, on_one_node, payload, refuses

few = hypothesis.settings(max_examples=12)


@st.composite
def distributions(draw, shape):
    """The arguments mesh, dim and block of any distribution of ``shape`` over all PEs."""
    mesh, rest = [], shmem.n_pes()
    while rest > 1 or not mesh:
        mesh.append(
            draw(st.sampled_from([each for each in range(1 if len(mesh) < 2 else 2, rest + 1) if rest % each == 0]))
        )
        rest //= mesh[-1]
    dims = draw(st.permutations([*range(len(shape)), *[None] * len(mesh)]))[: len(mesh)]
    block = draw(st.lists(st.none() | st.integers(1, 5), min_size=len(shape), max_size=len(shape)))
    return {"mesh": tuple(mesh), "dim": tuple(dims), "block": tuple(block)}


shapes = st.lists(st.integers(0, 9) | st.just(8), min_size=1, max_size=4).map(tuple)


def whole(shape, dtype=torch.float32, turn=1):
    return payload(0, turn, int(np.prod(shape)), dtype).view(shape)


def made(shape, turn=1, dtype=torch.float32, **how):
    tensor = shmem.partitioned(shape, dtype=dtype, **how)
    tensor.scatter(whole(shape, dtype, turn) if shmem.my_pe() == 0 else None)
    return tensor


def own_part(layout, dense):
    """What this PE has of a dense tensor, element by element."""
    for dim, (cut, place) in enumerate(zip(layout.cuts, layout.owners(shmem.my_pe()), strict=True)):
        own = [i for i in range(cut.extent) if layout.owner(i, dim) == place]
        assert [layout.local_index(i, dim) for i in own] == list(range(layout.n_local(place, dim)))
        dense = dense.index_select(dim, torch.tensor(own, dtype=torch.long, device=dense.device))
    return dense


@few
@hypothesis.given(st.data(), shapes)
def test_every_pe_has_the_elements_that_the_layout_gives_it_and_gather_joins_them(data, shape):
    tensor = made(shape, **data.draw(distributions(shape)))
    assert_same(tensor.local.contiguous(), own_part(tensor.layout, whole(shape)).contiguous())
    assert_same(tensor.gather(), whole(shape))
    found = tensor.gather(shmem.n_pes() - 1)
    assert (found is None) == (shmem.my_pe() < shmem.n_pes() - 1)
    tensor.free()


@few
@hypothesis.given(st.data(), shapes)
def test_redistribute_gives_every_pe_its_part_of_the_same_tensor(data, shape):
    tensor, wanted = made(shape, 3, **data.draw(distributions(shape))), data.draw(distributions(shape))
    other = tensor.redistribute(**wanted)
    assert other.layout == layout_of("", shape, wanted["dim"], wanted["block"], wanted["mesh"], shmem.n_pes())
    assert_same(other.local.contiguous(), own_part(other.layout, whole(shape, turn=3)).contiguous())
    tensor.local.mul_(2)
    assert tensor.redistribute(out=other) is other
    assert_same(other.local.contiguous(), own_part(other.layout, whole(shape, turn=3) * 2).contiguous())
    other.free()
    tensor.free()


@pytest.mark.parametrize("block", [(7, 9), (10, 2), (1, 33), (180, 4)])
def test_redistribute_moves_runs_of_indices_and_lists_of_them(block, npes):
    half = next(each for each in (2, 3, 1) if npes % each == 0)
    tensor = made((180, 33), 5, mesh=(npes // half, half), block=(5, 2))
    other = tensor.redistribute(mesh=(half, npes // half), dim=(1, 0), block=block)
    assert_same(other.local.contiguous(), own_part(other.layout, whole((180, 33), turn=5)).contiguous())
    tensor.local.mul_(2)
    tensor.redistribute(out=other)
    assert_same(other.local.contiguous(), own_part(other.layout, whole((180, 33), turn=5) * 2).contiguous())
    other.free()
    with refuses("redistribute", "out: got .* its memory was freed; expected .*", shmem.NotSymmetricError):
        tensor.redistribute(out=other)
    other = shmem.partitioned((180, 33))
    tensor.free()
    with refuses("redistribute", "the tensor: got .* its memory was freed; expected .*", shmem.NotSymmetricError):
        tensor.redistribute(out=other)
    other.free()


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_redistribute_moves_every_dtype(dtype, npes):
    tensor = made((7, 6), dtype=dtype, block=(2, 1), mesh=(1, npes))
    for how in ({"dim": 0}, {"dim": 1, "block": 2}, {"mesh": (npes, 1), "block": (1, 1)}):
        assert_same(tensor.redistribute(**how).gather(), whole((7, 6), dtype))


def test_a_copy_of_a_part_on_the_reading_pe_is_the_one_that_is_read(me, npes):
    """Of one copy on every PE, each PE reads its own: they may differ here."""
    tensor = shmem.partitioned((3, 4), mesh=(npes,), dim=(None,))
    tensor.local.fill_(me)
    other = tensor.redistribute(dim=1)
    assert (other.local == me).all()
    assert_same(tensor.gather(), torch.full((3, 4), float(me), device=here()))


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """One folder for all PEs: PE 0's."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(str(tmp_path_factory.mktemp("parts")), 0)


@few
@hypothesis.given(st.data(), shapes)
def test_a_saved_tensor_is_loaded_in_any_layout(shared_folder, data, shape):
    tensor = made(shape, 4, torch.bfloat16, **data.draw(distributions(shape)))
    tensor.save(shared_folder)
    other = shmem.partitioned(shape, dtype=torch.bfloat16, **data.draw(distributions(shape)))
    other.load(shared_folder)
    assert_same(other.gather(), whole(shape, torch.bfloat16, 4))
    with pytest.raises(shmem.DtypeError, match="^load: .*folder: got bfloat16 elements; expected int16"):
        shmem.partitioned(shape, dtype=torch.int16).load(shared_folder)
    with pytest.raises(shmem.ArgumentError, match="^load: .*folder: got a tensor of shape"):
        shmem.partitioned((*shape, 1)[-4:] if len(shape) < 4 else shape[:3], dtype=torch.bfloat16).load(shared_folder)
    other.free()
    tensor.free()


def test_parts_that_fewer_pes_have_saved_are_loaded_by_all(shared_folder, npes):
    team = shmem.TEAM_WORLD.split_strided(0, 1, -(-npes // 2))
    few = shmem.partitioned((9, 5), dtype=torch.int32, team=team, block=2)
    if team:
        few.scatter(whole((9, 5), torch.int32) if team.my_pe() == 0 else None)
        few.save(shared_folder)
    shmem.barrier_all()
    all_of_them = shmem.partitioned((9, 5), dtype=torch.int32, dim=1)
    all_of_them.load(shared_folder)
    assert_same(all_of_them.gather(), whole((9, 5), torch.int32))
    team.destroy()


@hypothesis.given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_a_block_cyclic_dimension_is_scalapacks(n, nb, nprocs):
    """Its tool functions INDXG2P, INDXG2L, INDXL2G and NUMROC, with indices from 1 and process 0 first."""
    layout = layout_of("", (n,), 0, nb, (nprocs,), nprocs)
    for g in range(1, n + 1):
        owner, local = ((g - 1) // nb) % nprocs, nb * ((g - 1) // (nb * nprocs)) + (g - 1) % nb + 1
        assert (layout.owner(g - 1), layout.local_index(g - 1)) == (owner, local - 1)
        assert nprocs * nb * ((local - 1) // nb) + (local - 1) % nb + owner * nb + 1 == g
        assert layout.global_index(local - 1, owner) == g - 1
    for pe in range(nprocs):
        whole_blocks = n // nb
        numroc = whole_blocks // nprocs * nb
        numroc += nb if pe < whole_blocks % nprocs else n % nb if pe == whole_blocks % nprocs else 0
        assert layout.n_local(pe) == numroc


def test_pes_of_a_mesh_are_numbered_by_rows():
    layout = layout_of("", (8, 4), None, None, (2, 3), 6)
    assert [layout.place_of(pe) for pe in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [layout.pe_at(layout.place_of(pe)) for pe in range(6)] == list(range(6))
    assert str(layout).splitlines()[::6] == [
        "8 in blocks of 4 by 4 in blocks of 2 over 2x3 PEs",
        "PE 5: 4 to 7 by none",
    ]
    copies = layout_of("", (8, 4), (None, 1), None, (2, 3), 6)
    assert [copies.copy_near(pe, 4) for pe in range(6)] == [3, 4, 5, 3, 4, 5]
    assert copies.dim == 1 and layout.dim is None and copies.shape_of(4) == (8, 2)


REFUSED = [
    ({"mesh": (2, 0)}, r"mesh: got \(2, 0\); expected a tuple of ints, each 1 or more"),
    ({"mesh": (99, 7)}, r"mesh: got \(99, 7\); expected extents whose product is \d+, the PEs of the team"),
    ({"dim": (0, 1)}, r"dim: got \(0, 1\); expected a dimension or None for each of the 1 axes of the mesh"),
    ({"mesh": "all", "dim": (1, 1)}, r"dim: got \(1, 1\); expected each dimension cut by at most one axis of the mesh"),
    ({"block": (1, 2, 3)}, r"block: got \(1, 2, 3\); expected an int, or 2 of them, one a dimension"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "words"), REFUSED, ids=str)
def test_what_is_no_distribution_is_refused_and_nothing_is_allocated(how, words, npes):
    how = {**how, "mesh": (npes, 1)} if how.get("mesh") == "all" else how
    tensor, before = shmem.partitioned((4, 4)), None
    before = live()
    for name, call in (
        ("partitioned", lambda: shmem.partitioned((4, 4), **how)),
        ("redistribute", lambda: tensor.redistribute(**how)),
    ):
        with refuses(name, words, shmem.ShmemError):
            call()
    assert live() == before


def test_redistribute_refuses_what_does_not_fit(npes):
    tensor, other = shmem.partitioned((4, 4)), shmem.partitioned((4, 5))
    for out in (other, tensor, shmem.partitioned((4, 4), dtype=torch.int32), tensor.local):
        with refuses(
            "redistribute", r"out: got .*; expected another tensor of shape \(4, 4\), float32 elements and this team"
        ):
            tensor.redistribute(out=out)
    with refuses(
        "redistribute", "layout: got several descriptions; expected one of layout, out, or mesh, dim and block"
    ):
        tensor.redistribute(tensor.layout, dim=1)
    with refuses("redistribute", "how: got blocks; expected mesh, dim and block"):
        tensor.redistribute(blocks=1)
    with refuses("redistribute", r"layout: got one of \(4, 5\) over \d+ PEs; expected one of \(4, 4\) over"):
        tensor.redistribute(other.layout)
    with refuses(
        "owner", "dim: got None, for several dimensions; expected a dimension from 0 to 1", shmem.ArgumentError
    ):
        layout_of("", (4, 4), None, None, (npes, 1), npes).owner(0)


@interpreted
@few
@hypothesis.given(st.data(), shapes, st.sampled_from([torch.int8, torch.float16, torch.float32, torch.complex128]))
def test_the_kernel_for_gpu_memory_moves_what_redistribute_does(data, shape, dtype):
    """It stores to the others' parts or loads from them, by the layouts; here on CPU memory, where redistribute has no kernel."""
    from pyshmem.kernels import redistribution

    if not on_one_node():
        pytest.skip("kernels reach the parts of PEs of one node")
    tensor, other = (made(shape, 6, dtype, **data.draw(distributions(shape))) for _ in range(2))
    other.local.zero_()

    def launch(part, dims, parts, start, unit, push):
        grid, arguments = redistribution.arguments(part, dims, parts, start, unit, push)
        redistribution.move[grid](*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redistribution, "bound", launch)
        shmem.barrier_all()
        by_kernel(tensor.layout, other.layout, shmem.my_pe(), tensor._parts(), other._parts())
        shmem.barrier_all()
    assert_same(other.local.contiguous(), own_part(other.layout, whole(shape, dtype, 6)).contiguous())
    other.free()
    tensor.free()


@st.composite
def indices(draw, shape):
    """An int or a slice for each dimension, some of them left to ``...``."""
    each = []
    for extent in shape:
        low = draw(st.integers(-extent - 1, extent + 1))
        part = slice(low, draw(st.none() | st.integers(-extent - 1, extent + 2)), draw(st.none() | st.integers(1, 4)))
        each.append(draw(st.integers(-extent, extent - 1) if extent and draw(st.booleans()) else st.just(part)))
    left = draw(st.integers(0, len(each)))
    return (*each[:left], ...) if draw(st.booleans()) else tuple(each)


@few
@hypothesis.given(st.data(), shapes)
def test_slices_read_and_write_the_elements_that_a_dense_tensor_has_there(data, shape):
    dense = whole(shape, turn=6)
    tensor = made(shape, 6, **data.draw(distributions(shape)))
    first, second = data.draw(indices(shape)), data.draw(indices(shape))
    assert torch.equal(tensor[first], dense[first])
    shmem.barrier_all()
    if shmem.my_pe() == shmem.n_pes() - 1:  # one PE writes, to all owners and all copies
        tensor[first] = 100 + dense[first]
        shmem.quiet()
        tensor[second] = 7
    shmem.barrier_all()
    dense[first] = 100 + dense[first]
    dense[second] = 7
    assert_same(tensor.local.contiguous(), own_part(tensor.layout, dense).contiguous())
    assert_same(tensor[...], dense)
    tensor.free()


def test_slices_that_are_none_are_refused(npes):
    tensor = shmem.partitioned((4, 3))
    wants = "ints, slices with steps of 1 or more, and at most one ..."
    for index in ((0, 0, 0), slice(None, None, -1), 1.5, (..., ...), None):
        with refuses("slice", f"index: got .*; expected {wants}"):
            tensor[index]
    with refuses("slice", "index: got 4; expected an index of dimension 0, from 0 to 3", shmem.OutOfRangeError):
        tensor[4] = 1
    with pytest.raises(RuntimeError):
        tensor[0] = torch.zeros(2, device=here())
