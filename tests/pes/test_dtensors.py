"""Partitioned tensors as DTensors of torch and back: placements against torch's own, on random meshes, without a copy."""

import itertools
import re

import hypothesis
import hypothesis.strategies as st
import pyshmem as shmem
import pyshmem.distributed  # adds the backend
import pytest
import torch
import torch.distributed as dist
from support import here, on_one_node, payload, refuses
from test_partitioned_meshes import distributions, made, shapes, whole
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

pytestmark = pytest.mark.skipif(not on_one_node(), reason="meshes of one node have all of it")
some = hypothesis.settings(max_examples=25)


@pytest.fixture(scope="module")
def meshes():
    """DeviceMeshes of all PEs, by their extents: torch makes groups for each."""
    dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
    n = shmem.n_pes()
    divisors = [each for each in range(1, n + 1) if n % each == 0]
    extents = [
        (n,),
        *((each, n // each) for each in divisors),
        *((2, each, n // 2 // each) for each in divisors if n // 2 % each == 0 and n % 2 == 0),
    ]
    ranks = torch.arange(n)
    yield {each: DeviceMesh(here().type, ranks.view(each)) for each in extents}
    shmem.barrier_all()
    dist.destroy_process_group()
    shmem.barrier_all()


def chunks(numbers, dims, extents, dim):
    """The indices of each place of a dimension, by torch's chunks of chunks."""
    parts = [numbers]
    for each, extent in zip(dims, extents, strict=True):
        if each == dim:
            pieces = [list(part.chunk(extent)) for part in parts]
            parts = [
                chunk
                for piece, part in zip(pieces, parts, strict=True)
                for chunk in [*piece, *[part[:0]] * extent][:extent]
            ]
    return parts


def is_one_cut(shape, dims, extents):
    """Whether each dimension is cut as by one axis: by axes in a row, into what one axis would cut."""
    long = [(each, extent) for each, extent in zip(dims, extents, strict=True) if extent > 1]
    runs = [dim for dim, _ in itertools.groupby(each for each, _ in long) if dim is not None]
    if len(set(runs)) < len(runs):
        return False
    for dim in set(runs):
        places = [extent for each, extent in long if each == dim]
        nested = chunks(torch.arange(shape[dim]), dims, extents, dim)
        flat = chunks(torch.arange(shape[dim]), [dim], [int(torch.tensor(places).prod())], dim)
        if any(len(one) != len(other) for one, other in zip(nested, flat, strict=True)):
            return False
    return True


def placed(dims):
    return tuple(Replicate() if each is None else Shard(each) for each in dims)


@some
@hypothesis.given(st.data(), shapes)
def test_placements_give_the_parts_that_torch_gives_and_the_dtensor_has_the_same_memory(meshes, data, shape):
    extents = data.draw(st.sampled_from(sorted(meshes)))
    dims = data.draw(st.lists(st.none() | st.integers(0, len(shape) - 1), min_size=len(extents), max_size=len(extents)))
    mesh, placements = meshes[extents], placed(dims)
    if not is_one_cut(shape, dims, extents):
        with pytest.raises(shmem.ArgumentError, match="partitioned: .*(follow each other|torch.chunk)"):
            shmem.partitioned(shape, mesh=mesh, dim=placements)
        return
    a = shmem.partitioned(shape, dtype=torch.float32, mesh=mesh, dim=placements)
    assert a.local.device.type == mesh.device_type
    a.scatter(whole(shape))
    dtensor, theirs = a.to_dtensor(mesh), distribute_tensor(whole(shape), mesh, placements)
    # an axis of one PE cuts nothing, whatever its placement is called
    assert [each for each, extent in zip(dtensor.placements, extents, strict=True) if extent > 1] == [
        each for each, extent in zip(placements, extents, strict=True) if extent > 1
    ]
    assert torch.equal(dtensor.to_local(), theirs.to_local()) and dtensor.shape == theirs.shape
    assert torch.equal(dtensor.full_tensor(), whole(shape))
    assert dtensor.to_local().untyped_storage().data_ptr() == a.local.untyped_storage().data_ptr()
    back = shmem.from_dtensor(dtensor)
    assert back.layout == a.layout and back.local.data_ptr() == a.local.data_ptr()
    dtensor.add_(1)
    assert torch.equal(back.gather(), whole(shape) + 1)
    a.free()


@some
@hypothesis.given(st.data(), shapes)
def test_a_layout_is_a_dtensor_where_torch_chunks_so_and_else_refused(meshes, data, shape):
    how = data.draw(distributions(shape))
    mesh = meshes[data.draw(st.sampled_from([each for each in sorted(meshes) if finer(each, how["mesh"])]))]
    a = made(shape, **how)
    parts = [
        [a.layout.cuts[dim].indices(place).tolist() for place in range(a.layout.cuts[dim].n_pes)]
        for dim in range(len(shape))
    ]
    try:
        dtensor = a.to_dtensor(mesh)
    except shmem.ArgumentError as error:
        assert re.match("to_dtensor: .*(redistribute with block=None|torch.chunk)", str(error))
        dims = of_axes(a.layout, tuple(mesh.shape))
        theirs = [chunks(torch.arange(extent), dims, mesh.shape, dim) for dim, extent in enumerate(shape)]
        assert parts != [[part.tolist() for part in each] for each in theirs]
    else:
        assert torch.equal(dtensor.full_tensor(), whole(shape)) and torch.equal(dtensor.to_local(), a.local)
    a.free()


def finer(extents, mesh):
    """Whether the axes of one mesh are those of the other, or parts of them."""
    ends = set(itertools.accumulate(extents, lambda a, b: a * b, initial=1))
    return ends.issuperset(itertools.accumulate(mesh, lambda a, b: a * b, initial=1))


def of_axes(layout, extents):
    """The dimension that each axis of a finer mesh cuts."""
    dims, ends = [], list(itertools.accumulate(layout.mesh, lambda a, b: a * b))
    for end in itertools.accumulate(extents, lambda a, b: a * b):
        dims.append(next(dim for dim, most in zip(layout.dims, ends, strict=True) if end <= most))
    return [None if extent == 1 else dim for dim, extent in zip(dims, extents, strict=True)]


def test_products_and_gradients_of_dtensors_on_symmetric_memory_equal_dense_ones(meshes, npes):
    half = next(each for each in (2, 3, 1) if npes % each == 0)
    mesh = meshes[npes // half, half]
    x, w = (payload(0, turn, 12 * 12, torch.float64).view(12, 12) / 100 for turn in (1, 2))
    a = shmem.partitioned((12, 12), dtype=torch.float64, mesh=mesh, dim=(Shard(0), Replicate()))
    b = shmem.partitioned((12, 12), dtype=torch.float64, mesh=mesh, dim=(Replicate(), Shard(1)))
    a.scatter(x)
    b.scatter(w)
    left, right = a.to_dtensor(mesh).requires_grad_(), b.to_dtensor(mesh).requires_grad_()
    product = (left @ right).relu()
    torch.testing.assert_close(product.full_tensor(), x @ w)
    product.square().sum().backward()
    torch.testing.assert_close(left.grad.full_tensor(), 2 * x @ w @ w.t())
    torch.testing.assert_close(right.grad.full_tensor(), 2 * x.t() @ x @ w)
    with torch.no_grad():
        left -= left.grad
    torch.testing.assert_close(a.gather(), x - 2 * x @ w @ w.t())


def test_rows_of_a_mesh_are_partitioned_tensors_of_their_teams(meshes, me, npes):
    half = next(each for each in (2, 3, 1) if npes % each == 0)
    mesh = DeviceMesh(here().type, torch.arange(npes).view(npes // half, half), mesh_dim_names=("dp", "tp"))
    for name in ("dp", "tp"):
        team = shmem.Team.from_group(mesh[name])
        a = shmem.partitioned((7, 3), mesh=mesh[name], dim=[Shard(0)], team=team)
        a.scatter(whole((7, 3), turn=int(team.start)) if team.my_pe() == 0 else None)
        dtensor = a.to_dtensor(mesh[name])
        assert torch.equal(dtensor.full_tensor(), whole((7, 3), turn=int(team.start)))
        assert shmem.from_dtensor(dtensor, team=team).layout == a.layout
        of_team = DeviceMesh.from_group(team.to_group(), here().type)  # the way from a team to a mesh
        assert torch.equal(a.to_dtensor(of_team).full_tensor(), dtensor.full_tensor())
        if npes // half > 1 and half > 1:
            with refuses("from_dtensor", f"mesh: got .* expected the {npes} PEs of .*TEAM_WORLD.* in their order"):
                shmem.from_dtensor(dtensor)
        shmem.barrier_all()
        team.destroy()


def test_dtensors_that_torch_makes_in_the_pool_are_partitioned_tensors(meshes, npes):
    mesh = meshes[npes,]
    with shmem.pool(32 << 20):
        numbers = whole((2 * npes, 3)).clone()
        local = numbers[2 * shmem.my_pe() :][:2].clone()
    a = shmem.from_dtensor(DTensor.from_local(local, mesh, [Shard(0)]))
    assert torch.equal(a.gather(), whole((2 * npes, 3)))
    with refuses("free", "tensor: got one of from_dtensor; expected the tensor or pool that has the memory"):
        a.free()


def test_what_is_no_layout_is_refused_by_name_and_changes_nothing(meshes, me, npes):
    mesh = meshes[npes,]
    a = made((2 * npes + 2, 4), block=1)
    if npes > 1:
        with refuses("to_dtensor", "layout: got dimension 0 in cyclic blocks of 1; expected .*block=None"):
            a.to_dtensor(mesh)
        with refuses("from_dtensor", r"placements: got Partial\(sum\); expected Shard and Replicate; redistribute .*"):
            shmem.from_dtensor(DTensor.from_local(torch.ones(4), mesh, [Partial()]))
        with refuses("partitioned", r"placements: got _Strided.*; expected Shard and Replicate; .*"):
            shmem.partitioned((npes, npes), mesh=mesh, dim=[_StridedShard(0, split_factor=2)])
        backwards = DeviceMesh(here().type, torch.arange(npes).flip(0))
        if me != npes - 1 - me:
            wants = f"number {npes - 1 - me}; expected the {npes} PEs of .* in their order"
            with refuses("to_dtensor", f"mesh: got DeviceMesh.*{wants}"):
                a.to_dtensor(backwards)
    with refuses(
        "from_dtensor", "dtensor: got local tensors in other memory; expected .*to_dtensor.*", shmem.NotSymmetricError
    ):
        shmem.from_dtensor(distribute_tensor(whole((4, 4)), mesh, [Shard(0)]))
    with refuses("from_dtensor", "dtensor: got a Tensor; expected a DTensor of torch"):
        shmem.from_dtensor(a.local)
    with refuses("to_dtensor", "mesh: got 3; expected a DeviceMesh of torch"):
        a.to_dtensor(3)
    with refuses("partitioned", "block: got 2; expected None with placements.*"):
        shmem.partitioned((4, 4), mesh=mesh, dim=[Shard(0)], block=2)
    with refuses("partitioned", "dim: got 2; expected a dimension from 0 to 1", shmem.OutOfRangeError):
        shmem.partitioned((4, 4), mesh=mesh, dim=[Shard(2)])
    with refuses("redistribute", "placements: got 2 placements; expected one for each of the 1 axes of the mesh"):
        a.redistribute(mesh=mesh, dim=[Shard(0), Replicate()])
    assert torch.equal(
        a.redistribute(mesh=mesh, dim=[Shard(0)]).to_dtensor(mesh).full_tensor(), whole((2 * npes + 2, 4))
    )
