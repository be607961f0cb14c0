"""Kernels that `auto` chooses on AMD GPUs fit on them at eight PEs, and docs/amd.md says what they take."""

import pytest
import torch
import triton
from taken import AMD, CACHE, KERNELS, PAGE, PES, excess, line
from test_emitted import PINNED
from test_models import experts
from pyshmem.ops.experts.schedules import MOST_PES_ON_AMD
from pyshmem.runtime.gpu.occupancy import Taken, taken

# a kernel for one GPU, the next one for the other: their instructions differ in few places
IN_TURN = [(what, kernel, AMD[place % 2]) for place, (what, kernel) in enumerate(KERNELS)]


@pytest.mark.skipif(triton.__version__ != PINNED, reason=f"the page is for Triton {PINNED}")
@pytest.mark.parametrize("what, kernel, amd", IN_TURN, ids=[what for what, *_ in IN_TURN])
def test_kernels_for_eight_pes_have_no_scratch_and_fit_into_the_instruction_cache(what, kernel, amd):
    found = taken(kernel(amd, PES))
    assert not excess(found)
    assert line(what, amd, found) in PAGE.read_text(), f"run make amd-kernels: {line(what, amd, found)}"


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
