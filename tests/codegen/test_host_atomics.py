"""The host's atomics on GPU heaps: one kernel an operator and type, and what it is launched with."""

import re
import struct

import pytest
import pyshmem.device as dev  # noqa: F401  before triton
import torch
import triton.language as tl
from compiling import NAMES, TARGETS, cache_key, compile, in_order, instructions, places, specialise
from pyshmem.device.arch.targets import Target
from pyshmem.kernels import host_atomics
from pyshmem.base.far import OPERATORS
from test_memory_model import ACQUIRE, DRAIN, RELEASE

CASES = [(op, torch.uint64, ordered) for op in OPERATORS for ordered in (False, True)]
CASES += [("add", dtype, True) for dtype in host_atomics.TYPES if dtype != torch.uint64]
CASES += [
    ("swap", torch.float32, True),
    ("fetch", torch.float64, False),
    ("xor", torch.int32, True),
    ("compare_swap", torch.float32, True),
]
INSTRUCTIONS = {
    "set": ("exch.b", "swap"), "swap": ("exch.b", "swap"), "fetch": ("add.", "add"), "compare_swap": ("cas.b", "cmpswap"),
    "add": ("add.", "add|cmpswap"), "and": ("and.b", "cmpswap"), "or": ("or.b", "cmpswap"), "xor": ("xor.b", "cmpswap"),
}  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "ordered"), CASES, ids=str)
def test_a_host_atomic_is_one_atomic_at_system_scope_and_after_a_fence_releases_and_acquires(
    op, dtype, ordered, target
):
    on, order = Target(tl.constexpr(NAMES.index(target))), host_atomics.ORDERS[ordered]
    args = [on, 1 << 45, 5, 6, 1 << 46, op, host_atomics.TYPES[dtype][1], order]
    source, options = specialise(host_atomics.operate, target, args, num_warps=1)
    asm = compile(source, target=TARGETS[target], options=options.__dict__).asm
    nvidia, amd = INSTRUCTIONS[op]
    if target == "nvidia" and op == "fetch" and not ordered:
        assert_reads(asm["ptx"], target, dtype.itemsize)
        return
    if target == "nvidia":
        atomics = [line for line in asm["ptx"].splitlines() if "atom." in line]
        assert len(atomics) == 1 and all(text in atomics[0] for text in ("sys", nvidia, order))
        return
    lines = instructions(asm["amdgcn"])
    assert [bool(places(lines, each)) for each in ("buffer_wbl2", "buffer_inv")] == [ordered, ordered]
    if ordered:
        written = in_order(lines, DRAIN, RELEASE[target])[-1]
        assert re.search(DRAIN, lines[written + 1]), "the atomic does not wait for what is written back"
        in_order(lines[written:], "global_load" if op == "fetch" else "_atomic_", DRAIN, *ACQUIRE[target])
    if op == "fetch":
        assert_reads(asm["amdgcn"], target, dtype.itemsize)
        return
    atomics = [line.split()[0] for line in lines if "_atomic_" in line]
    assert atomics and all(any(name in atomic for name in amd.split("|")) for atomic in atomics)
    assert {atomic.endswith("_x2") or "f64" in atomic for atomic in atomics} == {dtype.itemsize == 8}


@pytest.mark.parametrize("dtype", host_atomics.TYPES, ids=str)
def test_one_kernel_serves_all_addresses_and_operands(dtype, target):
    """Ones, multiples of 16, what fits 32 bits and what does not: Triton would compile a variant for each."""
    tail = ["add", host_atomics.TYPES[dtype][1], "relaxed"]
    on = Target(tl.constexpr(NAMES.index(target)))
    words = [(0, 0, 0, 0), (1, 1, 1, 1), (16, 16, 16, 16), (3, 5, 7, 9), (1 << 45, -1, 1 << 33, 1 << 46)]
    assert len({cache_key(host_atomics.operate, target, [on, *each, *tail]) for each in words}) == 1


@pytest.mark.parametrize("dtype", host_atomics.TYPES, ids=str)
def test_operands_are_passed_as_their_bits(dtype):
    format, _ = host_atomics.TYPES[dtype]
    numbers = [0, 1, 2**31 - 1, -1, -(2**31)] if dtype.is_signed else [0, 1, 2**32 - 1]
    for number in [*numbers, *([-0.0, 1.5, float("inf")] if dtype.is_floating_point else [])]:
        bits = host_atomics._as_bits(format, number)
        back = struct.unpack(format, (bits % 2**64).to_bytes(8, "little")[: dtype.itemsize])[0]
        assert struct.pack("d", back) == struct.pack("d", torch.tensor(number, dtype=dtype).item())


@pytest.mark.parametrize("itemsize", [4, 8])
def test_words_are_read_whole_from_memory(itemsize, target):
    args = [1 << 45, 1 << 46, 3, host_atomics._reader_words[itemsize]]
    source, options = specialise(host_atomics.read_words, target, args, num_warps=1)
    asm = compile(source, target=TARGETS[target], options=options.__dict__).asm
    assert_reads(asm["ptx" if target == "nvidia" else "amdgcn"], target, itemsize)


def assert_reads(text, target, itemsize):
    """Loads that nothing tears or caches."""
    width = f"b{8 * itemsize} " if target == "nvidia" else "dword " if itemsize == 4 else "dwordx2 "
    bits = {"nvidia": "sys.relaxed", "gfx90a": " glc"}.get(target, " sc0 sc1")
    reads = [line for line in text.splitlines() if "ld.global" in line or "global_load" in line]
    assert reads and all(bits in line and width in line for line in reads), reads
