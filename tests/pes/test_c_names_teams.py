"""shmem_team_split_* where PYSHMEM_MAX_TEAMS are in use: status and handle on all PEs of the parent, and what a destroy mends.

9.4: a team that cannot be made is SHMEM_TEAM_INVALID, with a status that is not 0, on all PEs of the parent team.
"""

import pytest

import pyshmem.shmem as c
from pyshmem.memory import areas

WORLD, NONE = c.SHMEM_TEAM_WORLD, c.SHMEM_TEAM_INVALID


def duplicate(parent):
    """(status, a team of the same PEs)."""
    return c.shmem_team_split_strided(parent, 0, 1, c.shmem_team_n_pes(parent), None, 0)


def fill(parent):
    """Teams of the parent's PEs, as many as there is room for."""
    made = []
    while (answer := duplicate(parent))[0] == 0:
        assert answer[1] != NONE and c.shmem_team_n_pes(answer[1]) == c.shmem_team_n_pes(parent)
        made.append(answer[1])
    assert answer == (1, NONE)
    return made


@pytest.fixture
def halves(me, npes):
    """(the team of this PE's half, which half: 0 the even PEs, 1 the odd ones, of which one PE alone has none)."""
    answers = [c.shmem_team_split_strided(WORLD, 0, 2, (npes + 1) // 2, None, 0)]
    if npes > 1:
        answers.append(c.shmem_team_split_strided(WORLD, 1, 2, npes // 2, None, 0))
    assert [ret for ret, _ in answers] == [0] * len(answers), "no room is needed on PEs outside the new team"
    assert [team != NONE for _, team in answers] == [half == me % 2 for half in range(len(answers))]
    return answers[me % 2][1], me % 2


def test_split_strided_of_a_full_pool_fails_on_all_pes_of_the_parent(npes, me):
    """Those outside the new team too, which else get status 0 with SHMEM_TEAM_INVALID."""
    teams = fill(WORLD)
    assert len(teams) == areas.pool.size - areas.RESERVED
    for start in range(npes):
        assert c.shmem_team_split_strided(WORLD, start, 1, 1, None, 0) == (1, NONE)
    c.shmem_team_destroy(teams.pop())
    ret, last = c.shmem_team_split_strided(WORLD, npes - 1, 1, 1, None, 0)
    assert ret == 0 and (last != NONE) == (me == npes - 1)


def test_split_2d_makes_both_teams_or_none(me, npes):
    """Room for one of the two is not enough, and is there again afterwards."""
    teams = fill(WORLD)
    for room in (0, 1):
        assert c.shmem_team_split_2d(WORLD, 2, None, 0, None, 0) == (1, NONE, NONE), room
        c.shmem_team_destroy(teams.pop())
    ret, x, y = c.shmem_team_split_2d(WORLD, 2, None, 0, None, 0)
    assert ret == 0 and (c.shmem_team_my_pe(x), c.shmem_team_my_pe(y)) == (me % min(2, npes), me // min(2, npes))


def test_a_pool_that_is_full_on_some_pes_has_no_room_for_a_team_of_all(halves, me, npes):
    """Disjoint teams share a place: only the even PEs' pool is full, and the odd ones' splits go on."""
    mine, half = halves
    teams = fill(mine) if half == 0 else []
    c.shmem_barrier_all()
    assert duplicate(WORLD) == (1, NONE)
    assert duplicate(mine) == (1, NONE) if half == 0 else duplicate(mine)[0] == 0
    c.shmem_barrier_all()
    if teams:
        c.shmem_team_destroy(teams.pop())
    ret, everybody = duplicate(WORLD)
    assert ret == 0 and c.shmem_team_n_pes(everybody) == npes


def test_a_team_needs_the_same_place_on_all_its_pes(halves, npes):
    """Both halves have places, but none in common; one given back in the right half is enough."""
    mine, half = halves
    teams = fill(mine)
    middle = len(teams) // 2
    free, used = (teams[:middle], teams[middle:]) if half == 0 else (teams[middle:], teams[:middle])
    for team in free:
        c.shmem_team_destroy(team)
    c.shmem_barrier_all()
    ret, team = duplicate(WORLD)
    assert (ret, team) == (1, NONE) if npes > 1 else ret == 0
    assert duplicate(mine)[0] == 0
    if half == 1:
        c.shmem_team_destroy(used[-1])
    ret, everybody = duplicate(WORLD)
    assert ret == 0 and c.shmem_team_sync(everybody) == 0 and c.shmem_team_n_pes(everybody) == npes
