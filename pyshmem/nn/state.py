"""Whole parameters of divided models: states that other numbers of PEs load, and the norm of all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.nn.cuts import Cut, place_in
from pyshmem.nn.divided import require_elementwise
from pyshmem.ops import torch as tp


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
        wanted, given = _whole_shape(own[name], cut, team), tuple(state[name].shape)
        if given != wanted:
            refuse(ArgumentError, "scatter_state_dict", f"state, {name}", f"{given}", f"{wanted}")
        taken[name] = cut.take(state[name], *place_in("scatter_state_dict", team))
    return model.load_state_dict(taken, strict=strict)


def gather_optimizer_state_dict(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state_dict of an optimizer of the model without division: all PEs get all of what it keeps, a copy.

    Errors: ArgumentError for what is kept of a divided parameter in another shape than its own, and for an optimizer that
        does not update each element of it by itself.
    Order: collective over the teams of the layers.
    """

    name = "gather_optimizer_state_dict"
    require_elementwise(name, optimizer)
    return _of_optimizer(name, model, optimizer, optimizer.state_dict(), _gathered, shared=False)


def scatter_optimizer_state_dict(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> None:
    """Load the state of an optimizer of the model without division: each PE takes its share.

    state: as gather_optimizer_state_dict returns it, on any number of PEs, or that of an optimizer of the whole model. Its
    parameters are in the order of this optimizer.
    Errors: ArgumentError for what is kept of a divided parameter in another shape than its own, and for an optimizer that
        does not update each element of it by itself.
    """
    name = "scatter_optimizer_state_dict"
    require_elementwise(name, optimizer)

    def own(each: Tensor, cut: Cut, team: str) -> Tensor:
        return cut.take(each, *place_in(name, team))

    optimizer.load_state_dict(_of_optimizer(name, model, optimizer, state, own, shared=True))


def _of_optimizer(
    routine: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any],
    change: Callable[[Tensor, Cut, str], Tensor], shared: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return ``state`` with what it keeps of each divided parameter changed. shared: it is that of the whole model."""
    cuts = {id(model.get_parameter(name)): (name, *each) for name, each in cuts_of(model).items()}
    order = [each for group in optimizer.param_groups for each in group["params"]]
    found = {}
    for number, kept in sorted(state["state"].items()):
        found[number] = {key: each.clone() if isinstance(each, Tensor) else each for key, each in kept.items()}
        name, *cut = cuts.get(id(order[number]), (None,))
        for key, each in kept.items():
            if name is None or not isinstance(each, Tensor) or not each.dim():
                continue
            wanted = _whole_shape(order[number], *cut) if shared else tuple(order[number].shape)
            if tuple(each.shape) != wanted:
                refuse(ArgumentError, routine, f"{key} of {name}", f"{tuple(each.shape)}", f"{wanted}")
            found[number][key] = change(each, *cut)
    return {**state, "state": found}


def _whole_shape(own: Tensor, cut: Cut, team: str) -> tuple[int, ...]:
    """Return the shape of a parameter of which this PE has a share."""
    shape = list(own.shape)
    shape[cut.dim] *= place_in("scatter_state_dict", team)[1]
    return tuple(shape)


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
        """Do what torch's does. Collective over the team."""
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
