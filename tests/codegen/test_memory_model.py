"""What the order of memory rests on: which instructions, in which order, executed by whom."""

import re

import kernels
import pytest
import torch
from compiling import assembly, in_order, instructions, loops, places, polling

F32, I32, I64, U64 = torch.float32, torch.int32, torch.int64, torch.uint64
DRAIN, BARRIER = r"s_waitcnt vmcnt\(0\)", "s_barrier"
STORE = {"nvidia": r"st\.global", "amd": r"(global|buffer)_store"}
RELEASE = {"gfx90a": r"buffer_wbl2$", "gfx942": "buffer_wbl2 sc0 sc1$", "gfx950": "buffer_wbl2 sc0 sc1$"}
ACQUIRE = {
    "gfx90a": ["buffer_invl2", "buffer_wbinvl1_vol"],
    "gfx942": ["buffer_inv sc0 sc1"],
    "gfx950": ["buffer_inv sc0 sc1"],
}
POLL = {
    "gfx90a": "global_load_dword.* glc$",
    "gfx942": "global_load_dword.* sc0 sc1$",
    "gfx950": "global_load_dword.* sc0 sc1$",
}
OWN = r"ld\.relaxed\.sys\.global\.b64 %"  # of a barrier: its number
TELL = r"st\.release\.sys\.global\.b64"
SIGNALS = [
    (kernels.put_signal, F32, F32, 1000, U64, 3, 0),
    (kernels.put_signal, F32, F32, 1000, U64, 3, 1),
    (kernels.tile_then_signal, F32, U64, 3),
    (kernels.tile_then_set, F32, U64, 3),
    (kernels.signal_set, U64, 3),
    (kernels.signal_add, U64, 3),
    (kernels.put_signal_nbi, F32, F32, 1000, U64, 3, 0),
]
WAITS = [
    (kernels.wait_then_read, U64, F32, F32, 3),
    (kernels.wait_then_read, U64, F32, F32, 0),
    *[(kernels.wait_until, dtype, 1) for dtype in (I32, U64)],
]


def listing(case, target, **options):
    return instructions(assembly(case[0], target, *case[1:], **options))


# ---- signals: all threads' stores, a barrier, one release ----


@pytest.mark.parametrize("case", SIGNALS, ids=kernels.name_of)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_nvidia_signals_by_one_release_at_system_scope_behind_a_barrier(case, num_warps):
    lines = listing(case, "nvidia", num_warps=num_warps)
    signals = places(lines, r"(st|red|atom)\.\S*release\S*")
    assert len(signals) == 1
    signal = lines[signals[0]]
    assert "release.sys.global" in signal and "@p" in signal and "setp.eq.u32 p, t, 0" in signal  # one thread's
    stores = [place for place in places(lines, STORE["nvidia"]) if place != signals[0]]
    barrier = max(place for place in places(lines, r"bar\.(?:warp\.)?sync") if place < signals[0])
    assert all(place < barrier for place in stores)


@pytest.mark.parametrize("case", SIGNALS, ids=kernels.name_of)
def test_every_amd_wave_drains_before_the_barrier_before_the_release_before_the_signal(case, amd):
    lines = listing(case, amd)
    signals = places(lines, r"global_atomic_(add|swap)_x2")
    assert len(signals) == 1
    assert lines[signals[0]].endswith(" sc1") == (amd != "gfx90a")
    release = max(place for place in places(lines, RELEASE[amd]) if place < signals[0])
    assert re.fullmatch(DRAIN, lines[release + 1].removesuffix(" lgkmcnt(0)"))  # written back before the signal leaves
    store = last_store_before(lines, release)
    drain, barrier = (place + store + 1 for place in in_order(lines[store + 1 :], DRAIN, BARRIER))
    assert barrier < release
    assert not places(lines[drain:barrier], "saveexec|cbranch")  # the drain is every wave's


@pytest.mark.parametrize("case", SIGNALS, ids=kernels.name_of)
def test_the_only_wave_of_an_amd_program_writes_back_before_the_signal(case, amd):
    lines = listing(case, amd, num_warps=1)
    store = last_store_before(lines, places(lines, RELEASE[amd])[-1])
    signal = r"global_atomic_(add|swap)_x2" + ("" if amd == "gfx90a" else ".*sc1$")
    in_order(lines[store + 1 :], DRAIN, RELEASE[amd], DRAIN, signal)


def last_store_before(lines, end):
    return max([-1, *(place for place in places(lines, STORE["amd"]) if place < end)])


# ---- waits: a loop of fresh loads, an acquire, a barrier, then what is read ----


