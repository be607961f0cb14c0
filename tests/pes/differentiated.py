"""Of each operator with gradients the function of all PEs' operands that all PEs compute together, for gradcheck and torch.func.

An operand of the function is the same on all PEs, each of which uses its part; the results of all PEs are one result. So all
PEs change the same element at once, as gradcheck does, and each has the whole gradient.
"""

from functools import partial

import pyshmem as shmem
import torch
from operands import mine
from pyshmem import ops
from pyshmem.nn import grouped
from pyshmem.ops import rows
from pyshmem.ops import torch as tp
from pyshmem.ops.attention.prefill import places_of
from pyshmem.ops.attention.segments import ORDERS
from pyshmem.ops.experts import gradients
from pyshmem.ops.norms.schedules import SCHEDULES
from pyshmem.ops.norms.share_schedules import GATHERED, SHARES
from support import here

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


def numbers(*shape, dtype=torch.float64):
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)
    return whole.to(here(), dtype)


ROWS = [name for name in rows.OPERATORS if hasattr(rows, name)]  # the other operators add theirs to the table


class Module:
    """Operators of ops, or those of ops.torch in their place. options: of calls that have a schedule."""

    def __init__(self, module, **options):
        self.module, self.options = module, options

    def __getattr__(self, name):
        if name == "experts":
            return self._routed
        plain = self.module is ops and name in ROWS
        call = getattr(rows if plain else self.module, name)
        return call if name in ROWS else partial(call, **self.options)

    def _routed(self, x, indices, weights, experts, capacity, run):
        """What experts make of tokens, by run(rows, offsets)."""
        dispatch = partial(self.module.moe_dispatch, x, indices, weights, experts, capacity=capacity, **self.options)
        if self.module is ops:
            found = dispatch()
            return ops.moe_combine(run(found.rows, found.offsets), found.handle)
        made, _, offsets, *routing = dispatch()
        made = gradients.without_rest(made, offsets)
        given = [x, indices, weights], routing, experts, capacity
        return tp.moe_combine(run(made, offsets), *given, **self.options)


def routed(module, dealt, x, weights, indices, kernel):
    """A layer of two experts on each PE, whose tokens list some experts twice and some not at all."""
    x, weights, own = dealt.own(x), dealt.own(weights), dealt.own(kernel)

    def run(made, offsets):
        second = (torch.arange(len(made), device=x.device) >= offsets[1])[:, None]
        return torch.where(second, made @ own[1], made @ own[0]).tanh()

    return module.experts(x, indices[dealt.me], weights, 2 * dealt.n, indices.numel() + 1, run)


def cases(module, dtype=torch.float64):
    """Of each operator: the function of all operands, and these."""
    dealt, n = Dealt(), shmem.n_pes()
    own, cut, random = dealt.own, dealt.cut, partial(numbers, dtype=dtype)
    M, N, K = 4, 5, 3
    sizes, q = {"size": M, "columns": N}, random(1, TOKENS, 2, 2)
    x, weight, residual = random(n, TOKENS, HIDDEN), random(HIDDEN), random(n, TOKENS, HIDDEN)
    indices = torch.randint(-1, 2 * n, (n, 3, 2), generator=torch.Generator().manual_seed(1)).to(here())
    indices[:, 0] = 0
    tokens = {order: places_of(TOKENS, dealt.me, n, order).to(here()) for order in ORDERS}
    offsets = torch.tensor([0, 1, 1, 3], device=here())

    def attended(order, causal, *whole):
        given = [each[:, tokens[order]].contiguous() for each in whole]
        return module.attention(*given, causal=causal, order=order, size=TOKENS)

    found = {
        "all_gather_gemm": (lambda a, b: module.all_gather_gemm(cut(a), cut(b, 1), **sizes), random(M, K), random(K, N)),
        "gemm_reduce_scatter": (
            lambda a, b: module.gemm_reduce_scatter(cut(a, 1), cut(b), size=K), random(M, K), random(K, N)
        ),
        "gemm_all_reduce": (
            lambda a, b: module.gemm_all_reduce(cut(a, 1), cut(b), size=K), random(M, K), random(K, N)
        ),
        "gemm_all_gather": (lambda a, b: module.gemm_all_gather(cut(a), b, size=M), random(M, K), random(K, N)),
        "gemm_all_gather, columns": (
            lambda a, b: module.gemm_all_gather(a, cut(b, 1), split="columns", size=N), random(M, K), random(K, N)
        ),
        "gather_rows": (lambda a: module.gather_rows(cut(a), M), random(M, K)),
        "reduce_scatter_rows": (lambda a: module.reduce_scatter_rows(own(a)), random(n, M, K)),
        "all_reduce": (lambda a: module.all_reduce(own(a)), random(n, M, K)),
        "all_reduce_rms_norm": (lambda x, r, w: module.all_reduce_rms_norm(own(x), own(r), w), x, residual, weight),
        "reduce_scatter_rms_norm": (
            lambda x, r, w: module.reduce_scatter_rms_norm(own(x), cut(own(r)), w), x, residual, weight
        ),
        "reduce_scatter_rms_norm_all_gather": (
            lambda x, r, w: module.reduce_scatter_rms_norm_all_gather(own(x), cut(own(r)), w), x, residual, weight
        ),
        "moe_dispatch, moe_combine": (
            lambda x, w, kernel: routed(module, dealt, x, w, indices, kernel),
            random(n, 3, HIDDEN), random(n, 3, 2), random(n, 2, HIDDEN, HIDDEN),
        ),
        "rows_by_group": (lambda a, b: grouped.rows_by_group(a, b, offsets), random(M, K), random(3, K, N)),
        "matrices_by_group": (lambda a, b: grouped.matrices_by_group(a, b, offsets), random(M, K), random(M, N)),
    }  # fmt: skip
    for order in ORDERS:
        for causal in (False, True):
            call = partial(attended, order, causal)
            keys = random(1, TOKENS, 1, 2), random(1, TOKENS, 1, 2)
            found[f"attention, {order}{', causal' * causal}"] = (call, q, *keys)
    return found


PRODUCTS = [
    "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_gather", "gemm_all_gather, columns",
]  # fmt: skip
ROWS = ["gather_rows", "reduce_scatter_rows", "all_reduce"]
NORMS = {
    "all_reduce_rms_norm": SCHEDULES, "reduce_scatter_rms_norm": SHARES, "reduce_scatter_rms_norm_all_gather": GATHERED
}  # fmt: skip
EXPERTS = "moe_dispatch, moe_combine"
ATTENTION = [f"attention, {order}{causal}" for order in ORDERS for causal in ("", ", causal")]
GROUPED = ["rows_by_group", "matrices_by_group"]
NAMES = [*PRODUCTS, *ROWS, *NORMS, EXPERTS, *ATTENTION]


def operators_of(names):
    """The names of operators in names of cases."""
    return {part.strip() for name in names for part in name.split(",")} - {"contiguous", "zigzag", "causal", "columns"}
