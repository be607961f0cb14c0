"""Collectives on a stream: how their kernels are compiled, and what stands between words, polls, loads and stores."""

import re

import pyshmem.device as dev  # before triton
import pytest
import triton.language as tl
from compiling import (
    NAMES, TARGETS, assembly, cache_key, compile, context, in_order, instructions, loops, places, polling, spans, specialise,
)  # fmt: skip
from pyshmem.device.arch.targets import Target
from pyshmem.kernels import on_stream, signals, uneven
from pyshmem.kernels.method_tables import tables
from pyshmem.device.collectives.packing import words_in
from test_array_collectives import BAR, HEAR, TELL
from test_compiles import refuse_spills
from test_memory_model import ACQUIRE, BARRIER, DRAIN, OWN, POLL, RELEASE
from test_widths import vendor

MEMBERS = 4  # of the team that kernels are compiled for here
AT = (1 << 33, 1 << 34, 3000)  # target, source, elements
WIDE_LOAD = {"nvidia": r"ld\.global\.(v4\.b32|v2\.b64)", "amd": r"buffer_load_dwordx4"}
WIDE_STORE = {"nvidia": r"st\.global\.(v4\.b32|v2\.b64)", "amd": r"buffer_store_dwordx4"}
WORDS = sorted({row.size for row in tables().teams if row.kind == "words"})
MOST = max(row.warps for row in tables().copies)


