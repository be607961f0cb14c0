"""Products that differ in their rows alone, down to half of the most: their plans share memory, kernels and agreements."""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.ops.gemm.memory import RESULTS
from pyshmem.ops.gemm.problem import Problem, with_rows
from pyshmem.ops.gemm.selection import ordered, scheduled, steps_of, steps_that_serve
from pyshmem.ops.results import InTurnBySize
from pyshmem.ops.workspace import Workspace, room_for


class Most:
    """The steps for the most rows, of one schedule."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._made: dict[Any, Any] = {}  # by the layouts of a and b
        self._memory: Workspace | None = None
        self._lent: Workspace | None = None  # to the plan that was made last, which keeps the memory

    def serves(self, problem: Problem) -> bool:
        """Whether it has so many rows, and a plan keeps its memory."""
        return self._lent is not None and not self._lent.closed and self._problem.M >= problem.M

    def steps(self, layouts: Any, problem: Problem, a: torch.Tensor, b: torch.Tensor) -> Any:
        """Return the steps of a problem that it serves. layouts: of a and b. Collective for the first of all."""
        found = self._made.get(layouts)
        if found is None:
            found = self._made[layouts] = steps_of(with_rows(problem, self._problem.M), a, b, self._memory)
            self._memory = found.space
        return found if problem.M == self._problem.M else found.resized(problem, a, b)

    def lend(self, problem: Problem) -> Workspace:
        """Return the memory for the plan of a problem."""
        results = dict.fromkeys(RESULTS, (problem.result, problem.dtype)) if problem.symmetric else {}
        assert self._memory is not None
        self._lent = self._memory.lent(results)
        self._memory.close()  # the plans keep it
        return self._lent


class Choice:
    """A schedule that the plans for some numbers of rows have, why, and the least and the most of these.

    problem: one with the schedule, and with the order that was chosen last.
    """

    def __init__(self, problem: Problem, why: str) -> None:
        self.problem, self.why, self.least, self.most = problem, why, problem.M, problem.M


class Lengths:
    """What such plans share. All PEs have the same plans, so that none asks another one about the next.

    private: results that calls return in turn and no peer writes.
    """

    def __init__(self, problem: Problem) -> None:
        """problem: of any of the plans, as it was asked for. Whether operands are aligned has been agreed on."""
        self.private = InTurnBySize()
        self._problem = problem
        self._choices: list[Choice] = []
        self._most: dict[tuple[str, str, bool], Most] = {}  # by schedule and order, and whether each PE may have rows
        most = room_for(problem.M)
        for rows in (min(most // 2 + 1, most), most):
            self.choose(rows, (problem.a, problem.b))

    def choose(self, M: int, layouts: Any) -> tuple[Problem, str]:
        """Do what selection.choose does for a problem of M rows in all. layouts: of a and b.

        The schedule that is right for two numbers of rows is right between them. Orders that stream tiles change more often.
        """
        for choice in self._choices:
            if choice.least <= M <= choice.most:
                break
        else:
            choice = self._choice(M, layouts)
        problem = with_rows(choice.problem, M, *layouts[:2])
        found, why = ordered(problem, self._problem.options.order, choice.why)
        if found.options is not problem.options:
            choice.problem = found  # most products have the order of the last one
        return found, why

    def _choice(self, M: int, layouts: Any) -> Choice:
        problem, why = scheduled(with_rows(self._problem, M, *layouts[:2]))
        for choice in self._choices:
            if (choice.problem.options.schedule, choice.why) == (problem.options.schedule, why):
                choice.least, choice.most = min(choice.least, M), max(choice.most, M)
                return choice
        self._choices.append(Choice(problem, why))
        return self._choices[-1]

    def most(self, problem: Problem) -> Most | None:
        """Return the steps that serve a problem whose schedule has been chosen; None if only its own do.

        The first ones are for its rows alone; if more rows come, the next ones are for as many as they may be.
        """
        key = problem.options.schedule, problem.options.order, problem.n_pes > problem.M
        found = self._most.get(key)
        if found is not None and found.serves(problem):
            return found
        if not steps_that_serve(problem):
            return None
        more = found is not None
        found = self._most[key] = Most(with_rows(problem, room_for(problem.M)) if more else problem)
        return found