@pytest.mark.parametrize("case", WAITS, ids=kernels.name_of)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_nvidia_polls_by_acquire_loads_and_little_else(case, num_warps):
    """In the loop: the load, its comparison, the count of polls, the pause and their two branches."""
    poll = rf"ld\.acquire\.sys\.global\.b{case[1].itemsize * 8}"
    found = polling(listing(case, "nvidia", num_warps=num_warps), poll)
    assert found
    for loop in found:
        assert len(places(loop, r"\bld\.")) == 1 and not places(loop, "bar|fence|atom|globaltimer")
        assert len([line for line in loop if not line.endswith(":")]) <= 10, loop
        # waits that are not short pause
        assert len(places(loop, r"setp\.ge\.[su]32 p, .*, 64; @p nanosleep\.u32 1000;")) == 1


@pytest.mark.parametrize("case", WAITS, ids=kernels.name_of)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_amd_polls_fresh_loads_in_a_loop_that_pauses(case, num_warps, amd):
    found = polling(listing(case, amd, num_warps=num_warps), POLL[amd])
    assert found
    for loop in found:
        loads = places(loop, "global_load")
        assert loads == places(loop, POLL[amd])
        assert all("s_waitcnt vmcnt(0)" in loop[load + 1] for load in loads)
        assert len(places(loop, "s_sleep")) >= len(loads) - 1  # one of them may look at the record
        assert not places(loop, "buffer_inv|s_barrier")  # not at every poll


@pytest.mark.parametrize("case", WAITS, ids=kernels.name_of)
def test_every_amd_wave_acquires_after_its_polls_and_before_the_barrier(case, amd):
    lines = listing(case, amd)
    *_, acquire, barrier = in_order(lines, *ACQUIRE[amd], BARRIER)
    assert re.fullmatch(DRAIN, lines[acquire - len(ACQUIRE[amd])])
    assert not places(lines[acquire:barrier], "saveexec|cbranch")
    reads = places(lines, r"(global|buffer)_load_dword(x2|x4)? .*(off|offen)$")
    assert all(place > barrier for place in reads)


@pytest.mark.parametrize("num_warps", [1, 4])
def test_nvidia_reads_after_a_wait_stand_behind_a_barrier(num_warps):
    lines = listing(WAITS[0], "nvidia", num_warps=num_warps)
    in_order(lines, r"ld\.acquire\.sys", r"bar\.(?:warp\.)?sync", r"ld\.global")
    assert places(lines, r"ld\.global")[0] > places(lines, r"bar\.(?:warp\.)?sync")[0]


@pytest.mark.parametrize(
    "case", [(kernels.test, I32, I32), (kernels.test, U64, I32), (kernels.signal_fetch, U64, U64)], ids=kernels.name_of
)
def test_a_test_is_one_fresh_load_as_an_acquire(case, target):
    lines = listing(case, target)
    if target == "nvidia":
        assert len(places(lines, r"ld\.acquire\.sys\.global")) == 1
    else:
        assert len(places(lines, POLL[target])) == 1
        in_order(lines, POLL[target], *ACQUIRE[target], BARRIER)


def test_g_reads_what_is_there_now(target):
    pattern = r"ld\.volatile\.global" if target == "nvidia" else POLL[target].replace("dword", r"\w+")
    assert len(places(listing((kernels.p_and_g, I32, 3), target), pattern)) == 1


@pytest.mark.parametrize("case", WAITS[1:], ids=kernels.name_of)
def test_warps_that_poll_by_themselves_meet_no_barrier_before_all_are_done(case, target):
    """Not where one gives up either: another may still see its word."""
    lines = listing(case, target)
    barriers = places(lines, r"bar\.(?:warp\.)?sync|s_barrier")
    assert len(barriers) == 1
    end = barriers[0] + in_order(lines[barriers[0] :], "^ret|s_endpgm")[0]
    assert not places(lines[barriers[0] : end], "bra")  # no way back to a poll


# ---- fence and quiet ----


