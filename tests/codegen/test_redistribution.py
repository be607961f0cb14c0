"""The kernel of PartitionedTensor.redistribute: 16 bytes an access where blocks allow it."""

import pytest
import torch
from compiling import TARGETS, array, compile, instructions, places, specialise
from pyshmem.kernels.redistribution import ROW, TILES, WARPS, move
from test_compiles import refuse_spills
from test_widths import STORE, WIDE, vendor


def given(unit, push, tile=TILES[0], wide=False, outer=1):
    return [array(torch.int64), outer, *tile, unit, push, wide]


def listing(target, *how):
    source, options = specialise(move, target, given(*how), num_warps=WARPS)
    text = compile(source, target=TARGETS[target], options=options.__dict__)
    text = text.asm["ptx" if target == "nvidia" else "amdgcn"]
    refuse_spills(text, target)
    return instructions(text)


@pytest.mark.parametrize("push", [False, True])
def test_parts_whose_blocks_are_whole_units_of_16_bytes_are_moved_16_bytes_an_access(push, target):
    lines, kind = listing(target, 16, push), vendor(target)
    stores = [lines[place] for place in places(lines, STORE[kind])]
    assert stores and all(places([store], WIDE[kind]) for store in stores), stores
    loads = r"ld\.global" if kind == "nvidia" else r"(global|buffer|flat)_load"
    assert len(places([lines[place] for place in places(lines, loads)], WIDE[kind])) >= len(stores)


@pytest.mark.parametrize(
    "how", [(1, True), (2, False, ROW), (4, True, TILES[1], False, 3), (8, False, TILES[0], True, 2)], ids=str
)
def test_every_unit_compiles(how, target):
    assert listing(target, *how)
