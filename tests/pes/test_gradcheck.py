"""torch's gradcheck of every operator in float64; the other schedules, which take float32, against those gradients."""

from functools import partial

import pyshmem as shmem
import pytest
import torch
from differentiated import (
    ATTENTION, EXPERTS, GROUPED, HIDDEN, NAMES, NORMS, ROWS, TOKENS, Module, cases, numbers, operators_of, together
)  # fmt: skip
from operands import mine
from pyshmem import ops
from pyshmem.ops import torch as tp
from pyshmem.ops.attention import prefill_schedules
from pyshmem.ops.experts import operators
from pyshmem.ops.experts import schedules as expert_schedules
from support import here, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

# of ops: those that refuse operands that require gradients, and what is no operator
WITHOUT = {
    "GradientReducer", "Plan", "Scaled", "clear", "flash_decode", "plan", "recv_activations", "reserve", "reserve_bytes",
    "send_activations", "tune",
}  # fmt: skip


def test_every_operator_of_the_package_is_here_or_has_no_gradients():
    assert set(ops.__all__) - WITHOUT == operators_of(NAMES) - set(ROWS)
    listed = torch._library.custom_ops.OPDEFS
    trained = {name for name, each in listed.items() if each._backward_fn is not None}
    assert {name for name in trained if name.startswith("pyshmem::")} == {
        f"pyshmem::{name}" for name in operators_of([*NAMES, *GROUPED])
    }


@pytest.mark.parametrize(
    "module, name", [(module, name) for module in (ops, tp) for name in NAMES] + [(tp, name) for name in GROUPED]
)
def test_gradients_are_those_that_small_changes_show(module, name):
    """And second ones, where there are some."""
    call, *operands = cases(Module(module))[name]
    torch.manual_seed(0)  # of the directions that the fast mode looks at
    given = [each.requires_grad_() for each in operands]
    assert torch.autograd.gradcheck(partial(together, call), given, fast_mode=True)
    assert name == EXPERTS or torch.autograd.gradgradcheck(partial(together, call), given, fast_mode=True)


# Of each schedule but that of float64; all of those of products are in test_ops_gradients.py.
OTHERS = (
    [(name, each) for name, schedules in NORMS.items() for each in schedules]
    + [(name, each) for name in ATTENTION for each in prefill_schedules.SCHEDULES]
    + [(EXPERTS, each) for each in expert_schedules.SCHEDULES]
)


@pytest.mark.parametrize("name, schedule", [each for each in OTHERS if each[1] != "bulk_synchronous"])
def test_every_schedule_has_the_gradients_that_float64_has(name, schedule):
    """They take float32; the gradients of float64 are those that gradcheck confirms."""
    if schedule == "library" and torch.cuda.is_available() and shmem.n_pes() > 1:
        pytest.skip("torch's kernels give the sums of weights that several PEs need on GPUs for 16 bits alone")
    found = []
    for dtype, options in ((torch.float32, {"schedule": schedule}), (torch.float64, {})):
        call, *operands = cases(Module(ops, **options), dtype)[name]
        given = [each.requires_grad_() for each in operands]
        together(call, *given).sin().sum().backward()
        found.append([each.grad.double() for each in given])
    for single, right in zip(*found, strict=True):
        torch.testing.assert_close(single, right, rtol=1e-4, atol=1e-5)


def test_second_gradients_of_experts_are_refused():
    call, *operands = cases(Module(ops))[EXPERTS]
    given = [each.requires_grad_() for each in operands]
    (first,) = torch.autograd.grad(together(call, *given).square().sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_rows_without_a_token_leave_gradients_finite(monkeypatch):
    """They hold anything, and experts multiply them, too."""
    plain = operators.new

    def spoiled(dtype, *shape):
        made = plain(dtype, *shape)
        return made.fill_(float("nan")) if dtype.is_floating_point else made

    monkeypatch.setattr(operators, "new", spoiled)
    call, *operands = cases(Module(ops))[EXPERTS]
    given = [each.requires_grad_() for each in operands]
    together(call, *given).sum().backward()
    assert all(each.grad.isfinite().all() for each in given)


@pytest.mark.parametrize("name", ["all_reduce_rms_norm", "reduce_scatter_rms_norm_all_gather"])
def test_a_replicated_gradient_of_a_norm_is_that_of_one_loss(name):
    """Where all PEs go on from its rows to the same loss, which counts once."""
    n, share = shmem.n_pes(), slice(None) if name == "all_reduce_rms_norm" else mine(TOKENS)
    x, residual, weight, scale = (
        numbers(n, TOKENS, HIDDEN),
        numbers(TOKENS, HIDDEN),
        numbers(HIDDEN),
        numbers(TOKENS, HIDDEN),
    )
    own = x[shmem.my_pe()].clone().requires_grad_()
    made, _ = getattr(ops, name)(own, residual[share].contiguous(), weight, gradient="replicated")
    (made * scale).sum().backward()
    total = (x.sum(0) + residual).requires_grad_()
    (total * torch.rsqrt(total.square().mean(1, keepdim=True) + 1e-6) * weight * scale).sum().backward()
    torch.testing.assert_close(own.grad, total.grad)


def test_float64_has_one_schedule():
    a, x = numbers(4, 4), numbers(1, 4, 2, 8)
    with refuses("gemm_all_reduce", "schedule: got 'fused' with torch.float64; expected auto or bulk_synchronous"):
        ops.gemm_all_reduce(a, a, schedule="fused")
    with refuses("all_reduce_rms_norm", "schedule: got 'push' with torch.float64"):
        ops.all_reduce_rms_norm(a, a, a[0], schedule="push")
    with refuses("attention", "schedule: got 'copy_engine' with torch.float64"):
        ops.attention(x, x, x, schedule="copy_engine")
    listed = torch.zeros(4, 1, dtype=torch.int32, device=here())
    with refuses("moe_dispatch", "schedule: got 'words' with torch.float64"):
        ops.moe_dispatch(a, listed, a[:, :1].contiguous(), shmem.n_pes(), schedule="words")
