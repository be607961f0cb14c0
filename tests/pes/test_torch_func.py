"""torch.func over the operators: gradients, second ones and batches are those of autograd and of single calls, or refused."""

import copy
from functools import partial

import pyshmem as shmem
import pytest
import torch
from differentiated import EXPERTS, NAMES, Module, cases, numbers, together
from pyshmem import nn, ops
from pyshmem.ops import torch as tp
from support import here, refuses
from torch.autograd import forward_ad

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("module, name", [((ops, tp)[i % 2], name) for i, name in enumerate(NAMES) if name != EXPERTS])
def test_gradients_and_batches_are_those_of_autograd_and_of_single_calls(module, name):
    call, first, *rest = cases(Module(module))[name]

    def loss(first, *rest):
        return together(call, first, *rest).sin().sum()

    gradient = torch.func.grad(loss)
    operand = first.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(operand, *rest), operand, create_graph=True)
    torch.testing.assert_close(gradient(first, *rest), wanted.detach())
    (twice,) = torch.autograd.grad(wanted.square().sum(), operand)
    torch.testing.assert_close(torch.func.grad(lambda x: gradient(x, *rest).square().sum())(first), twice)
    batch, single = torch.stack([first, 2 * first], -1), [first, 2 * first]
    every = torch.func.vmap(gradient, (-1, *[None] * len(rest)))(batch, *rest)
    torch.testing.assert_close(every, torch.stack([gradient(each, *rest) for each in single]))
    forward = torch.func.vmap(lambda x: together(call, x, *rest), -1)(batch)
    torch.testing.assert_close(forward, torch.stack([together(call, each, *rest) for each in single]))


def test_a_divided_model_is_called_with_other_parameters():
    torch.manual_seed(0)
    alone = torch.nn.Sequential(torch.nn.RMSNorm(12), torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 12))
    alone = alone.double().to(here())
    model = nn.parallelize(copy.deepcopy(alone), {"0": nn.whole, "1": nn.columns(), "3": nn.rows})
    x = numbers(12, 2, 12)

    def gradients(model, x):
        def loss(parameters):
            return torch.func.functional_call(model, parameters, x).sin().sum()

        return torch.func.grad(loss)({name: 2 * each.detach() for name, each in model.named_parameters()})

    found, right = gradients(model, x.chunk(shmem.n_pes())[shmem.my_pe()]), gradients(alone, x)
    torch.testing.assert_close(found["0.weight"], right["0.weight"])
    torch.testing.assert_close(found["3.bias"], right["3.bias"])
    torch.testing.assert_close(found["1.weight"], right["1.weight"].chunk(shmem.n_pes())[shmem.my_pe()])


def test_what_has_no_rule_is_refused_by_name():
    """Tangents would be lost without a word."""
    a, x = numbers(4, 4), numbers(1, 4, 2, 8)
    for module in (ops, tp):
        with refuses("ops", "operands: got tangents of forward-mode differentiation; expected reverse mode"):
            torch.func.jvp(partial(module.gemm_all_reduce, b=a), (a,), (a,))
        with forward_ad.dual_level(), refuses("ops", "operands: got tangents"):
            module.all_reduce_rms_norm(forward_ad.make_dual(a, a), a, a[0])
    call, *operands = cases(Module(ops))[EXPERTS]
    with refuses("moe_dispatch", "x: got a tensor within torch.func; expected one outside of its transforms"):
        torch.func.grad(lambda x: together(call, x, *operands[1:]).sum())(operands[0])
    with refuses("flash_decode", "q: got a tensor within torch.func"):
        torch.func.vmap(lambda x: ops.flash_decode(x[:, 0], x, x))(torch.stack([x, x]).float())
    with refuses("gemm_all_reduce", "a: got a tensor within torch.func"):
        torch.func.grad(lambda a: ops.gemm_all_reduce(a, a, reuse=True).sum())(a)
