"""A device context of a team with PEs on other nodes: calls write requests; those on pointers and tiles are refused by name."""

import re

import kernels
import pyshmem.device as dev
import pytest
import triton
import triton.language as tl
from compiling import TARGETS, assembly, compile, context, in_order, instructions, operand, places, specialise
from kernels import F32, I32, U64
from pyshmem.device.arch.targets import FAR
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


REFUSED = [
    (pointer_on, (F32, F32), "ptr"),
    (kernels.tiles, (F32, F32, 1000, 1, 1024), "load"),
    (words_reduced, (F32,), "all_reduce"),
    (tile_gathered, (F32,), "all_gather"),
    (tile_sent, (F32,), "send"),
]
REQUESTED = [
    (kernels.put, (F32, F32, 1000, 1)),
    (kernels.get, (F32, F32, 1000, 1)),
    (kernels.p_and_g, (I32, 1)),
    (kernels.strided, (F32, F32, 1000, 1)),
    (kernels.atomics, (I32, I32, 1)),
    (kernels.signal_set, (U64, 1)),
    (kernels.signal_add, (U64, 1)),
    (kernels.quiet, ()),
    (kernels.sync_twice, ()),
    (arrays_gathered, (F32, F32, 1000)),
]


def compiled(kernel, target, operands):
    """What the kernel compiles to for the context of a team with PEs on other nodes."""
    args = [*map(operand, operands)]
    far = context(target, by_table=True)._replace(reach=tl.constexpr(FAR), ring=0x7D00_0000_0000)
    source, options = specialise(kernel, target, [far, *args])
    return compile(source, target=TARGETS[target], options=options.__dict__)


@pytest.mark.parametrize(("kernel", "operands", "call"), REFUSED, ids=[each[0].fn.__name__ for each in REFUSED])
def test_a_call_on_pointers_or_tiles_is_refused_by_name(kernel, operands, call):
    with pytest.raises(CompilationError) as caught:
        compiled(kernel, "nvidia", operands)
    said, error = [], caught.value
    while error is not None:
        said.append(str(error))
        error = error.__cause__
    words = f"kernel {kernel.fn.__name__}: {call}: PE ?: ctx: got 1; expected a device context of reach DIRECT"
    assert words in said[-1]


@pytest.mark.parametrize(("kernel", "operands"), REQUESTED, ids=[each[0].fn.__name__ for each in REQUESTED])
def test_other_calls_write_requests(kernel, operands, target):
    assert not requests_lack(kernel, operands, target)


def test_reductions_of_arrays_write_requests():
    """For one GPU: no other kernel here takes so long to compile."""
    assert not requests_lack(arrays_summed, (F32, F32, 1000), "nvidia")


def requests_lack(kernel, operands, target):
    """Of what requests take: a ticket, and a release to the host at system scope. The compiler orders the branches."""
    lines = instructions(compiled(kernel, target, operands).asm["ptx" if target == "nvidia" else "amdgcn"])
    if target == "nvidia":
        steps = [r"atom\..*gpu.*\.add\.u64", r"bar\.sync", r"st\.release\.sys\.global\.b64"]
    else:
        store = r"global_store_dwordx2 .* off$" if target == "gfx90a" else r"global_store_dwordx2 .* off sc0 sc1$"
        steps = ["global_atomic_add_x2", "s_barrier", "buffer_wbl2", store]
    return [step for step in steps if not places(lines, step)]


@pytest.mark.all_targets
def test_a_request_is_released_after_what_all_threads_have_stored(target):
    """Between the last word of the request and the word that makes it ready: all threads are done, and a release."""
    lines = instructions(compiled(kernels.signal_set, target, (U64, 1)).asm["ptx" if target == "nvidia" else "amdgcn"])
    (ready,) = places(lines, r"setp\.ne\.u32 .*st\.release\.sys\.global\.b64|v_cmp_ne_u32_e64 vcc, 0, v")
    last_word = max(place for place in places(lines, r"st\.global|global_store|flat_store") if place < ready)
    drained = r"s_waitcnt vmcnt\(0\)"
    steps = [r"bar\.sync"] if target == "nvidia" else [drained, "s_barrier", "buffer_wbl2", drained]
    in_order(lines[last_word:ready], *steps)


@pytest.mark.parametrize(("kernel", "operands"), REQUESTED[:8], ids=[each[0].fn.__name__ for each in REQUESTED[:8]])
def test_a_context_of_one_node_compiles_no_request(kernel, operands):
    """Its ring is no parameter of the kernel, so that no instruction can use it."""
    far, near = compiled(kernel, "nvidia", operands).asm["ptx"], assembly(kernel, "nvidia", *operands, by_table=True)
    assert count_parameters(far) == count_parameters(near) + 1


def count_parameters(ptx):
    return len(set(re.findall(r"_param_\d+", ptx.split(")")[0])))
