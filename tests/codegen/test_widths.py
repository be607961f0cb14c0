"""Copies move 16 bytes an access wherever both sides are aligned to that, after translation too."""

import pytest
import pyshmem.device as dev
import torch
import triton
from compiling import assembly, in_order, instructions, loops, places
from kernels import F32, I32, get, put, put_signal, tiles

LOAD = {"nvidia": r"ld\.global", "amd": r"(global|buffer)_load_dword"}
STORE = {"nvidia": r"st\.global", "amd": r"(global|buffer)_store_dword"}
WIDE = {"nvidia": r"\.v4\.b32|\.v2\.b64", "amd": r"_dwordx4"}


def vendor(target):
    return "nvidia" if target == "nvidia" else "amd"


def wide_loops(lines, target):
    """Of each innermost loop that copies, (its loads, its stores); all of them 16 bytes wide."""
    kind, found = vendor(target), []
    for loop in loops(lines):
        loads, stores = places(loop, LOAD[kind]), places(loop, STORE[kind])
        if loads and all(places([loop[place]], WIDE[kind]) for place in loads + stores):
            found.append((loads, stores))
    return found


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize("kernel", [put, get, put_signal], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float64], ids=str)
def test_a_bulk_copy_has_four_loads_of_16_bytes_in_flight(dtype, kernel, by_table, target):
    tail = (torch.uint64, 3, 1) if kernel is put_signal else (3,)
    lines = instructions(assembly(kernel, target, dtype, dtype, 1000, *tail, by_table=by_table))
    assert any(len(loads) == len(stores) == 4 and loads[-1] < stores[0] for loads, stores in wide_loops(lines, target))


@triton.jit
def put_from_inside(ctx, dest, source, i, n, pe):
    dev.put(ctx, dest + i, source + i, n, pe)


def test_a_pointer_into_an_array_chooses_the_width_when_it_runs(target):
    """Triton knows no alignment there: the wide loops are still there, and one that copies element by element."""
    kind = vendor(target)
    lines = instructions(assembly(put_from_inside, target, F32, F32, 5, 1000, 3))
    assert any(len(loads) == 4 for loads, _ in wide_loops(lines, target))
    narrow = [loop for loop in loops(lines) if places(loop, LOAD[kind] + r"(\.b32)? ") and not places(loop, WIDE[kind])]
    assert narrow and not places(lines, r"st\.shared|ds_write")  # loads and stores by the same threads
    in_order(lines, r"and\.b64.*15|v?_?and_b32.*15")


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize("dtype", [F32, I32, torch.float16], ids=str)
def test_tiles_keep_their_alignment_through_translation(dtype, by_table, target):
    kind = vendor(target)
    lines = instructions(assembly(tiles, target, dtype, dtype, 1000, 3, 4096, by_table=by_table))
    for pattern in (LOAD[kind], STORE[kind]):
        accesses = [lines[place] for place in places(lines, pattern)]
        accesses = [line for line in accesses if ".b64 {" not in line and "_dwordx2 " not in line]  # the table's
        assert accesses and all(places([line], WIDE[kind]) for line in accesses), accesses
