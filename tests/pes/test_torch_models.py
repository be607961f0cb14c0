"""The operators of models as operators of torch: norms, attention and experts in one graph, in 8 bits too."""

from functools import partial

import pytest
import torch
from torch_graphs import backends, compiled, near, numbers

from pyshmem import ops
from pyshmem.ops import torch as tp
from pyshmem.ops.norms import all_reduce_rms_norm
from pyshmem.ops.attention import prefill as attention
from pyshmem.ops.attention import decode as flash_decode
from pyshmem.ops.norms import reduce_scatter_rms_norm
from pyshmem.ops.torch.team_names import handle_of
from support import here

pytestmark = pytest.mark.usefixtures("fresh")

NORMS = all_reduce_rms_norm.NAME, reduce_scatter_rms_norm.NAME, reduce_scatter_rms_norm.GATHER


@backends
def test_operators_of_models_are_compiled_in_one_graph(backend, me, npes):
    parts = [numbers(pe, (3, 32)) for pe in range(npes)]
    weight = numbers(50, (32,))
    caches = [[numbers(60 + 2 * pe + i, (2, 5, 1, 16)) for i in (0, 1)] for pe in range(npes)]
    lengths = torch.tensor([2, 5], dtype=torch.int32, device=here())
    q, seen = numbers(99, (2, 2, 16)), []

    def step(x, residual, k, v):
        norm, rest = tp.all_reduce_rms_norm(x * 2, residual, weight, 1e-5)
        seen_by_all = tp.attention(torch.cat([k, k], 2) * 2, k, v, causal=True) + 1
        return norm, rest, tp.flash_decode(q, k, v, lengths) + 1, seen_by_all

    found = compiled(step, backend, seen)(parts[me], parts[0], *caches[me])
    wanted = all_reduce_rms_norm.reference([2 * part for part in parts], parts[0], weight, 1e-5)
    near(found[0], wanted[0])
    near(found[1], wanted[1])
    near(found[2], flash_decode.reference(q, [(*cache, lengths) for cache in caches]) + 1)
    whole, places = [torch.cat(each, 1) for each in zip(*caches, strict=True)], torch.arange(5, device=here()) + 5 * me
    near(found[3], attention.reference(torch.cat([caches[me][0]] * 2, 2) * 2, places, *whole, causal=True) + 1)
    for name in ("all_reduce_rms_norm", "flash_decode", "attention"):
        assert any(name in each for each in seen), name


