"""GradientReducer: averages as DistributedDataParallel makes them, whatever parameters a model has and backward reaches."""

import copy
from functools import partial

import pyshmem as shmem
import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from operands import close_to, equal_on_all_pes
from reduced_models import BOUNDS, averages, check, data, every_schedule, loss_of, network, noted, reducing
from support import here, refuses, torch_store


@pytest.fixture(scope="module")
def group():
    """torch's process group of all PEs, for DistributedDataParallel."""
    me, n = shmem.my_pe(), shmem.n_pes()
    dist.init_process_group("gloo", store=torch_store(), rank=me, world_size=n)
    yield
    shmem.barrier_all()
    dist.destroy_process_group()
    shmem.barrier_all()


@every_schedule
@pytest.mark.parametrize("dtype", BOUNDS)
def test_gradients_are_the_average_with_the_same_bits_on_all_pes(schedule, dtype):
    for bucket_bytes in (1, 1200, 1 << 20):
        model = network(dtype)
        with reducing(model, bucket_bytes=bucket_bytes, schedule=schedule):
            loss_of(model, data(shmem.my_pe(), dtype=dtype)).backward()
            check(model, averages(model), bucket_bytes)
            for each in model.parameters():
                equal_on_all_pes(shmem.array(each.grad))


@every_schedule
def test_gradients_are_the_sum_where_no_average_is_wanted(schedule):
    model = network()
    with reducing(model, average=False, schedule=schedule):
        loss_of(model, data(shmem.my_pe())).backward()
        check(model, averages(model, average=False))


@every_schedule
def test_not_a_number_in_one_element_of_one_pe_is_in_that_element_on_all(schedule):
    model = torch.nn.Linear(6, 5).to(here())
    with reducing(model, bucket_bytes=1, schedule=schedule):
        loss = model(data(shmem.my_pe())).sum()
        if shmem.my_pe() == shmem.n_pes() - 1:
            loss = loss + model.weight[2, 3] * float("nan")
        loss.backward()
        assert model.weight.grad.isnan().nonzero().tolist() == [[2, 3]] and not model.bias.grad.isnan().any()


@every_schedule
def test_sums_of_several_backwards_count_each_gradient_once(schedule):
    """Also of a parameter that a later backward does not use, and after no_sync."""
    n = shmem.n_pes()
    model = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)]).to(here())
    x = torch.ones(1, 1, device=here())
    with reducing(model, average=False, schedule=schedule, bucket_bytes=4) as reducer:
        for each in model:
            each.weight.data.fill_(1)
        model[1](model[0](x)).backward()
        model[0](x).backward()
        assert [each.weight.grad.item() for each in model] == [2 * n, n]
        with reducer.no_sync():
            model[0](x).backward()
        model[0](x).backward()
        assert [each.weight.grad.item() for each in model] == [4 * n, n]
        torch.autograd.grad(model[0](x), model[0].weight)  # adds to no .grad
        assert [each.weight.grad.item() for each in model] == [4 * n, n]


@every_schedule
@pytest.mark.parametrize("average", [True, False])
def test_a_backward_with_reentrant_checkpoints_reduces_each_bucket_once(schedule, average):
    """Chained ones, one in another, and one of a layer that is also used outside; onto gradients of the backward before."""
    model = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(3)).to(here())
    x, wanted, counts = torch.ones(1, 1, device=here(), requires_grad=True), 1 if average else shmem.n_pes(), []
    reentrant = partial(torch.utils.checkpoint.checkpoint, use_reentrant=True)

    def chained(x):
        return reentrant(model[2], reentrant(model[1], model[1](reentrant(model[0], x))))

    with reducing(model, average=average, schedule=schedule, bucket_bytes=4) as reducer:
        reducer._steps = [noted(step, counts, i) for i, step in enumerate(reducer._steps)]
        for each in model:
            each.weight.data.fill_(1)
        for turn, forward in enumerate((chained, chained, lambda x: reentrant(chained, x)), 1):
            forward(x).sum().backward()
            assert [each.weight.grad.item() for each in model] == [turn * wanted, 2 * turn * wanted, turn * wanted]
            assert counts == [0, 1, 2]
            counts.clear()


def test_a_layer_that_begins_to_be_checkpointed_behind_its_reduction_is_refused_by_name():
    model = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(2)).to(here())
    x = torch.ones(1, 1, device=here(), requires_grad=True)
    with reducing(model, bucket_bytes=4):
        model[1](model[0](x)).sum().backward()
        twice = model[1](torch.utils.checkpoint.checkpoint(model[1], x, use_reentrant=True))
        with refuses("GradientReducer", "model, 1.weight: got a second gradient in one backward; expected .* anew"):
            twice.sum().backward()
        model.zero_grad()
        model[1](model[0](x)).sum().backward()
        assert model[0].weight.grad.isfinite().all()


