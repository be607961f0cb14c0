"""flash_decode and attention for torch's compilers: functions of tensors alone, the latter with the gradients of ops."""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from pyshmem.ops.attention import decode, prefill
from pyshmem.ops.attention.backward_library import gradients, problem_of
from pyshmem.ops.attention.gradients import gradients_of
from pyshmem.ops.attention.prefill_library import room_for_sums
from pyshmem.ops.autocast import lowered
from pyshmem.ops.torch.team_names import WORLD, ByHandle, needed_of, operator, team_of

__all__ = ["attention", "flash_decode"]


@operator(cast=lowered)
def flash_decode(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None, scale: float | None = None,
    block_table: Tensor | None = None, *, schedule: str = "auto", team: str = WORLD,
) -> Tensor:  # fmt: skip
    """ops.flash_decode into a new tensor. team: a name."""
    group = team_of("flash_decode", team)
    return decode.flash_decode(q, k, v, lengths, scale, None, group, schedule, block_table)


@register_fake("pyshmem::flash_decode")
def _(q, k, v, lengths=None, scale=None, block_table=None, *, schedule="auto", team):  # type: ignore[no-untyped-def]
    return torch.empty_like(q)


@operator(cast=lowered, differentiable=True, first=True)
def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None, *, size: int | None = None,
    order: str = "contiguous", schedule: str = "auto", team: str = WORLD,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ops.attention into a new tensor. team: a name. torch.ops.pyshmem.attention returns sums for its gradients, too."""
    return prefill.summed(q, k, v, causal, scale, team_of("attention", team), schedule, order, size)


@register_fake("pyshmem::attention")
def _(q, k, v, causal=False, scale=None, *, size=None, order="contiguous", schedule="auto", team):  # type: ignore[no-untyped-def]
    group = team_of("attention", team)
    options = prefill.options_of(q, causal, scale, order, size, group.size)
    known = prefill.sums_of(problem_of(q, k, options, group), schedule)
    return torch.empty_like(q), room_for_sums(q) if known else q.new_empty(0, dtype=torch.float32)


@operator()
def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, gradient: Tensor, out: Tensor, sums: Tensor, *, size: int, segments: int,
    causal: bool, scale: float, team: str = WORLD,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of attention. team: a name."""
    options = {"size": size, "segments": segments, "causal": causal, "scale": scale}
    return gradients(q, k, v, gradient, out, sums, team=team_of("attention", team), **options)


@register_fake("pyshmem::attention_backward")
def _(q, k, v, gradient, out, sums, *, size, segments, causal, scale, team):  # type: ignore[no-untyped-def]
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _remember(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    q, k, v, causal, scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.needed = needed_of((q, k, v))
    ctx.perform = ByHandle(keyword_only_inputs["team"])
    order, size = keyword_only_inputs["order"], keyword_only_inputs["size"]
    ctx.options = prefill.options_of(q, causal, scale, order, size, ctx.perform.team.size)


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    found = gradients_of(ctx.perform, ctx.saved_tensors, ctx.needed, gradient, options=ctx.options)
    return *found, None, None


register_autograd("pyshmem::attention", _backward, setup_context=_remember)
