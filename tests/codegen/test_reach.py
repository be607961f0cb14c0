"""A device context of another reach than DIRECT: the compiler refuses every call that goes to a peer, by name."""

import kernels
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from compiling import TARGETS, array, compile, context, specialise
from kernels import F32, I32, U64
from triton.compiler.errors import CompilationError


@triton.jit
def pointer_on(ctx, word, out):
    tl.store(out, tl.load(dev.ptr(ctx, word, 1)))


@triton.jit
def words_reduced(ctx, data):
    tl.store(data + tl.arange(0, 32), dev.all_reduce(ctx, tl.load(data + tl.arange(0, 32)), "sum"))


@triton.jit
def tile_gathered(ctx, data):
    found = dev.all_gather(ctx, tl.load(data + tl.arange(0, 32)))
    tl.store(data + tl.arange(0, 4)[:, None] * 32 + tl.arange(0, 32)[None, :], found)


@triton.jit
def tile_sent(ctx, data):
    dev.send(ctx, tl.load(data + tl.arange(0, 32)), 1)


@triton.jit
def arrays_gathered(ctx, dest, source, n):
    dev.fcollect(ctx, dest, source, n)


@triton.jit
def arrays_summed(ctx, dest, source, n):
    dev.sum_reduce(ctx, dest, source, n)


CALLS = [
    (pointer_on, (F32, F32), "ptr"),
    (kernels.put, (F32, F32, 1000, 1), "put"),
    (kernels.p_and_g, (I32, 1), "read"),
    (kernels.tiles, (F32, F32, 1000, 1, 1024), "load"),
    (kernels.strided, (F32, F32, 1000, 1), "put_blocks"),
    (kernels.atomics, (I32, I32, 1), "atomic"),
    (kernels.signal_set, (U64, 1), "set_signal"),
    (kernels.signal_add, (U64, 1), "add_signal"),
    (kernels.quiet, (), "quiet"),
    (kernels.sync_twice, (), "synchronise"),
    (words_reduced, (F32,), "piece_on"),
    (tile_gathered, (F32,), "piece_on"),
    (tile_sent, (F32,), "piece_on"),
    (arrays_gathered, (F32, F32, 1000), "put"),
    (arrays_summed, (F32, F32, 1000), "tell_all"),
]


@pytest.mark.parametrize(("kernel", "operands", "way"), CALLS, ids=[each[0].fn.__name__ for each in CALLS])
def test_a_call_to_a_peer_of_another_reach_is_refused_by_name(kernel, operands, way):
    args = [array(each) if isinstance(each, torch.dtype) else each for each in operands]
    other = context("nvidia")._replace(reach=tl.constexpr(1))
    source, options = specialise(kernel, "nvidia", [other, *args])
    with pytest.raises(CompilationError) as caught:
        compile(source, target=TARGETS["nvidia"], options=options.__dict__)
    said, error = [], caught.value
    while error is not None:
        said.append(str(error))
        error = error.__cause__
    words = f"kernel {kernel.fn.__name__}: {way}: PE ?: ctx: got 1; wants a device context of reach DIRECT"
    assert words in said[-1]