@every_schedule
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_gives_what_distributed_data_parallel_gives(schedule, dtype, group):
    """Bit for bit on two PEs, where there is only one order of sums."""
    ours, theirs = network(dtype, seed=3), network(dtype, seed=3)
    ddp = torch.nn.parallel.DistributedDataParallel(theirs)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9) for each in (ours, theirs)]
    with reducing(ours, bucket_bytes=1200, schedule=schedule):
        for turn in range(4):
            for model, optimizer in zip((ours, ddp), optimizers, strict=True):
                optimizer.zero_grad()
                loss_of(model, data(shmem.my_pe(), turn, dtype)).backward()
                optimizer.step()
        for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            if shmem.n_pes() <= 2:
                assert torch.equal(mine, other) and torch.equal(mine.grad, other.grad), name
            else:
                close_to(mine.detach(), other.detach().double(), BOUNDS[dtype], name)


@every_schedule
def test_gradients_of_several_backwards_add_up_before_they_are_reduced(schedule):
    model = network()
    with reducing(model, bucket_bytes=1200, schedule=schedule) as reducer:
        for first in (0, 3):
            model.zero_grad()
            with reducer.no_sync():
                for turn in (first, first + 1):
                    loss_of(model, data(shmem.my_pe(), turn)).backward()
            loss_of(model, data(shmem.my_pe(), first + 2)).backward()
            check(model, averages(model, range(first, first + 3)), first)


def test_no_sync_lets_a_pe_run_backward_by_itself():
    model = network()
    with reducing(model) as reducer:
        if shmem.my_pe() == 0:
            with reducer.no_sync():
                loss_of(model, data(0)).backward()
            check(model, [each.grad.double() for each in copied(model, data(0))])


def copied(model, x):
    alone = copy.deepcopy(model)
    alone.zero_grad()
    loss_of(alone, x).backward()
    return alone.parameters()


def test_a_backward_onto_reduced_gradients_adds_its_average():
    model = network()
    with reducing(model):
        for turn in range(2):
            loss_of(model, data(shmem.my_pe(), turn)).backward()
        check(model, averages(model, [0, 1]))


class Branches(torch.nn.Module):
    """Of ``branches`` a call uses one; ``shared`` is registered twice, ``frozen`` has no gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(6, 6)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))
        self.shared = torch.nn.Linear(6, 6, bias=False)
        self.again = torch.nn.Linear(6, 6, bias=False)
        self.again.weight = self.shared.weight
        self.frozen = torch.nn.Parameter(torch.ones(6), requires_grad=False)
        self.wide = torch.nn.Parameter(torch.ones(6, dtype=torch.float64))
        self.to(here())

    def forward(self, x, branch):
        x = self.shared(self.branches[branch](self.first(x)) * self.frozen)
        return self.again(x) * self.wide


@every_schedule
def test_unused_shared_and_frozen_parameters_and_several_dtypes_are_reduced_as_they_should(schedule):
    """A branch that only some PEs use counts zeros for the others; one that no PE uses keeps None on all."""
    me, n = shmem.my_pe(), shmem.n_pes()
    model = Branches()
    alone = copy.deepcopy(model)
    for pe in range(n):
        alone(data(pe), pe % 2).square().sum().backward()
    with reducing(model, bucket_bytes=300, schedule=schedule) as reducer:
        assert not any("frozen" in name or "again" in name for names in reducer.buckets for name in names)
        for _ in range(2):
            model.zero_grad()
            model(data(me), me % 2).square().sum().backward()
            for (name, each), other in zip(model.named_parameters(), alone.parameters(), strict=True):
                if other.grad is None:
                    assert each.grad is None, name
                else:
                    close_to(each.grad, other.grad.double() / n, 1e-5, name)


def test_gradients_without_a_backward_through_them_keep_what_no_sync_has_added():
    me, n = shmem.my_pe(), shmem.n_pes()
    model = Branches()
    alone = copy.deepcopy(model)
    for pe in range(n):
        alone(data(pe), 2).square().sum().backward()
    wanted = alone.branches[2].weight.grad / n
    with reducing(model, bucket_bytes=300) as reducer:
        with reducer.no_sync():
            model(data(me), 2).square().sum().backward()
        model(data(me), 0).square().sum().backward()
        close_to(model.branches[2].weight.grad, wanted.double(), 1e-5)


@every_schedule
def test_teams_of_some_pes_reduce_among_themselves(schedule, smaller_teams):
    for team in smaller_teams:
        if team:
            model = network()
            with reducing(model, team=team, schedule=schedule):
                loss_of(model, data(shmem.my_pe())).backward()
                check(model, averages(model, team=team))


def test_a_backward_that_fails_on_all_pes_leaves_no_trace():
    model, failing = network(), [True]

    def fail(grad):
        if failing[0]:
            raise ValueError("once")

    with reducing(model, bucket_bytes=1):
        x = data(shmem.my_pe())
        hidden = model[:3](x)
        hidden.register_hook(fail)
        with pytest.raises(ValueError, match="once"):
            model[3:](hidden).square().sum().backward()
        failing[0] = False
        model.zero_grad()
        loss_of(model, x).backward()
        check(model, averages(model))
