"""Calls that torch's dispatcher sees: modes of the program, as CommDebugMode, and tensors that unwrap themselves.

Calls of a group that is written in Python reach it at once. While a mode is active, or for a tensor of a class with
``__torch_dispatch__``, they pass through the operators of torch.ops.c10d here, as those of torch's own groups do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch._C._dynamo import eval_frame
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

_modes = torch._C._len_torch_dispatch_stack
_PLAIN: set[type] = {torch.Tensor}  # classes of arguments that are known to be plain

_SKIPPED = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)


def untraced(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let Dynamo skip the frames of a method, and all frames that it calls: C++ code of torch calls it in compiled models.

    torch.compiler.disable does so too, at a price for each call, and imports Dynamo into programs that compile nothing.
    """
    eval_frame.set_code_exec_strategy(method.__code__, _SKIPPED)
    return method


def dispatched(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method of a group, whose leading arguments are tensors, pass through the operator of this method of torch's."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @untraced
        @wraps(method)
        def call(self: Any, *given: Any) -> Any:
            if not _modes() and _plain(given):
                return method(self, *given)
            operator = getattr(self.shadow, name)
            return _through(operator, lambda *tensors: method(self, *tensors, *given[len(tensors) :]), given)

        return call

    return decorate


def goes_past(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a call with these two tensors alone passes by torch's dispatcher; asked where each 0.1 us counts."""
    return type(one) in _PLAIN and type(other) in _PLAIN and not _modes()


def _plain(given: Sequence[Any]) -> bool:
    """Whether no argument is, or has, a tensor that unwraps itself."""
    for each in given:
        kind = type(each)
        if kind is list:
            if not _plain(each):
                return False
        elif kind not in _PLAIN:
            if issubclass(kind, torch.Tensor) and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
                return False
            _PLAIN.add(kind)
    return True


def _through(operator: Callable[..., Any], call: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Return the last of the works of the calls that modes and tensors let through: a group performs them in order."""
    ends = _Ends(call)
    with _beneath(ends):
        result = operator(*given)
    return ends.works[-1] if ends.works else result


class _Ends(TorchDispatchMode):
    """What an operator of torch.ops.c10d comes to after all modes and tensors: a call with its tensors."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call
        self.works: list[dist.Work] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace != "c10d":
            return function(*args, **(kwargs or {}))
        if not _plain(args):
            return NotImplemented
        tensors = args[: next(i for i, each in enumerate(args) if isinstance(each, torch.ScriptObject))]
        self.works.append(self._call(*tensors))
        work = self.works[-1].boxed()
        return work if len(function._schema.returns) == 1 else (tensors[0], work)


@contextmanager
def _beneath(mode: TorchDispatchMode) -> Iterator[None]:
    """Have a mode beneath all that are active."""
    above = [_pop_mode() for _ in range(_modes())]
    for each in (mode, *reversed(above)):
        _push_mode(each)
    try:
        yield
    finally:
        for _ in range(_modes()):
            _pop_mode()
        for each in reversed(above):
            _push_mode(each)
