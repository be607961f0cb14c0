"""Gradients of the products: each operator and schedule against one product of all operands in float64; else a refusal."""

import pyshmem as shmem
import pytest
import torch
import triton
from operands import TILE, Case, close_to, mine, random
from pyshmem import ops
from pyshmem.ops import rows
from pyshmem.ops.gemm.problem import SHARED
from pyshmem.ops.gemm.selection import ABLE
from support import here, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

SIZES = (9, 10, 11)  # M, N and K: no number of PEs from 2 on divides all of them
BOUND = 1e-5
SPLITS = [(name, split) for name in ABLE for split in (("rows", "columns") if name == "gemm_all_gather" else ("rows",))]
every_product = pytest.mark.parametrize("operator, split", SPLITS)


class Differentiated(Case):
    """A case whose operands require gradients, with weights of the result on each PE: its loss is their sum."""

    def __init__(self, operator, split="rows", needs="ab", **more):
        super().__init__(operator, split, SIZES, **more)
        for name in needs:
            setattr(self, name, getattr(self, name).detach().clone().requires_grad_())
        self.weights = [random(50 + pe, *SIZES[:2], dtype=torch.float32) for pe in range(shmem.n_pes())]

    def place(self):
        """Where this PE's result lies in the whole one."""
        M, N = SIZES[:2]
        return {"all_gather_gemm": (slice(None), mine(N)), "gemm_reduce_scatter": (mine(M), slice(None))}.get(
            self.operator, (slice(None), slice(None))
        )

    def loss(self, result, same=False):
        """same: all PEs have one loss. Otherwise those of all PEs differ where all have the result."""
        which = shmem.my_pe() if self.operator in SHARED and not same else 0
        return (result * self.weights[which][self.place()]).sum()

    def wanted_gradients(self, whole):
        """Of this PE's a and b. whole: the gradient of the whole product."""
        M, N, K = SIZES
        a, b = (random(seed, *shape, dtype=torch.float32).double() for seed, shape in ((1, (M, K)), (2, (K, N))))
        to_a, to_b = whole.double() @ b.T, a.T @ whole.double()
        if self.operator == "gemm_all_gather":  # each PE has a variable of its own in place of the whole b, or a
            rows, columns = (mine(M), slice(None)) if self.split == "rows" else (slice(None), mine(N))
            own = whole.double()[rows, columns]
            return own @ b[:, columns].T, a[rows].T @ own
        if self.operator == "all_gather_gemm":
            return to_a[mine(M)], to_b[:, mine(N)]
        return to_a[:, mine(K)], to_b[mine(K)]

    def check_gradients(self, needs, note="", same=False):
        all_losses = self.operator in SHARED and not same
        wanted = self.wanted_gradients(sum(self.weights) if all_losses else self.weights[0])
        for name, right in zip("ab", wanted, strict=True):
            grad = getattr(self, name).grad
            if name in needs:
                close_to(grad, right, BOUND, f"{self.operator} {note} of {name}")
            else:
                assert grad is None


@pytest.mark.parametrize("operator, split", SPLITS)
@pytest.mark.parametrize("needs", ["a", "b", "ab"])
def test_gradients_are_those_of_the_sum_of_all_losses(operator, split, needs):
    case = Differentiated(operator, split, needs)
    case.loss(case.call()).backward()
    case.check_gradients(needs, needs)


@pytest.mark.parametrize("operator, split", [each for each in SPLITS if each[0] in SHARED])
def test_a_replicated_gradient_is_of_one_loss_and_crosses_nowhere(operator, split, monkeypatch):
    monkeypatch.setattr(rows, "OPERATORS", {})
    case = Differentiated(operator, split)
    case.loss(case.call(gradient="replicated"), same=True).backward()
    case.check_gradients("ab", same=True)


