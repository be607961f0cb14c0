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
    [("gfx942", [1], 304), ("gfx942", [2, 2], 608), ("gfx942", [2, 1, 1], 304), ("nvidia", [2], 608)],
    ids=str,
)
def test_decoding_starts_no_more_programs_than_the_compiled_kernel_lets_run_at_once(arch, fit, programs, monkeypatch):
    """They wait for those of other PEs: one that has no room could be the one that is waited for.

    fit: the programs of a compute unit, of each kernel that is compiled, as the number of splits is a part of it.
    """
    grids, grids_in_timelines, found = [], [], iter(fit)

    def prepared(kernel, grid, *given, **options):
        compiled = next(found)
        grids.append(grid(compiled))
        grids_in_timelines.append(grid(1))
        return SimpleNamespace(compiled=compiled)

    monkeypatch.setattr(decode_schedules.interpreter, "active", lambda: False)
    monkeypatch.setattr(decode_schedules, "machine", lambda: Machine(arch, 304, 8, False))
    monkeypatch.setattr(decode_schedules, "Prepared", prepared)
    monkeypatch.setattr(decode_schedules, "taken", lambda compiled: SimpleNamespace(programs=compiled))
    monkeypatch.setattr(decode_schedules, "device", lambda: "cpu")
    monkeypatch.setattr(decode_schedules.shmem, "device_context", lambda team: None)
    problem = Problem(None, 38, 32, 8, 128, 1 << 20, torch.bfloat16, 1.0, None)
    decode_schedules.Local(problem, None, None, None)
    assert grids[-1] == programs
    assert len(grids) == len(fit)
    assert grids_in_timelines[-1] == (304 if arch == "gfx942" else 608), "the kernel that records takes more registers"
