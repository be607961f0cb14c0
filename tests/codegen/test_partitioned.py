"""Partitioned tensors compiled for GPUs: one binary for all PEs, 16 bytes an access, the peer's address in 64 bits."""

import functools

import pytest
import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from compiling import TARGETS, array, cache_key, compile, context, instructions, places, specialise
from pyshmem.device.arch.fields import encoded, mesh_field
from pyshmem.device.partitioned import MESH, NONE, MeshPartition, Partition
from test_compiles import kernel_of, refuse_spills
from test_widths import LOAD, STORE, WIDE, vendor
from triton.compiler.errors import CompilationError

F32, F16, I32 = torch.float32, torch.float16, torch.int32


@triton.jit
def copy_at(source, dest, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    col = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    here = (row < source.rows) & (col < source.cols)
    dev.store_at(dest, row, col, dev.load_at(source, row, col, here, 0.0), here)


@triton.jit
def copy_tile(source, dest, BM: tl.constexpr, BN: tl.constexpr):
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    dev.store_tile(dest, row, col, dev.load_tile(source, row, col, BM, BN))


@triton.jit
def copy_from_tile(source, out, BM: tl.constexpr, BN: tl.constexpr):
    """Through what locate says of the first element: what load_tile does, without its mask."""
    first, pe = dev.locate(source, tl.program_id(0) * BM, tl.program_id(1) * BN)
    places = tl.arange(0, BM)[:, None] * source.pitch + tl.arange(0, BN)[None, :]
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], dev.load(source.ctx, first + places, pe))


@triton.jit
def count(bins, values, BLOCK: tl.constexpr):
    dev.atomic_add_at(bins, tl.load(values + tl.arange(0, BLOCK)), 0, 1)


@triton.jit
def indices(part, out, index):
    pe = dev.owner(part, index)
    number = dev.local_index(part, index)
    tl.store(out, dev.global_index(part, number, pe) + dev.n_local(part, pe))
    tl.store(out + 1, dev.load_at(part, index) + dev.load_at(part, 0))


