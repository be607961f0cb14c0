"""Collectives on tiles: how they are compiled, and that what they exchange is ordered as the memory model wants."""

import importlib
import pathlib
import sys

import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from compiling import assembly, in_order, instructions, loops, places
from test_compiles import refuse_spills
from test_memory_model import ACQUIRE, BARRIER, DRAIN, POLL, RELEASE

BAR = r"bar\.sync"
WIDE_STORE = {"nvidia": r"st\.global\.v4\.b32", "amd": r"global_store_dwordx4 .* off$"}  # to pieces
WIDE_LOAD = {"nvidia": r"ld\.global\.v4\.b32", "amd": "(global|buffer)_load_dwordx4"}


@triton.jit
def all_reduce(ctx, x, y, count: tl.constexpr, op: tl.constexpr):
    lane = tl.arange(0, count)
    tl.store(y + lane, dev.all_reduce(ctx, tl.load(x + lane), op))


@triton.jit
def rows(ctx, x, y, z, count: tl.constexpr):
    at = (tl.arange(0, ctx.members) * count)[:, None] + tl.arange(0, count)[None, :]
    tl.store(y + at, dev.all_to_all(ctx, tl.load(x + at)))
    tl.store(z + tl.arange(0, count), dev.reduce_scatter(ctx, tl.load(x + at), "sum"))
    tl.store(y + at, dev.all_gather(ctx, tl.load(z + tl.arange(0, count))))


@triton.jit
def block_of(start, block):
    """Pointers to the elements of a block of two dimensions, by rows."""
    rows: tl.constexpr = block.shape[0]
    columns: tl.constexpr = block.shape[1]
    return start + tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]


@triton.jit
def along_axes(ctx, x, y, columns: tl.constexpr):
    tile = tl.load(x + tl.arange(0, 32)[:, None] * columns + tl.arange(0, columns)[None, :])
    piece = dev.reduce_scatter(ctx, dev.all_to_all(ctx, tile, axis=1), "sum", axis=0)
    whole = dev.all_gather(ctx, piece, axis=1)
    tl.store(block_of(y, whole), dev.scan(ctx, whole, "sum", exclusive=True))


@triton.jit
def one_way(ctx, x, y, to, of, count: tl.constexpr):
    lane = tl.arange(0, count)
    tile = dev.sendrecv(ctx, tl.load(x + lane), to, of)
    dev.send(ctx, tile, to)
    tile = dev.recv(ctx, tile, of)
    tl.store(y + lane, dev.broadcast(ctx, tile, of))


F32, F16, BF16, I64 = torch.float32, torch.float16, torch.bfloat16, torch.int64
SMALL, MIDDLE = (all_reduce, F32, F32, 512, "sum"), (all_reduce, F32, F32, 2048, "sum")
LARGE, ONE_WAY = (all_reduce, BF16, BF16, 16384, "sum"), (one_way, F32, F32, 1, 3, 1024)
TINY = (all_reduce, F32, F32, 32, "sum")
ROWS, AXES = (rows, F32, F32, F32, 512), (along_axes, F32, F32, 64)
CASES = [
    SMALL, MIDDLE, LARGE, (all_reduce, F16, F16, 8, "max"), (all_reduce, I64, I64, 128, "xor"),
    ROWS, AXES, ONE_WAY,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}-{case[-2]}-{case[-1]}")
def test_tile_collectives_compile_and_spill_nothing(case, target):
    refuse_spills(assembly(case[0], target, *case[1:]), target)


@pytest.mark.parametrize("pes", [1, 8])
@pytest.mark.parametrize("case", [SMALL, LARGE, ROWS, AXES], ids=["words", "two shot", "rows", "axes"])
def test_tile_collectives_of_one_and_of_eight_pes_spill_nothing(case, pes, target):
    refuse_spills(assembly(case[0], target, *case[1:], n_pes=pes), target)


# ---- order ----


