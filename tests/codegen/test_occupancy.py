"""How many programs of a kernel an AMD GPU's compute unit runs at once."""

import pytest
from pyshmem.kernels.occupancy import Taken

USUAL = Taken(registers=128, scratch=0, spilled=0, moved=0, shared=32 << 10, code=64 << 10, warps=4, arch="gfx942")


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
