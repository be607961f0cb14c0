"""Lanes of process groups, which lend their teams scratch memory."""

from types import SimpleNamespace

import torch
from pyshmem.distributed import lanes
from pyshmem.kernels.plans import known, remember
from pyshmem.memory import areas
from pyshmem.base.job import job


def test_what_is_planned_for_a_team_ends_with_its_lane():
    """A later team with the same area has other scratch memory, on all PEs alike."""
    arena = lanes.Arena()
    arena.memory, arena._generation = torch.zeros(4096, dtype=torch.uint8), job.generation
    own, other = ((0, 1024), (1024, 2048))
    arena._taken = [own, other]
    remember(("reduce", 7), "a plan")
    arena.give_back(lanes.Lane(SimpleNamespace(area_index=7), arena.memory[:256]))
    assert not known and arena._taken == [other]


def test_scratch_memory_that_a_team_was_lent_does_not_pass_to_the_next_team_of_its_area():
    """Members of the next team that were not in the one before would use other memory than the rest, and wait for ever."""
    pool = areas.Pool()
    team, other = (SimpleNamespace(area_index=index, _leave=lambda: None) for index in (7, 8))
    for each in (team, other):
        pool.teams[each.area_index] = each
        areas.lent["cuda", each.area_index, job.generation] = 4096, 768
    pool.give_back(team)
    assert [key[1] for key in areas.lent] == [8] and pool.free >> 7 & 1
    pool.give_back(other)
    assert not areas.lent
