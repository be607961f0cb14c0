"""The kernels that execute the requests of far PEs: one variant each, atomics that release and acquire, words stored whole."""

import re

import pyshmem.device as dev  # noqa: F401  before triton
import pytest
import triton.language as tl
from compiling import NAMES, TARGETS, cache_key, compile, instructions, specialise
from compiling import places as matches
from pyshmem.device.arch.targets import Target
from pyshmem.kernels import requests
from test_memory_model import ACQUIRE, DRAIN, RELEASE

SIZES = {tl.int8: 8, tl.int16: 16, tl.int32: 32, tl.int64: 64}
WORDS = [(0,) * 6, (1,) * 6, (16,) * 6, (1 << 45, 8, 1 << 46, 1, 1 << 33, 8192)]


def assembly(kernel, target, args, **options):
    source, launch = specialise(kernel, target, args, **options)
    asm = compile(source, target=TARGETS[target], options=launch.__dict__).asm
    return instructions(asm["ptx" if target == "nvidia" else "amdgcn"])


def on(kernel, target):
    """The first argument of the kernel that has fences."""
    return [Target(tl.constexpr(NAMES.index(target)))] if kernel is requests.perform else []


def test_every_atomic_is_at_system_scope_and_releases_and_acquires(target):
    lines = assembly(requests.perform, target, [*on(requests.perform, target), 1 << 45, 5, 6, 1 << 46, 51], num_warps=1)
    if target == "nvidia":
        atomics = [line for line in lines if "atom." in line]
        assert len(atomics) == 2 * (len(requests.OPERATORS) + 1)  # an addition is of integers or of floats
        assert all("acq_rel" in line and ".sys" in line for line in atomics)
        return
    places = [place for place, line in enumerate(lines) if "_atomic_" in line]
    assert len(places) >= 2 * (len(requests.OPERATORS) - 1)  # an addition of 0 is a load
    releases, acquires = matches(lines, RELEASE[target]), matches(lines, ACQUIRE[target][-1])
    assert releases and acquires
    assert all(re.search(DRAIN, lines[place + 1]) for place in releases), (
        "an atomic does not wait for what is written back"
    )
    assert max(releases) < min(places) and max(places) < max(acquires)


@pytest.mark.parametrize("word", SIZES, ids=str)
def test_a_word_is_moved_by_one_store(word, target):
    lines = assembly(requests.move, target, [*WORDS[3], word], num_warps=4)
    names = {8: ("b8", "byte"), 16: ("b16", "short"), 32: ("b32", "dword"), 64: ("b64", "dwordx2")}[SIZES[word]]
    stores = [line for line in lines if "st.global" in line or "global_store" in line]
    wanted = f"st.global.{names[0]} " if target == "nvidia" else f"global_store_{names[1]} "
    assert stores and all(wanted in line for line in stores), stores


@pytest.mark.parametrize("kernel, tail", [(requests.perform, []), *((requests.move, [word]) for word in SIZES)])
def test_one_variant_serves_all_requests(kernel, tail, target):
    first = on(kernel, target)
    count = len(kernel.params) - len(first) - len(tail)
    assert len({cache_key(kernel, target, [*first, *words[:count], *tail]) for words in WORDS}) == 1
