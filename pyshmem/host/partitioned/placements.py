"""Layouts as torch's placements on a DeviceMesh, and the other way round.

torch is asked for its classes when they are needed: programs without DTensors do not wait for their import.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.partitioned.layout import Cut, Layout, dimension_of, layout_of
from pyshmem.host.teams import Team

Axes = list[tuple[int | None, int]]  # of a mesh: the dimension that each one cuts, or None, and its extent


def described(routine: str, shape: tuple[int, ...], dim: Any, block: Any, mesh: Any, team: Team) -> Layout:
    """Return the layout that the arguments of shmem.partitioned describe. Errors: ArgumentError, OutOfRangeError."""
    if is_device_mesh(mesh):
        require_members(routine, mesh, team)
        mesh = tuple(mesh.shape)
    if not isinstance(dim, (tuple, list)) or not any(hasattr(each, "is_replicate") for each in dim):
        return layout_of(routine, shape, dim, block, mesh, team.size)
    if block is not None:
        refuse(ArgumentError, routine, "block", repr(block), "None with placements of torch, which know no other")
    extents = layout_of(routine, shape, None, None, mesh, team.size).mesh
    return layout_placed(routine, shape, extents, dim)


def is_device_mesh(mesh: Any) -> bool:
    """Return whether ``mesh`` is a DeviceMesh of torch."""
    return hasattr(mesh, "get_coordinate")


def require_members(routine: str, mesh: Any, team: Team) -> None:
    """Errors: ArgumentError unless ``mesh`` has the PEs of the team, in their order."""
    if not is_device_mesh(mesh):
        refuse(ArgumentError, routine, "mesh", repr(mesh), "a DeviceMesh of torch")
    place, found = mesh.get_coordinate(), 0
    for index, extent in zip(place or (), mesh.shape, strict=bool(place)):
        found = found * extent + int(index)
    found = -1 if place is None else found
    if found != team.me or (team and mesh.size() != team.size):
        got = f"{mesh!r}, of {mesh.size()} processes, in which this PE is number {found}"
        refuse(ArgumentError, routine, "mesh", got, f"the {team.size} PEs of {team!r} in their order")


def layout_placed(routine: str, shape: tuple[int, ...], extents: tuple[int, ...], placements: Any) -> Layout:
    """Return the layout that torch's ``placements`` on a mesh of ``extents`` give to a tensor of ``shape``.

    Errors: ArgumentError for what no layout is: Partial, strided shards, and shards that are uneven in another way.
    """
    dims = [_dim_of(routine, each, len(shape)) for each in placements]
    if len(dims) != len(extents):
        wants = f"one for each of the {len(extents)} axes of the mesh"
        refuse(ArgumentError, routine, "placements", f"{len(dims)} placements", wants)
    axes = _joined(list(zip(dims, extents, strict=True)))
    cut = [dim for dim, _ in axes if dim is not None]
    if len(set(cut)) < len(cut):
        got = f"{tuple(placements)}, whose shards of one dimension are apart"
        refuse(ArgumentError, routine, "placements", got, "shards of one dimension on axes that follow each other")
    layout = layout_of(
        routine, shape, [dim for dim, _ in axes], None, [extent for _, extent in axes], math.prod(extents)
    )
    _require_chunks(routine, layout, dims, extents)
    return layout


def placements_of(routine: str, layout: Layout, extents: tuple[int, ...]) -> list[Any]:
    """Return the placements on a mesh of ``extents`` that distribute a tensor as ``layout`` does. Errors: ArgumentError."""
    from torch.distributed.tensor import Replicate, Shard

    for dim, cut in enumerate(layout.cuts):
        if cut.n_pes > 1 and cut.rounds > 1:
            got = f"dimension {dim} in cyclic blocks of {cut.block}"
            refuse(
                ArgumentError, routine, "layout", got, "one block for each PE of an axis: redistribute with block=None"
            )
    dims: list[int | None] = []
    axes = iter(_joined(list(zip(layout.dims, layout.mesh, strict=True))))
    axis: tuple[int | None, int] = (None, 1)  # and what is left of its extent
    for extent in extents:
        if axis[1] == 1 and extent > 1:
            axis = next(axes)
        which, left = axis
        if left % extent:
            wants = f"one that the axes of the layout's mesh {layout.mesh} make, or parts of them"
            refuse(ArgumentError, routine, "mesh", f"a DeviceMesh of {tuple(extents)}", wants)
        dims.append(which if extent > 1 else None)
        axis = which, left // extent
    _require_chunks(routine, layout, dims, extents)
    return [Replicate() if each is None else Shard(each) for each in dims]


def _dim_of(routine: str, placement: Any, dimensions: int) -> int | None:
    """The dimension that a placement cuts, None for Replicate."""
    if placement.is_replicate():
        return None
    if not placement.is_shard() or type(placement).__name__ != "Shard":
        wants = "Shard and Replicate; redistribute the DTensor to them first"
        refuse(ArgumentError, routine, "placements", repr(placement), wants)
    return dimension_of(routine, placement.dim, dimensions)


def _joined(axes: Axes) -> Axes:
    """The axes without those of one PE, neighbours that cut one dimension as one."""
    found: Axes = []
    for dim, extent in axes:
        if found and found[-1][0] == dim:
            found[-1] = dim, found[-1][1] * extent
        elif extent > 1:
            found.append((dim, extent))
    return found or [(None, 1)]


def _require_chunks(routine: str, layout: Layout, dims: list[int | None], extents: tuple[int, ...]) -> None:
    """Errors: ArgumentError unless each place has the indices that torch.chunk gives it, axis after axis."""
    for dim, cut in enumerate(layout.cuts):
        sizes = [cut.extent]
        for extent in (extent for each, extent in zip(dims, extents, strict=True) if each == dim):
            sizes = [Cut(size, max(-(-size // extent), 1), extent).n_local(i) for size in sizes for i in range(extent)]
        own = [cut.n_local(i) for i in range(cut.n_pes)]
        if sizes != own:
            wants = f"the {sizes} of torch.chunk"
            refuse(ArgumentError, routine, "layout", f"{own} indices of dimension {dim} on its PEs", wants)


def as_dtensor(mesh: Any, layout: Layout, local: torch.Tensor) -> Any:
    """Return the DTensor on ``mesh`` whose local tensor is ``local``. Errors: ArgumentError."""
    from torch.distributed.tensor import DTensor

    if mesh.device_type != local.device.type:
        wants = f"one of {local.device.type}, where the tensor is"
        refuse(ArgumentError, "to_dtensor", "mesh", f"a DeviceMesh of {mesh.device_type}", wants)
    placements = placements_of("to_dtensor", layout, tuple(mesh.shape))
    strides = [math.prod(layout.shape[dim + 1 :]) for dim in range(len(layout.shape))]
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=torch.Size(layout.shape), stride=tuple(strides)
    )
