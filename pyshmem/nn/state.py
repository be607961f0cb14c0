"""Whole parameters of divided models: states that other numbers of PEs load, and the norm of all gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from pyshmem.nn.cuts import Cut, place_in
from pyshmem.ops import torch as tp
from pyshmem.runtime.errors import ArgumentError, refuse


def gather_state_dict(model: torch.nn.Module) -> dict[str, Any]:
    """Return the state_dict of the model without division: all PEs get the whole of each parameter, a copy.

    Order: collective over the teams of the layers.
    """
    cuts = cuts_of(model)
    found = {}
    for name, each in model.state_dict().items():
        found[name] = _gathered(each, *cuts[name]) if name in cuts else each
    return {name: each.clone() if isinstance(each, Tensor) else each for name, each in found.items()}


def scatter_state_dict(model: torch.nn.Module, state: Mapping[str, Any], strict: bool = True) -> Any:
    """Load the state of the model without division: each PE takes its share. Returns what load_state_dict does.

    state: as gather_state_dict returns it, on any number of PEs, or that of the model before parallelize.
    Errors: ArgumentError for a parameter of another shape.
    """
    cuts, own = cuts_of(model), model.state_dict()
    taken = dict(state)
    for name, (cut, team) in cuts.items():
        if name not in state:
            continue
        me, n = place_in("scatter_state_dict", team)
        wanted = list(own[name].shape)
        wanted[cut.dim] *= n
        if list(state[name].shape) != wanted:
            refuse(
                ArgumentError, "scatter_state_dict", f"state, {name}", f"{tuple(state[name].shape)}", f"{tuple(wanted)}"
            )
        taken[name] = cut.take(state[name], me, n)
    return model.load_state_dict(taken, strict=strict)


def clip_grad_norm_(model: torch.nn.Module, max_norm: float, team: str = "world") -> Tensor:
    """Scale the gradients of a divided model so that their norm is at most ``max_norm``, and return what it was.

    It is that of the model without division: each parameter counts once. team: that of the layers.
    Order: collective over the team.
    """
    cuts = cuts_of(model)
    grads = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    divided = _squares(each for name, each in grads.items() if name in cuts)
    alike = _squares(each for name, each in grads.items() if name not in cuts)
    device = next(model.parameters()).device
    total = tp.all_reduce(divided.to(device).view(1, 1), team=team).view(()) + alike.to(device)
    norm = total.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for each in grads.values():
        each.mul_(factor.to(each.dtype))
    return norm


class GradScaler(torch.amp.GradScaler):
    """torch's GradScaler, for divided models: an infinity on one PE of the team skips the step on all of them."""

    def __init__(self, device: str, *operands: Any, team: str = "world", **more: Any) -> None:
        """team: that of the layers.  Others: as torch's."""
        super().__init__(device, *operands, **more)
        self.team = team

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """As torch's. Collective over the team."""
        super().unscale_(optimizer)
        for found in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values():
            found.copy_(tp.all_reduce(found.view(1, 1), team=self.team).view(()))


def cuts_of(model: torch.nn.Module) -> dict[str, tuple[Cut, str]]:
    """Return how each parameter that is divided is, by its name, and the name of the team."""
    found = {}
    for prefix, module in model.named_modules():
        for name, cut in getattr(module, "cuts", {}).items():
            if getattr(module, name) is not None:
                found[f"{prefix}.{name}" if prefix else name] = cut, module.team
    return found


def _squares(arrays: Iterable[Tensor]) -> Tensor:
    """Return the sum of the squares of all elements, in float64."""
    total = torch.zeros((), dtype=torch.float64)
    for each in arrays:
        total = total.to(each.device) + each.detach().double().square().sum()
    return total


def _gathered(own: Tensor, cut: Cut, team: str) -> Tensor:
    """Return the whole of a parameter."""
    _, n = place_in("gather_state_dict", team)
    rows = tp.gather_rows(own.detach().reshape(1, -1).contiguous(), team=team)
    return cut.join([each.view(own.shape) for each in rows.view(n, -1)])