def tiles(words, element=tl.float32, op="sum", odd=False, early=False):
    """reduce_tiles of one word a thread, as on_stream.reduction launches it: kernel, operands, warps."""
    return on_stream.reduce_tiles, (*AT, element, op, words // words_in(element), odd, early), words // 32


def arrays(apart, warps=8, element=tl.float32, op="sum"):
    return on_stream.reduce_arrays, (*AT, element, op, apart), warps


REDUCED = {False: arrays(False), True: arrays(True)}
MOVED = {
    "gather": (on_stream.gather_arrays, (*AT, tl.int8), MOST),
    "swap": (on_stream.swap_arrays, (*AT, tl.int32), MOST),
    "cast": (on_stream.cast_arrays, (*AT, 2, tl.int64), MOST),
}
SHARED = (on_stream.cast_shares, (*AT, 2, tl.int64, 2), MOST)
SWAPPED = (uneven.swap_rows, (*AT[:2], 1 << 35, 0, 1 << 36, 3000, 3000, 512, tl.int16), MOST)
LARGEST = max(row.size for row in tables().pairs if row.kind == "sent")  # bytes of a program
SENT = (on_stream.reduce_sent, (*AT, tl.bfloat16, "sum", LARGEST // 2), 8)
SENT_WIDE, SENT_BYTES = (
    (SENT[0], (*AT, kind, "sum", LARGEST // size), 8) for kind, size in ((tl.float64, 8), (tl.int8, 1))
)
BLOCKS = (on_stream.reduce_blocks, (*AT, tl.float32, "max"), 8)
SCANS = [(on_stream.scan_arrays, (*AT, tl.int64, op, f"sum_{op}_on_stream"), 8) for op in ("inscan", "exscan")]
WAIT = (signals.await_signal, (1 << 33, 7, 1 << 34, dev.CMP_GE.value), 1)
MEET = (on_stream.meet_all, (0, 0, False), 4)
CASES = [
    *map(tiles, WORDS), tiles(WORDS[-1], tl.bfloat16, "max"), tiles(WORDS[-1], tl.int64, "xor"),
    *REDUCED.values(), arrays(False, 4, tl.bfloat16), arrays(True, 8, tl.bfloat16, "min"), *MOVED.values(), SHARED, SWAPPED, SENT, SENT_WIDE, SENT_BYTES, BLOCKS, *SCANS, WAIT, MEET,
]  # fmt: skip


def name_of(case):
    return "-".join(map(str, (case[0].fn.__name__, *case[1][3:], case[2])))


def text_of(case, target, record=True):
    return assembly(case[0], target, *case[1], num_warps=case[2], n_pes=MEMBERS, record=record)


def listing(case, target, record=True):
    return instructions(text_of(case, target, record))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_kernels_on_a_stream_compile_and_spill_nothing(case, target):
    refuse_spills(text_of(case, target), target)


@pytest.mark.parametrize(
    "case", [tiles(WORDS[0]), *REDUCED.values(), *MOVED.values(), SHARED, SWAPPED, SENT, BLOCKS, MEET], ids=name_of
)
def test_one_binary_serves_all_pes_addresses_and_sizes(case, target):
    kernel, operands, _ = case
    keys = {cache_key(kernel, target, [context(target, me, 32), *operands]) for me in (0, 1, 2, 13, 16)}
    for number, changed in ((0, 4), (1, 1 << 20), (2, 1), (2, 16), (2, 1 << 40), (3, 1)):  # a root, or no number
        if number < len(operands) and isinstance(operands[number], int) and kernel is not on_stream.meet_all:
            other = [*operands[:number], changed, *operands[number + 1 :]]
            keys.add(cache_key(kernel, target, [context(target, 0, 32), *other]))
    assert len(keys) == 1


def test_one_binary_of_tiles_serves_all_pes_of_a_team_and_another_teams_is_another(target):
    kernel, operands, _ = tiles(WORDS[0])

    def key(me, n_pes):
        return cache_key(kernel, target, [on_stream.of_team(context(target, me, n_pes)), *operands])

    assert len({key(me, 32) for me in (0, 1, 2, 13, 16)}) == 1
    assert key(1, 32) != key(1, 31)


# ---- tiles: a word of each member a thread, and nobody to meet on its way ----


@pytest.mark.parametrize("words", WORDS)
def test_nvidia_threads_send_and_poll_one_word_of_each_member_and_meet_nobody_between(words):
    lines = listing(tiles(words), "nvidia", record=False)
    sent, polled = places(lines, r"st\.relaxed\.sys\.global\.b64"), places(lines, r"ld\.relaxed\.sys\.\S+ word")
    assert len(sent) == MEMBERS
    assert polled == list(range(polled[0], polled[0] + MEMBERS))  # all on their way at once
    assert sent[-1] < polled[0]
    assert not places(lines[sent[0] : polled[-1]], r"bar\.|fence|membar|atom|acquire|release")
    assert len(polling(lines, r"ld\.relaxed\.sys\.\S+ word")) == 1
    in_order(lines[polled[-1] :], r"bar\.", r"st\.global\.b32", r"st\.global\.b64")  # all have the turn; target, turn


@pytest.mark.parametrize("words", WORDS)
def test_amd_threads_send_and_poll_one_word_of_each_member_and_meet_nobody_between(words, amd):
    lines = listing(tiles(words), amd)
    past = "" if amd == "gfx90a" else " sc0 sc1"
    sent = places(lines, f"global_store_dwordx2 .* off{past}$")
    polled = places(lines, POLL[amd].replace("dword", "dwordx2 .* off"))
    assert len(sent) == MEMBERS
    first = min(polled)
    assert set(range(first, first + MEMBERS)) <= set(polled)  # then one wait for all
    stored = max(place for place in sent if place < first)
    assert not places(lines[stored:first], "|".join([BARRIER, RELEASE[amd], *ACQUIRE[amd]]))
    assert bool(places(lines, BARRIER)) == (words > 32)  # one wave meets nobody


@pytest.mark.parametrize("words", WORDS)
def test_a_pair_of_half_types_is_one_word_and_the_last_one_alone_is_stored_alone(words, target):
    even, odd = (listing(tiles(words, tl.bfloat16, odd=odd), target, record=False) for odd in (False, True))
    halves = {"nvidia": r"st\.global\.b16", "amd": r"(buffer|global)_store_short"}[vendor(target)]
    loads = {"nvidia": r"ld\.global\.b(16|32)", "amd": r"(buffer|global)_load_(ushort|dword) "}[vendor(target)]
    for lines, alone in ((even, 0), (odd, 1)):
        assert len(places(lines, halves)) == alone
        assert len([place for place in places(lines, loads) if "sc0" not in lines[place]]) == 1


# ---- kernels that begin while the one in front of them runs ----

EARLY = [tiles(WORDS[0], early=True), tiles(WORDS[-1], tl.bfloat16, odd=True, early=True), (MEET[0], (0, 0, True), 4)]
ACCESS = r"\b(ld|st|atom|red)\.(?!param)"


@pytest.mark.parametrize("case", EARLY, ids=name_of)
def test_an_early_kernel_touches_no_memory_before_those_in_front_have_ended(case):
    """Nor does it let the next begin before: that one would wait for it, but not for those."""
    lines = listing(case, "nvidia")
    waits, lets = places(lines, r"griddepcontrol\.wait;"), places(lines, r"griddepcontrol\.launch_dependents;")
    assert len(waits) == len(lets) == 1
    assert waits[0] < lets[0]
    assert waits[0] < places(lines, ACCESS)[0]


@pytest.mark.parametrize("case", [tiles(WORDS[0]), MEET, *REDUCED.values(), *MOVED.values(), SWAPPED], ids=name_of)
def test_no_other_kernel_speaks_of_those_in_front(case):
    assert not places(listing(case, "nvidia"), "griddepcontrol")


# ---- arrays ----


def of_width(lines, target, loads):
    """(first, last) of the loops with so many loads of 16 bytes and four such stores, all behind the loads."""
    found = []
    for first, last in spans(lines):
        read, written = (places(lines[first : last + 1], wide[vendor(target)]) for wide in (WIDE_LOAD, WIDE_STORE))
        if (len(read), len(written)) == (loads, 4) and read[-1] < written[0]:
            found.append((first, last))
    return found


@pytest.mark.parametrize("apart", REDUCED)
def test_all_members_elements_are_on_their_way_before_anything_is_stored(apart, target):
    lines = listing(REDUCED[apart], target)
    ((first, last),) = of_width(lines, target, 4 * MEMBERS)
    inner = [span for span in spans(lines) if first < span[0] and span[1] <= last]
    assert len(inner) == (0 if apart else 1)  # which stores to one member after the other
    copies = of_width(lines, target, 4)
    assert bool(copies) == apart
    if apart:  # what other threads have stored is sent on behind a barrier
        assert places(lines[last : copies[0][0]], BAR if target == "nvidia" else BARRIER)


@pytest.mark.parametrize("case", [*REDUCED.values(), *MOVED.values()], ids=name_of)
def test_nvidia_moves_nothing_before_all_have_come_and_tells_all_when_it_has(case):
    lines = listing(case, "nvidia")
    load, store = WIDE_LOAD["nvidia"], WIDE_STORE["nvidia"]
    tells = places(lines, TELL)
    assert len(tells) == len(places(lines, HEAR)) == 2
    *_, come, read, written, meet, told = in_order(lines, BAR, TELL, HEAR, BAR, load, store, BAR, TELL)
    assert (come, told) < (places(lines, load)[0], tells[1] + 1)
    assert (read, written) == (places(lines, load)[0], places(lines, store)[0])
    assert places(lines[places(lines[: tells[1]], r"st\.global\.(v|b)")[-1] : tells[1]], BAR)


def test_nvidia_sends_a_share_on_behind_an_acquire_and_tells_behind_a_barrier():
    lines = listing(SHARED, "nvidia")
    load, store = WIDE_LOAD["nvidia"], WIDE_STORE["nvidia"]
    assert len(places(lines, TELL)) == len(places(lines, HEAR)) == 3  # all have come, a turn, all have it
    loop = max(loops(lines), key=len)  # the turns
    assert len(places(loop, TELL)) == len(places(loop, HEAR)) == 1
    in_order(loop[places(loop, HEAR)[0] :], HEAR, BAR, load, store)
    told = places(loop, TELL)[0]
    last = [place for place in places(loop, r"st\.global\.(v|b)") if place < told][-1]
    assert places(loop[last:told], BAR)


@pytest.mark.parametrize("case", [*REDUCED.values(), *MOVED.values()], ids=name_of)
def test_amd_moves_nothing_before_all_have_come_and_tells_all_when_it_has(case, amd):
    lines = listing(case, amd)
    load, store = WIDE_LOAD["amd"], WIDE_STORE["amd"]
    flag = "global_store_dwordx2 .*" + ("off$" if amd == "gfx90a" else "off sc0 sc1$")
    tell, hear = (DRAIN, BARRIER, RELEASE[amd], DRAIN, flag), (POLL[amd], *ACQUIRE[amd], BARRIER)
    found = in_order(lines, *tell, *hear, load, store, *tell)
    assert found[len(tell) + len(hear)] == places(lines, load)[0]
    assert places(lines, store)[0] > found[len(tell) + len(hear) - 1]


@pytest.mark.parametrize("case", [BLOCKS], ids=name_of)
def test_what_each_pe_combines_itself_is_read_by_16_bytes_and_stored_here_alone(case, target):
    lines = listing(case, target)
    ((first, last),) = [span for span in of_width(lines, target, 4 * MEMBERS) if span]
    assert not [span for span in spans(lines) if first < span[0] and span[1] <= last]
    if target == "nvidia":
        in_order(lines[:first], BAR, TELL, HEAR, BAR)
        in_order(lines[last:], BAR, TELL, HEAR, BAR)


def test_what_is_sent_to_scratch_is_stored_by_16_bytes_in_front_of_the_one_meeting(target):
    lines = listing(SENT, target)
    store, load = WIDE_STORE[vendor(target)], WIDE_LOAD[vendor(target)]
    if target == "nvidia":
        assert len(places(lines, TELL)) == 1
        in_order(lines, load, store, BAR, TELL, HEAR, BAR, load, store)
    else:
        flag = "global_store_dwordx2 .*" + ("off$" if target == "gfx90a" else "off sc0 sc1$")
        sends = "(global|buffer)_store_dwordx4"
        in_order(lines, "(global|buffer)_load_dwordx4", sends, DRAIN, BARRIER, RELEASE[target], DRAIN, flag)
        in_order(lines, flag, POLL[target], *ACQUIRE[target], BARRIER, "(global|buffer)_load_dwordx4", sends)


# ---- signals ----


@pytest.mark.parametrize("adds", [False, True])
def test_an_update_of_a_signal_is_one_atomic_at_system_scope_that_releases(adds, target):
    on = Target(tl.constexpr(NAMES.index(target)))
    source, options = specialise(signals.update_signal, target, [on, 1 << 33, 5, 1 << 34, adds], num_warps=1)
    asm = compile(source, target=TARGETS[target], options=options.__dict__).asm
    if target == "nvidia":
        (atomic,) = [line for line in asm["ptx"].splitlines() if "atom." in line]
        assert all(each in atomic for each in ("acq_rel", "sys", "add.u64" if adds else "exch.b64"))
    else:
        lines = instructions(asm["amdgcn"])
        written = in_order(lines, DRAIN, RELEASE[target])[-1]
        assert re.search(DRAIN, lines[written + 1]), "the atomic does not wait for what is written back"
        in_order(lines[written:], "global_atomic_add_x2" if adds else "global_atomic_swap_x2", *ACQUIRE[target])
    keys = {
        cache_key(signals.update_signal, target, [on, *each, adds]) for each in ((0, 0, 0), (1, 1, 1), (16, 1 << 40, 3))
    }
    assert len(keys) == 1


def test_a_wait_for_a_signal_polls_as_an_acquire(target):
    lines = listing(WAIT, target)
    if target == "nvidia":
        assert places(lines, r"ld\.acquire\.sys\.global\.b64")
    else:
        in_order(lines, POLL[target], *ACQUIRE[target])


def test_rows_are_read_by_16_bytes_after_all_have_told_their_number_and_before_all_meet(target):
    lines = listing(SWAPPED, target)
    load, store = WIDE_LOAD[vendor(target)], WIDE_STORE[vendor(target)]
    reads = places(lines, load)
    assert any(places(lines[first:last], load) and places(lines[first:last], store) for first, last in spans(lines))
    if target == "nvidia":
        in_order(lines[: reads[0]], BAR, TELL, HEAR, BAR)
        in_order(lines[places(lines, store)[-1] :], BAR, TELL, HEAR, BAR)
    else:
        flag = "global_store_dwordx2 .*" + ("off$" if target == "gfx90a" else "off sc0 sc1$")
        in_order(
            lines[: reads[0]], DRAIN, BARRIER, RELEASE[target], DRAIN, flag, POLL[target], *ACQUIRE[target], BARRIER
        )
        in_order(lines[places(lines, store)[-1] :], DRAIN, BARRIER, RELEASE[target], DRAIN, flag)


# ---- the barrier ----


def test_the_barrier_has_one_release_and_one_poll_a_lane(target):
    lines = listing(MEET, target)
    if target == "nvidia":
        assert [len(places(lines, each)) for each in (OWN, TELL, HEAR)] == [1, 1, 1]
        in_order(lines, OWN, BAR, TELL, HEAR, BAR)
    else:
        flag = "global_store_dwordx2 .*" + ("off$" if target == "gfx90a" else "off sc0 sc1$")
        tell, hear = (DRAIN, BARRIER, RELEASE[target], DRAIN, flag), (POLL[target], *ACQUIRE[target], BARRIER)
        in_order(lines, POLL[target], *tell, *hear)
        assert len(places(lines, flag)) == 1
