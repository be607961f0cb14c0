"""GradientReducer: the models that it takes, and those that it refuses."""

import copy
import io

import pyshmem as shmem
import pytest
import torch
from operands import equal_on_all_pes
from pyshmem import ops
from reduced_models import check, data, every_schedule, loss_of, network, reducing
from support import here, refuses


@every_schedule
def test_parameters_without_elements_are_left_out(schedule):
    """One of a dtype of its own would be a bucket without elements."""
    model = torch.nn.Linear(6, 5).to(here())
    model.none = torch.nn.Parameter(torch.empty(0, dtype=torch.float64, device=here()))
    with reducing(model, schedule=schedule) as reducer:
        (model(data(shmem.my_pe())).sum() + model.none.sum()).backward()
        assert reducer.buckets == (("bias", "weight"),)
        assert model.none.grad is None or model.none.grad.shape == (0,)
        equal_on_all_pes(shmem.array(model.weight.grad))


def test_a_model_whose_parameters_are_no_longer_those_of_the_reducer_is_refused():
    """Their gradients would stay on this PE. Copies and files have no reducer."""
    model, x = network(), data(shmem.my_pe())
    with reducing(model):
        other, saved = copy.deepcopy(model), io.BytesIO()
        torch.save(model, saved)
        saved.seek(0)
        assert torch.load(saved, weights_only=False)(x).requires_grad
        loss_of(other.half().float(), x).backward()
        kept = [each.dtype for each in model.parameters()]
        with refuses("GradientReducer", r"model, 0.weight: got torch.float16, changed from torch.float32"):
            model.half()(x.half())
        model.float()
        assert [each.dtype for each in model.parameters()] == kept
        loss_of(model, x).backward()
        model.load_state_dict(model.state_dict(), assign=True)
        with refuses("GradientReducer", "model, 0.weight: got another parameter"):
            model(x)


def test_parameters_and_buffers_become_those_of_pe_0():
    model = torch.nn.Sequential(network(), torch.nn.BatchNorm1d(5).to(here()))
    model[1].running_mean.fill_(shmem.my_pe() + 1)
    model[1].num_batches_tracked.fill_(shmem.my_pe() + 7)
    model[0][2].weight.data = model[0][2].weight.data.t()  # not contiguous
    wanted = network(seed=0)
    with reducing(model):
        assert torch.equal(model[0][0].weight, wanted[0].weight)
        assert torch.equal(model[0][2].weight, wanted[2].weight.t())
        assert model[1].running_mean.eq(1).all() and model[1].num_batches_tracked == 7


def test_weights_that_differ_between_pes_are_an_error_of_the_backward_that_is_to_compare_them():
    model = network()
    with reducing(model, check_every=2):
        for turn in range(4):
            loss_of(model, data(shmem.my_pe(), turn)).backward()
        if shmem.my_pe() == shmem.n_pes() - 1:
            model[2].bias.data[3] += 1e-3
        loss_of(model, data(shmem.my_pe())).backward()
        last = loss_of(model, data(shmem.my_pe()))
        if shmem.n_pes() > 1:
            with refuses("GradientReducer", "model, 2.bias: got weights that differ between PEs; expected the same"):
                last.backward()


def test_buffers_of_pe_0_are_sent_before_a_forward_pass_that_trains():
    model = torch.nn.BatchNorm1d(3).to(here())
    x = torch.full((4, 3), 10.0 * shmem.my_pe(), device=here())
    with reducing(model, buffers="forward") as reducer:
        model(x)  # means are then 0.9 * 0 + 0.1 * x
        with reducer.no_sync():
            model(x)
        torch.testing.assert_close(model.running_mean, 0.19 * x[0])
        model(x)
        torch.testing.assert_close(model.running_mean, 0.1 * x[0])
        model.eval()
        model(x)
        torch.testing.assert_close(model.running_mean, 0.1 * x[0])


def test_close_takes_the_views_away_and_ends_the_reductions():
    model = network()
    reducer = ops.GradientReducer(model)
    loss_of(model, data(shmem.my_pe())).backward()
    reducer.close()
    assert all(each.grad is None for each in model.parameters())
    if shmem.my_pe() == 0:  # no other PE takes part
        loss_of(model, data(0)).backward()
        check(model, [each.grad.double() for each in model.parameters()])


REFUSED = [
    ("model: got list; expected a torch.nn.Module", lambda: ([1], {})),
    ("model: got no parameter that requires a gradient", lambda: (torch.nn.Tanh(), {})),
    ("model, 0: got torch.complex64", lambda: (torch.nn.ParameterList([torch.zeros(3, dtype=torch.complex64)]), {})),
    ("model, 0.weight: got a parameter on meta", lambda: (network().to("meta"), {})),
    ("bucket_bytes: got 0; expected a number of bytes", lambda: (network(), {"bucket_bytes": 0})),
    ("bucket_bytes: got True; expected a number of bytes", lambda: (network(), {"bucket_bytes": True})),
    ("average: got 'sum'; expected True or False", lambda: (network(), {"average": "sum"})),
    ("schedule: got 'ring'; expected auto or copy_engine", lambda: (network(), {"schedule": "ring"})),
    ("buffers: got 'never'; expected once or forward", lambda: (network(), {"buffers": "never"})),
    ("check_every: got -1; expected a number of backwards", lambda: (network(), {"check_every": -1})),
    ("team: got", lambda: (network(), {"team": shmem.TEAM_INVALID})),
]


@pytest.mark.parametrize("message, make", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, make):
    model, options = make()
    with refuses("GradientReducer", message, shmem.ShmemError):
        ops.GradientReducer(model, **options)


def test_sparse_gradients_are_refused_with_their_name():
    model = torch.nn.Embedding(10, 4, sparse=True).to(here())
    with reducing(model), pytest.raises(shmem.ArgumentError, match="a gradient of weight in torch.sparse_coo"):
        model(torch.tensor([1, 2], device=here())).sum().backward()
    shmem.barrier_all()


def longer():
    return torch.nn.Sequential(*network(), torch.nn.Linear(5, 5).to(here()))


def wider():
    model = network()
    model[4] = torch.nn.Linear(16, 9).to(here())
    return model


def frozen():
    model = network()
    model[2].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "make, line",
    [
        (longer, "5.weight: (5, 5) in"),
        (wider, "4.weight: (9, 16) in"),
        (frozen, "2.bias: (16,) in torch.float32, frozen"),
    ],
)
def test_models_that_differ_are_refused_on_all_pes_by_the_first_parameter_that_does(make, line):
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    model = make() if shmem.my_pe() == 1 else network()
    with pytest.raises(shmem.ArgumentError) as caught:
        ops.GradientReducer(model)
    assert f"{line}" in str(caught.value) and "on PE 1; expected the same model on all PEs" in str(caught.value)


def test_a_refusal_of_one_pe_is_raised_on_all():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    model = torch.nn.Tanh() if shmem.my_pe() == 1 else network()
    with pytest.raises(shmem.ArgumentError, match="no parameter that requires a gradient"):
        ops.GradientReducer(model)
