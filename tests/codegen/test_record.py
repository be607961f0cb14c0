"""The record of a wait that gave up: what the GPU writes where, in which order, and what the host makes of it."""

import re

import kernels
import pytest
from compiling import assembly, in_order, instructions, places
from pyshmem.base import kernel_timeouts


def filled(**words):
    """The words of a record in which these are not 0."""
    found = [0] * kernel_timeouts.WORDS
    for name, value in words.items():
        found[getattr(kernel_timeouts, name)] = value
    return found


WAIT = {"PE": 3, "OFFSET": 64, "SIGN": 3, "WANTED": 7, "SEEN": -2, "LIMIT": 300 * 10**9}
SENTENCES = [
    ("wait_until", WAIT, "wait_until: PE 3: ivar: got -2 at heap offset 64 in 300 s; expected a value >= 7; "),
    ("signal_wait_until", {**WAIT, "UNSIGNED": 1, "SIGN": 0, "LIMIT": 3 * 10**8},
     f"signal_wait_until: PE 3: sig_addr: got {2**64 - 2} at heap offset 64 in 0.3 s; expected a value == 7; "),
    ("wait_until_any_vector", {**WAIT, "SIGN": 1},
     "wait_until_any_vector: PE 3: ivars: got none, but -2 at heap offset 64 in 300 s; expected a value != 7; "),
    ("wait_until_all", WAIT, "wait_until_all: PE 3: ivars: got -2 at heap offset 64 in 300 s; expected a value >= 7; "),
    ("barrier_all", {"PE": 1, "MISSING": 2, "LIMIT": 10**9, "WANTED": 5, "SEEN": 4},
     "barrier_all: PE 1: ctx: got no call from PE 2 of its team in 1 s; expected all of them to call it; "),
    ("sync_all", {"PE": 0, "MISSING": 0, "LIMIT": 10**9},
     "sync_all: PE 0: ctx: got no call from PE 0 of its team in 1 s; expected all of them to call it; "),
    ("barrier_all_grid", {"PE": 0, "OFFSET": 4096, "LIMIT": 10**9},
     ("barrier_all_grid: PE 0: ctx: got not all programs of the grids here and of its team's other PEs in 1 s; "
     "expected all of them to call it; ")),
]  # fmt: skip


@pytest.mark.parametrize(("routine", "words", "sentence"), SENTENCES, ids=[each[0] for each in SENTENCES])
def test_a_record_becomes_the_sentence_of_a_time_out(routine, words, sentence):
    said = kernel_timeouts.describe_record(filled(ROUTINE=kernel_timeouts.CODES[routine], **words))
    assert said == f"kernel: {sentence}PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit"


def test_the_record_of_a_barrier_is_claimed_then_filled_then_published():
    """In the instructions of the spin: what a barrier says, and ROUTINE last."""
    lines = instructions(assembly(kernels.sync_twice, "nvidia"))
    claim, fence, publish = in_order(
        lines, r"atom\S*\.exch.* \+ 8\]", r"fence\.acq_rel\.sys", r"atom\S*\.exch.* \+ 0\]"
    )
    words = [re.search(r"st\.global\.b64 \[%rd\d+ \+ (\d+)\]", line) for line in lines[claim:fence]]
    assert [int(word[1]) for word in words if word] == [
        8 * kernel_timeouts.PE,
        8 * kernel_timeouts.MISSING,
        8 * kernel_timeouts.LIMIT,
        8 * kernel_timeouts.AREA,
    ]
    assert f"mov.b64 now, {kernel_timeouts.CODES['sync_all']};" in lines[claim:publish]


def test_a_record_is_claimed_then_filled_then_published():
    """CLAIM by an exchange, every word once behind it, a fence, and ROUTINE last."""
    lines = instructions(assembly(kernels.wait_until, "nvidia", kernels.I64, 4))
    claim, fence, publish = in_order(lines, r"atom\S*\.exch", r"fence\.acq_rel\.sys", r"atom\S*\.exch")
    words = [lines[place] for place in places(lines, r"@\S+ st\.global\.b64") if claim < place < fence]
    assert len(words) == 8  # PE to LIMIT
    record_at = address(lines[publish])
    sums = {}
    for line in lines:
        found = re.fullmatch(rf"add\.s64\s+(\S+), {record_at}, (\d+);", line)
        if found:
            sums[found[1]] = int(found[2])
    assert sorted(sums[address(word)] for word in words) == [
        8 * word for word in range(kernel_timeouts.PE, kernel_timeouts.LIMIT + 1)
    ]
    assert sums[address(lines[claim])] == 8 * kernel_timeouts.CLAIM


def address(line):
    """The register with a line's address."""
    return re.search(r"\[ (\S+)", line)[1]
