"""Layers with divided parameters, and the optimizers that they take: those that update each element by itself.

Whether an optimizer does is found by trying: a small parameter and its two halves must become the same. So optimizers of
other libraries are known too, and each with its own options.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.nn.cuts import Cut, place_in

_layers: WeakSet[Divided] = WeakSet()
_known: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()  # the groups of parameters of optimizers that are fit
_HALF = 4
_NEAR = 1e-4  # of results in float32: other orders of sums are not meant


class Divided(torch.nn.Module):
    """What layers have in common whose parameters are divided: optimizers that look at whole matrices refuse them."""

    team: Any  # its name; layers without one are whole
    cuts: Any  # how each parameter that is divided is, by its name

    def __init__(self, *operands: Any, **more: Any) -> None:
        super().__init__(*operands, **more)
        _layers.add(self)

    def __setstate__(self, state: Any) -> None:
        """Copies, and what is read from files, are such layers too."""
        super().__setstate__(state)
        _layers.add(self)


def require_elementwise(routine: str, optimizer: Optimizer) -> None:
    """Refuse an optimizer of divided parameters that does not update each element by itself. Errors: ArgumentError."""
    among = {id(each) for group in optimizer.param_groups for each in group["params"]}
    found = {id(each): (name, each, cut) for name, each, cut in _divided(among)}
    for group in optimizer.param_groups:
        kinds = {(each.dim(), found[id(each)][2].dim): found[id(each)] for each in group["params"] if id(each) in found}
        for name, each, cut in kinds.values():
            if not _is_elementwise(optimizer, group, each, cut.dim):
                got = f"{type(optimizer).__name__}, which updates the shares of {name} otherwise than the whole of it"
                wants = "one that updates each element by itself, as SGD and AdamW do, for parameters that are divided"
                refuse(ArgumentError, routine, "optimizer", got, wants)


def _divided(among: set[int]) -> Iterator[tuple[str, torch.Tensor, Cut]]:
    """Yield the parameters of which each PE has a share. among: their ids."""
    for layer in _layers:
        for name, cut in layer.cuts.items():
            parameter = getattr(layer, name)
            if parameter is not None and id(parameter) in among and place_in("step", layer.team)[1] > 1:
                yield f"{type(layer).__name__}.{name}", parameter, cut


def _before_step(optimizer: Optimizer, operands: Any, more: Any) -> None:
    count = len(optimizer.param_groups)
    if not _layers or _known.get(optimizer) == count or torch.compiler.is_compiling():
        return
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return
    require_elementwise("step", optimizer)
    _known[optimizer] = count


def _is_elementwise(optimizer: Optimizer, group: dict[str, Any], like: torch.Tensor, dim: int) -> bool:
    shape = [2 * _HALF if each == dim else _HALF for each in range(like.dim())]
    first, second, third = (_values(shape, salt, like.device) for salt in range(3))
    try:
        whole = _stepped(optimizer, group, first, [second, third])
        halves = [
            _stepped(optimizer, group, *parts[:1], list(parts[1:]))
            for parts in zip(*(each.chunk(2, dim) for each in (first, second, third)), strict=True)
        ]
    except Exception as error:  # noqa: BLE001  of another's code
        text = (
            f"{type(optimizer).__name__} cannot be tried on a small parameter: {error}. On divided parameters it must"
        )
        warnings.warn(f"{text} update each element by itself", stacklevel=2)
        return True
    return torch.allclose(torch.cat(halves, dim), whole, _NEAR, _NEAR)


def _values(shape: list[int], salt: int, device: torch.device) -> torch.Tensor:
    """Return numbers between -1 and 1 in no order."""
    count = torch.Size(shape).numel()
    numbers = torch.arange(count, device=device) * 37 + 11 * salt
    return ((numbers * numbers + salt) % 101).float().div_(50).sub_(1).view(shape)


def _stepped(
    optimizer: Optimizer, group: dict[str, Any], values: torch.Tensor, gradients: list[torch.Tensor]
) -> torch.Tensor:
    """Return what an optimizer with the options of ``group`` makes of a parameter."""
    parameter = torch.nn.Parameter(values.clone())
    taken = inspect.signature(type(optimizer)).parameters
    options = {name: value for name, value in group.items() if name in taken and name != "params"}
    if "lr" in options:
        options["lr"] = 0.1  # a schedule may begin at 0
    twin: Any = type(optimizer)([parameter], **options)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        _step(twin, lambda each=gradient: _loss(parameter, each))
    return parameter.detach()


def _step(twin: Any, closure: Callable[[], torch.Tensor]) -> None:
    wanted = inspect.signature(type(twin).step).parameters.get("closure")
    twin.step(closure) if wanted is not None and wanted.default is inspect.Parameter.empty else twin.step()


def _loss(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
    parameter.grad = gradient.clone()
    return (parameter.detach() * gradient).sum()


register_optimizer_step_pre_hook(_before_step)
