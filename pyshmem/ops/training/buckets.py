"""The gradients of a model in buckets of symmetric memory, and what all PEs must have in common of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import Team
from pyshmem.memory.heap import default
from pyshmem.ops.agreement import require_alike
from pyshmem.ops.checks import require_dtype
from pyshmem.ops.streams import Side

NAME = "GradientReducer"
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
LINE = 64  # elements: buckets are multiples of it, so that kernels load 16 bytes at once
Named = tuple[str, torch.nn.Parameter]


class Bucket:
    """Parameters of one dtype whose gradients are reduced at once. flat: the gradients' place in symmetric memory.

    A view that has been reduced already holds the sums of all PEs. Before a gradient is added to it, or it is reduced again,
    it is divided by ``parts``, so that each PE has its part of these sums, and they count once.
    """

    def __init__(self, parameters: Sequence[Named], flat: torch.Tensor, parts: int) -> None:
        """parts: 1 if gradients are averaged, which leaves equal ones as they are; else the number of PEs."""
        self.parameters, self.flat, self.parts = parameters, flat, parts
        self.reduced = [False] * len(parameters)
        self.views = []
        start = 0
        for _, each in parameters:
            strides = torch.empty_like(each, device="meta").stride()  # those that torch gives to a gradient
            self.views.append(flat[start : start + each.numel()].as_strided(each.shape, strides))
            start += each.numel()
        self.missing = 0  # gradients that this backward has not brought
        self.begun = False  # to be reduced in this backward
        self.absent: list[int] = []  # places of parameters that had no gradient here when the bucket was reduced

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parameters)

    def divide(self, place: int, *_: Any) -> None:
        """Leave this PE's part of sums that the view of a parameter holds."""
        (_, parameter), view = self.parameters[place], self.views[place]
        if self.reduced[place] and self.parts > 1 and parameter.grad is view:
            with torch.no_grad():
                view.div_(self.parts)
        self.reduced[place] = False

    def collect(self, side: Side) -> torch.Tensor:
        """Return this PE's gradients as one array, on the current stream; each parameter's becomes its view of the bucket.

        It is the one gradient of the bucket where backward has left it, or the bucket, with zeros for what has none.
        side: the current stream.
        """
        source = self.flat
        self.absent.clear()
        for place, ((name, parameter), view) in enumerate(zip(self.parameters, self.views, strict=True)):
            self.divide(place)
            self.reduced[place] = True
            grad = parameter.grad
            if grad is view:
                continue
            if grad is None:
                view.zero_()
                self.absent.append(place)
            elif grad.layout is not torch.strided:
                refuse(ArgumentError, NAME, "model", f"a gradient of {name} in {grad.layout}", "dense gradients")
            else:
                grad = grad.detach()
                side.keep(grad)
                if len(self.views) == 1 and _fits(grad, view, self.flat):
                    source = grad.as_strided((grad.numel(),), (1,))
                else:
                    view.copy_(grad)
            parameter.grad = view
        return source

    def forget(self, used: Sequence[int]) -> None:
        """Let parameters without a gradient on any PE have none. used: of each, whether a PE had one."""
        for place in self.absent:
            if not used[place]:
                self.parameters[place][1].grad = None

    def detach(self) -> None:
        """Take the views away from the parameters."""
        for (_, parameter), view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is view:
                parameter.grad = None


def _fits(grad: torch.Tensor, view: torch.Tensor, flat: torch.Tensor) -> bool:
    """Whether a gradient lies in memory as the whole bucket does."""
    return grad.stride() == view.stride() and grad.numel() == flat.numel() and not grad.data_ptr() & 15


def length_of(parameters: Sequence[Named]) -> int:
    """Return the elements of a bucket."""
    return -(-sum(each.numel() for _, each in parameters) // LINE) * LINE


def cut(parameters: Sequence[Named], nbytes: int) -> list[list[Named]]:
    """Return parameters in buckets of up to ``nbytes``, in the order in which backward ends them.

    That is the reverse of the parameters' order. A bucket has one dtype; a larger parameter has one of its own.
    """
    buckets: list[list[Named]] = []
    last: dict[int, int] = {}  # of a bucket's parameters
    present: dict[torch.dtype, int] = {}  # the bucket that takes more of a dtype
    for place, (name, each) in enumerate(reversed(parameters)):
        at = present.get(each.dtype)
        alone = each.nbytes > nbytes
        if alone or at is None or sum(held.nbytes for _, held in buckets[at]) + each.nbytes > nbytes:
            at = len(buckets)
            buckets.append([])
        if not alone:
            present[each.dtype] = at
        buckets[at].append((name, each))
        last[at] = place
    return [buckets[at] for at in sorted(last, key=lambda at: last[at])]


def trained(model: Any) -> list[Named]:
    """Return the parameters that require gradients and have elements. Errors: ArgumentError, DtypeError."""
    if not isinstance(model, torch.nn.Module):
        refuse(ArgumentError, NAME, "model", type(model).__name__, "a torch.nn.Module")
    found = [(name, each) for name, each in model.named_parameters() if each.requires_grad and each.numel()]
    if not found:
        refuse(ArgumentError, NAME, "model", "no parameter that requires a gradient", "one or more")
    for name, each in found:
        require_dtype(NAME, f"model, {name}", each, DTYPES)
        if each.device.type != default().device:
            wants = f"one on {default().device}, where the symmetric memory is"
            refuse(ArgumentError, NAME, f"model, {name}", f"a parameter on {each.device}", wants)
    return found


def texts_of(model: torch.nn.Module) -> list[str]:
    """Return a line for each parameter and buffer."""
    lines = [
        f"{name}: {tuple(each.shape)} in {each.dtype}{'' if each.requires_grad else ', frozen'}"
        for name, each in model.named_parameters()
    ]
    return lines + [f"buffer {name}: {tuple(each.shape)} in {each.dtype}" for name, each in model.named_buffers()]


def require_same_model(team: Team, texts: Sequence[str]) -> None:
    """Refuse, on all PEs, models that differ, and name the first line that does. Collective. Errors: ArgumentError."""

    def same(count: int) -> bool:
        """Whether all PEs have the same first ``count`` lines."""
        digest = hashlib.sha256("\n".join(texts[:count]).encode()).digest()
        return len(set(team.meeting.share(NAME, digest.ljust(256)))) == 1

    notes = team.meeting.share(NAME, len(texts).to_bytes(8, "little").ljust(256, b"\0"))
    low, high = 0, max(int.from_bytes(note[:8], "little") for note in notes)
    if same(high):
        return
    while high - low > 1:  # the first ``low`` lines are the same, the first ``high`` are not
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    text = texts[low] if low < len(texts) else "no more parameters"
    require_alike(NAME, team, "model", text, "the same model on all PEs of the team")
