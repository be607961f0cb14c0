"""Lanes of process groups, which lend their teams scratch memory."""

from types import SimpleNamespace

import torch
from pyshmem.distributed import lanes
from pyshmem.kernels.plans import known, remember
from pyshmem.runtime.areas import lent
from pyshmem.runtime.job import job


def test_what_is_planned_for_a_team_ends_with_its_lane():
    """A later team with the same area has other scratch memory, on all PEs alike."""
    arena = lanes.Arena()
    arena.memory, arena._generation = torch.zeros(4096, dtype=torch.uint8), job.generation
    own, other = ((0, 1024), (1024, 2048))
    arena._taken = [own, other]
    area = "cuda", 7, job.generation
    lent[area] = arena.memory[256:].data_ptr(), 768
    remember(("reduce", 7), "a plan")
    arena.give_back(lanes.Lane(SimpleNamespace(area_index=7), arena.memory[:256]))
    assert area not in lent and not known and arena._taken == [other]
