"""Events of compiled kernels: what a call reads and writes for a timeline, in which order, and nothing without one."""

import re
import struct

import pyshmem.device as dev
from pyshmem.device.arch.gpu import instructions as gpu
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.kernels.compiled import like
from compiling import TARGETS, assembly, cache_key, context, in_order, instructions, places
from kernels import F32, I64, U64, of
from pyshmem.device.arch.rules import code_of

ROOM = 4800
CLOCK, UNIT = r"globaltimer|s_memrealtime", r"%smid|hwreg\(HW_REG_HW_ID, 8, 8\)"
PLACE = r"atom\.global\.gpu\.relaxed\.add\.u64|global_atomic_add_x2 .*(sc0|glc)$"
FENCES = {"nvidia": r"fence\.acq_rel\.sys", "gfx90a": "buffer_wbl2"}
SEVEN = tl.constexpr(7)


@triton.jit
def span(ctx, x):
    a = dev.trace_begin(ctx, "a tile of the product")
    tl.store(x + tl.arange(0, 128), 1.0)
    dev.trace_end(ctx, a)


CALLS = [
    of(dev.fence), of(dev.put, F32, F32, 1000, 3), of(dev.p, I64, SEVEN, 3), of(dev.atomic_inc, I64, 3),
    of(dev.get_nbi, F32, F32, 1000, 3), of(dev.signal_set, U64, SEVEN, 3), (span, F32),
]  # fmt: skip


def compiled(case, target, **options):
    return instructions(assembly(case[0], target, *case[1:], **options))


@triton.jit
def read_clock(ctx, out):
    tl.store(out, gpu.nanoseconds(ctx))


@pytest.mark.parametrize(("target", "tick"), [("gfx90a", 40), ("gfx942", 10), ("gfx950", 10)])
def test_the_clock_of_an_amd_gpu_is_counted_at_its_own_rate(target, tick):
    """25 MHz on MI200 (ISA, 8.2.5), 100 MHz on later ones: time-outs in kernels count seconds by it."""
    lines = compiled((read_clock, I64), target)
    assert places(lines, rf"s_mul_i32 .*, {tick}$|s_mul_i32 .*, {hex(tick)}$"), lines


@pytest.mark.parametrize("case", CALLS, ids=lambda case: getattr(case[-1], "__name__", "span"))
def test_without_a_timeline_a_call_reads_no_clock_and_takes_no_place(case):
    for target in ("nvidia", "gfx942"):
        lines = compiled(case, target, record=False)
        assert not places(lines, CLOCK) and not places(lines, UNIT) and not places(lines, r"\.gpu\.relaxed")


@pytest.mark.parametrize("target", TARGETS)
def test_an_event_takes_its_place_and_the_clock_before_the_call_and_is_written_behind_it(target):
    lines = compiled(of(dev.fence), target, events=ROOM)
    *_, end = in_order(lines, PLACE, UNIT, CLOCK, FENCES.get(target, "buffer_wbl2 sc0 sc1"), CLOCK)
    assert [len(places(lines, each)) for each in (PLACE, UNIT, CLOCK)] == [1, 1, 2]
    stores = places(lines, r"st\.global|global_store")
    assert min(stores) > end
    quads = [4 if "x4" in lines[at] else 2 if re.search("x2|b64", lines[at]) else 1 for at in stores]
    assert sum(quads) == 16  # of 4 bytes
    assert len(places(lines, r"hwreg\(HW_REG_XCC_ID, 0, 4\)")) == (target in ("gfx942", "gfx950"))


def test_one_thread_writes_an_event_and_only_into_the_ring():
    lines = compiled(of(dev.fence), "nvidia", events=ROOM)
    (place,) = places(lines, PLACE)
    first, taken = re.search(r"@(\S+) atom\S+ (\S+),", lines[place]).groups()
    (bound,) = re.findall(rf"setp\.lt\.s64\s+(\S+), {taken}, {ROOM};", "\n".join(lines))
    (both,) = re.findall(rf"and\.pred\s+(\S+), {first}, {bound};", "\n".join(lines))
    stores = places(lines, r"st\.global")
    assert len(stores) == 8 and all(lines[at].startswith(f"@{both} ") for at in stores)


def test_an_event_has_the_number_of_its_routine_and_a_span_its_name():
    names = {code_of(name): name for name in dev.__all__}
    assert len(names) == len(dev.__all__) and min(names) >= 1 << 30 and max(names) < 1 << 31
    assert str(code_of("fence") << 32 | 0xFFFFFFFF) in "\n".join(compiled(of(dev.fence), "nvidia", events=ROOM))
    text = "\n".join(compiled((span, F32), "nvidia", events=ROOM))
    assert all(str(word) in text for word in struct.unpack("<3q", b"a tile of the product".ljust(24, b"\0")))


@triton.jit
def every_kind(ctx, x, y, n, words, pe):
    whole = dev.trace_begin(ctx, "all")
    dev.put_signal(ctx, x, y, n, words, 1, dev.SIGNAL_ADD, pe)
    dev.signal_wait_until(ctx, words, dev.CMP_GE, 1)
    dev.store(ctx, x + tl.arange(0, 256), dev.load(ctx, y + tl.arange(0, 256), pe), pe)
    dev.atomic_add(ctx, words + tl.arange(0, 64), 1, pe)
    dev.atomic_compare_swap(ctx, words, 1, 2, pe)
    dev.barrier_all(ctx)
    dev.trace_end(ctx, whole)


@pytest.mark.parametrize("target", ["nvidia", "gfx942"])
def test_calls_of_every_kind_have_an_event_each(target):
    assert len(places(compiled((every_kind, F32, F32, 1000, U64, 3), target, events=ROOM), UNIT)) == 8


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_plan_keeps_of_operands_is_compiled_as_they_are_whatever_their_types_places_and_sizes(target):
    """On AMD GPUs offsets into tensors of more than 2 GiB have 64 bits."""
    whole = torch.empty((1 << 31) + 64, dtype=torch.uint8, device="meta")
    tensors = [
        torch.empty(32),
        torch.empty(32)[1:],
        torch.empty(32, dtype=torch.bfloat16),
        whole,
        whole.view(torch.float32),
    ]
    keys = [cache_key(span, target, [context(target), each]) for each in tensors]
    assert [cache_key(span, target, [context(target), like(each)]) for each in tensors] == keys
    operands = context(target)._replace(base=tensors[1]), 3, None
    assert cache_key(span, target, [operands[0], tensors[0]]) == cache_key(
        span, target, [like(operands)[0], tensors[0]]
    )
    assert like(operands)[1:] == operands[1:]
    assert len(set(keys)) == 4 + (target != "nvidia")
