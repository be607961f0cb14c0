"""The kernels of pyshmem.ops.models compile for every GPU as plans compile them: without spills, with wide accesses."""

import re
import struct

import pytest
import torch
import triton.language as tl
from compiling import TARGETS, array, compile, context, instructions, places, specialise
from products import excess, pes_of, registers, spilled, text_of
from pyshmem.device.arch.fields import encoded, encoded_each
from pyshmem.kernels.on_stream import of_team
from pyshmem.ops.training import activations
from pyshmem.ops.attention import decode_kernels
from pyshmem.ops.experts import kernels as expert_kernels
from pyshmem.ops.training import schedules as gradient_schedules
from pyshmem.ops.norms import kernels as norm_kernels
from pyshmem.ops.norms import words as norm_words
from pyshmem.ops.attention.decode_schedules import MERGING_WARPS, WARPS, blocks_of
from pyshmem.ops.experts import words as expert_words
from pyshmem.ops.experts.schedules import ADDED, EACH, MOST_PES_ON_AMD, SENT, SPREAD, encoded_division, power, sizes_of
from pyshmem.ops.norms.schedules import MOST_PARTS, MOST_PES, Push
from pyshmem.memory.arguments import name_of

TWICE = dict.fromkeys((("nvidia", torch.float64), ("nvidia", torch.int64)), r"(ld|st)\.global\S*\.v2\.b64")
WIDE = {"nvidia": r"(ld|st)\.global\S*\.v4\.b32", "amd": r"(global|buffer)_(load|store)_dwordx4"}
MARKED = {"nvidia": r"st\.relaxed\.sys\.global\.b64", "amd": r"global_store_dwordx2"}
MULTIPLY = {"nvidia": r"mma\.sync", "amd": r"v_mfma_f32_\d+x\d+x\d+_?bf16"}
HIDDEN = 8192


