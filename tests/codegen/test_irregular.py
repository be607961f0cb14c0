"""The kernels of pyshmem.irregular compile for every GPU, without spills, and no result depends on which program comes first."""

import pytest
import torch
import triton.language as tl
from compiling import TARGETS, array, compile, context, instructions, places, specialise
from products import spilled, text_of
from pyshmem.irregular.execution import SCHEDULES, Partial, Splits, finish_split_tiles
from pyshmem.irregular.granularity import finishing
from pyshmem.irregular.parts import Items
from pyshmem.irregular.schedules.by_length import Groups, execute_group, kinds
from pyshmem.irregular.schedules.row_by_row import execute_sequence
from pyshmem.irregular.schedules.streamed import Blocks, constants, execute_block
from pyshmem.irregular.values import Constants
from pyshmem.irregular.works import degrees, spmm, spmv, triangles

FEW = 8  # bytes for registers that a thread lacks; Triton 3.6 spills two of these in a few cases, later ones none
ATOMIC = {"nvidia": r"\b(atom|red)\.", "amd": r"(global|flat|buffer)_atomic"}
EXECUTE = {"by_length": execute_group, "streamed": execute_block, "row_by_row": execute_sequence}
# (atom, tile, type of the sums, their number)
WORKS = {
    spmv: (spmv.product, spmv.element, tl.float32, 1), spmm: (spmm.products, spmm.row, tl.float32, 32),
    degrees: (degrees.one, degrees.count, tl.int32, 1), triangles: (triangles.common, triangles.store, tl.int64, 1),
}  # fmt: skip


def compiled(kernel, target, work=spmv, dtype=torch.float32, index=torch.int32, width=None):
    """A kernel of EXECUTE, by its schedule's name, or another one, as ``run`` launches it. width: None is the work's."""
    warps = SCHEDULES[kernel].warps if kernel in SCHEDULES else 4
    atom, tile, kind, usual = WORKS[work]
    width = width or usual
    if kernel in SCHEDULES:
        kernel = execute_group if kernel == "streamed" and width > 1 else EXECUTE[kernel]
    kind = tl.float64 if dtype == torch.float64 else kind
    itemsize = 8 if kind == tl.float64 else 4
    rows, lanes = finishing(2, width * itemsize)
    types = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int32: torch.int32, tl.int64: torch.int64}
    indices, sums, elements = array(index), array(types[kind]), array(dtype)
    fields = {"ctx": context(target), "counts": sums} | dict.fromkeys(("columns", "rows", "offsets"), indices)
    fields |= {"first": 0, "width": width, "pitch": 64, "most": 99, "bits": tl.constexpr(22), "depth": 9}
    values = {
        "operands": work.Operands(*[fields.get(name, elements) for name in work.Operands._fields]),
        "splits": Splits(indices, indices, indices), "partial": Partial(sums, sums), "count": 1 << 13,
        "work": Constants(atom, tile, kind, width, len(atom.arg_names) == 5), "EARLY": target == "nvidia",
        "ROWS": rows, "LANES": lanes,
        "items": Items(indices, indices, indices), "groups": Groups(indices, indices), "parts": sums,
        "firsts": array(torch.int32),
        "SIDES": tuple(tuple(each[1:]) for each in kinds(width)), "KINDS": len(kinds(width)), "ANY": len(kinds(width)) - 2,
        "blocks": Blocks(*[indices] * 5, array(torch.int32)),
    }  # fmt: skip
    values |= constants() if kernel is execute_block else {}
    source, options = specialise(kernel, target, [values[name] for name in kernel.arg_names], num_warps=warps)
    return compile(source, target=TARGETS[target], options=options.__dict__)


