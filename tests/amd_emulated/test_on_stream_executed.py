"""The small reduction of reduce_on_stream, executed: what is known of the team as constants, words, and single last elements."""

import pyshmem as shmem
import pytest
import torch
from pyshmem.kernels.on_stream import NUMBERS, of_team, reduce_tiles
from support import assert_same, guarded, untouched
from test_collectives import combined, operand

LANES = 16
SHARED = {2: 2}  # elements in a lane, by their bytes


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float16, torch.float32, torch.int64], ids=str)
def test_tiles_are_summed_to_the_last_element_call_after_call(dtype, me, npes):
    ctx = of_team(shmem.device_context())
    assert ctx.piece.value >= 8 * 2 * LANES
    for count in (1, 6, 40, 77):
        source, (target, whole) = shmem.array(operand("sum", me, 1, count, dtype)), guarded(count, dtype)
        shared = SHARED.get(dtype.itemsize, 1)
        programs = -(-count // (LANES * shared))
        at, odd = (target.data_ptr(), source.data_ptr(), count), count % shared == 1
        reduce_tiles[(programs,)](ctx, *at, NUMBERS[dtype], "sum", LANES, odd, False, num_warps=1)
        assert_same(target, combined("sum", 1, count, dtype, npes))
        assert untouched(whole[count:])