def test_nvidia_words_carry_their_marks_in_one_store_and_need_no_fence_on_their_way():
    """Twice: in one turn, and for a piece that is too small in several."""
    lines = instructions(assembly(SMALL[0], "nvidia", *SMALL[1:], record=False))  # a record that is left has a fence
    sent, polled = (
        places(lines, each) for each in (r"st\.relaxed\.sys\.global\.b64", r"ld\.relaxed\.sys\.global\.b64 word")
    )
    assert len(sent) == len(polled) == 2 * 16  # 128 threads, 512 words, to and from 4 members
    for turn in (slice(0, 16), slice(16, 32)):
        stores, loads = sent[turn], polled[turn]
        # of each thread four times four members' at once
        assert all(set(range(loads[k], loads[k] + 4)) <= set(loads) for k in range(0, 16, 4))
        assert stores[-1] < loads[0]
        assert not places(lines[stores[0] : loads[-1]], r"ld\.acquire|st\.release|bar\.sync")
        assert not places(lines[stores[0] : loads[0]], "fence")
        in_order(lines[loads[-1] :], BAR)
    in_order(lines, r"ld\.relaxed\.sys\.global\.b64 word", BAR, r"st\.global\.v4")  # read by all before any goes on
    assert len(places(lines, "%globaltimer")) == 2 * 4  # a limit


def joined(lines, kind, barrier):
    """Whether a barrier follows the last reading of a turn: behind it, or where the loop begins again."""
    last, first = places(lines, WIDE_LOAD[kind])[-1], places(lines, WIDE_STORE[kind])[0]
    return places(lines[last:], barrier) or places(lines[:first], barrier)


def test_warps_meet_between_the_reading_of_the_turns_number_and_its_writing(target):
    """Of few words every warp polls all: without a barrier one may begin the turn that another has ended."""
    lines = instructions(assembly(TINY[0], target, *TINY[1:]))
    if target == "nvidia":
        barriers = places(lines, BAR)
        number = next(place for place in places(lines, r"st\.global\.b64 ") if place + 1 in barriers)
        start = max(place for place in places(lines[:number], r"^\$L__BB") if place < number)
        assert places(lines[start:number], BAR)
    else:
        last = places(lines, POLL[target].replace("dword", "dwordx2"))[-1]
        number = next(place for place in places(lines, "global_store_dwordx2 ") if place > last)
        assert places(lines[last:number], BARRIER)


@pytest.mark.parametrize("case", [MIDDLE, LARGE, ROWS, AXES], ids=["one shot", "two shot", "rows", "axes"])
def test_nvidia_tells_after_all_stores_and_reads_after_an_acquire(case):
    lines = instructions(assembly(case[0], "nvidia", *case[1:]))
    tells, polls = places(lines, r"st\.release\.sys"), places(lines, r"ld\.acquire\.sys")
    assert len(polls) == len(tells)
    assert len(tells) == {MIDDLE: 1, LARGE: 2, ROWS: 3, AXES: 4}[case]
    for tell in tells:
        stored = places(lines[:tell], WIDE_STORE["nvidia"])[-1]
        assert places(lines[stored:tell], BAR)
    in_order(lines, WIDE_STORE["nvidia"], BAR, r"st\.release\.sys", r"ld\.acquire\.sys", BAR, WIDE_LOAD["nvidia"])
    assert joined(lines, "nvidia", BAR)


@pytest.mark.parametrize("case", [MIDDLE, LARGE, AXES], ids=["one shot", "two shot", "axes"])
def test_amd_drains_every_wave_writes_back_tells_and_invalidates_before_it_reads(case, amd):
    lines = instructions(assembly(case[0], amd, *case[1:]))
    flag = "global_store_dwordx2 .*" + ("off$" if amd == "gfx90a" else "sc0 sc1$")
    in_order(
        lines, WIDE_STORE["amd"], DRAIN, BARRIER, RELEASE[amd], DRAIN, flag,
        POLL[amd], *ACQUIRE[amd], BARRIER, WIDE_LOAD["amd"],
    )  # fmt: skip
    assert joined(lines, "amd", BARRIER)


