"""9.4 teams: who is in, under which number, what is refused, and how long a team and its area last."""

import threading

import numpy as np
import pytest
import torch
from pyshmem.base.job import job
from support import refuses, work
from team_shapes import group  # noqa: F401

import pyshmem as shmem
from pyshmem.device.arch.fields import decoded
from pyshmem.memory import areas

WORLD = shmem.TEAM_WORLD


def test_split_strided_numbers_the_members_in_order(group, me):
    team, pes = group
    if me in pes:
        assert team and (team.my_pe(), team.n_pes()) == (pes.index(me), len(pes))
        for i, pe in enumerate(pes):
            assert team.translate_pe(i, WORLD) == pe and WORLD.translate_pe(pe, team) == i
    else:
        assert not team and team == shmem.TEAM_INVALID and team is shmem.TEAM_INVALID


def test_translate_pe_is_minus_1_for_who_is_not_there(group, npes):
    team, pes = group
    for pe in set(range(npes)) - set(pes):
        assert WORLD.translate_pe(pe, team) == -1
    for pe in (-1, npes, 99, "0", 1.0, True):
        assert WORLD.translate_pe(pe, WORLD) == -1 and team.translate_pe(pe, WORLD) == -1
    assert team.translate_pe(0, shmem.TEAM_INVALID) == -1 and shmem.TEAM_INVALID.translate_pe(0, team) == -1


