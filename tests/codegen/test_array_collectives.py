"""Collectives on symmetric arrays: how they are compiled, and that what they move is ordered as the memory model wants."""

import pyshmem.device as dev
import pytest
import torch
import triton
from compiling import assembly, cache_key, context, in_order, instructions, loops, operand, places, polling
from kernels import of
from test_compiles import refuse_spills
from test_memory_model import ACQUIRE, BARRIER, DRAIN, POLL, RELEASE
from test_widths import LOAD, STORE, WIDE, vendor, wide_loops

BAR, TELL, HEAR = r"bar\.sync", r"st\.release\.sys\.global", r"ld\.acquire\.sys\.global"


@triton.jit
def barrier(ctx, x):
    dev.put(ctx, x, x + 1000, 1000, 1)
    dev.barrier_all_grid(ctx)


I8, BF16, F32, F64 = torch.int8, torch.bfloat16, torch.float32, torch.float64
BROADCAST, COLLECT = of(dev.broadcast_grid, F32, F32, 1000, 3), of(dev.collect, I8, I8, 1000)
SUM, SCAN = of(dev.sum_reduce_grid, BF16, BF16, 1000), of(dev.sum_exscan, F64, F64, 1000)
GRID = (barrier, F32)
ALLTOALLS, MIN = of(dev.alltoalls_grid, F32, F32, 2, 3, 1000), of(dev.min_reduce, I8, I8, 1000)
CASES = {
    "broadcast": BROADCAST,
    "collect": COLLECT,
    "alltoalls": ALLTOALLS,
    "sum": SUM,
    "min": MIN,
    "scan": SCAN,
    "grid": GRID,
}


def listing(case, target):
    return instructions(assembly(case[0], target, *case[1:]))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_collectives_of_arrays_compile_and_spill_nothing(case, target):
    refuse_spills(assembly(case[0], target, *case[1:]), target)


@pytest.mark.parametrize("case", [BROADCAST, COLLECT], ids=["broadcast", "collect"])
def test_collectives_copy_by_16_bytes_four_in_flight(case, target):
    found = wide_loops(listing(case, target), target)
    assert any(len(loads) == len(stores) == 4 and loads[-1] < stores[0] for loads, stores in found)


def all_wide(loop, pattern, target):
    """How many of these accesses a loop makes; 0 where one is narrow."""
    lines = [loop[place] for place in places(loop, pattern[vendor(target)])]
    return len(lines) if all(places([line], WIDE[vendor(target)]) for line in lines) else 0


@pytest.mark.parametrize("case", [SUM, SCAN], ids=["reduction", "scan"])
def test_combining_loads_and_stores_16_bytes_four_in_flight(case, target):
    found = loops(listing(case, target))
    assert any(all_wide(loop, LOAD, target) >= 4 for loop in found)
    assert any(all_wide(loop, STORE, target) >= 4 for loop in found)


@pytest.mark.parametrize("case", [SUM, SCAN], ids=["reduction", "scan"])
def test_nvidia_reads_peers_behind_one_exchange_and_tells_what_it_wrote_by_another(case):
    lines = listing(case, "nvidia")
    tells = places(lines, TELL)
    assert len(tells) == 2
    load, store = r"ld\.global\.(v4|v2)", r"st\.global\.(v4|v2|b)"
    in_order(lines, BAR, TELL, HEAR, BAR, load, store, BAR, TELL, HEAR, BAR)
    assert tells[0] < places(lines, load)[0]  # nothing of a peer's is read before
    assert places(lines[places(lines[: tells[1]], store)[-1] : tells[1]], BAR)


@pytest.mark.parametrize("case", [SUM, SCAN], ids=["reduction", "scan"])
def test_amd_reads_peers_behind_one_exchange_and_tells_what_it_wrote_by_another(case, amd):
    lines = listing(case, amd)
    flag = "global_store_dwordx2 .*" + ("off$" if amd == "gfx90a" else "sc0 sc1$")
    load, store = "(global|buffer|flat)_load_dwordx4", "(global|buffer|flat)_store_dwordx4"
    tell, hear = (DRAIN, BARRIER, RELEASE[amd], DRAIN, flag), (POLL[amd], *ACQUIRE[amd], BARRIER)
    first = in_order(lines, *tell, *hear, load, store, *tell, *hear)
    read = len(tell) + len(hear)
    assert first[4] < places(lines, load)[0]
    last = places(lines[: first[read + 4]], STORE["amd"])[-1]  # before the release of the second exchange
    in_order(lines[last : first[read + 4] + 1], STORE["amd"], DRAIN, BARRIER, RELEASE[amd])


def test_a_broadcasts_readers_acquire_what_its_root_released(target):
    lines = listing(BROADCAST, target)
    if target == "nvidia":
        in_order(lines, r"st\.global\.(v4|v2)", BAR, TELL)
        in_order(lines, HEAR, BAR)
        assert len(places(lines, TELL)) == 1
    else:
        in_order(
            lines,
            r"(global|buffer)_store_dwordx4 .* off",
            DRAIN,
            BARRIER,
            RELEASE[target],
            DRAIN,
            "global_store_dwordx2",
        )
        in_order(lines, POLL[target], *ACQUIRE[target], BARRIER)


def test_nvidia_programs_come_to_the_barrier_of_grids_released_and_leave_it_acquired():
    lines = listing(GRID, "nvidia")
    come = r"atom\.\S*acq_rel\S*\.add"
    *_, at = in_order(lines, r"st\.global", BAR, r"fence\.acq_rel\.sys", BAR, come)
    assert len(places(lines, come)) == 1 and ".sys" in lines[at]
    (told,) = [place for place in places(lines, TELL) if "tid.x" not in lines[place]]
    (go,) = [place for place in places(lines, TELL) if "tid.x" in lines[place]]  # one thread lets the programs here go
    assert at < told < go
    in_order(lines[at:], BAR, TELL, HEAR)
    assert places(lines[places(lines[:go], BAR)[-1] : go], BAR)
    assert len(polling(lines, HEAR)) >= 2  # for the peers, and for the last program here


def test_amd_programs_write_back_before_they_come_to_the_barrier_of_grids(amd):
    lines = listing(GRID, amd)
    come, go = "global_atomic_add_x2", "global_atomic_swap_x2"
    stored, *_, at = in_order(lines, STORE["amd"], DRAIN, RELEASE[amd], DRAIN, BARRIER, come)
    in_order(lines[at:], *ACQUIRE[amd], RELEASE[amd], "global_store_dwordx2", POLL[amd], *ACQUIRE[amd], go)


@pytest.mark.parametrize("case", [SUM, COLLECT, GRID], ids=["sum_reduce", "collect", "barrier_all_grid"])
def test_one_binary_of_a_collective_serves_all_pes(case, target):
    args = [*map(operand, case[1:])]
    assert len({cache_key(case[0], target, [context(target, me, 32), *args]) for me in (0, 1, 2, 13, 16)}) == 1
