"""A team that gets the area of a process group after its end has scratch memory of its own."""

import pyshmem as shmem
import pyshmem.distributed  # adds the backend
import torch
import torch.distributed as dist


def test_a_team_with_the_area_of_a_group_that_has_ended_reduces(me, npes):
    source, target = shmem.full(1, me + 1, dtype=torch.int64), shmem.zeros(1, dtype=torch.int64)
    total = npes * (npes + 1) // 2
    shmem.barrier_all()
    dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
    for _ in range(3):  # the second one finds what the first has planned
        target.copy_(source)
        dist.all_reduce(target)
        assert target.item() == total
    dist.new_group([0])  # PE 0 plans again after it, the others do not
    shmem.barrier_all()
    dist.destroy_process_group()
    shmem.barrier_all()
    with shmem.TEAM_WORLD.split_strided() as team:
        for _ in range(3):
            target.zero_()
            shmem.reduce_on_stream(target, source, team=team)
            assert target.item() == total
            team.sync()
    shmem.barrier_all()
