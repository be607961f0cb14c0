"""torch's ways to the results of pyshmem.ops's operators of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

EPS = 1e-6
Step = Callable[[], tuple[torch.Tensor, ...]]


def add_and_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and the sum: what torch's compiler makes one kernel of."""
    h = x.float() + residual.float()
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * weight.float()).to(x.dtype), h.to(x.dtype)


def attention_and_gather(dist: Any, n: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Step, Step]:
    """Return flash attention of this PE's tokens, and the same followed by NCCL and a compiled sum over PEs.

    The heads of queries that share one of keys are given as rows of queries, so that keys are read once.
    """
    (batch, heads, width), kv_heads = q.shape, k.shape[2]
    rows = q.view(batch, kv_heads, heads // kv_heads, width)
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    own = torch.empty(batch * heads, width + 1, dtype=torch.float32, device=q.device)
    every = torch.empty(n, *own.shape, dtype=torch.float32, device=q.device)
    pack, combine = (torch.compile(each, dynamic=False) for each in (_pack, _combine))

    def alone() -> tuple[torch.Tensor, ...]:
        return torch.ops.aten._scaled_dot_product_flash_attention(rows, keys, values)[:2]  # type: ignore[no-any-return]

    def both() -> tuple[torch.Tensor, ...]:
        own.copy_(pack(*alone()))
        dist.all_gather_into_tensor(every.view(-1), own.view(-1))
        return (combine(every).view(q.shape),)

    return alone, both


def _pack(found: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    return torch.cat([found.float().flatten(0, 2), logs.float().reshape(-1, 1)], 1)


def _combine(every: torch.Tensor) -> torch.Tensor:
    weights = torch.softmax(every[:, :, -1], 0)
    return (every[:, :, :-1] * weights[:, :, None]).sum(0).to(torch.bfloat16)


def attend_alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Step:
    """Return torch's fastest attention of whole sequences, (batch, tokens, heads, dim), on one GPU."""
    views = [each.transpose(1, 2) for each in (q, k, v)]
    fastest = SDPBackend.CUDNN_ATTENTION if q.is_cuda and not torch.version.hip else SDPBackend.FLASH_ATTENTION

    def attend() -> tuple[torch.Tensor, ...]:
        with sdpa_kernel(fastest):
            found = scaled_dot_product_attention(*views, is_causal=causal, enable_gqa=True)
        return (found.transpose(1, 2),)

    return attend


def gather_and_attend(
    dist: Any, q: torch.Tensor, pieces: list[list[tuple[int, int]]], k: torch.Tensor, v: torch.Tensor, me: int, causal: bool
) -> tuple[Step, Step]:  # fmt: skip
    """Return flash attention over keys and values that are all here, and the same after NCCL has gathered them.

    pieces: (first, last + 1) of each part of the sequence that a PE has, of all PEs; the parts are put in order.
    """
    sizes = [sum(last - first for first, last in each) for each in pieces]
    own = torch.stack([k, v])
    every = torch.empty(len(pieces), *own.shape, dtype=k.dtype, device=k.device)
    order = sorted((first, pe, last - first) for pe, parts in enumerate(pieces) for first, last in parts)

    def sorted_parts() -> torch.Tensor:
        taken, parts = [0] * len(sizes), []
        for _, pe, count in order:
            parts.append(every[pe, :, :, taken[pe] : taken[pe] + count])
            taken[pe] += count
        return torch.cat(parts, 2)

    def attend(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found, taken = [], 0
        for first, last in pieces[me]:
            part, seen = q[:, taken : taken + last - first].transpose(1, 2), last if causal else keys.shape[1]
            mask = causal_lower_right(last - first, seen) if causal else None
            given = (part, keys[:, :seen].transpose(1, 2), values[:, :seen].transpose(1, 2))
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                found.append(scaled_dot_product_attention(*given, attn_mask=mask, enable_gqa=True).transpose(1, 2))
            taken += last - first
        return (torch.cat(found, 1),)

    def gathered() -> torch.Tensor:
        own[0].copy_(k), own[1].copy_(v)
        dist.all_gather_into_tensor(every.view(-1), own.view(-1))
        return sorted_parts()

    held = gathered()
    return lambda: attend(*held), lambda: attend(*gathered())
