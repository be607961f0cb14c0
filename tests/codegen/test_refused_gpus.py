"""Triton compiles for the AMD GPUs that init refuses, as its message says: only the order of memory stands against them."""

import re

import pytest
import triton
import triton.language as tl
from compiling import compile
from pyshmem.start.gpu import _OTHER_ARCHS
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

GPUS = {"gfx908": 64, "gfx1030": 32, "gfx1100": 32, "gfx1201": 32, "gfx1250": 32}  # and the threads of a wave


@triton.jit
def add(x, y, n):
    lane = tl.arange(0, 256)
    tl.store(y + lane, tl.load(x + lane, mask=lane < n) + 1, mask=lane < n)
    tl.atomic_add(y, 1, sem="release", scope="sys")


@pytest.mark.parametrize("arch", GPUS)
def test_triton_compiles_for_a_refused_gpu_from_the_release_that_is_named(arch):
    said = next(text for name, text in _OTHER_ARCHS.items() if arch.startswith(name))
    least = tuple(map(int, re.search(r"Triton from (\d+)\.(\d+) compiles for it", said).groups()))
    assert tuple(map(int, triton.__version__.split(".")[:2])) >= least
    source = ASTSource(add, {"x": "*i32", "y": "*i32", "n": "i32"}, {})
    assert "s_endpgm" in compile(source, target=GPUTarget("hip", arch, GPUS[arch])).asm["amdgcn"]
