"""The reserve of the operators: plans of teams that are smaller than the world lie in it, at one place on all members."""

import pyshmem as shmem
import pytest
import torch
from pyshmem import ops
from support import here

pytestmark = pytest.mark.usefixtures("plans_closed")


def test_a_smaller_team_takes_its_memory_from_the_reserve():
    n = shmem.n_pes()
    if n < 2:
        pytest.skip("there is no smaller team")
    team = shmem.TEAM_WORLD.split_strided(1, 1, n - 1)
    if ops.reserve_bytes() == 0:
        if team:
            with pytest.raises(shmem.HeapExhaustedError, match=r"ops\.reserve"):
                ops.gemm_all_reduce(torch.ones(4, 4, device=here()), torch.ones(4, 4, device=here()), team=team)
        ops.reserve(1 << 20)
    if team:
        for _ in range(3):
            result = ops.gemm_all_reduce(
                torch.full((5, 4), float(team.my_pe()), device=here()), torch.ones(4, 6, device=here()), team=team
            )
            assert (result == 4 * sum(range(n - 1))).all()
        plan = ops.plan("gemm_all_reduce", torch.ones(5, 4, device=here()), torch.ones(4, 6, device=here()), team=team)
        team.destroy()
        with pytest.raises(shmem.ArgumentError, match="gemm_all_reduce: PE .*: plan: got .*ended"):
            plan(torch.ones(5, 4, device=here()), torch.ones(4, 6, device=here()))
    shmem.barrier_all()


def test_plans_of_teams_that_share_a_pe_lie_where_all_their_members_have_room(reserve, me, npes):
    """The second team's other member has nothing in its reserve yet."""
    if npes < 3:
        pytest.skip("takes 3 PEs")
    teams = [shmem.TEAM_WORLD.split_strided(first, 1, 2) for first in (0, 1)]
    operands = [(torch.full((5, 4), 1.0 + me, device=here()), torch.ones(4, 6, device=here())) for _ in teams]
    plans = [
        ops.plan("gemm_all_reduce", *each, team=team) if team else None
        for team, each in zip(teams, operands, strict=True)
    ]
    for first, plan, each in zip((0, 1), plans, operands, strict=True):
        if plan is not None:
            assert (plan(*each) == 4 * (2 * first + 3)).all()
    shmem.barrier_all()
    for team in teams:
        if team:
            team.destroy()
