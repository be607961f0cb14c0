"""Kernels that `auto` chooses on AMD GPUs fit on them at eight PEs: no scratch, no spills, code within the instruction cache."""

import pyshmem.device  # noqa: F401  before triton
import pytest
import torch
import triton
from pyshmem.ops.attention import decode_kernels
from pyshmem.ops.experts.schedules import MOST_PES_ON_AMD
from pyshmem.ops.gemm.all_gather_gemm_kernel import gather_and_multiply
from pyshmem.ops.gemm.configurations import Configuration
from pyshmem.ops.gemm.few_rows import _ROWS, multiply_and_exchange
from pyshmem.ops.gemm.gemm_kernel import ALONE, REDUCE, ROWS, SCATTER, multiply_and_send
from pyshmem.runtime.gpu.occupancy import Taken, taken
from products import compiled
from test_attention import compiled as attention
from test_emitted import PINNED
from test_models import ROWS as NORMS
from test_models import compiled as of_rows
from test_models import decode, experts

AMD, PES = ("gfx942", "gfx950"), 8
CACHE = 64 << 10  # bytes of the instruction cache, of two compute units
BF16 = torch.bfloat16


def product(kind):
    """A product whose tiles reach beyond it."""
    fan = {"FAN": 0} if kind is ALONE else {"FAN": 1} if kind is SCATTER else {}
    constants = {"edges": True, "KIND": kind.value, "STREAMED": True} | fan
    return lambda target, n_pes: compiled(multiply_and_send, target, n_pes=n_pes, **constants)


def few_rows(target, n_pes):
    row = Configuration(64, 64, *_ROWS[target, 2])
    return compiled(multiply_and_exchange, target, n_pes=n_pes, edges=True, row=row)


def norm(case):
    kernel, threads, constants = NORMS[case]
    return lambda target, n_pes: of_rows(kernel, target, BF16, threads, n_pes=n_pes, **constants)


# (what, the kernel for a GPU and a number of PEs)
KERNELS = [
    ("product alone", product(ALONE)),
    ("product, rows to peers", product(ROWS)),
    ("product, scattered", product(SCATTER)),
    ("product, reduced", product(REDUCE)),
    ("gather and product", lambda target, n_pes: compiled(gather_and_multiply, target, n_pes=n_pes, edges=True, STREAMED=True)),
    ("product of few rows", few_rows),
    ("attention, heads of 128", lambda target, n_pes: attention(target, BF16, 128)),
    ("decoding", lambda target, n_pes: decode(decode_kernels.attend, target, BF16, n_pes=n_pes, FUSED=True)),
    ("dispatch", lambda target, n_pes: experts("dispatch", target, BF16, n_pes=n_pes)),
    ("dispatch by words, 4 PEs", lambda target, n_pes: experts("dispatch_words", target, BF16, n_pes=min(n_pes, MOST_PES_ON_AMD))),
    ("combine", lambda target, n_pes: experts("combine", target, BF16, n_pes=n_pes)),
    ("norm, rows pushed", norm("push")),
    ("norm, rows pulled", norm("pull")),
]  # fmt: skip


def excess(found):
    """What is too much of a kernel that `auto` may choose, as a list of texts."""
    limits = {"scratch": 0, "spilled": 0, "code": CACHE}
    return [f"{name} {getattr(found, name)}" for name, limit in limits.items() if getattr(found, name) > limit]


# a kernel for one GPU, the next one for the other: their instructions differ in few places
IN_TURN = [(what, kernel, AMD[place % 2]) for place, (what, kernel) in enumerate(KERNELS)]


@pytest.mark.skipif(triton.__version__ != PINNED, reason=f"kernels are compiled by Triton {PINNED}")
@pytest.mark.parametrize("what, kernel, amd", IN_TURN, ids=[what for what, *_ in IN_TURN])
def test_kernels_for_eight_pes_have_no_scratch_and_fit_into_the_instruction_cache(what, kernel, amd):
    assert not excess(taken(kernel(amd, PES))), what


def test_words_are_not_chosen_where_their_kernel_has_too_much_code():
    assert excess(taken(experts("dispatch_words", "gfx942", torch.bfloat16, n_pes=2 * MOST_PES_ON_AMD)))


USUAL = Taken(registers=128, scratch=0, spilled=0, moved=0, shared=32 << 10, code=CACHE, warps=4, arch="gfx942")


@pytest.mark.parametrize(
    "more, programs",
    [
        ({}, 2), ({"arch": "gfx950"}, 4), ({"shared": 0}, 4), ({"shared": 0, "registers": 129}, 3),
        ({"registers": 264}, 1), ({"registers": 256}, 2), ({"warps": 8}, 2), ({"shared": 0, "registers": 8}, 8),
    ],
    ids=str,
)  # fmt: skip
def test_programs_of_a_compute_unit_follow_from_registers_and_lds(more, programs):
    """A lane has 512 registers, given out by 8; a SIMD runs 8 waves; 64 KiB of LDS, 160 on gfx950."""
    assert USUAL._replace(**more).programs == programs
