"""The outermost backward: reentrant checkpoints run backwards of their own within it, and each has its own graph task."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

_APPLY = BackwardCFunction.apply.__code__


class Outermost:
    """Says when the outermost backward begins and ends. within: whether one has run another backward.

    What runs in a task that is not the outermost one cannot have a callback at the end of that; the nodes behind the one
    that runs it can, since they follow in the task around it.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._done = begin, end
        self.within = False
        self._task = self._outermost = -1
        self._handles: list[Any] = []

    def enter(self, *_: Any) -> None:
        """Note the task that runs now. It is called for each gradient that arrives."""
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return
        self._task = task
        node = _running()
        if node is not None:
            self.within = True
            following = [each for each, _ in node.next_functions if each is not None]
            self._handles += [each.register_prehook(self.enter) for each in following]
        elif task != self._outermost:
            self._outermost = task
            self._begin()
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._task = self._outermost = -1
        while self._handles:
            self._handles.pop().remove()
        self._done()


def _running() -> Any:
    """Return the node of a graph whose backward, a function in Python, runs the current task; None if no node does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _APPLY:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]
