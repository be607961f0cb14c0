"""The kernels of pyshmem.ops compile for every GPU with the tile sizes of its row: matrix instructions, wide stores, no spills."""

import pytest
import torch
from compiling import TARGETS, array, compile, context, instructions, places, spans, specialise
from products import compiled, excess, pes_of, registers, spilled, text_of
from pyshmem.ops.gemm.product import Configuration, configuration
from pyshmem.ops.copies import await_flag, begin_call
from pyshmem.ops.gemm.few_rows import _ROWS, multiply_and_exchange
from pyshmem.ops.gemm.all_gather_gemm_kernel import gather_and_multiply
from pyshmem.ops.gemm.gemm_kernel import ALONE, COLUMNS, REDUCE, ROWS, SCATTER, multiply_and_send

MULTIPLY = {"nvidia": r"wgmma\.mma_async", "amd": r"v_mfma_f32_\d+x\d+x\d+_?bf16"}
STORE = {"nvidia": r"st\.global", "amd": r"(global|buffer)_store"}
WIDE = {"nvidia": r"st\.global\.v4\.b32", "amd": r"(global|buffer)_store_dwordx4"}
NARROW = {"nvidia": r"st\.global\.(v2\.)?b16|st\.global\.v2\.b32", "amd": r"(global|buffer)_store_(short|byte)"}
CASES = {
    "alone, streamed": (ALONE, True), "rows": (ROWS, False), "columns, streamed": (COLUMNS, True),
    "scatter": (SCATTER, False), "reduce, streamed": (REDUCE, True),
}  # fmt: skip
SENDING = [name for name, (kind, _) in CASES.items() if kind is not ALONE]
# Bytes a thread: with the sums of peers' parts these two want more than NVIDIA's 255 registers.
SPILLED = {("nvidia", "scatter"): 68, ("nvidia", "reduce, streamed"): 320}


MOST_LANES = 5  # of an AMD GPU's vector register, read in a turn of about 200 instructions


def vendor(target):
    return "nvidia" if target == "nvidia" else "amd"


def fused(target, case, dtype=torch.bfloat16, **more):
    """multiply_and_send. In bfloat16 on AMD GPUs it is always streamed, which takes more of them."""
    kind, streamed = CASES[case]
    streamed = streamed or (target != "nvidia" and dtype == torch.bfloat16)
    constants = {"KIND": kind.value, "STREAMED": streamed, "FAN": fan_of(case, target)}
    return compiled(multiply_and_send, target, dtype, edges=True, **constants, **more)


def fan_of(case, target):
    """How many peers a tile of the case goes to."""
    return {ALONE: 0, SCATTER: 1}.get(CASES[case][0], pes_of(target) - 1)


def k_loops(found, target):
    """The innermost loops that multiply. Several branches may lead back to the first line of a loop."""
    lines = instructions(text_of(found, target))
    ends = dict(sorted(spans(lines)))
    stretches = [
        (first, last) for first, last in ends.items() if places(lines[first : last + 1], MULTIPLY[vendor(target)])
    ]
    inner = [one for one in stretches if not any(one[0] < other[0] <= one[1] for other in stretches)]
    return [lines[first : last + 1] for first, last in inner]


@pytest.mark.parametrize("case", CASES)
def test_products_use_the_matrix_units_and_nvidia_loads_by_tma(case, target):
    found = k_loops(fused(target, case), target)
    assert len(found) >= 1
    if target == "nvidia":
        assert all(places(each, r"cp\.async\.bulk\.tensor") for each in found)


@pytest.mark.parametrize("case", CASES)
def test_registers_are_not_spilled(case, target):
    assert not excess(fused(target, case), target, SPILLED.get((target, case), 0))


@pytest.mark.parametrize("case", SENDING)
def test_scalar_registers_that_the_compiler_keeps_in_lanes_are_few_in_a_k_loop(case, target):
    """On AMD GPUs. A wave has 102, and the numbers of a call are more; the K loop should not fetch them in each turn."""
    if vendor(target) == "amd":
        loops = k_loops(fused(target, case), target)
        assert all(len(places(each, r"v_(read|write)lane_b32")) <= MOST_LANES for each in loops)


def test_a_k_loop_on_gfx942_reads_lds_by_16_bytes():
    for each in k_loops(fused("gfx942", "columns, streamed"), "gfx942"):
        assert {line.split()[0] for line in each if line.startswith("ds_read")} == {"ds_read_b128"}


@pytest.mark.parametrize("case", SENDING)
def test_a_slab_goes_out_of_the_k_loop_by_one_store_of_16_bytes(case, target):
    """16 bytes a thread and peer; the words of nothing else are stored there. Parts of a sum go to one peer each."""
    peers = 1 if CASES[case][0] is REDUCE else fan_of(case, target)
    for each in k_loops(fused(target, case), target):
        assert places(each, STORE[vendor(target)]) == places(each, WIDE[vendor(target)])
        assert len(places(each, WIDE[vendor(target)])) == peers


