"""Teams of torch process groups and back, in a job that MPI has started. torch numbers the processes in reverse.

With a GPU for each PE the groups are NCCL's, bound to these GPUs; else gloo's.
"""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import pyshmem as shmem
from pyshmem.memory.heap import default
from support import torch_store


@pytest.fixture(scope="module")
def ranks():
    """The PE of each rank; torch.distributed is initialised."""
    me, npes = shmem.my_pe(), shmem.n_pes()
    store = torch_store()
    bound = {"device_id": torch.device("cuda", torch.cuda.current_device())} if where() == "cuda" else {}
    backend = "nccl" if bound else "gloo"
    dist.init_process_group(backend, store=store, rank=npes - 1 - me, world_size=npes, **bound)
    yield list(range(npes))[::-1]
    shmem.barrier_all()
    dist.destroy_process_group()
    shmem.barrier_all()


def where():
    """The kind of memory that the groups' collectives take."""
    return "cuda" if default().streams and torch.cuda.device_count() >= shmem.n_pes() else "cpu"


def total(group, value):
    number = torch.tensor([value], device=where())
    dist.all_reduce(number, group=group)
    return number.item()


def test_without_torch_distributed_both_ways_are_refused_on_all_pes(monkeypatch):
    """Also after tests that have initialised it."""
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    for call in (lambda: shmem.Team.from_group(None), shmem.TEAM_WORLD.to_group):
        with pytest.raises(shmem.ArgumentError, match=r"torch.distributed: got none on PEs? 0.*expected torch.dist"):
            call()


def test_team_of_a_group_has_its_ranks_as_pes(ranks, me, npes):
    team = shmem.Team.from_group(dist.group.WORLD)
    assert (team.my_pe(), team.n_pes()) == (dist.get_rank(), npes)
    assert [team.translate_pe(rank) for rank in range(npes)] == ranks
    target = torch.zeros(1, dtype=torch.int64)
    shmem.sum_reduce(target, torch.tensor([me]), team=team)
    assert target.item() == sum(range(npes))
    team.destroy()


def test_group_of_a_team_has_its_pes_as_ranks(ranks, me, npes):
    team = shmem.Team.from_group(dist.group.WORLD)
    group = team.to_group()
    assert (dist.get_rank(group), dist.get_world_size(group)) == (team.my_pe(), npes)
    team.destroy()
    assert total(group, me) == sum(range(npes))
    if npes > 1:
        with pytest.raises(shmem.ArgumentError, match="to_group: .*expected PEs whose ranks ascend"):
            shmem.TEAM_WORLD.to_group()


def test_dimensions_of_a_mesh_are_teams(ranks, me, npes):
    """Rows and columns of a mesh, where the number of PEs has a divisor."""
    rows = next(n for n in (2, 3, 1) if npes % n == 0)
    mesh = init_device_mesh(where(), (rows, npes // rows), mesh_dim_names=("dp", "tp"))
    for name in ("dp", "tp"):
        team, group = shmem.Team.from_group(mesh[name]), mesh.get_group(name)
        assert (team.my_pe(), team.n_pes()) == (dist.get_rank(group), dist.get_world_size(group))
        target = torch.zeros(1, dtype=torch.int64)
        shmem.sum_reduce(target, torch.tensor([me]), team=team)
        assert target.item() == total(group, me)
        back = team.to_group()
        assert total(back, 1) == team.n_pes() and dist.get_rank(back) == team.my_pe()
        team.destroy()


def test_pes_in_no_group_get_no_team(ranks, me, npes):
    group = dist.new_group([0])
    for given in (group, group if me == npes - 1 else None):
        team = shmem.Team.from_group(given)
        assert (team.my_pe(), team.n_pes()) == ((0, 1) if me == npes - 1 else (-1, -1))
        team.destroy()


def test_groups_that_are_no_teams_are_refused_on_all_pes(ranks, me, npes):
    """One PE passes another group than the others of its group; and distances that differ."""
    if npes < 2:
        pytest.skip("one PE has one group")
    alone = dist.new_group([npes - 1])  # of PE 0
    with pytest.raises(shmem.ArgumentError, match=rf"PE {me}: group: got on PEs? .* a group of other"):
        shmem.Team.from_group(alone if me == 0 else dist.group.WORLD)
    if npes > 3:
        uneven = dist.new_group([0, 1, 3])
        with pytest.raises(shmem.ArgumentError, match=r"a group of other processes"):
            shmem.Team.from_group(uneven)
