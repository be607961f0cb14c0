"""The symmetric memory of a plan of a product."""

from __future__ import annotations

import torch

from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.workspace import Workspace

RESULTS = ("result 0", "result 1")


def workspace_of(problem: Problem, made: Workspace | None, **more: tuple[tuple[int, ...], torch.dtype]) -> Workspace:
    """Return the memory of a plan: two results, if peers write them, and what its schedule wants.

    made: what the plan has already, for operands of another layout. Otherwise it is allocated, collectively over the team.
    """
    if made is not None:
        return made
    results = dict.fromkeys(RESULTS, (problem.result, problem.dtype)) if problem.symmetric else {}
    return Workspace(problem.operator, problem.team, results | more)