def test_amd_words_go_through_all_caches_and_are_read_together(amd):
    lines = instructions(assembly(SMALL[0], amd, *SMALL[1:]))
    past = "" if amd == "gfx90a" else " sc0 sc1"
    assert len(places(lines, f"global_store_dwordx2 .* off{past}$")) >= 2
    loads = places(lines, POLL[amd].replace("dword", "dwordx2"))
    # of four members, then one wait
    assert loads and any(set(range(place, place + 4)) <= set(loads) for place in loads)
    stored = places(lines[: loads[0]], f"global_store_dwordx2 .* off{past}$")[-1]
    assert not places(lines[stored : loads[0]], "|".join([RELEASE[amd], BARRIER, *ACQUIRE[amd]]))


@pytest.mark.parametrize(
    "case", [MIDDLE, LARGE, ROWS, AXES, ONE_WAY], ids=["one shot", "two shot", "rows", "axes", "one way"]
)
def test_pieces_move_16_bytes_at_a_time(case, target):
    lines = instructions(assembly(case[0], target, *case[1:]))
    kind = "nvidia" if target == "nvidia" else "amd"
    assert places(lines, WIDE_STORE[kind])
    assert not places(lines, r"st\.global\.b(8|16|32) |(global|buffer)_store_(byte|short|dword) ")


# ---- a loop whose loads are remote ----


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory):
    """The kernel of examples/pipelined_loads.py."""
    folder = tmp_path_factory.mktemp("pipelined")
    text = (pathlib.Path(__file__).parents[2] / "examples/pipelined_loads.py").read_text()
    (folder / "kernel_of_pipelined_loads.py").write_text(text.split("shmem.init()")[0])
    sys.path.insert(0, str(folder))
    yield importlib.import_module("kernel_of_pipelined_loads").gemm
    sys.path.remove(str(folder))


@pytest.mark.parametrize("stages", [1, 3])
def test_loads_of_a_pipelined_loop_are_as_wide_from_a_peer_as_from_here(pipelined, stages, target):
    """Half of them are remote. On NVIDIA they go to shared memory by themselves if the loop has stages."""
    text = assembly(pipelined, target, F16, F16, F32, 1, 4096, 4096, 128, 128, 64, stages, num_warps=8)
    loop = max(loops(instructions(text)), key=len)
    wide = {"nvidia": r"cp\.async\.cg\.shared\.global .* 0x10" if stages > 1 else r"ld\.global\.v4\.b32"}
    loads = places(loop, wide.get(target, WIDE_LOAD["amd"]))
    assert len(loads) == (8 if target == "nvidia" else 4)
    assert len(places(loop, r"cp\.async\.cg|ld\.global|(global|buffer)_load")) == len(loads)
    refuse_spills(text, target)


@triton.jit
def waiting_loop(ctx, a, b, c, signals, pe, K, N, B: tl.constexpr, CALL: tl.constexpr):
    lane = tl.arange(0, B)
    from_a = a + lane[:, None] * K + lane[None, :]
    from_b = dev.ptr(ctx, b, pe) + lane[:, None] * N + lane[None, :]
    tile = tl.zeros((B, B), tl.float32)
    for k in tl.range(0, K, B, num_stages=3):
        if CALL == "wait":
            dev.signal_wait_until(ctx, signals + k, dev.CMP_GE, 1)
        else:
            dev.barrier_all(ctx)
        tile = tl.dot(tl.load(from_a + k), tl.load(from_b + k * N), tile)
    tl.store(c + lane[:, None] * B + lane[None, :], tile)


@pytest.mark.parametrize("call", ["wait", "barrier"])
def test_loads_of_a_loop_with_stages_do_not_pass_a_wait_in_it(call, target):
    """There are the loads of one step alone: a loop with stages has others before it, for the steps to come."""
    lines = instructions(assembly(waiting_loop, target, F16, F16, F32, torch.uint64, 1, 4096, 4096, 64, call))
    assert not places(lines, r"cp\.async")
    loads = places(lines, WIDE_LOAD["nvidia" if target == "nvidia" else "amd"])
    assert len(loads) == (8 if target == "nvidia" else 4)
    assert places(lines, r"ld\.acquire\.sys" if target == "nvidia" else POLL[target].replace("dword", "dwordx2"))
