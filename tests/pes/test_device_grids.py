"""Kernels without a context by hand, and grids whose programs are run by the PEs that own their tiles."""

import hypothesis
import hypothesis.strategies as st
import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from support import assert_same, guarded, interpreted, neighbours, refuses, untouched
from team_shapes import group  # noqa: F401

pytestmark = pytest.mark.usefixtures("beside_the_heap")
few = hypothesis.settings(max_examples=6)


@shmem.jit
def away(steps):
    return (dev.my_pe() + steps) % dev.n_pes()


@shmem.jit
def pass_on(target, source, flag, told, n):
    """Right: the data and a signal. Then what the kernel knows of its team, and of one that it names."""
    dev.put_signal(target, source, n, flag, 1, dev.SIGNAL_ADD, away(1))
    dev.signal_wait_until(flag, dev.CMP_GE, 1)
    tl.store(told, dev.my_pe())
    tl.store(told + 1, dev.n_pes())
    tl.store(told + 2, away(dev.n_pes() - 1))


def test_calls_without_a_context_are_made_in_the_team_of_the_launch(group, me):
    team, pes = group
    target, whole = guarded(5, torch.int32)
    source, flag = torch.full((5,), me, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64)
    told = torch.full((3,), -1, dtype=torch.int32)
    if team:
        number, size = team.my_pe(), team.n_pes()
        pass_on.on(team)[(1,)](target, source, flag, told, 5)
        assert told.tolist() == [number, size, (number - 1) % size]
        assert (target == pes[(number - 1) % size]).all()
    shmem.barrier_all()
    assert untouched(whole[5:])


def test_the_world_is_the_team_of_a_launch_that_names_none(me, npes):
    left, _, _ = neighbours()
    target, flag = shmem.zeros(5, dtype=torch.int32), shmem.zeros(1, dtype=torch.uint64)
    told = torch.full((3,), -1, dtype=torch.int32)
    for start in (pass_on[(1,)], pass_on[shmem.grid(1)]):
        flag.zero_()
        shmem.barrier_all()
        start(target, torch.full((5,), me, dtype=torch.int32), flag, told, 5)
        assert told.tolist() == [me, npes, left] and (target == left).all()
        shmem.barrier_all()


@shmem.jit
def both(part, other, told):
    tl.store(told, dev.n_pes())
    tl.store(told + 1, dev.n_pes(part.ctx))
    tl.store(told + 2, dev.n_pes(ctx=other))


@shmem.jit(do_not_specialize=["number"])
def named(ctx, told, number):
    """A kernel with a context of its own is one of triton.jit, and may call those without."""
    tl.store(told, dev.n_pes(ctx) + away(ctx, number) * 0)


def test_a_call_may_name_another_context(npes):
    team = shmem.TEAM_WORLD.split_strided(0, 1, 1 + (npes > 1))
    told, part = torch.zeros(3, dtype=torch.int32), shmem.partitioned((4,), team=team)
    if team:
        both[(1,)](part, shmem.device_context(team), told)
        assert told.tolist() == [npes, team.n_pes(), team.n_pes()]
        named[(1,)](shmem.device_context(team), told, 1)
        assert told[0] == team.n_pes()
    team.destroy()


@shmem.jit
def count_tiles(part, B0: tl.constexpr, B1: tl.constexpr, DIMS: tl.constexpr):
    """Add 1 + this PE's number to each element of this program's tile, by its indices in the whole tensor."""
    if DIMS == 1:
        row, _ = dev.my_tile(part, B0)
        i = row + tl.arange(0, B0)
        dev.atomic_add_at(part, i, 0, 1 + dev.my_pe(), mask=i < part.rows)
    else:
        row, col = dev.my_tile(part, B0, B1)
        i, j = row + tl.arange(0, B0)[:, None], col + tl.arange(0, B1)[None, :]
        dev.atomic_add_at(part, i, j, 1 + dev.my_pe(), mask=(i < part.rows) & (j < part.cols))


