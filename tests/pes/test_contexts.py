"""9.5 contexts: whose PE numbers they use, when they are none, and what their options and sessions accept."""

import numpy as np
import pytest
import torch
from support import payload, refuses
from team_shapes import group  # noqa: F401

import pyshmem as shmem


def test_every_call_counts_pes_in_the_contexts_team(group, me):
    """Signals too. Each member writes to the next one in the team; PEs outside it are left alone."""
    team, pes = group
    word, fetched, signal = (
        shmem.full(8, -1, dtype=torch.int64),
        torch.zeros(1, dtype=torch.int64),
        shmem.zeros(1, dtype=torch.uint64),
    )
    ctx = team.create_ctx()
    assert bool(ctx) == bool(team)
    if team:
        i = team.my_pe()
        right, value = (i + 1) % len(pes), torch.tensor([100 + me], dtype=torch.int64)
        shmem.put(word[0:1], value, right, ctx=ctx)
        shmem.put_nbi(word[1:2], value, right, ctx=ctx)
        shmem.p(word[2:3], 100 + me, right, ctx=ctx)
        shmem.iput(word[3:4], value, right, 1, 1, 1, ctx=ctx)
        shmem.ibput(word[4:5], value, right, 1, 1, 1, 1, ctx=ctx)
        shmem.atomic_set(word[5:6], 100 + me, right, ctx=ctx)
        shmem.atomic_swap_nbi(fetched, word[6:7], 100 + me, right, ctx=ctx)
        shmem.put_signal(word[7:8], value, right, signal, 100 + me, shmem.SIGNAL.SET, ctx=ctx)
        ctx.quiet()
        assert fetched.item() == -1
        assert (
            shmem.g(word[0:1], right, ctx=ctx) == 100 + me and shmem.atomic_fetch(word[2:3], right, ctx=ctx) == 100 + me
        )
        team.sync()
        left = 100 + pes[(i - 1) % len(pes)]
        assert word.tolist() == [left] * 8 and shmem.signal_fetch(signal) == left
        for call in (lambda pe: shmem.g(word[0:1], pe, ctx=ctx), lambda pe: shmem.p(word[0:1], 0, pe, ctx=ctx)):
            with pytest.raises(
                shmem.OutOfRangeError, match=rf"PE {me}: pe: got {len(pes)}; expected a PE from 0 to {len(pes) - 1}"
            ):
                call(len(pes))
        ctx.destroy()
    shmem.barrier_all()
    if not team:
        assert word.tolist() == [-1] * 8


def test_a_context_knows_its_team(group):
    team, _ = group
    assert team.create_ctx().get_team() == team
    assert shmem.Ctx.create().get_team() is shmem.TEAM_WORLD and shmem.Ctx.create(team=team).get_team() == team
    assert shmem.CTX_DEFAULT.get_team() is shmem.TEAM_WORLD and shmem.CTX_INVALID.get_team() == shmem.TEAM_INVALID


def test_a_context_that_cannot_be_made_is_false_and_no_error():
    for ctx in (shmem.TEAM_INVALID.create_ctx(), shmem.Ctx.create(team=shmem.TEAM_INVALID), shmem.CTX_INVALID):
        assert not ctx
        ctx.fence(), ctx.quiet(), ctx.destroy()  # nothing, as in C
        shmem.fence(ctx), shmem.quiet(ctx), shmem.pe_quiet([0], ctx)


@pytest.mark.parametrize("end", ["ctx", "team"])
def test_a_context_is_refused_after_its_end_and_writes_nothing(end, me, npes):
    team = shmem.TEAM_WORLD.split_strided()
    ctx, word = team.create_ctx(shmem.CTX.PRIVATE), shmem.zeros(1, dtype=torch.int64)
    assert ctx
    (ctx if end == "ctx" else team).destroy()
    assert not ctx and ctx.get_team() == shmem.TEAM_INVALID
    for call in (
        lambda: shmem.p(word, 1, me, ctx=ctx), lambda: shmem.put(word, torch.ones(1, dtype=torch.int64), me, ctx=ctx),
        lambda: shmem.atomic_inc(word, me, ctx=ctx), lambda: shmem.g(word, me, ctx=ctx),
    ):  # fmt: skip
        with pytest.raises(shmem.ArgumentError, match=rf"PE {me}: ctx: got <no context>; expected a context that"):
            call()
    assert word.item() == 0
    team.destroy()