def compiled(kernel, target, dtype, threads, more=None, n_pes=None, num_stages=3, **constants):
    """A kernel with what a plan gives it: all_reduce_rms_norm's for rows of 8192 elements, unless ``constants`` say more.

    more: options of the compiler.  n_pes: None is that of products.pes_of.
    """
    n_pes = n_pes or pes_of(target)
    values = dict.fromkeys(("flags", "words"), array(torch.uint64)) | {"slots": array(dtype), "out": array(dtype)}
    values |= {"ctx": context(target, 0, n_pes), "epochs": array(torch.int64), "BLOCK": HIDDEN, "FAN": False}
    values |= {"EARLY": target == "nvidia", "STAGES": 2 if target == "nvidia" else 1, "hidden": HIDDEN} | constants
    rows = norm_kernels.Rows(*[array(dtype)] * 3, values["out"], array(dtype), array(torch.float32))
    values = {"shape": norm_kernels.Shape(encoded(7), encoded(8), values["hidden"], 1e-6), "rows": rows} | values
    args = [values[name] for name in kernel.arg_names]
    chosen = {"num_warps": threads // TARGETS[target].warp_size, "num_stages": num_stages} | (more or {})
    source, options = specialise(kernel, target, args, **chosen)
    return compile(source, target=TARGETS[target], options=options.__dict__)


def vendor(target):
    return "nvidia" if target == "nvidia" else "amd"


ROWS = {
    "push": (norm_kernels.push_rows, 512, {}), "pull": (norm_kernels.pull_rows, 256, {"SHARED": False}),
    "norm": (norm_kernels.normalise_rows, 256, {}), "push shares": (norm_kernels.push_shares, 512, {}),
    "push and gather": (norm_kernels.push_shares, 512, {"FAN": True}),
    "pull shares": (norm_kernels.pull_rows, 256, {"SHARED": True}),
    "pull and gather": (norm_kernels.pull_rows, 512, {"SHARED": True, "FAN": True}),
}  # fmt: skip
OF_32_BITS = ("push", "pull", "push and gather")  # a kernel each, in its largest form
# Bytes a thread: addresses on all PEs, or words of four PEs, want more than the registers that so many threads have.
SPILLED = {
    ("nvidia", "pull", torch.bfloat16): 40,  # by Triton 3.6, and the next
    ("nvidia", "pull", torch.float32): 8,
    ("nvidia", "push shares", torch.bfloat16): 40,
    ("nvidia", 2, torch.bfloat16): 24, ("nvidia", 2, torch.float32): 8,
    ("nvidia", MOST_PES, torch.bfloat16): 32, ("nvidia", MOST_PES, torch.float32): 32,
    ("nvidia", "dispatch", torch.bfloat16): 8,  # by Triton 3.6
    ("nvidia", "combine", torch.float32): 192,
}  # fmt: skip


@pytest.mark.parametrize(
    "case, dtype",
    [*((case, torch.bfloat16) for case in ROWS), *((case, torch.float32) for case in OF_32_BITS)],
    ids=str,
)
def test_kernels_on_rows_move_16_bytes_at_once_and_do_not_spill(case, dtype, target):
    kernel, threads, constants = ROWS[case]
    found = compiled(kernel, target, dtype, threads, **constants)
    assert not excess(found, target, SPILLED.get((target, case, dtype), 0))
    assert places(instructions(text_of(found, target)), WIDE[vendor(target)])


def words(target, dtype, n_pes, cut):
    ctx = of_team(context(target, 0, n_pes)._replace(piece=8 * 1024 * MOST_PARTS))
    constants = {
        "ctx": ctx,
        "hidden": MOST_PARTS * 4096 // dtype.itemsize,
        "slots": array(torch.int64),
        "PARTS": MOST_PARTS,
        "WIDTH": 1024,
        "CUT": cut,
    }
    return compiled(norm_words.send_words, target, dtype, 1024, n_pes=n_pes, **constants)


@pytest.mark.parametrize(
    "dtype, n_pes, cut",
    [
        (torch.bfloat16, 2, 1),
        (torch.bfloat16, MOST_PES, MOST_PARTS),
        (torch.float32, 2, MOST_PARTS),
        (torch.float32, MOST_PES, 1),
    ],
    ids=str,
)
def test_words_go_out_one_a_thread_and_part_without_spills(dtype, n_pes, cut, target):
    """Of the longest rows that the schedule has, whole or in pieces: of two PEs, each sends to one alone."""
    found = words(target, dtype, n_pes, cut)
    assert spilled(found, target) <= SPILLED.get((target, n_pes, dtype), 0)
    sent = MOST_PARTS // cut * (1 if n_pes == 2 else n_pes)
    assert len(places(instructions(text_of(found, target)), MARKED[vendor(target)])) >= sent


def test_programs_that_push_rows_fit_twice_on_a_multiprocessor_without_spills():
    few = {"maxnreg": Push.registers}
    found = compiled(norm_kernels.push_rows, "nvidia", torch.bfloat16, HIDDEN // Push.each, few)
    assert spilled(found, "nvidia") == 0
    assert Push.most * HIDDEN // Push.each * registers(found) <= 65536


@pytest.mark.parametrize("case", ["pull", "push and gather", "pull and gather"])
def test_rows_of_8_bits_are_stored_16_at_once_without_spills(case, target):
    kernel, threads, constants = ROWS[case]
    found = compiled(kernel, target, torch.bfloat16, threads, out=array(torch.uint8), **constants)
    assert spilled(found, target) == 0
    assert places(instructions(text_of(found, target)), WIDE[vendor(target)])


def decode(kernel, target, dtype, warps=WARPS, page=None, fused=True):
    """A kernel of flash_decode, for 32 heads of queries and 8 of keys, of 128 elements."""
    block, stages, chunk = blocks_of(target, 128, page)
    floats, words = array(torch.float32), array(torch.uint64)
    arrays = {"sums": floats, "every": floats} | dict.fromkeys(("lengths", "table"), array(torch.int32))
    arrays |= dict.fromkeys(("q", "k", "v"), array(dtype)) | {"out": array(dtype)}
    arrays["exchange"] = decode_kernels.Exchange(words, floats, floats, array(torch.int64), words)
    arrays["parts"] = decode_kernels.Parts(floats, floats)
    sizes = {"shape": decode_kernels.Shape(*encoded_each(65536, 33, 8)), "n": 2, "scale": 0.1}
    sizes["FORM"] = decode_kernels.Form(8, 4, 128, 16, block, 4, 128, chunk, page, "ieee", fused)
    threads = warps * TARGETS[target].warp_size
    return compiled(kernel, target, dtype, threads, num_stages=stages, **arrays, **sizes)


@pytest.mark.parametrize("fused, page", [(True, None), (False, None), (True, 16), (True, 128)])
def test_attention_uses_the_matrix_units_and_loads_16_bytes_a_thread_without_spills(fused, page, target):
    found = decode(decode_kernels.attend, target, torch.bfloat16, page=page, fused=fused)
    assert not excess(found, target)
    lines = instructions(text_of(found, target))
    assert places(lines, MULTIPLY[vendor(target)])
    if target == "nvidia":  # asynchronous copies to the memory of several stages
        assert places(lines, r"cp\.async\.cg\S* .*0x10|cp\.async\.cg\S* .* 16")
    else:
        assert places(lines, WIDE["amd"])


@pytest.mark.parametrize("name", ["merge_splits", "merge_pes"])
def test_parts_are_combined_without_spills(name, target):
    assert spilled(decode(getattr(decode_kernels, name), target, torch.float32, MERGING_WARPS), target) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=name_of)
def test_shares_of_gradients_are_added_16_bytes_at_once_by_one_warp_of_few_registers(dtype, target):
    """It fits on a multiprocessor beside a program of cuBLAS, which takes 384 x 168 of its 65536 registers."""
    few = {"maxnreg": gradient_schedules.REGISTERS} if target == "nvidia" else {}
    constants = {"count": 1 << 20, "pitch": 1 << 20, "own": array(dtype), "N": 2, "DIVISOR": 2}
    threads = gradient_schedules.WARPS * TARGETS[target].warp_size
    constants["BLOCK"] = gradient_schedules.block_of(dtype)
    found = compiled(gradient_schedules.add_shares, target, dtype, threads, few, **constants)
    assert spilled(found, target) == 0 and found.metadata.shared == 0
    assert places(instructions(text_of(found, target)), TWICE.get((target, dtype), WIDE[vendor(target)]))
    if target == "nvidia":
        assert registers(found) * threads <= 65536 - 384 * 168


def test_what_waits_for_shares_of_gradients_is_one_warp_of_few_registers(target):
    constants = {"first": array(torch.uint64), "pitch": 4, "ENDS": True}
    found = compiled(gradient_schedules.await_chunk, target, torch.bfloat16, TARGETS[target].warp_size, **constants)
    assert found.metadata.shared == 0
    if target == "nvidia":
        assert registers(found) * 32 <= 65536 - 384 * 168


@pytest.mark.parametrize("kind", [torch.int8, torch.int16, torch.int32, torch.int64], ids=name_of)
@pytest.mark.parametrize("kernel", [activations.send_parts, activations.recv_parts], ids=["send", "recv"])
def test_activations_are_copied_16_bytes_at_once_though_nothing_is_known_of_their_address(kernel, kind, target):
    anywhere, words = array(kind, aligned=False), array(torch.uint64)
    arrays = {"slots": array(kind), "arrived": words, "taken": words, "source": anywhere, "dest": anywhere}
    sizes = {"pitch": 1 << 20, "count": 1 << 20, "each": 1 << 15, "chunk": 1 << 14, "pe": 1, "SLOTS": 2}
    threads = activations.WARPS * TARGETS[target].warp_size
    found = compiled(kernel, target, kind, threads, **arrays, **sizes)
    assert spilled(found, target) <= (8 if target == "nvidia" else 0)  # a word or two beside the loops
    assert places(instructions(text_of(found, target)), TWICE.get((target, kind), WIDE[vendor(target)]))


EXPERT_WAYS = [
    ("dispatch", torch.bfloat16, 0), ("dispatch", torch.uint8, 56),
    ("dispatch_words", torch.uint8, 56), ("dispatch_words", torch.bfloat16, 0),
    ("combine", torch.bfloat16, 0), ("combine", torch.float32, 0),
]  # fmt: skip


def experts(way, target, dtype, scales):
    """A kernel for 64 experts, 8 of them for a token, and rows of 7168 elements, which have ``scales`` if of 8 bits."""
    n_pes = min(pes_of(target), MOST_PES_ON_AMD) if way == "dispatch_words" else pes_of(target)
    hidden, i32, f32, i64 = 7168, array(torch.int32), array(torch.float32), array(torch.int64)
    flags, rows, threads = array(torch.uint64), array(dtype), min(power(hidden) // EACH, 1024)
    work = encoded_division(expert_kernels.Division(parts=99, each=83, chunk=8, pushers=33, first=33))
    values = {"tokens": 8192, "room": 8192, "pitch": 99, "division": work, "capacity": 80000, "strict": 1}
    values |= {"shape": expert_kernels.Shape(hidden, 32), "hidden": hidden}
    values["operands"] = expert_kernels.Operands(rows, f32, i32, f32, rows, f32, i32, i32, i32, f32, i32)
    if way == "dispatch_words":
        kernel = expert_words.dispatch_words
        values["memory"] = expert_words.Memory(i64, flags, rows, f32, i64, i64)
        values["FORM"] = expert_words.Form(8, 8, 32, threads, 4, power(hidden), scales)
        values["ctx"] = context(target, 0, n_pes)._replace(piece=16 * 2048)
    elif way == "dispatch":
        kernel = expert_kernels.dispatch
        values["memory"] = expert_kernels.Memory(flags, i32, i32, f32, rows, f32, i64, i64)
        values["FORM"] = expert_kernels.Form(*sizes_of(8, 32, 64, 83), power(hidden), scales, SENT, SPREAD)
    else:
        kernel = expert_kernels.combine
        values["exchange"] = expert_kernels.Exchange(flags, rows, i64)
        values["results"] = expert_kernels.Results(rows, i32, f32, i32, rows)
        values |= {"TOP": 8, "W": power(hidden), "AT_ONCE": ADDED}
    return compiled(kernel, target, dtype, threads, n_pes=n_pes, **values)


@pytest.mark.parametrize("way, dtype, scales", EXPERT_WAYS, ids=str)
def test_rows_of_experts_cross_by_16_bytes_a_thread_without_spills(way, dtype, scales, target):
    found = experts(way, target, dtype, scales)
    assert not excess(found, target, SPILLED.get((target, way, dtype), 0))
    lines = instructions(text_of(found, target))
    stores = {"nvidia": r"st\.global\S*\.v4\.b32", "amd": r"global_store_dwordx4"}[vendor(target)]
    assert places(lines, stores) and places(lines, WIDE[vendor(target)])


MARKS = {
    "push": ("parcel", "row"), "push and gather": ("parcel", "row"), "pull": ("meet", "row"), "words": ("row",),
    "decode": ("tile", "parcel", "meet", "merge"), "dispatch": ("route", "parcel", "meet", "places", "spread"),
    "dispatch_words": ("parcel", "places", "spread"), "combine": ("parcel", "sums"),
}  # fmt: skip


@pytest.mark.parametrize("case", MARKS)
def test_kernels_mark_what_they_do_in_the_ring_of_a_timeline(case, target, monkeypatch):
    """A mark's name is a number in the event that the kernel stores."""
    usual = context
    monkeypatch.setitem(
        globals(),
        "context",
        lambda *of: usual(*of)._replace(trace=0x7C00_0000_0000, events=tl.constexpr(4800)),
    )
    if case in ROWS:
        kernel, threads, constants = ROWS[case]
        found = compiled(kernel, target, torch.bfloat16, threads, **constants)
    elif case == "words":
        found = words(target, torch.bfloat16, MOST_PES, 1)
    elif case == "decode":
        found = decode(decode_kernels.attend, target, torch.bfloat16)
    else:
        found = experts(case, target, torch.bfloat16, 0)
    text = text_of(found, target)
    for mark in MARKS[case]:
        low, high = struct.unpack("<2I", mark.encode().ljust(8, b"\0"))
        forms = (str(high << 32 | low),) if target == "nvidia" else (hex(low), str(low))
        assert any(re.search(rf"\b{form}\b", text) for form in forms), mark