@st.composite
def grids(draw, dims):
    """(shape, the arguments of partitioned, tile): blocks are whole tiles, or there is one block for each PE."""
    tile = tuple(draw(st.lists(st.sampled_from([1, 2, 4]), min_size=dims, max_size=dims)))
    block = tuple(extent * draw(st.integers(1, 3)) for extent in tile)
    shape = tuple(draw(st.lists(st.integers(1, 20), min_size=dims, max_size=dims)))
    rows = draw(st.sampled_from([each for each in range(1, shmem.n_pes() + 1) if shmem.n_pes() % each == 0]))
    mesh = draw(st.sampled_from([None, (rows, shmem.n_pes() // rows)])) if dims == 2 else None
    dim = draw(st.sampled_from(range(dims))) if mesh is None else draw(st.permutations((0, 1)))
    return shape, {"mesh": mesh, "dim": dim, "block": block}, tile


@few
@hypothesis.given(st.data(), st.sampled_from([1, 2]))
def test_each_tile_of_a_grid_is_made_once_and_by_its_owner(data, dims):
    shape, how, tile = data.draw(grids(dims))
    part = shmem.partitioned(shape, dtype=torch.int32, **how)
    programs = tuple(map(triton.cdiv, shape, tile))
    count_tiles[shmem.grid(programs, partition=part)](part, *(*tile, 1)[:2], dims)
    assert (part.local == 1 + shmem.my_pe()).all()
    shmem.barrier_all()
    part.free()


@shmem.jit
def number_tiles(part, B: tl.constexpr):
    i, j, k = dev.my_tile(part, (B, B, B))
    dev.store_tile(part, (i, j, k), tl.zeros((B, B, B), tl.int32) + (i * 10000 + j * 100 + k).to(tl.int32))


def test_grids_of_three_dimensions_and_of_a_function_of_the_arguments(npes):
    half = next(each for each in (2, 3, 1) if npes % each == 0)
    part = shmem.partitioned((8, 6, 4), dtype=torch.int32, mesh=(half, npes // half), dim=(2, 0), block=2)
    by_tiles = shmem.grid(lambda given: tuple(extent // given["B"] for extent in (8, 6, 4)), partition=part)
    number_tiles[by_tiles](part, B=2)
    i, j, k = torch.meshgrid(*(torch.arange(extent) // 2 * 2 for extent in (8, 6, 4)), indexing="ij")
    assert_same(part.gather().cpu(), (i * 10000 + j * 100 + k).int())
    shmem.launch(number_tiles, by_tiles, part, B=1)
    i, j, k = torch.meshgrid(*map(torch.arange, (8, 6, 4)), indexing="ij")
    assert_same(part.gather().cpu(), (i * 10000 + j * 100 + k).int())


def test_only_the_members_of_the_partitions_team_run_its_grid(npes):
    team = shmem.TEAM_WORLD.split_strided(0, 2, -(-npes // 2))
    part = shmem.partitioned((7, 3), dtype=torch.int32, team=team, block=2)
    if team:
        count_tiles[shmem.grid((4, 1), partition=part)](part, 2, 4, 2)
        assert (part.local == 1 + shmem.my_pe()).all() or team.my_pe() != shmem.my_pe()
        with refuses("launch", "team: got .*; expected that of the grid's partition, .*"):
            count_tiles.on(shmem.TEAM_SHARED)[shmem.grid((4, 1), partition=part)](part, 2, 4, 2)
    shmem.barrier_all()


def test_grids_that_are_not_of_the_tensors_tiles_are_refused(npes):
    part = shmem.partitioned((12 * npes, 4), block=6)
    plane = shmem.partitioned((4, 4), dim=1)
    for made, programs, words in (
        (part, (5 * npes, 1), f"programs: got {5 * npes} programs along axis 0; expected {12 * npes} indices, divided by the extent of a tile that divides blocks of 6"),
        (plane, 1, r"programs: got \(1,\); expected a count for dimension 1 too, which is distributed"),
    ):  # fmt: skip
        if npes > 1:
            with refuses("grid", words):
                count_tiles[shmem.grid(programs, partition=made)](part, 1, 1, 2)
    with refuses("grid", "partition: got Tensor; expected a PartitionedTensor, or None"):
        shmem.grid(1, partition=part.local)
    with refuses("jit", "function: got int; expected a function"):
        shmem.jit(3)


@interpreted
def test_a_program_beyond_a_pes_tiles_is_refused(me, npes):
    part = shmem.partitioned((4 * npes, 4), dtype=torch.int32, block=2)
    words = rf"my_tile: PE {me}: rows: got \d+; expected one from 0 to {4 * npes - 1} of the whole tensor"
    with pytest.raises(Exception, match=words):
        count_tiles[(3, 1)](part, 2, 4, 2)
