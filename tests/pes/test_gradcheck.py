"""torch's gradcheck of the operators in float64: of what all PEs compute together, as one function of all PEs' operands.

An operand of the function is the same on all PEs, each of which uses its part; the results of all PEs are one result. So all
PEs change the same element at once, as gradcheck does, and each has the whole gradient.
"""

from functools import partial

import pyshmem as shmem
import pytest
import torch
from operands import mine
from pyshmem import ops
from pyshmem.ops import rows
from pyshmem.ops.attention.prefill import places_of
from pyshmem.ops.experts import operators
from support import here, refuses

pytestmark = pytest.mark.usefixtures("plans_closed")

TOKENS, HIDDEN = 5, 3


class Dealt:
    """Operands of all PEs: ``own`` has a part for each PE, ``cut`` is divided among them by a dimension."""

    def __init__(self):
        self.me, self.n = shmem.my_pe(), shmem.n_pes()

    def own(self, whole):
        return whole[self.me].contiguous()

    def cut(self, whole, dim=0):
        part = mine(whole.shape[dim])
        return (whole[part] if dim == 0 else whole[:, part]).contiguous()


def together(call, *operands):
    """The results of all PEs, of operands that all PEs have alike, for an autograd that differentiates all PEs' losses."""
    n = shmem.n_pes()
    same = [(rows.all_reduce(each.reshape(1, -1)) / n).view(each.shape) for each in operands]
    found = call(*same)
    line = torch.cat([each.reshape(-1) for each in (found if isinstance(found, tuple) else (found,))])
    if line.numel() < 400:  # PEs may have results of other lengths
        line = torch.cat([line, line.new_zeros(400 - line.numel())])
    place = [line if pe == shmem.my_pe() else torch.zeros_like(line) for pe in range(n)]
    return rows.all_reduce(torch.stack(place))


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(here())


def routed(dealt, x, weights, indices, kernel):
    """A layer of two experts on each PE, whose tokens list some experts twice and some not at all."""
    experts = 2 * dealt.n
    x, weights, own = dealt.own(x), dealt.own(weights), dealt.own(kernel)
    found = ops.moe_dispatch(x, indices[dealt.me], weights, experts, capacity=indices.numel() + 1)
    at = torch.arange(len(found.rows), device=x.device)
    second = (at >= found.offsets[1])[:, None]
    return ops.moe_combine(torch.where(second, found.rows @ own[1], found.rows @ own[0]).tanh(), found.handle)


def cases():
    """Of each operator: the function of all operands, and these."""
    dealt, n = Dealt(), shmem.n_pes()
    own, cut = dealt.own, dealt.cut
    M, N, K = 4, 5, 3
    sizes, q = {"size": M, "columns": N}, random(1, TOKENS, 2, 2)
    x, weight, residual = random(n, TOKENS, HIDDEN), random(HIDDEN), random(n, TOKENS, HIDDEN)
    indices = torch.randint(-1, 2 * n, (n, 3, 2), generator=torch.Generator().manual_seed(1)).to(here())
    indices[:, 0] = 0
    tokens = {order: places_of(TOKENS, dealt.me, n, order).to(here()) for order in ("contiguous", "zigzag")}

    def attended(order, causal, *whole):
        given = [each[:, tokens[order]].contiguous() for each in whole]
        return ops.attention(*given, causal=causal, order=order, size=TOKENS)

    found = {
        "all_gather_gemm": (lambda a, b: ops.all_gather_gemm(cut(a), cut(b, 1), **sizes), random(M, K), random(K, N)),
        "gemm_reduce_scatter": (
            lambda a, b: ops.gemm_reduce_scatter(cut(a, 1), cut(b), size=K), random(M, K), random(K, N)
        ),
        "gemm_all_reduce": (lambda a, b: ops.gemm_all_reduce(cut(a, 1), cut(b), size=K), random(M, K), random(K, N)),
        "gemm_all_gather": (lambda a, b: ops.gemm_all_gather(cut(a), b, size=M), random(M, K), random(K, N)),
        "columns": (
            lambda a, b: ops.gemm_all_gather(a, cut(b, 1), split="columns", size=N), random(M, K), random(K, N)
        ),
        "gather_rows": (lambda a: rows.gather_rows(cut(a), M), random(M, K)),
        "all_reduce_rms_norm": (lambda x, r, w: ops.all_reduce_rms_norm(own(x), own(r), w), x, residual, weight),
        "reduce_scatter_rms_norm": (
            lambda x, r, w: ops.reduce_scatter_rms_norm(own(x), cut(own(r)), w), x, residual, weight
        ),
        "reduce_scatter_rms_norm_all_gather": (
            lambda x, r, w: ops.reduce_scatter_rms_norm_all_gather(own(x), cut(own(r)), w), x, residual, weight
        ),
        "experts": (
            lambda x, w, kernel: routed(dealt, x, w, indices, kernel),
            random(n, 3, HIDDEN), random(n, 3, 2), random(n, 2, HIDDEN, HIDDEN),
        ),
    }  # fmt: skip
    for order in tokens:
        for causal in (False, True):
            call = partial(attended, order, causal)
            found[f"attention, {order}{', causal' * causal}"] = (
                call,
                q,
                random(1, TOKENS, 1, 2),
                random(1, TOKENS, 1, 2),
            )
    return found


