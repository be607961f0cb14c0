"""Kernels of shmem.jit that name no context compile to the instructions of those that do, and launches over grids to own tiles."""

import re

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from compiling import TARGETS, array, cache_key, compile, context, instructions, specialise
from pyshmem.device.arch.fields import encoded, mesh_field
from pyshmem.device.partitioned import MESH, NONE, MeshPartition
from test_partitioned import partition

F32, I32, U64 = torch.float32, torch.int32, torch.uint64


@triton.jit
def ring_named(ctx, dest, source, flag, n, BLOCK: tl.constexpr):
    right = (dev.my_pe(ctx) + 1) % dev.n_pes(ctx)
    dev.put_signal(ctx, dest, source, n, flag, 1, dev.SIGNAL_ADD, right)
    dev.signal_wait_until(ctx, flag, dev.CMP_GE, 1)
    tile = tl.load(dest + tl.arange(0, BLOCK))
    tl.store(dest + tl.arange(0, BLOCK), dev.all_reduce(ctx, tile, "sum"))


@shmem.jit
def right_of():
    return (dev.my_pe() + 1) % dev.n_pes()


@shmem.jit
def ring_unnamed(dest, source, flag, n, BLOCK: tl.constexpr):
    dev.put_signal(dest, source, n, flag, 1, dev.SIGNAL_ADD, right_of())
    dev.signal_wait_until(flag, dev.CMP_GE, 1)
    tile = tl.load(dest + tl.arange(0, BLOCK))
    tl.store(dest + tl.arange(0, BLOCK), dev.all_reduce(tile, "sum"))


def text(kernel, target, args, **options):
    source, chosen = specialise(kernel, target, args, **options)
    compiled = compile(source, target=TARGETS[target], options=chosen.__dict__)
    found = compiled.asm["ptx" if target == "nvidia" else "amdgcn"]
    lines = "\n".join(instructions(found)).replace("unnamed", "named")
    return re.sub(r"BB_spin\d+", "BB_spin", lines)  # labels by their places in the file


def ring_arguments(target, **team):
    return [context(target, **team), array(F32), array(F32), array(U64), 64, 64]


@pytest.mark.parametrize("target", ["nvidia", "gfx942"])
def test_a_kernel_without_a_context_has_the_instructions_of_one_with_it(target):
    assert text(ring_unnamed, target, ring_arguments(target)) == text(ring_named, target, ring_arguments(target))


def test_one_binary_of_a_kernel_without_a_context_serves_all_pes_and_teams():
    teams = [{}, {"me": 3}, {"me": 1, "start": 2, "step": 2}]
    assert len({cache_key(ring_unnamed, "nvidia", ring_arguments("nvidia", **team)) for team in teams}) == 1


@shmem.jit
def fill(part, BM: tl.constexpr, BN: tl.constexpr):
    row, col = dev.my_tile(part, BM, BN)
    dev.store_tile(part, row, col, tl.zeros((BM, BN), tl.float32))


@shmem.jit
def fill_cube(part, B: tl.constexpr):
    i, j, k = dev.my_tile(part, (B, B, B))
    dev.store_tile(part, (i, j, k), tl.zeros((B, B, B), tl.float32))


def cube(target, me=0):
    """The partition of 64 x 64 x 64 elements over a mesh of 2 x 2 PEs that cuts the first two dimensions."""
    fields = {"shape": (64, 64, 64), "blocks": (16, 16, 64), "members": (2, 2, 1), "steps": (2, 1, 1)}
    return MeshPartition(
        context(target, me),
        array(F32),
        64,
        64,
        32 * 64,
        dim=MESH,
        only=NONE,
        copy=encoded(0),
        **{name: tuple(map(mesh_field, numbers)) for name, numbers in fields.items()},
        pitches=tuple(map(mesh_field, (32 * 64, 64, 1))),
    )


@pytest.mark.parametrize("target", TARGETS)
def test_programs_of_a_grid_store_their_own_tiles_16_bytes_at_once(target):
    wide = r"st\.global.*v4" if target == "nvidia" else r"(global|flat)_store_dwordx4"
    for kernel, args in ((fill, [partition(target), 16, 64]), (fill_cube, [cube(target), 16])):
        lines = text(kernel, target, [context(target), *args]).splitlines()
        stores = [line for line in lines if re.search(r"st\.global|(global|flat)_store", line)]
        assert stores and all(re.search(wide, line) for line in stores), stores


def test_one_binary_serves_all_pes_of_a_grid():
    for kernel, made, rest in ((fill, partition, [16, 64]), (fill_cube, cube, [16])):
        keys = {cache_key(kernel, "nvidia", [context("nvidia", me), made("nvidia", me), *rest]) for me in (0, 1, 3)}
        assert len(keys) == 1
