"""What `auto` and grids take on AMD GPUs, from the registers that the compiled kernels need there."""

from types import SimpleNamespace

import pytest
import torch
from pyshmem.ops.attention import decode_schedules
from pyshmem.ops.attention.decode import Problem
from pyshmem.ops.experts import schedules
from pyshmem.ops.machine import Machine


@pytest.mark.parametrize(
    ("arch", "n_pes", "chosen"),
    [("gfx942", 8, "fused"), ("gfx950", 8, "fused"), ("gfx942", 4, "words"), ("nvidia", 8, "words")],
)
def test_tokens_go_by_words_only_where_that_kernel_does_not_spill(arch, n_pes, chosen, monkeypatch):
    monkeypatch.setattr(schedules, "machine", lambda: Machine(arch, 304, 8, False))
    team = SimpleNamespace(size=n_pes, meeting=SimpleNamespace(spans=False))
    problem = SimpleNamespace(team=team, room=1, top=2, hidden=1024)
    assert schedules.schedule_of("auto", problem) == chosen
    assert schedules.schedule_of("words", problem) == "words", "it can still be asked for"


@pytest.mark.parametrize(
    ("arch", "fit", "programs"),
    [("gfx942", 1, 304), ("gfx942", 2, 608), ("gfx942", 3, 608), ("nvidia", 1, 608)],
)
def test_decoding_starts_no_more_programs_than_the_compiled_kernel_lets_run_at_once(arch, fit, programs, monkeypatch):
    """They wait for those of other PEs: one that has no room could be the one that is waited for.

    fit: the programs of a compute unit, of AMD's as the compiled kernel says.
    """
    grids = []

    def prepared(kernel, grid, *given, **options):
        grids.extend((grid(fit), grid(1)))
        return SimpleNamespace(compiled=fit)

    monkeypatch.setattr(decode_schedules.interpreter, "active", lambda: False)
    monkeypatch.setattr(decode_schedules, "machine", lambda: Machine(arch, 304, 8, False))
    monkeypatch.setattr(decode_schedules, "Prepared", prepared)
    monkeypatch.setattr(decode_schedules, "taken", lambda compiled: SimpleNamespace(programs=compiled))
    monkeypatch.setattr(decode_schedules, "device", lambda: "cpu")
    monkeypatch.setattr(decode_schedules, "Workspace", lambda *given: None)
    monkeypatch.setattr(decode_schedules.shmem, "device_context", lambda team: None)
    monkeypatch.setattr(decode_schedules.Local, "wanted", lambda self: {})
    attend = decode_schedules.Local(Problem(None, 64, 32, 8, 128, torch.bfloat16, 1.0))._prepare(None)
    assert grids[0] == attend.room == programs
    assert grids[1] == (304 if arch == "gfx942" else 608), "the kernel that records takes more registers"


@pytest.mark.parametrize("programs", [1, 5, 132, 264, 608])
def test_a_sequence_has_the_fewest_splits_that_keep_the_multiprocessors_busy(programs):
    def used(groups, splits):
        return groups * splits / (-(-groups * splits // programs) * programs)

    for most in (0, 1, 2, 7, 30, 64):
        able = range(1, max(most, 1) + 1)
        for groups in (*range(1, 300), 512, 1000, 8192, 100_003):
            busy = (splits for splits in able if used(groups, splits) >= 0.9)
            wanted = next(busy, None) or max(able, key=lambda splits: used(groups, splits))
            assert decode_schedules.splits_of(groups, most, programs) == wanted, (groups, most)


@pytest.mark.parametrize("room", [1, 2, 64, 100])
def test_parts_have_room_for_all_numbers_of_sequences_and_tokens_of_a_plan(room, monkeypatch):
    monkeypatch.setattr(decode_schedules.interpreter, "active", lambda: False)
    monkeypatch.setattr(decode_schedules, "machine", lambda: Machine("gfx942", 304, 8, False))
    most = decode_schedules.most_parts(room, 8)
    for sequences in range(room // 2 + 1, room + 1):
        for splits in range(decode_schedules.MOST_SPLITS + 1):
            for programs in (304, 608):
                assert 8 * sequences * decode_schedules.splits_of(8 * sequences, splits, programs) <= most