def test_a_team_of_a_team_counts_in_its_parent(npes, me):
    """A reversed team reversed again is in the world's order; its evens are the world's from the end."""
    back = WORLD.split_strided(npes - 1, -1, npes)
    again = back.split_strided(npes - 1, -1)
    evens = back.split_strided(0, 2)
    assert again.my_pe() == me and again.n_pes() == npes
    assert bool(evens) == ((npes - 1 - me) % 2 == 0)
    if evens:
        assert [evens.translate_pe(i, WORLD) for i in range(evens.n_pes())] == list(range(npes - 1, -1, -2))
    source, target = shmem.full(1, me, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    if evens:
        shmem.sum_reduce(target, source, team=evens)
        assert target.item() == sum(range(npes - 1, -1, -2))


@pytest.mark.parametrize("arguments, wanted", [
    ((), lambda n: range(n)), ((1,), lambda n: range(1, n)), ((0, 2), lambda n: range(0, n, 2)),
    ((0, -1), lambda n: range(1)), ((0, 0), lambda n: range(1)),
])  # fmt: skip
def test_split_strided_without_size_takes_as_many_as_there_are(arguments, wanted, me, npes):
    if not wanted(npes):
        pytest.skip("one PE has no second")
    team = WORLD.split_strided(*arguments)
    assert team.n_pes() == (len(wanted(npes)) if me in wanted(npes) else -1)


@pytest.mark.parametrize("arguments", [
    (0, 1, 99), (-1, 1, 1), (99, 1, 1), (0, 0, 2), (0, 1, 0), (0, 1, -1), (0, -1, 2), (0, 2**40, 2),
])  # fmt: skip
def test_split_strided_refuses_what_is_not_in_the_parent_on_all_pes(arguments, npes):
    with refuses(
        "split_strided",
        f"start: got start .*; expected PEs from 0 to {npes - 1}, each of them once",
        shmem.OutOfRangeError,
    ):
        WORLD.split_strided(*arguments)
    WORLD.sync()


def test_split_refuses_other_arguments_and_a_team_that_is_none():
    for call, pattern in (
        (lambda: WORLD.split_strided("0"), "split_strided: PE .*: start: got '0'; expected an int"),
        (lambda: WORLD.split_strided(0, 1, 1, {"num_context": 1}), "config: got num_context=1; expected num_contexts"),
        (lambda: WORLD.split_strided(0, 1, 1, num_contexts=-1), "config: got num_contexts=-1"),
        (lambda: WORLD.split_strided(0, 1, 1, 7), "config: got int; expected a TeamConfig, a dict or None"),
        (lambda: WORLD.split_2d(0), "split_2d: PE .*: xrange: got 0; expected 1 or more"),
        (lambda: shmem.TEAM_INVALID.split_strided(), "split_strided: PE .*: team: got <TEAM_INVALID: no team>"),
        (lambda: shmem.TEAM_INVALID.split_2d(1), "split_2d: PE .*: team: got <TEAM_INVALID: no team>"),
    ):
        with pytest.raises(shmem.ShmemError, match=pattern):
            call()
    WORLD.sync()


@pytest.mark.parametrize("xrange", [1, 2, 3, 4, 99])
def test_split_2d_makes_rows_and_columns(xrange, me, npes):
    x, y = WORLD.split_2d(xrange)
    width = min(xrange, npes)
    assert (x.my_pe(), y.my_pe()) == (me % width, me // width)
    assert x.n_pes() == min(width, npes - me // width * width), "the last row may be short"
    assert y.n_pes() == len(range(me % width, npes, width))
    source, across, down = shmem.full(1, me, dtype=torch.int64), *shmem.zeros(2, 1, dtype=torch.int64)
    shmem.sum_reduce(across, source, team=x)
    shmem.sum_reduce(down, source, team=y)
    assert across.item() == sum(pe for pe in range(npes) if pe // width == me // width)
    assert down.item() == sum(pe for pe in range(npes) if pe % width == me % width)


def test_the_config_is_what_was_asked_for():
    assert WORLD.get_config() == shmem.TeamConfig(0)
    for config, options, wanted in (
        (None, {}, 0), (shmem.TeamConfig(3), {}, 3), ({"num_contexts": 4}, {}, 4), (None, {"num_contexts": np.int64(5)}, 5),
    ):  # fmt: skip
        team = WORLD.split_strided(0, 1, None, config, **options)
        assert team.get_config().num_contexts == wanted
        team.destroy()
    x, y = WORLD.split_2d(1, shmem.TeamConfig(1), {"num_contexts": 2})
    assert (x.get_config(), y.get_config()) == (shmem.TeamConfig(1), shmem.TeamConfig(2))
    with pytest.raises(shmem.ArgumentError, match="get_config: PE .*: team: got <TEAM_INVALID: no team>"):
        shmem.TEAM_INVALID.get_config()


def test_no_team_answers_minus_1_and_does_nothing():
    none = shmem.TEAM_INVALID
    assert (none.my_pe(), none.n_pes(), none.translate_pe(0, WORLD)) == (-1, -1, -1)
    assert not none and not none.create_ctx() and none == shmem.TEAM_INVALID and none != WORLD
    assert WORLD == WORLD and WORLD != shmem.TEAM_SHARED and WORLD != "TEAM_WORLD"
    none.destroy()
    assert shmem.team_ptr(shmem.zeros(1), 0, none) is None
    with refuses("sync", "team: got <TEAM_INVALID: no team>"):
        none.sync()


def test_a_destroyed_team_is_none_and_its_area_serves_another(npes):
    for turn in range(3 * areas.pool.size):  # far more teams than there are areas
        team = WORLD.split_strided(npes - 1, -1, npes)
        source, target = shmem.full(1, turn, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
        shmem.sum_reduce(target, source, team=team)
        assert target.item() == turn * npes
        team.destroy()
        assert not team and team == shmem.TEAM_INVALID
        team.destroy()
        shmem.free(source)
        shmem.free(target)


def test_an_area_may_pass_between_teams_of_different_pes(npes):
    """Their members have made different numbers of calls in it: what an earlier team left must not count."""
    source, (target, copied) = shmem.full(1, 1, dtype=torch.int64), shmem.zeros(2, 1, dtype=torch.int64)
    for turn in range(12):
        first, size = turn % npes, npes - turn % npes
        team = WORLD.split_strided(first, 1, size)
        for _ in range(turn % 5):
            if team:
                shmem.sum_reduce(target, source, team=team)
                shmem.broadcast(copied, source, size - 1, team=team)
                team.sync()
        if team:
            shmem.sum_reduce(target, source, team=team)
            assert target.item() == size
        team.destroy()


def test_the_predefined_teams_cannot_be_destroyed():
    for team in (WORLD, shmem.TEAM_SHARED):
        with refuses("destroy", "team: got TEAM_"):
            team.destroy()
        assert team
    WORLD.sync()


def test_team_ptr_counts_in_the_team(group, me):
    team, pes = group
    array = shmem.full(1, me, dtype=torch.int64)
    if team:
        for i, pe in enumerate(pes):
            there = shmem.team_ptr(array, i, team)
            assert there.item() == pe if job.nodes[pe] == job.nodes[me] else there is None
        with refuses("team_ptr", f"pe: got {len(pes)}; expected a PE from 0 to", shmem.OutOfRangeError):
            shmem.team_ptr(array, len(pes), team)


def test_sync_of_a_team_does_not_wait_for_others(me, npes):
    """PE 0 comes to the world's barrier only after it has heard that the others' team synchronised without it."""
    team = WORLD.split_strided(1, 1, npes - 1) if npes > 1 else None
    told = shmem.zeros(1, dtype=torch.int64)
    if team:
        work(2000 * me)
        team.sync()
        shmem.atomic_inc(told, 0)
    if me == 0 and npes > 1:
        shmem.wait_until(told, "==", npes - 1)
    shmem.barrier_all()


def test_threads_split_different_teams_at_once(me, npes):
    """Level MULTIPLE: each thread has a team of its own, and no two of the teams they make share an area."""
    parents = [WORLD.split_strided(), WORLD.split_strided(npes - 1, -1, npes)]
    sources, targets = shmem.zeros(2, 1, dtype=torch.int64), shmem.zeros(2, 1, dtype=torch.int64)
    made, failures = [[], []], []

    def split(which):
        try:
            for turn in range(10):
                team = parents[which].split_strided()
                made[which].append(team)
                sources[which].fill_(10 * turn + which)
                shmem.sum_reduce(targets[which], sources[which], team=team)
                assert targets[which].item() == npes * (10 * turn + which)
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    order = (0, 1) if me % 2 == 0 else (1, 0)
    threads = [threading.Thread(target=split, args=(which,)) for which in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    teams = made[0] + made[1]
    assert len({team.area_index for team in teams}) == len(teams) == 20
    for team in made[0] + made[1]:
        team.destroy()


def test_a_device_context_is_its_teams_alone(me, npes, device):
    """Also when an earlier team had the same area, with its PEs numbered differently."""
    if device != "cpu":
        pytest.skip("the fields are read here as the interpreter's")
    for start, stride in ((0, 1), (npes - 1, -1), (0, 1)):
        team = WORLD.split_strided(start, stride, npes)
        ctx = shmem.device_context(team)
        assert (decoded(ctx.me), decoded(ctx.n_pes)) == (team.my_pe(), npes) and shmem.device_context(team) is ctx
        index = team.area_index
        team.destroy()
    assert index == areas.RESERVED
    with refuses("device_context", "team: got a destroyed team of PEs? .*; expected a team this PE is in"):
        shmem.device_context(team)
