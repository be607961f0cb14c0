"""What the strided, the non-blocking and the many-word calls rest on: the same instructions as the calls they are like."""

import re

import kernels
import pytest
import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from compiling import assembly, in_order, instructions, loops, places, polling
from kernels import F32, I32, I64, U32, U64
from test_memory_model import ACQUIRE, BARRIER, DRAIN, POLL, RELEASE, STORE, last_store_before, listing

WAITS = {  # as in kernels.EVERY: nothing is compiled twice
    "all": (kernels.wait_until_all, I64, 1000, I32, I64, I64, 2),
    "any": (kernels.wait_until_any, U32, 1000, I32, I64, I64, 3),
    "some": (kernels.wait_until_some, U64, 1000, U64, I64, I64, 1),
}
TESTS = {
    "all": (kernels.test_all, I64, 1000, I32, I32),
    "any": (kernels.test_any, U64, 1000, I32, I32),
    "some": (kernels.test_some, U32, 1000, U64, I32),
}
DATA = {"nvidia": r"ld\.global\.(v2\.)?b64", "amd": r"(global|buffer)_load_dwordx[24] .*(off|offen|s\[\d+:\d+\])$"}
NVIDIA_BARRIER = r"bar\.(?:warp\.)?sync"
STATUS = {"nvidia": r"ld\.global\.b32", "amd": r"(global|buffer)_load_dword .*(off|offen|s\[\d+:\d+\])$"}
every_wait = pytest.mark.parametrize("case", WAITS.values(), ids=WAITS)


def vendor(target):
    return "nvidia" if target == "nvidia" else "amd"


# ---- waits and tests on many words ----


@every_wait
@pytest.mark.parametrize("num_warps", [1, 4])
def test_nvidia_polls_many_words_by_acquire_loads_before_a_barrier_before_the_data(case, num_warps):
    lines = listing(case, "nvidia", num_warps=num_warps)
    poll = rf"ld\.acquire\.sys\.global\.b{case[1].itemsize * 8}"
    last, data = places(lines, poll)[-1], places(lines, DATA["nvidia"])
    assert polling(lines, poll) and data
    assert last < last + in_order(lines[last:], NVIDIA_BARRIER)[0] < data[0]


@every_wait
def test_every_amd_wave_acquires_after_its_polls_of_many_words_and_before_the_barrier(case, amd):
    lines = listing(case, amd)
    last = places(lines, POLL[amd])[-1]
    *_, acquire, barrier = (last + place for place in in_order(lines[last:], *ACQUIRE[amd], BARRIER))
    assert re.fullmatch(DRAIN, lines[acquire - len(ACQUIRE[amd])])
    assert not places(lines[acquire:barrier], "saveexec|cbranch")
    reads = [place for place in places(lines, DATA["amd"]) if not places([lines[place]], POLL[amd])]
    assert reads and all(place > barrier for place in reads)


@every_wait
def test_amd_pauses_between_two_looks_at_many_words(case, amd):
    lines = listing(case, amd)
    assert [loop for loop in loops(lines) if places(loop, POLL[amd]) and places(loop, "s_sleep")]
    for load in places(lines, POLL[amd]):
        assert "s_waitcnt vmcnt(0)" in lines[load + 1]


@pytest.mark.parametrize("case", [WAITS["all"], WAITS["any"], TESTS["all"], TESTS["any"]], ids=kernels.name_of)
def test_status_is_read_behind_a_barrier_after_what_other_threads_have_written(case, target):
    lines = listing(case, target)
    first = places(lines, STATUS[vendor(target)])[0]
    if target == "nvidia":
        assert places(lines, NVIDIA_BARRIER)[0] < first
    else:
        _, barrier = in_order(lines, DRAIN, BARRIER)
        assert barrier < first


def test_indices_are_stored_before_a_barrier_behind_which_all_threads_read_them(target):
    lines = listing(TESTS["some"], target)
    index = {"nvidia": r"st\.global\.b64", "amd": r"(global|buffer)_store_dwordx2"}[vendor(target)]
    after = lines[places(lines, index)[-1] :]
    in_order(after, *([NVIDIA_BARRIER] if target == "nvidia" else [DRAIN, BARRIER]))


@pytest.mark.parametrize("case", TESTS.values(), ids=TESTS)
def test_a_test_of_many_words_looks_once_at_each_as_an_acquire(case, target):
    lines = listing(case, target)
    poll = r"ld\.acquire\.sys\.global" if target == "nvidia" else POLL[target]
    assert len(places(lines, poll)) == 1
    in_order(lines, poll, *([NVIDIA_BARRIER] if target == "nvidia" else [*ACQUIRE[target], BARRIER]))


