"""The kernels of pyshmem.ops.models compile for every GPU as plans compile them: without spills, with wide accesses."""

import pytest
import torch
from compiling import TARGETS, array, compile, context, instructions, places, specialise
from products import spilled, text_of
from pyshmem.kernels.on_stream import of_team
from pyshmem.ops.models import norm_kernels
from pyshmem.ops.models.norm_schedules import MOST_PARTS
from pyshmem.runtime.arguments import name_of

ARRAYS = ("x", "residual", "weight", "out", "sums", "total")
WIDE = {"nvidia": r"(ld|st)\.global\S*\.v4\.b32", "amd": r"(global|buffer)_(load|store)_dwordx4"}
MARKED = {"nvidia": r"st\.relaxed\.sys\.global\.b64", "amd": r"global_store_dwordx2"}
HIDDEN = 8192


def compiled(kernel, target, dtype, threads, n_pes=2, **constants):
    """A kernel of all_reduce_rms_norm, for rows of 8192 elements."""
    values = dict.fromkeys(ARRAYS, array(dtype)) | {"flags": array(torch.uint64), "words": array(torch.uint64)}
    values |= {"ctx": context(target, 0, n_pes), "turns": array(torch.int64), "slots": array(dtype)}
    values |= {"tokens": 7, "hidden": HIDDEN, "eps": 1e-6, "BLOCK": HIDDEN} | constants
    args = [values[name] for name in kernel.arg_names]
    source, options = specialise(kernel, target, args, num_warps=threads // TARGETS[target].warp_size)
    return compile(source, target=TARGETS[target], options=options.__dict__)


def vendor(target):
    return "nvidia" if target == "nvidia" else "amd"


ROWS = {
    "push": (norm_kernels.push_rows, 512, {}), "pull": (norm_kernels.pull_rows, 256, {"SHARED": False}),
    "two_shot": (norm_kernels.pull_rows, 512, {"SHARED": True}), "norm": (norm_kernels.normalise_rows, 256, {}),
}  # fmt: skip
# Bytes a thread: addresses on all PEs, or words of 8 PEs, want more than the registers that so many threads have.
SPILLED = {("nvidia", "two_shot", torch.float32): 32, ("nvidia", 8, torch.float32): 32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=name_of)
@pytest.mark.parametrize("case", ROWS)
def test_kernels_on_rows_move_16_bytes_at_once_and_do_not_spill(case, dtype, target):
    kernel, threads, constants = ROWS[case]
    found = compiled(kernel, target, dtype, threads, **constants)
    assert spilled(found, target) <= SPILLED.get((target, case, dtype), 0)
    assert places(instructions(text_of(found, target)), WIDE[vendor(target)])


@pytest.mark.parametrize("n_pes", [2, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=name_of)
def test_words_go_out_one_a_thread_and_part_without_spills(dtype, n_pes, target):
    """Of the longest rows that the schedule has."""
    parts = MOST_PARTS
    ctx = of_team(context(target, 0, n_pes)._replace(piece=8 * 1024 * parts))
    constants = {
        "ctx": ctx,
        "hidden": parts * 4096 // dtype.itemsize,
        "slots": array(torch.int64),
        "PARTS": parts,
        "WIDTH": 1024,
        "EARLY": target == "nvidia",
    }
    found = compiled(norm_kernels.send_words, target, dtype, 1024, n_pes, **constants)
    assert spilled(found, target) <= SPILLED.get((target, n_pes, dtype), 0)
    assert len(places(instructions(text_of(found, target)), MARKED[vendor(target)])) >= parts * n_pes
