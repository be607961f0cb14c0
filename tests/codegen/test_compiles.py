"""Every intrinsic compiles for every GPU, keeps its values in registers, and is compiled once for all PEs."""

import pytest
from compiling import assembly
from kernels import EVERY, name_of


@pytest.mark.parametrize("case", EVERY, ids=name_of)
def test_every_intrinsic_compiles_and_spills_nothing(case, target):
    text = assembly(case[0], target, *case[1:])
    if target == "nvidia":
        assert ".local" not in text
    else:
        assert ".private_segment_fixed_size: 0" in text
        assert "scratch_load" not in text and "scratch_store" not in text