# ---- what quiet completes ----


def quiet(target):
    """The patterns of its instructions, which end with a barrier."""
    return [r"fence\.sc\.sys", NVIDIA_BARRIER] if target == "nvidia" else [DRAIN, RELEASE[target], DRAIN, BARRIER]


@pytest.mark.parametrize(
    "case", [(kernels.put_nbi, F32, F32, 1000, 3), (kernels.get_nbi, F32, F32, F32, 1000, 3)], ids=["put", "get"]
)
def test_nbi_copies_meet_one_barrier_before_them_and_then_only_quiets(case, target):
    lines = listing(case, target)
    assert len(places(lines, NVIDIA_BARRIER if target == "nvidia" else BARRIER)) == 2
    *_, last = in_order(lines, NVIDIA_BARRIER if target == "nvidia" else BARRIER, *quiet(target))
    if case[0] is kernels.get_nbi:  # what other threads have got is read behind it
        in_order(lines[last:], r"ld\.global" if target == "nvidia" else r"(global|buffer)_load", STORE[vendor(target)])


def test_pe_quiet_is_quiet(target):
    in_order(listing((kernels.pe_quiet, I32, 3), target), *quiet(target))


def test_a_fetch_nbi_stores_what_its_atomic_returned(target):
    lines = listing((kernels.fetches_nbi, U64, U64, 3), target)
    fetched = [lines[place] for place in places(lines, r"\batom\." if target == "nvidia" else "global_atomic")]
    assert len(fetched) >= 4 and len(places(lines, STORE[vendor(target)])) == 5
    if target != "nvidia":  # adding nothing is a load there
        assert all(" sc0" in line or " glc" in line for line in fetched)  # they return what was there


# ---- strided copies ----


def test_strided_copies_are_behind_a_barrier_and_before_one(target):
    """What other threads wrote is copied; what is copied from may be written again."""
    lines = listing((kernels.strided, F32, F32, 1000, 3), target)
    barriers = places(lines, NVIDIA_BARRIER if target == "nvidia" else BARRIER)
    loads = places(lines, r"ld\.global" if target == "nvidia" else r"(global|buffer)_load_dword")
    stores = places(lines, STORE[vendor(target)])
    assert barriers[0] < loads[0] and barriers[-1] > max(stores[-1], loads[-1])
    if target != "nvidia":
        before = [place for place in places(lines, DRAIN) if place < barriers[-1]]
        assert before[-1] > last_store_before(lines, barriers[-1])


# ---- min and max ----


@pytest.mark.parametrize(("dtype", "words"), [(I32, "s32"), (U64, "u64")], ids=str)
def test_nvidia_min_and_max_are_one_atomic_of_the_pointees_signedness(dtype, words):
    lines = listing((kernels.least_and_greatest, dtype, dtype, 3), "nvidia")
    atomics = [lines[place] for place in places(lines, r"\b(atom|red)\.")]
    assert len(atomics) == 4
    assert all(re.search(rf"sys.*\.(min|max)\.{words}", line) and "acq_rel" in line for line in atomics)


@pytest.mark.parametrize("dtype", [I32, U64, torch.float64], ids=str)
def test_amd_min_and_max_write_back_before_and_invalidate_behind(dtype, amd):
    lines = listing((kernels.least_and_greatest, dtype, dtype, 3), amd)
    for loop in loops(lines):
        assert not places(loop, "buffer_wb|buffer_inv")
    atomics = places(lines, "global_atomic")
    assert len(atomics) >= 4
    in_order(lines, DRAIN, RELEASE[amd], DRAIN, "global_atomic", *ACQUIRE[amd])
    assert len(places(lines, RELEASE[amd])) == len(places(lines, ACQUIRE[amd][-1])) == 4


@triton.jit
def swap_few(ctx, word, out):
    lane = tl.arange(0, 16)
    tl.store(out + lane, dev.atomic_compare_swap(ctx, word + lane, 1, 2, 0))


def test_amd_swaps_each_element_of_a_small_block_once(amd):
    """All threads come to the swap: those without an element of their own must be given what changes nothing."""
    lines = instructions(assembly(swap_few, amd, I32, I32))
    (swap,) = places(lines, "global_atomic_cmpswap")
    assert places(lines[:swap], "v_cndmask_b32") and not places(lines[:swap], "saveexec")
    in_order(lines, RELEASE[amd], DRAIN, "global_atomic_cmpswap", DRAIN, *ACQUIRE[amd])
