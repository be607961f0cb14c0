"""shmem.device_context: what names a team and a heap in kernels."""

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import torch
import triton
import triton.language as tl
from pyshmem.device.collectives.scratch import head_bytes
from support import interpreted, refuses
from triton.runtime.errors import InterpreterError

pytestmark = pytest.mark.usefixtures("beside_the_heap")


@triton.jit
def tell(ctx, out):
    tl.store(out, dev.my_pe(ctx))
    tl.store(out + 1, dev.n_pes(ctx))


def test_device_context_is_the_same_object_for_the_same_arguments(device):
    world = shmem.device_context()
    assert world is shmem.device_context()
    assert world is shmem.device_context(None)
    assert world is shmem.device_context(shmem.TEAM_WORLD)
    assert world is shmem.device_context(shmem.TEAM_WORLD, device)
    assert world is shmem.device_context(device=device)
    shared = shmem.device_context(team=shmem.TEAM_SHARED)
    assert shared is shmem.device_context(shmem.TEAM_SHARED) and shared is not world


@pytest.mark.parametrize("team", [shmem.TEAM_WORLD, shmem.TEAM_SHARED], ids=repr)
def test_device_context_numbers_the_pes_of_its_team(team):
    out = torch.full((2,), -1)
    tell[(1,)](shmem.device_context(team), out)
    assert out.tolist() == [team.my_pe(), team.n_pes()]


def test_scratch_without_room_for_the_head_of_a_slot_is_refused(me, npes):
    """What counts begins at a multiple of 64, for which a view may lie badly."""
    least = head_bytes(npes)
    scratch = shmem.zeros(least, dtype=torch.uint8)
    for short, whole_lines in ((scratch[:-1], least - 1), (scratch[1:], least - 64), (scratch[1:9], 0)):
        got = f"{short.numel()} bytes, {whole_lines} of them from a multiple of 64 on"
        with pytest.raises(shmem.ArgumentError) as caught:
            shmem.device_context(scratch=short)
        wants = f"expected {least} or more, for a team of {npes} PEs"
        assert str(caught.value) == f"device_context: PE {me}: scratch: got {got}; {wants}"
    assert shmem.device_context(scratch=scratch).scratch == scratch.data_ptr()


@triton.jit
def swap_places(ctx, word, seen):
    """To the team's next PE and the team's barrier, twice."""
    dev.p(ctx, word, 10 + dev.my_pe(ctx), (dev.my_pe(ctx) + 1) % dev.n_pes(ctx))
    dev.barrier_all(ctx)
    tl.store(seen, tl.load(word))
    dev.sync_all(ctx)


def test_contexts_of_two_teams_have_barriers_of_their_own():
    """Kernels on one team's context and then on the other's; the host's barrier on neither is in their way."""
    world, shared = shmem.device_context(), shmem.device_context(shmem.TEAM_SHARED)
    words, seen = shmem.zeros(2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for turn in range(20):
        for team, ctx, word in ((shmem.TEAM_WORLD, world, words[:1]), (shmem.TEAM_SHARED, shared, words[1:])):
            swap_places[(1,)](ctx, word, seen)
            assert seen.item() == 10 + (team.my_pe() - 1) % team.n_pes()
        if turn % 3 == 0:
            shmem.sync(shmem.TEAM_SHARED)


@triton.jit
def translate_all(ctx, other, found, n):
    """Every PE of ctx's team, one beyond, and one below."""
    for pe in range(n + 2):
        tl.store(found + pe, dev.translate_pe(ctx, pe - 1, other))
    lane = tl.arange(0, 32)
    tl.store(found + n + 2 + lane, dev.translate_pe(ctx, lane - 1, other))


def test_translate_pe_says_what_the_teams_say(npes):
    """From each to each of: all, those that are even, those of the upper half backwards, PE 0 alone."""
    world = shmem.TEAM_WORLD
    teams = [world, world.split_strided(0, 2, (npes + 1) // 2), world.split_strided(npes - 1, -1, (npes + 1) // 2),
             world.split_strided(0, 1, 1)]  # fmt: skip
    for team in filter(None, teams):
        for other in filter(None, teams):
            n, found = team.n_pes(), torch.full((team.n_pes() + 34,), -7, dtype=torch.int32)
            translate_all[(1,)](shmem.device_context(team), shmem.device_context(other), found, n)
            wanted = [team.translate_pe(pe, other) if 0 <= pe < n else -1 for pe in range(-1, n + 31)]
            assert found.tolist() == wanted[: n + 2] + wanted[:32]
    shmem.barrier_all()
    for team in teams[1:]:
        team.destroy()


def test_device_context_is_local(me):
    """Only PE 0 asks; nobody waits for it."""
    if me == 0:
        assert shmem.device_context(shmem.TEAM_SHARED) == shmem.device_context(shmem.TEAM_SHARED)


@pytest.mark.parametrize(
    ("arguments", "words"), [(("world",), "team: got str"), ((None, "disk"), "device: got 'disk'")]
)
def test_device_context_refuses_what_is_no_team_or_heap(arguments, words):
    with refuses("device_context", f"{words}; expected "):
        shmem.device_context(*arguments)


@triton.jit
def use(ctx, word):
    dev.p(ctx, word, 1, 0)  # check: ignore, all PEs write the same


@triton.jit
def meet(ctx):
    dev.barrier_all(ctx)


def refuse_stale(launch):
    with pytest.raises(
        InterpreterError, match=r": PE (\d+|\?): ctx: got a device context of before finalize; expected one from shmem"
    ) as caught:
        launch()
    assert isinstance(caught.value.__cause__, shmem.NotInitializedError)


@interpreted
def test_a_context_of_before_finalize_is_refused_after_it_and_after_the_next_init():
    old, word = shmem.device_context(), shmem.zeros(1, dtype=torch.int64)
    shmem.finalize()
    with pytest.raises(shmem.NotInitializedError, match=r"^device_context: "):
        shmem.device_context()
    refuse_stale(lambda: use[(1,)](old, word))
    refuse_stale(lambda: meet[(1,)](old))
    word = None  # then the next heap may lie where this one was
    shmem.init(heap_size="64m")
    new, word = shmem.device_context(), shmem.zeros(1, dtype=torch.int64)
    assert new is not old
    refuse_stale(lambda: use[(1,)](old, word))
    refuse_stale(lambda: meet[(1,)](old))
    shmem.barrier_all()
    assert word.item() == 0
    shmem.barrier_all()
    use[(1,)](new, word)
    shmem.quiet()
    meet[(1,)](new)
    assert word.item() == (1 if shmem.my_pe() == 0 else 0)