@pytest.mark.parametrize("operator, split, schedule", [(*each, way) for each in SPLITS for way in ABLE[each[0]]])
def test_every_schedule_is_differentiable_by_plans_too(operator, split, schedule, few_pes):
    if split == "columns" and schedule == "copy_engine":
        pytest.skip("it has no columns")
    case = Differentiated(operator, split)
    options = {"size": case.size, "tile": TILE, "schedule": schedule, **case.columns}
    result = ops.plan(operator, case.a, case.b, split=split, **options)(case.a, case.b)
    case.check(result.detach())
    case.loss(result).backward()
    case.check_gradients("ab", schedule)


@every_product
def test_gradients_have_gradients(operator, split):
    """Those of products of two variables: a second backward is exact."""
    case = Differentiated(operator, split)
    case.weights = [each.requires_grad_() for each in case.weights]
    (to_a,) = torch.autograd.grad(case.loss(case.call()), case.a, create_graph=True)
    to_a.sum().backward()
    assert case.b.grad is not None and case.b.grad.abs().sum() > 0
    other = Differentiated(operator, split)
    (again,) = torch.autograd.grad(other.loss(other.call()), other.a)
    assert torch.equal(to_a.detach(), again)


def test_of_a_plain_sum_the_gradient_is_one_number_expanded():
    for operator, split in SPLITS:
        case = Differentiated(operator, split)
        case.call().sum().backward()
        case.weights = [torch.ones_like(each) for each in case.weights]
        case.check_gradients("ab")


def test_teams_of_some_pes_differentiate_their_products(smaller_teams):
    for team in smaller_teams:
        if team:
            a, b = (torch.ones(4, 4, device=here(), requires_grad=True) for _ in range(2))
            ops.gemm_all_reduce(a, b, team=team).sum().backward()
            assert (a.grad == 4 * team.n_pes()).all() and (b.grad == 4 * team.n_pes()).all()


@triton.jit
def same(tile, rows, columns):
    return tile


def test_what_has_no_formula_is_refused_and_works_without_gradients():
    a, b = torch.ones(4, 4, device=here(), requires_grad=True), torch.ones(4, 4, device=here())
    out = shmem.zeros((4, 4))
    for name, given in (("out", out), ("reuse", True), ("epilogue", same)):
        with refuses("gemm_all_reduce", f"a: got a tensor that requires a gradient; expected .*no_grad.*{name}="):
            ops.gemm_all_reduce(a, b, **{name: given})
        with torch.no_grad():
            assert (ops.gemm_all_reduce(a, b, **{name: given}) == 4 * shmem.n_pes()).all()
    x, q = torch.ones(4, 8, device=here()), torch.ones(1, 2, 2, 8, device=here())
    weight = torch.ones(8, device=here(), requires_grad=True)
    listed, shares = torch.zeros(4, 1, dtype=torch.int32, device=here()), torch.ones(4, 1, device=here())
    for name, wrong, given in (
        ("all_reduce_rms_norm", "weight", (x, x, weight)), ("reduce_scatter_rms_norm", "weight", (x, x, weight)),
        ("attention", "q", (a.view(1, 2, 1, 8), q, q)), ("moe_dispatch", "x", (a, listed, shares, shmem.n_pes())),
    ):  # fmt: skip
        with refuses(name, f"{wrong}: got a tensor that requires a gradient.*reuse="):
            getattr(ops, name)(*given, reuse=True)
    with refuses("flash_decode", "q: got a tensor that requires a gradient"):
        ops.flash_decode(a.view(1, 2, 8), q, q)
    with refuses("reduce_scatter_rms_norm", "gradient: got 'replicated'; expected 'partial'"):
        ops.reduce_scatter_rms_norm(x, x, weight, gradient="replicated")
    with refuses("all_gather_gemm", "gradient: got 'replicated'; expected 'partial'"):
        ops.plan("all_gather_gemm", a, b, gradient="replicated")
    with refuses("gemm_all_reduce", "gradient: got 'x'; expected 'partial' or 'replicated'"):
        ops.gemm_all_reduce(a, b, gradient="x")
