"""The gradients of attention, and its results in float64: torch's attention of this PE's queries over gathered keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _get_current_dispatch_mode

from pyshmem.ops.attention.segments import places_of, segments_of, tokens_at
from pyshmem.ops.gradients import Gradients, transformed


class Options(NamedTuple):
    """What gradients need of a call. size: the tokens of a sequence on all PEs.  segments: those of a PE."""

    size: int
    segments: int
    causal: bool
    scale: float


def gradients_of(
    perform: Any, saved: Sequence[torch.Tensor], needed: Sequence[bool], gradient: torch.Tensor, *_: Any,
    options: Options,
) -> Gradients:  # fmt: skip
    """Return the gradients of q, k and v.

    saved: q, k, v, the result, and the sums of weights: of three dimensions, or of one if the schedule has kept none.
    Without sums, for gradients of gradients and within torch.func, torch differentiates its attention over keys and values
    that are gathered again; the gradients of all of these then go to the PEs that have them.
    """
    q, k, v, _, sums = saved
    if sums.dim() == 3 and not torch.is_grad_enabled() and not transformed(gradient, *saved):
        every = perform("attention_backward", q, k, v, gradient, *saved[3:], **options._asdict())
        return tuple(each if used else None for each, used in zip(every, needed, strict=True))
    whole = [q, *(_gather(perform, each, gradient, options) for each in (k, v))]
    wanted = needed[0], any(needed[1:]), any(needed[1:])
    place = perform.team.me, perform.team.size
    found = (_within_func if transformed(gradient, *whole) else _by_autograd)(whole, wanted, gradient, place, options)
    to_q = found.pop(0) if needed[0] else None
    scattered = [_scatter(perform, each, k.shape, options) for each in found]
    return to_q, *[each if used else None for each, used in zip(scattered or (None, None), needed[1:], strict=True)]


def _by_autograd(
    whole: list[torch.Tensor], wanted: Sequence[bool], gradient: torch.Tensor, place: tuple[int, int], options: Options
) -> list[torch.Tensor]:
    """Return the gradients that are wanted of q and of all keys and values. place: this PE's number, and that of PEs."""
    again = torch.is_grad_enabled()  # gradients of gradients are wanted
    if not again:
        whole = [each.detach().requires_grad_() for each in whole]
    twice = sdpa_kernel(SDPBackend.MATH) if again else nullcontext()  # torch's others have no second gradients
    with torch.enable_grad(), twice:
        result = attend(whole[0], whole[1], whole[2], *place, options)
        used = [each for each, use in zip(whole, wanted, strict=True) if use]
        return list(torch.autograd.grad(result, used, gradient, create_graph=again, materialize_grads=True))


def _within_func(
    whole: list[torch.Tensor], wanted: Sequence[bool], gradient: torch.Tensor, place: tuple[int, int], options: Options
) -> list[torch.Tensor]:
    """Do what _by_autograd does, within a transform of torch.func, which takes gradients of torch.func alone."""
    with sdpa_kernel(SDPBackend.MATH):
        _, back = torch.func.vjp(lambda q, k, v: attend(q, k, v, *place, options), *whole)
        return [each for each, use in zip(back(gradient), wanted, strict=True) if use]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, me: int, n: int, options: Options) -> torch.Tensor:
    """Return the attention of PE ``me``'s queries over the keys and values of the whole sequence, in its order."""
    parts, done = [], 0
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    for first, last in segments_of(options.size, me, n, options.segments):
        queries, done = q[:, :, done : done + last - first], done + last - first
        seen = last if options.causal else options.size
        mask = _mask(queries, seen) if options.causal else None
        if first == last:
            parts.append(queries)
            continue
        parts.append(
            scaled_dot_product_attention(
                queries, k[:, :, :seen], v[:, :, :seen], mask, scale=options.scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        )
    return torch.cat(parts, 2).transpose(1, 2).contiguous()


def _mask(queries: torch.Tensor, seen: int) -> Any:
    """Return the mask by which the last query sees all of ``seen`` keys, the one before it all but one, and so on."""
    count = queries.shape[2]
    if type(queries) is torch.Tensor and not transformed(queries) and _get_current_dispatch_mode() is None:
        from torch.nn.attention.bias import causal_lower_right  # imports torch's compiler, which takes a second

        return causal_lower_right(count, seen)  # takes no memory in torch's flash attention
    # while a compiler traces, in torch.func, and in a dispatch mode, whose tensors torch cannot make a mask of its kind
    return queries.new_ones(count, seen, dtype=torch.bool).tril(seen - count)


def _gather(perform: Any, array: torch.Tensor, after: torch.Tensor | None, options: Options) -> torch.Tensor:
    """Return the keys or values of the whole sequence, behind ``after``. array: this PE's, (batch, tokens, heads, dim)."""
    n = perform.team.size
    batch, tokens, heads, dim = array.shape
    rows = array.transpose(0, 1).reshape(tokens, batch * heads * dim)
    missing = _longest(n, options) - tokens
    if missing:
        rows = torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])
    places = _places(len(rows), n, options, rows.device)
    every = perform("gather_rows", rows, after=after)
    return every.index_select(0, places).view(options.size, batch, heads, dim).transpose(0, 1)


def _scatter(perform: Any, gradient: torch.Tensor, shape: torch.Size, options: Options) -> torch.Tensor:
    """Return the gradient of this PE's keys or values, of this shape, from what each PE's queries give to all of them."""
    n = perform.team.size
    batch, tokens, heads, dim = shape
    longest = _longest(n, options)
    rows = gradient.transpose(0, 1).reshape(options.size, batch * heads * dim)
    room = rows.new_zeros(n * longest, rows.shape[1])
    spread = room.index_copy(0, _places(longest, n, options, rows.device), rows)
    return perform("reduce_scatter_rows", spread)[:tokens].view(tokens, batch, heads, dim).transpose(0, 1).contiguous()


def _longest(n: int, options: Options) -> int:
    return max(tokens_at(options.size, pe, n, options.segments) for pe in range(n))


def _places(longest: int, n: int, options: Options, device: torch.device) -> torch.Tensor:
    """Return where each token of the sequence is among rows of all PEs, ``longest`` of each."""
    every = [places_of(options.size, pe, n, options.segments) for pe in range(n)]
    lines = torch.cat([pe * longest + torch.arange(len(each)) for pe, each in enumerate(every)])
    return torch.empty_like(lines).index_put_((torch.cat(every),), lines).to(device)
