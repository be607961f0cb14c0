"""The symmetric memory of a plan of a product."""

from __future__ import annotations

import torch

from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.workspace import Workspace

RESULTS = ("result 0", "result 1")


def workspace_of(
    problem: Problem, made: Workspace | None, alike: tuple[int, ...] | None = (),
    **more: tuple[tuple[int, ...], torch.dtype],
) -> Workspace:  # fmt: skip
    """Return the memory of a plan: two results, if peers write them, and what its schedule wants.

    made: what the plan has already, for operands of another layout. Otherwise it is allocated, collectively over the team,
        or it is that of a plan for other rows, which may be shared if no PE writes to it before all PEs have ended the
        call before.
    alike: what such plans must have in common, beside operator, options, types, N and K; None: they do not share memory.
    """
    if made is not None:
        return made
    results = dict.fromkeys(RESULTS, (problem.result, problem.dtype)) if problem.symmetric else {}
    kind: tuple[object, ...] = ()
    if alike is not None:
        options = problem.options._replace(size=None)
        kind = (problem.N, problem.n, problem.K, problem.a.dtype, problem.b.dtype, problem.scaling, problem.split)
        kind = (*kind, options, *alike)
    return Workspace(problem.operator, problem.team, results | more, kind)
