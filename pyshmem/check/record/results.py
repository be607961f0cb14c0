"""Results that operators return in turn: a program that reads one after the next call but one reads that call's numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from pyshmem.check.record.recording import recorder
from pyshmem.check.trace import now

_held: dict[int, Any] = {}  # by address: the tensor that a program got last, weakly
_stale: dict[int, Any] = {}  # tensors whose memory is another call's by now, weakly, by their ids


def install() -> None:
    """Give a program tensors of its own for each call, if it has imported the operators."""
    results = sys.modules.get("pyshmem.ops.results")
    if results is not None:
        results.InTurn.take = _taken(results.InTurn.take)


def _taken(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def take(self: Any) -> Any:
        found = call(self)
        return found if recorder.trace is None else tree_map_only(torch.Tensor, _given, found)

    return take


def _given(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor on the same memory. One that was given before is stale from now on."""
    with recorder.within():
        new = tensor.view_as(tensor)
    before = _held.get(tensor.data_ptr())
    old = before() if before is not None else None
    if old is not None:
        _stale[id(old)] = before
    number = id(new)
    _held[tensor.data_ptr()] = ref(new, lambda _: _stale.pop(number, None))
    return new


def look(name: str, arguments: Iterable[Any]) -> None:
    """Record an operator of torch on a stale tensor."""
    if _stale:
        for each in tree_leaves(tuple(arguments)):
            if id(each) in _stale:
                recorder.write(now(), "stale", name, recorder.at(each.data_ptr(), each.nbytes))