NAMES = [
    "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_gather", "columns", "gather_rows",
    "all_reduce_rms_norm", "reduce_scatter_rms_norm", "reduce_scatter_rms_norm_all_gather", "experts",
    "attention, contiguous", "attention, contiguous, causal", "attention, zigzag", "attention, zigzag, causal",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_that_small_changes_show(name):
    call, *operands = cases()[name]
    torch.manual_seed(0)  # of the directions that the fast mode looks at
    given = [each.requires_grad_() for each in operands]
    assert torch.autograd.gradcheck(partial(together, call), given, fast_mode=True)
    assert name == "experts" or torch.autograd.gradgradcheck(partial(together, call), given, fast_mode=True)


def test_second_gradients_of_experts_are_refused():
    call, *operands = cases()["experts"]
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
    call, *operands = cases()["experts"]
    given = [each.requires_grad_() for each in operands]
    together(call, *given).sum().backward()
    assert all(each.grad.isfinite().all() for each in given)


@pytest.mark.parametrize("name", ["all_reduce_rms_norm", "reduce_scatter_rms_norm_all_gather"])
def test_a_replicated_gradient_of_a_norm_is_that_of_one_loss(name):
    """Where all PEs go on from its rows to the same loss, which counts once."""
    n, share = shmem.n_pes(), slice(None) if name == "all_reduce_rms_norm" else mine(TOKENS)
    x, residual, weight, scale = (
        random(n, TOKENS, HIDDEN),
        random(TOKENS, HIDDEN),
        random(HIDDEN),
        random(TOKENS, HIDDEN),
    )
    own = x[shmem.my_pe()].clone().requires_grad_()
    made, _ = getattr(ops, name)(own, residual[share].contiguous(), weight, gradient="replicated")
    (made * scale).sum().backward()
    total = (x.sum(0) + residual).requires_grad_()
    (total * torch.rsqrt(total.square().mean(1, keepdim=True) + 1e-6) * weight * scale).sum().backward()
    torch.testing.assert_close(own.grad, total.grad)


def test_float64_has_one_schedule():
    a, x = random(4, 4), random(1, 4, 2, 8)
    with refuses("gemm_all_reduce", "schedule: got 'fused' with torch.float64; wants auto or bulk_synchronous"):
        ops.gemm_all_reduce(a, a, schedule="fused")
    with refuses("all_reduce_rms_norm", "schedule: got 'push' with torch.float64"):
        ops.all_reduce_rms_norm(a, a, a[0], schedule="push")
    with refuses("attention", "schedule: got 'copy_engine' with torch.float64"):
        ops.attention(x, x, x, schedule="copy_engine")
    listed = torch.zeros(4, 1, dtype=torch.int32, device=here())
    with refuses("moe_dispatch", "schedule: got 'words' with torch.float64"):
        ops.moe_dispatch(a, listed, a[:, :1].contiguous(), shmem.n_pes(), schedule="words")