def test_the_default_context_cannot_be_destroyed():
    with refuses("destroy", "ctx: got CTX_DEFAULT"):
        shmem.CTX_DEFAULT.destroy()
    assert shmem.CTX_DEFAULT


def test_options_are_flags_and_others_are_refused():
    assert shmem.CTX.SERIALIZED | shmem.CTX.PRIVATE | shmem.CTX.NOSTORE == sum(shmem.CTX) == 7
    for options in (0, shmem.CTX.SERIALIZED, shmem.CTX.PRIVATE | shmem.CTX.NOSTORE, 7):
        ctx = shmem.Ctx.create(options)
        assert ctx and ctx.options == options
        ctx.destroy()
    for options in (8, -1, 1.0, "PRIVATE", None):
        with refuses("create", "options: got .*; expected 0 or CTX.SERIALIZED, CTX.PRIVATE"):
            shmem.Ctx.create(options)


def test_sessions_and_pcontrol_accept_what_the_specification_has():
    ctx = shmem.Ctx.create()
    ctx.session_start()
    ctx.session_start(shmem.SESSION.BATCH)
    ctx.session_stop()
    with refuses("session_start", "options: got 2; expected 0 or SESSION.BATCH"):
        ctx.session_start(2)
    for level in (0, 1, 2, 77):
        shmem.pcontrol(level)
    with refuses("pcontrol", "level: got '1'; expected an int"):
        shmem.pcontrol("1")


def test_pe_quiet_completes_what_was_sent_to_the_pes_it_names(group, me, npes):
    team, pes = group
    target, arrived = shmem.zeros(1000, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    ctx = team.create_ctx()
    if team:
        i = team.my_pe()
        right = (i + 1) % len(pes)
        for turn in range(1, 20):
            shmem.put_nbi(target, payload(me, turn, 1000, torch.int64), right, ctx=ctx)
            shmem.pe_quiet([right, i], ctx)
            shmem.p(arrived, turn, right, ctx=ctx)
            shmem.wait_until(arrived, ">=", turn)
            assert torch.equal(target, payload(pes[(i - 1) % len(pes)], turn, 1000, torch.int64))
            team.sync()
        with refuses("pe_quiet", f"pe: got {len(pes)}; expected a PE from 0", shmem.OutOfRangeError):
            shmem.pe_quiet([0, len(pes)], ctx)
    shmem.pe_quiet(range(npes))
    shmem.pe_quiet(np.arange(0))
    with refuses("pe_quiet", f"pe: got {npes}; expected a PE from 0", shmem.OutOfRangeError):
        shmem.pe_quiet([npes])


def test_pe_quiet_completes_a_get_that_has_been_started(me, npes):
    right, source = (me + 1) % npes, shmem.full(50_000, me, dtype=torch.int64)
    target = torch.full((50_000,), -1, device=source.device)
    shmem.get_nbi(target, source, right)
    shmem.pe_quiet([right])
    assert (target == right).all()


@pytest.mark.parametrize("pe", [0.0, False, "0", None], ids=repr)
def test_a_pe_of_a_contexts_team_must_be_an_int(pe):
    word = shmem.full(1, 7)
    for routine, call in (
        ("p", lambda: shmem.p(word, 1, pe, ctx=shmem.CTX_DEFAULT)),
        ("pe_quiet", lambda: shmem.pe_quiet([pe])),
    ):
        with refuses(routine, f"pe: got {pe!r}; expected an int$"):
            call()
    shmem.barrier_all()
    assert word == 7