def atomics(found, target):
    return places(instructions(text_of(found, target)), ATOMIC["nvidia" if target == "nvidia" else "amd"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sums_are_made_without_atomics_and_without_spills(schedule, target):
    found = compiled(schedule, target)
    assert not atomics(found, target)
    assert spilled(found, target) == 0


@pytest.mark.parametrize("work", list(WORKS)[1:], ids=lambda work: work.__name__.rpartition(".")[2])
@pytest.mark.parametrize("schedule", ["by_length", "row_by_row"])
def test_every_work_compiles_without_spills(schedule, work, target):
    found = compiled(schedule, target, work)
    assert spilled(found, target) == 0
    assert bool(atomics(found, target)) == (work is degrees)


def test_products_with_many_columns_load_their_rows_in_vectors_without_spills(target):
    found = compiled("by_length", target, spmm, torch.float16)
    assert spilled(found, target) == 0
    if target == "nvidia":
        assert places(instructions(found.asm["ptx"]), r"ld\.global\.v4\.b32")


@pytest.mark.parametrize(
    ("dtype", "index"), [(torch.float16, torch.int32), (torch.float32, torch.int32), (torch.float64, torch.int64)]
)
def test_rows_one_by_one_load_an_atom_once_in_each_warp_and_share_nothing(dtype, index, target):
    """Four atoms at a time: of each a column, a value, and a row of b. Beside these, two places of the program, and three of an item."""
    found = compiled("row_by_row", target, spmm, dtype, index, width=128)
    assert (spilled(found, target), found.metadata.shared) == (0, 0)
    if target == "nvidia":
        lines = instructions(found.asm["ptx"])
        rows = 4 * (128 * dtype.itemsize // 32 // 16 or 1)  # loads of 16 bytes, or 8
        assert len(places(lines, r"ld\.global")) == 2 + 3 + 4 * 2 + rows
        assert not places(lines, r"\b(shfl|bar)\.")


@pytest.mark.parametrize("width", [32, 64])
def test_rows_one_by_one_with_fewer_columns_load_rows_of_several_atoms_in_vectors(width, target):
    """Of 128 / width atoms at once, each thread 16 bytes."""
    found = compiled("row_by_row", target, spmm, width=width)
    assert spilled(found, target) == 0
    if target == "nvidia":
        assert len(places(instructions(found.asm["ptx"]), r"ld\.global\.v4\.b32")) == 4


@pytest.mark.parametrize(
    ("dtype", "index"), [(torch.float16, torch.int32), (torch.float32, torch.int32), (torch.float64, torch.int64)]
)
def test_rows_by_length_load_columns_and_values_in_vectors(dtype, index, target):
    """Of four or two, in every kind but that of empty rows and that of the last row of a matrix, by 16 bytes at most."""
    found = compiled("by_length", target, dtype=dtype, index=index)
    assert spilled(found, target) <= (FEW if target == "nvidia" and dtype is torch.float64 else 0)
    patterns = (
        {16: r"ld\.global\S*\.(v4\.b32|v2\.b64)", 8: r"ld\.global\S*\.(v2\.b32|b64)"}
        if target == "nvidia" else {16: r"buffer_load_dwordx4", 8: r"buffer_load_dwordx2"}
    )  # fmt: skip
    threads, wanted = SCHEDULES["by_length"].warps * (32 if target == "nvidia" else 64), dict.fromkeys(patterns, 0)
    for kind in kinds(1):
        for nbytes in (kind.vector * each.itemsize for each in (dtype, index) if kind.vector > 1):
            if nbytes >= 8:
                vectors = kind.deep * kind.tiles * kind.lanes // threads  # of a thread
                wanted[min(nbytes, 16)] += vectors * max(nbytes // 16, 1)
    lines = instructions(text_of(found, target))
    assert len(places(lines, patterns[16])) == wanted[16]
    assert (
        dtype.itemsize > 4 or len(places(lines, patterns[8])) == wanted[8]
    )  # others load one of 8 bytes for the last row


@pytest.mark.parametrize(
    ("dtype", "index"), [(torch.float16, torch.int32), (torch.float32, torch.int32), (torch.float64, torch.int64)]
)
def test_streamed_rows_load_columns_and_values_in_vectors_of_four(dtype, index, target):
    """In every kind but that of the last row of a matrix, by 16 bytes at most."""
    found = compiled("streamed", target, dtype=dtype, index=index)
    assert spilled(found, target) == 0
    vectors = 1024 // 4 // (SCHEDULES["streamed"].warps * (32 if target == "nvidia" else 64))  # of a thread
    wanted = (constants()["KINDS"] + 1) * vectors * sum(each.itemsize // 4 for each in (dtype, index))
    pattern = r"ld\.global\S*\.(v4\.b32|v2\.b64)" if target == "nvidia" else r"buffer_load_dwordx4"
    assert len(places(instructions(text_of(found, target)), pattern)) == wanted


def test_split_rows_are_finished_without_atomics(target):
    found = compiled(finish_split_tiles, target)
    assert not atomics(found, target)
    assert spilled(found, target) == 0


@pytest.mark.parametrize("kernel", [*SCHEDULES, finish_split_tiles], ids=str)
def test_a_product_begins_early_and_then_waits_before_it_touches_what_may_change(kernel):
    """Before that it loads only where its programs begin, or the tiles that it finishes; it stores nothing."""
    lines = instructions(compiled(kernel, "nvidia").asm["ptx"])
    waits = places(lines, r"griddepcontrol\.wait;")
    assert len(waits) == 1
    assert not [place for place in places(lines, r"\b(st|atom|red)\.(?!param|shared)") if place < waits[0]]
    before = [place for place in places(lines, r"\bld\.global") if place < waits[0]]
    assert len(before) <= (3 * 8 if kernel is finish_split_tiles else 5)
