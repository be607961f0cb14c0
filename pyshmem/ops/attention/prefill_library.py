"""Attention by torch's own kernels: a call for the keys of each PE as they come, and a kernel that merges the results.

Under a causal mask, in either order, what this PE's queries see of another PE's keys is a whole block, so one call takes the
keys of a PE. Results of 16 bits are rounded before they are merged. Idea: Ring Attention (Liu et al., arXiv 2310.01889).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from pyshmem.ops.aligned import is_aligned
from pyshmem.ops.attention.decode_schedules import power
from pyshmem.ops.attention.merge_kernel import merge_results
from pyshmem.ops.attention.prefill_slots import Problem, Sender, Slots
from pyshmem.ops.attention.segments import segments_of

ROWS = 16  # of a program that merges
CUDNN_WIDTHS = range(8, 129, 8)


class Part(NamedTuple):
    """What queries see of a PE's keys. start: the first query that sees them, behind which all do.  stop: the keys they see.

    causal: each query sees one key more than the query before it.  used: whether any query sees any key.
    """

    pe: int
    start: int
    stop: int
    causal: bool
    used: bool


def lacking(problem: Problem, device: torch.device, sums: bool) -> str:
    """Return what torch's kernels do not take, or "": on PEs with one kind of GPU the same on all.

    sums: whether those of weights are wanted, which merges and gradients take.
    """
    if problem.scale <= 0:
        return f"scale {problem.scale}"
    if not sums or device.type == "cpu":
        return ""
    if problem.dtype not in (torch.float16, torch.bfloat16):
        return str(problem.dtype)
    return "" if problem.width in CUDNN_WIDTHS else f"heads of {problem.width} elements"


class Library:
    """The copy engine brings keys and values, and torch's kernels take each PE's as they come."""

    makes_results = True

    def __init__(self, problem: Problem) -> None:
        slots = Slots(problem)
        self._use(slots, Sender(slots))

    def resized(self, problem: Problem) -> Library | None:
        """Return the step for sequences of another length; None if there is no room."""
        slots = self.slots.resized(problem)
        if slots is None:
            return None
        made = object.__new__(Library)
        made._use(slots, self.sender.resized(slots))
        return made

    def _use(self, slots: Slots, sender: Sender) -> None:
        problem = self.problem = slots.problem
        self.slots, self.space, self.room, self.sender = slots, slots.space, slots.room, sender
        parts = [part_of(problem, problem.me, pe) for pe in (problem.me, *self.sender.peers)]
        self.parts = [(part, part.used, self.slots.of(part.pe)) for part in parts]
        self.merges = sum(used for _, used, _ in self.parts) > 1

    @property
    def bytes_reread(self) -> int:
        """The keys and values of peers that queries see; results with the sums of their weights, where they are merged."""
        problem = self.problem
        used = [part for part, used, _ in self.parts if used]
        fetched = sum(bytes_of(problem, part.stop) for part in used if part.pe != problem.me)
        row = problem.sequences * problem.heads * (problem.width * problem.dtype.itemsize + torch.float32.itemsize)
        return fetched + self.merges * row * sum(problem.tokens(problem.me) - part.start for part in used)

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return ``out``, or a new tensor if it is None."""
        return self._perform(q, k, v, out, self.merges)[0]

    def summed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a new tensor, and the logarithms of the sums of weights, (batch, heads, tokens)."""
        return self._perform(q, k, v, None, True)

    def _perform(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, sums: bool
    ) -> tuple[torch.Tensor, Any]:
        q, k, v = (each if is_aligned(each) else each.clone() for each in (q, k, v))  # cuDNN loads 16 bytes at once
        if self.sender.peers:
            self.sender.send(k, v)
        found = []
        for part, used, (keys, values) in self.parts:
            if part.pe == self.problem.me:
                keys, values = k, v
            else:
                self.sender.wait(part.pe, used)
            if used and q.numel():
                keys, values = keys[:, : part.stop], values[:, : part.stop]
                found.append((*self._attend(q[:, part.start :], keys, values, part.causal, sums), part.start))
        self.sender.side.join()
        if len(found) > 1:
            return merge(found, torch.empty_like(q) if out is None else out)
        result, logarithms = found[0][:2] if found else (torch.empty_like(q), room_for_sums(q))
        return result if out is None else out.copy_(result), logarithms

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, sums: bool
    ) -> tuple[torch.Tensor, Any]:
        """Return the attention of q over these keys, and the logarithms of the ``sums`` of its weights, if wanted."""
        views = [each.transpose(1, 2) for each in (q, k, v)]
        if sums:
            return with_sums(views, causal, self.problem.scale)
        shared = self.problem.heads != self.problem.kv_heads
        found = scaled_dot_product_attention(*views, is_causal=causal, scale=self.problem.scale, enable_gqa=shared)
        return found.transpose(1, 2).contiguous(), None


def bytes_of(problem: Problem, tokens: int) -> int:
    """Return the bytes of the keys and values of so many tokens of each sequence."""
    return 2 * problem.sequences * tokens * problem.kv_heads * problem.width * problem.dtype.itemsize


def part_of(problem: Problem, me: int, pe: int) -> Part:
    """Return what the queries of ``me`` see of the keys of ``pe``."""
    start, stop = 0, problem.tokens(pe)
    if problem.causal and problem.segments == 1:
        stop = stop if pe <= me else 0
    elif problem.causal and pe != me:
        # an earlier PE's first segment is before all queries, its second one behind them; a later PE's are between both
        first = (segments_of(problem.size, each, problem.n_pes, problem.segments)[0] for each in (me, pe))
        ours, theirs = (last - start for start, last in first)
        start, stop = (0, theirs) if pe < me else (ours, stop)
    return Part(pe, start, stop, problem.causal and pe == me, stop > 0 and start < problem.tokens(me))


def with_sums(views: list[torch.Tensor], causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention of q, k and v, and the logarithms of the sums of its weights, (batch, heads, tokens)."""
    aten: Any = torch.ops.aten
    if not views[0].is_cuda:
        found, sums = aten._scaled_dot_product_flash_attention_for_cpu(*views, 0.0, causal, scale=scale)
    elif torch.version.hip:
        found, sums = aten._scaled_dot_product_flash_attention(*views, 0.0, causal, scale=scale)[:2]
    else:
        found, sums = aten._scaled_dot_product_cudnn_attention(*views, None, True, 0.0, causal, scale=scale)[:2]
    return found.transpose(1, 2).contiguous(), sums.reshape(found.shape[:3]).contiguous()


def merge(found: list[tuple[torch.Tensor, torch.Tensor, int]], out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge results of parts of the keys, with their sums and first tokens, into ``out``. Return it, and its sums."""
    results, sums, starts = zip(*found, strict=True)
    batch, tokens, heads, width = out.shape
    rows, merged = batch * tokens * heads, room_for_sums(out)
    merge_results[(-(-rows // ROWS),)](
        results, sums, starts, out, merged, rows, tokens, heads, width, power(width, 16), len(found), ROWS, num_warps=4
    )
    return out, merged


def room_for_sums(q: torch.Tensor) -> torch.Tensor:
    """Return room for the logarithms of the sums of weights of queries."""
    batch, tokens, heads, _ = q.shape
    return q.new_empty(batch, heads, tokens, dtype=torch.float32)