@backends
def test_norms_of_shares_are_compiled_in_one_graph(backend, me, npes):
    """Of one token less than there are rows in the largest shares, so that shares differ, on more than one PE."""
    tokens = 2 * npes - 1
    parts, weight, seen = [numbers(pe, (tokens, 32)) for pe in range(npes)], numbers(50, (32,)), []
    residuals = [numbers(60 + pe, ((tokens + npes - 1 - pe) // npes, 32)) for pe in range(npes)]

    def step(x, residual):
        made, kept = tp.reduce_scatter_rms_norm(x * 2, residual, weight, 1e-5)
        every, _ = tp.reduce_scatter_rms_norm_all_gather(x * 2, residual, weight, 1e-5)
        return made + 0, kept, every

    found = compiled(step, backend, seen)(parts[me], residuals[me])
    twice = [2 * part for part in parts]
    wanted = [reduce_scatter_rms_norm.reference(twice, residuals[pe], weight, 1e-5, pe) for pe in range(npes)]
    near(found[0], wanted[me][0])
    near(found[1], wanted[me][1])
    near(found[2], torch.cat([made for made, _ in wanted]))
    assert any("reduce_scatter_rms_norm" in each for each in seen)


@backends
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_8_bits_are_compiled_with_their_scales(name, backend, me, npes):
    tokens, seen = 2 * npes - 1, []
    parts, weight = [numbers(pe, (tokens, 32)) for pe in range(npes)], numbers(50, (32,))
    share = tokens if name == all_reduce_rms_norm.NAME else (tokens + npes - 1 - me) // npes
    residual = numbers(60, (share, 32))

    def step(x, residual):
        values, scales, kept = getattr(tp, f"scaled_{name}")(x * 2, residual, weight, 1e-5)
        return ops.Scaled(values, scales).to(torch.float32), kept

    found = compiled(step, backend, seen)(parts[me], residual)
    wanted = getattr(ops, name)(2 * parts[me], residual, weight, 1e-5, out_dtype=torch.float8_e4m3fn)
    assert torch.equal(found[0], wanted[0].to(torch.float32)) and torch.equal(found[1], wanted[1])
    assert any(f"scaled_{name}" in each for each in seen)


@pytest.mark.parametrize("name", NORMS)
def test_norms_have_the_fake_kernels_that_torch_wants(name, me, npes):
    x, weight = numbers(me, (2 * npes - 1, 32)), numbers(50, (32,))
    residual = numbers(60, (len(x) if name == all_reduce_rms_norm.NAME else (len(x) + npes - 1 - me) // npes, 32))
    for each in (name, f"scaled_{name}"):
        call = getattr(torch.ops.pyshmem, each).default
        torch.library.opcheck(call, (x, residual, weight), {"team": handle_of("world")}, test_utils="test_faketensor")


@backends
def test_rows_go_to_experts_and_back_in_one_graph(backend, me, npes):
    experts, seen = 2 * npes, []
    x, weights = numbers(me, (5, 32)), numbers(me + 70, (5, 2)).abs()
    indices = torch.stack([torch.arange(5) % experts, (torch.arange(5) + me + 1) % experts], 1).int().to(here())
    indices[4, 1] = -1

    def step(x, indices, weights):
        rows, counts, offsets, *routing = tp.moe_dispatch(x, indices, weights, experts)
        found = tp.moe_combine(rows * 2, [x, indices, weights], routing, experts)
        return found, counts, offsets, rows

    found, counts, offsets, rows = compiled(step, backend, seen)(x, indices, weights)
    near(found, 2 * x.double() * (weights * (indices >= 0)).double().sum(1, keepdim=True))
    wanted = ops.moe_dispatch(x, indices, weights, experts)
    assert torch.equal(counts, wanted.counts) and torch.equal(offsets, wanted.offsets)
    assert rows.shape == wanted.rows.shape and torch.equal(rows[: offsets[-1]], wanted.rows[: offsets[-1]])
    assert any("moe_dispatch" in each for each in seen) and any("moe_combine" in each for each in seen)


@backends
def test_rows_of_8_bits_go_to_experts_with_their_scales_in_one_graph(backend, me, npes):
    experts, seen = 2 * npes, []
    given = ops.Scaled(numbers(me, (5, 130)).to(torch.float8_e4m3fn), numbers(me + 60, (5, 2)).abs())
    weights = numbers(me + 70, (5, 2)).abs()
    indices = torch.stack([torch.arange(5) % experts, (torch.arange(5) + me + 1) % experts], 1).int().to(here())

    def step(x, scales, indices, weights):
        rows, scales, counts, offsets, *routing = tp.scaled_moe_dispatch([x, scales], indices, weights, experts)
        results = ops.Scaled(rows, scales).to(torch.bfloat16)
        return tp.moe_combine(results, [x, given.scales, indices, weights], routing, experts), offsets

    found, offsets = compiled(step, backend, seen)(*given, indices, weights)
    assert ((found.double() - given.to(torch.float64) * weights.sum(1).double()[:, None]).norm() / found.norm()) < 1e-2
    assert torch.equal(offsets, ops.moe_dispatch(given, indices, weights, experts).offsets)
    assert any("scaled_moe_dispatch" in each for each in seen)


def test_autocast_makes_norms_float32_and_attention_of_its_type(me, npes):
    """As torch's own, whether compiled or not: float64 stays, and gradients have the types of operands."""
    x, weight, cache = numbers(me, (npes, 32)), numbers(50, (32,)), numbers(60 + me, (1, 3, 1, 16))
    every, kept = torch.stack([numbers(pe, (npes, 32)).bfloat16() for pe in range(npes)]).float().sum(0), x[:1].clone()

    def step(module, x, q):
        made, sums = module.all_reduce_rms_norm(x.bfloat16(), torch.ones_like(x), weight)
        shared, _ = module.reduce_scatter_rms_norm(x=x.bfloat16(), residual=kept, weight=weight.bfloat16())
        return made, sums, shared, module.attention(q, k=cache.bfloat16(), v=cache)

    for call in (partial(step, ops), partial(step, tp), compiled(partial(step, tp), "aot_eager", [])):
        given, q = (each.clone().requires_grad_() for each in (x, cache))
        with torch.autocast(here().type, dtype=torch.bfloat16):
            found = call(given, q)
        assert [each.dtype for each in found] == [torch.float32] * 3 + [torch.bfloat16]
        near(found[1].detach(), every.double() + 1)
        sum(each.sum() for each in found).backward()
        assert given.grad.dtype is q.grad.dtype is torch.float32
    with torch.autocast(here().type, dtype=torch.bfloat16), torch.no_grad():
        assert ops.flash_decode(cache[:, 0], cache, cache).dtype is torch.bfloat16
        assert tp.flash_decode(cache[:, 0], cache, cache).dtype is torch.bfloat16
        assert ops.attention(*[cache.double()] * 3).dtype is torch.float64
        assert tp.all_reduce_rms_norm(x.double(), x.double(), weight.double())[0].dtype is torch.float64
