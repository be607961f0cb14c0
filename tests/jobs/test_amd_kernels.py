"""What `auto` and grids take on AMD GPUs, from the registers that the compiled kernels need there."""

from types import SimpleNamespace

import pytest
from pyshmem.ops.attention import decode_schedules
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


@pytest.mark.parametrize(("arch", "programs"), [("gfx942", 304), ("nvidia", 264)])
def test_decoding_starts_no_more_programs_than_run_at_once(arch, programs, monkeypatch):
    """They wait for those of other PEs: one that has no room could be the one that is waited for."""
    monkeypatch.setattr(decode_schedules.interpreter, "active", lambda: False)
    monkeypatch.setattr(decode_schedules, "machine", lambda: Machine(arch, 304 if arch == "gfx942" else 132, 8, False))
    assert decode_schedules.slots() == programs
