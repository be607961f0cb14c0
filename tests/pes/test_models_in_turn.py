"""Operators of models whose calls follow each other, as in the layers of a model: no barrier, one PE late, two plans each."""

import pyshmem as shmem
import pytest
import torch
from operands import close_to, random
from pyshmem import ops
from pyshmem.ops.norms import all_reduce_rms_norm
from pyshmem.ops.attention import prefill as attention
from pyshmem.ops.attention import decode as flash_decode
from pyshmem.ops.norms.schedules import MOST_PES
from support import here, work

pytestmark = pytest.mark.usefixtures("plans_closed")

GPU = torch.cuda.is_available()
EPS = 1e-5
NAMES = "norm", "decode", "experts", "attention", "norm by pull"
f32 = {"dtype": torch.float32}


class Layer:
    """Operands of all PEs and what is wanted of them. heads: other numbers of them make other plans."""

    def __init__(self, seed, tokens, heads):
        me, n = shmem.my_pe(), shmem.n_pes()
        self.parts = [random(seed + pe, tokens, 34, **f32) for pe in range(n)]
        self.residual, self.weight = random(seed + 20, tokens, 34, **f32), random(seed + 21, 34, **f32)
        self.q = random(seed + 22, 1, heads, 16, **f32)
        caches = [[random(seed + 30 + 2 * pe + i, 1, 9, 1, 16, **f32) for i in (0, 1)] for pe in range(n)]
        lengths = [torch.tensor([5 + pe % 4], dtype=torch.int32, device=here()) for pe in range(n)]
        self.k, self.v, self.lengths = *caches[me], lengths[me]
        self.long = random(seed + 50 + me, 1, 9, heads, 16, **f32)
        self.chosen = ((torch.arange(2 * tokens) + me) % (2 * n)).view(tokens, 2).int().to(here())
        self.shares = random(seed + 60 + me, tokens, 2, **f32).abs()
        decoded = flash_decode.reference(self.q, [(*cache, held) for cache, held in zip(caches, lengths, strict=True)])
        places, whole = (
            torch.arange(9, device=here()) + 9 * me,
            [torch.cat(each, 1) for each in zip(*caches, strict=True)],
        )
        routed = 2 * self.parts[me].double() * self.shares.double().sum(1, keepdim=True)
        normed = all_reduce_rms_norm.reference(self.parts, self.residual, self.weight, EPS)
        attended = attention.reference(self.long, places, *whole, causal=True)
        self.wanted = normed[0], decoded, routed, attended, normed[0]

    def calls(self, norm, way):
        """norm, way: schedules of the norm and of the experts."""
        x, n = self.parts[shmem.my_pe()], shmem.n_pes()
        first, _ = ops.all_reduce_rms_norm(x, self.residual, self.weight, EPS, schedule=norm)
        decoded = ops.flash_decode(self.q, self.k, self.v, self.lengths, schedule="fused")
        found = ops.moe_dispatch(x, self.chosen, self.shares, 2 * n, schedule=way)
        attended = ops.attention(self.long, self.k, self.v, causal=True)
        routed = ops.moe_combine(found.rows * 2, found.handle)
        second, _ = ops.all_reduce_rms_norm(x, self.residual, self.weight, EPS, schedule="pull")
        return first, decoded, routed, attended, second


def test_operators_follow_each_other_without_a_barrier_though_one_pe_is_late():
    layers = Layer(100, 3, 2), Layer(200, 5, 4)
    for turn in range(60 if GPU else 3):
        schedules = (("push", "fused"), ("words" if shmem.n_pes() <= MOST_PES else "push", "words"))[turn % 2]
        for layer in layers:
            if shmem.my_pe() == turn % shmem.n_pes():
                work(20000)
            found = layer.calls(*schedules)
            for name, result, wanted in zip(NAMES, found, layer.wanted, strict=True):
                close_to(result, wanted, 1e-4, f"{name} {turn}")


@pytest.mark.skipif(not GPU, reason="there are no streams")
def test_operators_of_two_streams_are_right_where_all_pes_enqueue_them_in_one_order():
    """Each fits beside the other: neither occupies the GPU while it waits for a PE that is at the other one."""
    one, two = Layer(300, 3, 2), Layer(400, 5, 4)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for layer in (one, two):
        layer.calls("push", "fused")
    torch.cuda.synchronize()
    shmem.barrier_all()
    for _ in range(20):
        found = []
        for layer, stream in zip((one, two), streams, strict=True):
            with torch.cuda.stream(stream):
                first, _ = ops.all_reduce_rms_norm(
                    layer.parts[shmem.my_pe()], layer.residual, layer.weight, EPS, schedule="push"
                )
                found.append((first, ops.flash_decode(layer.q, layer.k, layer.v, layer.lengths, schedule="fused")))
        torch.cuda.synchronize()
        for layer, results in zip((one, two), found, strict=True):
            for result, wanted in zip(results, layer.wanted, strict=False):
                close_to(result, wanted, 1e-4)
        shmem.barrier_all()