def partition(target, me=0, dtype=F32, dim=0, block=64, by_table=False, n_pes=4, shape=(1024, 512)):
    """The partition on PE ``me``, as PartitionedTensor.partition would be."""
    pitch = shape[1] if dim == 0 else -(-shape[1] // (block * n_pes)) * block
    return Partition(context(target, me, n_pes, by_table), array(dtype), *shape, block, pitch, tl.constexpr(dim))


def mesh_partition(target, me=0, dtype=F32, block=64, by_table=False, shape=(1024, 512)):
    """The partition on PE ``me`` of a mesh of 2 x 2."""
    room = tuple(-(-extent // (2 * block)) * block for extent in shape)
    return MeshPartition(
        context(target, me, 4, by_table), array(dtype), *shape, room[1], MESH, NONE, encoded(0),
        *(tuple(map(mesh_field, each)) for each in (shape, (block,) * 2, (2, 2), (2, 1), (room[1], 1))),
    )  # fmt: skip


@functools.cache
def listing(kernel, target, *args, **how):
    """Its instructions; "part" and "mesh" stand for partitions made as ``how`` says, a dtype for an array."""
    made = {"part": lambda: partition(target, **how), "mesh": lambda: mesh_partition(target, **how)}
    args = [
        made[each]() if isinstance(each, str) else array(each) if isinstance(each, torch.dtype) else each
        for each in args
    ]
    return compiled(kernel, target, *args)


def compiled(kernel, target, *args):
    source, options = specialise(kernel, target, args, num_warps=4)
    text = compile(source, target=TARGETS[target], options=options.__dict__).asm[
        "ptx" if target == "nvidia" else "amdgcn"
    ]
    refuse_spills(text, target)
    return instructions(text)


def narrow(lines, target):
    """The loads and stores of elements that are less than 16 bytes wide. Those of 8 are the table's."""
    kind = vendor(target)
    accesses = [lines[place] for pattern in (LOAD[kind], STORE[kind]) for place in places(lines, pattern)]
    assert len(accesses) > 1
    return [
        line for line in accesses if ".b64 {" not in line and "_dwordx2 " not in line and not places([line], WIDE[kind])
    ]


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("kernel", [copy_at, copy_tile], ids=lambda kernel: kernel.fn.__name__)
def test_elements_by_their_place_are_moved_16_bytes_an_access(kernel, dim, by_table, target):
    """Owners may differ from lane to lane there; in rows that are whole multiples of 16 elements."""
    assert not narrow(listing(kernel, target, "part", "part", 32, 64, dim=dim, by_table=by_table, dtype=F16), target)


@triton.jit
def copy_tile_across(source, dest, BM: tl.constexpr, BN: tl.constexpr):
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    dev.store_tile(dest, row, col, dev.load_tile(source, row, col, BM, BN, across=True), across=True)


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize("kernel", [copy_at, copy_tile, copy_tile_across], ids=lambda kernel: kernel.fn.__name__)
def test_elements_and_tiles_of_a_mesh_are_moved_16_bytes_an_access(kernel, by_table, target):
    assert not narrow(listing(kernel, target, "mesh", "mesh", 32, 64, by_table=by_table, dtype=F16), target)


def test_one_binary_serves_all_pes_of_a_mesh(target):
    keys = {cache_key(copy_tile, target, [*[mesh_partition(target, me)] * 2, 32, 64]) for me in range(4)}
    assert len(keys) == 1


def test_one_look_up_serves_a_tile_of_ones_own(target):
    assert not narrow(listing(copy_from_tile, target, "part", F32, 32, 64, dim=1), target)


def test_the_example_compiles_and_reads_16_bytes_an_access(target, tmp_path, monkeypatch):
    gemm = kernel_of("gemm_partitioned", "gemm", tmp_path, monkeypatch)
    args = [partition(target, dtype=dtype, block=32, shape=(256, 256)) for dtype in (F16, F16, F32)]
    assert not narrow(compiled(gemm, target, *args, 32, 64, 32), target)


@triton.jit
def one_owner(part, out, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(out + lane, dev.load(part.ctx, part.data + lane, tl.zeros([BLOCK], tl.int32)))


OTHERS = [
    (count, I32, I32, 256),
    (indices, torch.int64, torch.int64, 5),
    (copy_at, F32, "part", 16, 16),
    (copy_tile, F32, "part", 16, 16),
    (one_owner, F32, F32, 256),
]


@pytest.mark.parametrize("n_pes", [1, 4])
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case[0].fn.__name__)
def test_all_calls_compile_and_spill_nothing(case, n_pes, target):
    """On one PE too, where the compiler knows who every owner is."""
    kernel, dtype, *args = case
    listing(kernel, target, "part", *args, dtype=dtype, shape=(1000, 1), block=1, n_pes=n_pes)


def test_a_peers_part_may_be_further_away_than_an_array_can_be_large(amd):
    lines = listing(copy_tile, amd, "part", "part", 32, 64, dtype=F16)
    assert places(lines, r"_mul_hi_[iu]32|_mad_[iu]64_[iu]32")


@pytest.mark.parametrize("by_table", [False, True])
def test_one_binary_serves_all_pes(by_table, target):
    keys = {
        cache_key(copy_tile, target, [*[partition(target, me, n_pes=32, by_table=by_table)] * 2, 32, 64])
        for me in (0, 1, 2, 13, 16)
    }
    assert len(keys) == 1


@triton.jit
def no_partition(part, array):
    dev.load_at(array, 0, 0)


@triton.jit
def a_context(part, array):
    dev.load_tile(part.ctx, 0, 0, 16, 16)


@triton.jit
def float_row(part, array):
    dev.store_at(part, 1.5, 0, 1.0)


@triton.jit
def block_of_rows(part, array):
    dev.load_tile(part, tl.arange(0, 16), 0, 16, 16)


@triton.jit
def value_of_one_dimension(part, array):
    dev.store_tile(part, 0, 0, tl.load(array + tl.arange(0, 16)))


@triton.jit
def float_to_integer(part, array):
    dev.store_at(part, 0, 0, tl.load(array))


WANTED = "the partition of a PartitionedTensor, as the first argument"
REFUSED = [
    (no_partition, f"load_at: PE ?: part: got a pointer to fp32; expected {WANTED}"),
    (a_context, f"load_tile: PE ?: part: got a tuple; expected {WANTED}"),
    (float_row, "store_at: PE ?: rows: got a value of fp32; expected an integer"),
    (block_of_rows, "load_tile: PE ?: row: got a block of int32; expected one number"),
    (value_of_one_dimension, "store_tile: PE ?: value: got a block of fp32; expected a block of two dimensions"),
    (float_to_integer, "store_at: PE ?: value: got a value of fp32; expected an integer, for a pointer to int32"),
]


@pytest.mark.parametrize(("kernel", "words"), REFUSED, ids=[each[0].fn.__name__ for each in REFUSED])
def test_the_compiler_says_what_is_wrong(kernel, words):
    with pytest.raises(CompilationError) as caught:
        listing(kernel, "nvidia", "part", F32, dtype=I32)
    said, error = [], caught.value
    while error is not None:
        said.append(str(error))
        error = error.__cause__
    assert f"kernel {kernel.fn.__name__}: {words}" in said[-1]
