"""The kernel of attention compiles for every GPU as plans compile it: matrix units, 16 bytes a load, and no spills."""

import pytest
import torch
from compiling import TARGETS, array, compile, context, instructions, places, specialise
from products import CHIPLETS, excess, pes_of, spilled, text_of
from pyshmem.ops.attention.merge_kernel import merge_results
from pyshmem.ops.attention.prefill_kernels import Form, attend_blocks
from pyshmem.ops.attention.prefill_library import ROWS
from pyshmem.ops.attention.prefill_schedules import TILES

MULTIPLY = {"nvidia": r"wgmma\.mma_async\S*bf16", "amd": r"v_mfma_f32_\d+x\d+x\d+_?bf16"}
SPILLED = {("nvidia", torch.bfloat16, 256): 24}  # bytes: sums of 256 elements want half of a thread's registers
WIDE = {"nvidia": r"cp\.async\.cg\S* .*(0x10|16),", "amd": r"(global|buffer)_load_dwordx4"}


MERGED = {"nvidia": r"ld\.global\S*\.v4\.b32", "amd": r"(global|buffer)_load_dwordx4"}
SHARED = 227 << 10  # bytes that a program may have on sm_90


def compiled(target, dtype, width, segments=2, causal=True, row=None):
    """The kernel for 32 heads of queries and 8 of keys."""
    row = row or TILES["nvidia" if target == "nvidia" else "amd", dtype.itemsize, width > 128]
    words = array(torch.uint64)
    values = {
        "ctx": context(target, 0, pes_of(target)),
        "words": words,
        "flags": words,
        "room": 1 << 24,
        "size": 8192,
        "items": 4096,
    }
    values |= dict.fromkeys(("slots", "q", "out"), array(dtype)) | {"scale": 0.1}
    chiplets = CHIPLETS.get(target, 1)
    values["FORM"] = Form(32, 8, width, width, row.queries, row.tokens, segments, causal, True, chiplets, "ieee")
    source, options = specialise(
        attend_blocks, target, [values[name] for name in attend_blocks.arg_names],
        num_warps=row.warps, num_stages=row.stages,
    )  # fmt: skip
    return compile(source, target=TARGETS[target], options=options.__dict__)


def test_attention_of_blocks_uses_the_matrix_units_and_loads_16_bytes_a_thread_without_spills(target):
    found = compiled(target, torch.bfloat16, 128)
    assert not excess(found, target)
    lines, vendor = instructions(text_of(found, target)), "nvidia" if target == "nvidia" else "amd"
    assert places(lines, MULTIPLY[vendor]) and places(lines, WIDE[vendor])


@pytest.mark.parametrize("causal, segments, most", [(True, 1, 0), (False, 2, 104)])
def test_the_tile_of_sm_90_fits_into_its_shared_memory(causal, segments, most):
    """Without a mask all keys are read in one loop, which needs a few registers more than there are."""
    found = compiled("nvidia", torch.bfloat16, 128, segments, causal, TILES["sm_90", 2, False])
    assert spilled(found, "nvidia") <= most and found.metadata.shared <= SHARED
    assert places(instructions(text_of(found, "nvidia")), MULTIPLY["nvidia"])


@pytest.mark.parametrize("dtype, width", [(torch.float32, 128), (torch.bfloat16, 256)], ids=str)
def test_wide_heads_and_float32_spill_at_most_a_few_registers(dtype, width, target):
    assert spilled(compiled(target, dtype, width), target) <= SPILLED.get((target, dtype, width), 0)


def test_keys_go_into_lds_past_the_registers_where_triton_is_told(monkeypatch):
    """16 bytes at once on gfx950, 4 on gfx942."""
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "1")
    for target, load in (("gfx950", r"buffer_load_dwordx4 .* lds$"), ("gfx942", r"buffer_load_dword .* lds$")):
        found = compiled(target, torch.bfloat16, 128)
        assert spilled(found, target) == 0 and places(instructions(text_of(found, target)), load)


@pytest.mark.parametrize("parts", [2, 8])
def test_results_of_parts_of_the_keys_are_merged_by_16_bytes_a_thread_without_spills(target, parts):
    result, sums = array(torch.bfloat16), array(torch.float32)
    values = (result,) * parts, (sums,) * parts, (0,) * parts, result, sums, 1 << 20, 4096, 32, 128, 128, parts, ROWS
    source, options = specialise(merge_results, target, values, num_warps=4)
    found = compile(source, target=TARGETS[target], options=options.__dict__)
    vendor = "nvidia" if target == "nvidia" else "amd"
    assert spilled(found, target) == 0 and places(instructions(text_of(found, target)), MERGED[vendor])