@pytest.mark.parametrize("case", SENDING)
def test_a_tile_is_stored_here_and_on_the_peer_by_16_bytes(case, target):
    lines, row = instructions(text_of(fused(target, case), target)), configuration(target, torch.bfloat16, None)
    own = row.BM * row.BN * 2 // (row.warps * TARGETS[target].warp_size * 16)
    assert len(places(lines, WIDE[vendor(target)])) >= 2 * own
    assert not places(lines, NARROW[vendor(target)])


@pytest.mark.parametrize(
    "sent, streamed", [(True, False), (False, True), (True, True)], ids=["sent", "copied, streamed", "sent, streamed"]
)
def test_gathered_rows_are_multiplied_by_the_matrix_units_without_spills(sent, streamed, target):
    fan = pes_of(target) - 1 if sent else 0
    found = compiled(gather_and_multiply, target, edges=True, FAN=fan, STREAMED=streamed)
    loops = k_loops(found, target)
    assert len(loops) == 2 + streamed  # own rows, those of peers, and parts of their tiles
    # outside the K loops: one value, or those that the streamed tiles need
    limit = (152 if streamed else 8) if (target, sent) == ("nvidia", True) else 0
    assert not excess(found, target, limit)
    wide = WIDE[vendor(target)]
    # a slab of own rows goes out of the K loop
    assert [len(places(each, wide)) for each in loops] == [fan, *[0] * (1 + streamed)]


def test_float32_is_multiplied_without_spills(target):
    assert spilled(fused(target, "rows", torch.float32), target) == 0


@pytest.mark.parametrize("rows, dtype", [(16, torch.bfloat16), (64, torch.float32)])
def test_few_rows_are_multiplied_by_the_matrix_units_and_sent_by_16_bytes_without_spills(rows, dtype, target):
    BK, warps, stages = _ROWS[target, dtype.itemsize]
    row = Configuration(rows, 64, BK, warps, stages)
    found = compiled(multiply_and_exchange, target, dtype, edges=rows == 16, row=row, B_ALONG=False)
    lines = instructions(text_of(found, target))
    multiply = {"nvidia": r"wgmma\.mma_async|mma\.sync", "amd": r"v_mfma_f32_"}[vendor(target)]
    assert places(lines, multiply)
    assert not excess(found, target, 8 if target == "nvidia" else 0)  # Triton 3.6: two registers, outside the K loop
    wide = {"nvidia": r"st\.[a-z.]*v4\.b32", "amd": r"(global|buffer)_store_dwordx4"}[vendor(target)]
    assert len(places(lines, wide)) >= 2  # the part of a peer, and the sum here


EIGHT_BITS = {"nvidia": torch.float8_e4m3fn, "gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
OF_EIGHT = {
    "nvidia": r"wgmma\.mma_async.*\.e4m3\.e4m3",
    "gfx942": r"v_mfma_f32_\d+x\d+x\d+_fp8_fp8",
    "gfx950": r"v_mfma_.*f8f6f4",
}


CASES_OF_EIGHT = {
    "nvidia": ("rows", "scatter", "gathered", "few rows"), "gfx942": ("rows", "gathered"), "gfx950": ("scatter", "few rows"),
}  # fmt: skip


@pytest.mark.parametrize("gpu, case", [(gpu, case) for gpu, cases in CASES_OF_EIGHT.items() for case in cases])
def test_8_bits_are_multiplied_by_the_matrix_units_without_spills(case, gpu):
    dtype = EIGHT_BITS[gpu]
    if case == "gathered":
        found = compiled(gather_and_multiply, gpu, dtype, edges=True, FAN=1)
    elif case == "few rows":
        found = compiled(multiply_and_exchange, gpu, dtype, row=Configuration(64, 64, *_ROWS[gpu, 1]))
    else:
        found = fused(gpu, case, dtype)
    assert spilled(found, gpu) == 0
    assert places(instructions(text_of(found, gpu)), OF_EIGHT[gpu])


def test_sums_of_8_bits_are_added_in_float32_unless_the_caller_wants_speed():
    """NVIDIA's matrix units keep fewer bits. A thread adds its elements of a tile after each step in K."""
    exact, fast = (configuration("nvidia", EIGHT_BITS["nvidia"], None, wanted) for wanted in (False, True))
    for row, how, adds in ((exact, "promoted", True), (fast, "ieee", False)):
        found = fused("nvidia", "rows", EIGHT_BITS["nvidia"], row=row, PRECISION=how)
        (loop,) = k_loops(found, "nvidia")
        each = row.BM * row.BN // (row.warps * 32)
        assert len(places(loop, r"add\.(rn\.)?f32")) == (each if adds else 0)
        assert spilled(found, "nvidia") == 0


@pytest.mark.parametrize("kernel", [begin_call, await_flag], ids=["begins", "waits"])
def test_a_kernel_that_waits_beside_a_product_is_one_warp_of_few_registers(kernel, target):
    """A program of cuBLAS takes 384 x 168 of the 65536 registers of a multiprocessor: 1024 are left."""
    words = array(torch.uint64)
    more = [] if kernel is begin_call else [words, True]
    source, options = specialise(kernel, target, [context(target, 0, 2), words, *more], num_warps=1)
    found = compile(source, target=TARGETS[target], options=options.__dict__)
    assert found.metadata.shared == 0
    if target == "nvidia":
        assert registers(found) <= 1024 // 32
