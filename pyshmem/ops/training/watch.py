"""What a reducer notices before a forward pass: that the model's parameters are still those whose gradients it reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.training.buckets import NAME, Named

WANTS = "the parameters that the reducer was made for: close() it, and make another one on all PEs"


class Watch:
    """A hook of a model. Copies of the model, which are trained alone, and files have one that does nothing."""

    def __init__(
        self, model: torch.nn.Module, parameters: Sequence[Named], then: Callable[[torch.nn.Module], None]
    ) -> None:
        """then: called with the model before each forward pass that makes a graph."""
        self._places, self._then = [], then
        for name, each in parameters:
            owner, _, leaf = name.rpartition(".")
            self._places.append((name, model.get_submodule(owner)._parameters, leaf, each, each.dtype))

    def __call__(self, model: torch.nn.Module, operands: Any) -> None:
        """Errors: ArgumentError where gradients would stay on this PE without a word."""
        if not torch.is_grad_enabled():
            return
        for name, owner, leaf, each, dtype in self._places:
            now = owner.get(leaf)
            if now is not each:
                refuse(ArgumentError, NAME, f"model, {name}", "another parameter, as load_state_dict assigns", WANTS)
            if each.dtype is not dtype:
                refuse(ArgumentError, NAME, f"model, {name}", f"{each.dtype}, changed from {dtype}", WANTS)
        self._then(model)

    def __reduce__(self) -> Any:
        return _idle, ()


def _nothing(model: torch.nn.Module, operands: Any) -> None:
    """A hook without effect."""


def _idle() -> Any:
    return _nothing