def test_a_fence_stands_between_stores_in_every_thread(target):
    lines = listing((kernels.fence, F32, F32, 3), target)
    stores = places(lines, STORE["nvidia" if target == "nvidia" else "amd"])
    if target == "nvidia":
        fence, barrier = in_order(lines, r"fence\.acq_rel\.sys", r"bar\.(?:warp\.)?sync")
    else:
        first = in_order(lines, STORE["amd"], DRAIN, RELEASE[target], DRAIN, BARRIER)
        fence, barrier = first[2], first[4]
    assert len(stores) % 2 == 0
    assert stores[len(stores) // 2 - 1] < fence < barrier < stores[len(stores) // 2]


@pytest.mark.parametrize("num_warps", [1, 4])
def test_quiet_on_nvidia_is_sequentially_consistent_in_every_thread(num_warps):
    """Of two PEs that each write a word of the other's, quiet, and read their own, one sees the other's."""
    lines = listing((kernels.quiet,), "nvidia", num_warps=num_warps)
    fence, _ = in_order(lines, r"^fence\.sc\.sys", r"bar\.(?:warp\.)?sync")
    assert not places(lines[:fence], "@|bra")


def test_p_is_a_word_that_others_may_wait_for_on_nvidia():
    for dtype, bits in ((I32, 32), (F32, 32), (I64, 64)):
        lines = listing((kernels.p_and_g, dtype, 3), "nvidia")
        (store,) = places(lines, r"st\.relaxed\.sys\.global\.b" + str(bits))
        assert "@p" in lines[store] and "setp.eq.u32 p, t, 0" in lines[store]  # one thread's
        assert not places(lines, r"st\.global")


def test_quiet_completes_on_amd_before_it_returns(amd):
    lines = listing((kernels.quiet,), amd)
    in_order(lines, DRAIN, RELEASE[amd], DRAIN, BARRIER)


# ---- barriers ----


@pytest.mark.parametrize("num_warps", [1, 4])
def test_nvidia_barriers_store_numbers_as_releases_and_poll_them_as_acquires(num_warps):
    lines = listing((kernels.barrier_all, F32, 3), "nvidia", num_warps=num_warps)
    stores = places(lines, r"^(@%p\d+ )?st\.global\.b32|st\.global\.v")
    own, _, told, *_ = in_order(
        lines,
        OWN,
        r"bar\.sync",
        TELL,
        r"red\.relaxed\.sys\.global\.add\.u64",  # before the wait, so that no later release waits for it
        r"ld\.acquire\.sys\.global\.b64",
        r"bar\.sync",
    )
    assert max(stores) < min(places(lines, r"bar\.sync"))
    number = re.search(r"%rd\d+", lines[own])[0]
    # as it was read: what is computed of it would be waited for before the release
    assert f", {number};" in lines[told]
    (loop,) = polling(lines, r"ld\.acquire\.sys\.global\.b64")
    assert len(loop) <= 10 and not places(loop, r"bar\.|fence|globaltimer")


def test_amd_barriers_write_back_in_every_wave_and_poll_numbers_past_the_caches(amd):
    lines = listing((kernels.barrier_all, F32, 3), amd)
    past, scope = ("", "") if amd == "gfx90a" else (" sc0 sc1", " sc1")
    number, come = POLL[amd].replace("dword", "dwordx2 .* off"), f"global_atomic_add_x2 .* off{scope}$"
    tell = ["saveexec", f"global_store_dwordx2 .* off{past}$", "s_mov_b64 exec", "saveexec", come, "s_mov_b64 exec"]
    order = in_order(
        lines, STORE["amd"], number, DRAIN, BARRIER, RELEASE[amd], DRAIN, *tell, POLL[amd], *ACQUIRE[amd], BARRIER
    )
    barrier, release, masked, told = order[3], order[4], order[6], order[7]
    assert last_store_before(lines, release) < barrier and told == masked + 1
    assert not places(lines[barrier:release], "saveexec")
    assert polling(lines, number)


# ---- atomics ----


@pytest.mark.parametrize("dtype", [I32, U64], ids=str)
def test_amd_atomics_that_the_hardware_has_are_not_loops(dtype, amd):
    lines = listing((kernels.atomics, dtype, dtype, 3), amd)
    assert len(places(lines, "global_atomic_cmpswap")) == 1  # compare_swap's own


def test_amd_operators_that_are_loops_write_back_and_invalidate_outside_of_them(amd):
    lines = listing((kernels.fetch_or, I64, I64, 3), amd)
    for loop in loops(lines):
        assert not places(loop, "buffer_wb|buffer_inv")
    in_order(lines, DRAIN, RELEASE[amd], DRAIN, "global_atomic_cmpswap_x2", *ACQUIRE[amd])


@pytest.mark.parametrize("dtype", [I32, U64, F32], ids=str)
def test_nvidia_atomics_are_acq_rel_at_system_scope(dtype):
    lines = listing((kernels.atomics, dtype, dtype, 3), "nvidia")
    atomics = places(lines, r"\b(atom|red)\.")
    assert atomics and all("sys" in lines[place] and "acq_rel" in lines[place] for place in atomics)
