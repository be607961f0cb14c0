"""A peer's addresses: 64 bits all the way, whatever the compiler knows of the size of arrays."""

import pytest
import torch
from compiling import assembly, instructions, places
from kernels import put, tiles


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("case", [(put, 1, 3), (put, 1000, 3), (tiles, 1000, 3, 4096)], ids=str)
def test_a_peer_may_be_below_or_further_away_than_an_array_can_be_large(case, dtype, amd):
    """AMD's compiler adds to an array in 32 bits; a buffer access outside of them would load zeros and store nothing."""
    kernel, *tail = case
    lines = instructions(assembly(kernel, amd, dtype, dtype, *tail))
    assert places(lines, r"_mul_hi_[iu]32|_mad_[iu]64_[iu]32")
