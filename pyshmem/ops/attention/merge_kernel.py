"""The kernel that merges results of attention over parts of the keys, by the logarithms of their sums of weights."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "tokens"])
def merge_results(
    results, sums, starts, out, merged, rows, tokens, HEADS: tl.constexpr, D: tl.constexpr, PD: tl.constexpr,
    N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Merge ``N`` results, (sequences, tokens, HEADS, D), whose part i has the tokens from starts[i] on, into ``out``.

    sums: for each the natural logarithms of the sums of weights, (sequences, HEADS, its tokens).  merged: takes those of
    all parts.  rows: heads of tokens of sequences.  The first result has all tokens.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, PD)
    head, token, sequence = row % HEADS, row // HEADS % tokens, row // HEADS // tokens
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for i in tl.static_range(N):
        top = tl.maximum(top, sum_of(sums[i], starts[i], head, token, sequence, row < rows, tokens, HEADS))
    top = tl.where(row < rows, top, 0.0)
    total, whole = tl.where(row < rows, 0.0, 1.0), tl.zeros([BLOCK, PD], tl.float32)
    for i in tl.static_range(N):
        found = sum_of(sums[i], starts[i], head, token, sequence, row < rows, tokens, HEADS)
        weight = tl.exp(found - top)
        line = (sequence * (tokens - starts[i]) + token - starts[i]) * HEADS + head
        there = ((row < rows) & (token >= starts[i]))[:, None] & (lane < D)[None, :]
        values = tl.load(results[i] + line[:, None] * D + lane[None, :], mask=there, other=0.0)
        whole += values.to(tl.float32) * weight[:, None]
        total += weight
    tl.store(merged + (sequence * HEADS + head) * tokens + token, top + tl.log(total), mask=row < rows)
    inside = (row < rows)[:, None] & (lane < D)[None, :]
    tl.store(out + row[:, None] * D + lane[None, :], (whole / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def sum_of(sums, start, head, token, sequence, inside, tokens, HEADS: tl.constexpr):
    """The logarithms of the sums of a result's weights for these rows, minus infinity for tokens that it has not."""
    places = (sequence * HEADS + head) * (tokens - start) + token - start
    return tl.load(sums + places, mask=inside & (token >= start), other=float("-inf"))
