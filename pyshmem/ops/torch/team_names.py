"""Names of teams. The schema of a torch operator has room for a string, but not for a Team.

Operators get a team's handle: its name with this PE's number and the number of PEs, as in "world 1/4". Compilers keep their
results in files for later jobs. So what the shapes of results depend on must be among an operator's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch.library import custom_op

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.ops import autocast
from pyshmem.ops.gradients import transformed

__all__ = ["name_team"]

WORLD = "world"
Cast = Callable[..., tuple[Any, ...]]
_teams: dict[str, Team] = {}
calls = SimpleNamespace()  # what operators do, by their names: ranges, also where compiled code calls them


def name_team(name: str, team: Team) -> str:
    """Let torch operators find ``team`` by ``name``, and return the name. All members give the team the same one.

    name: any string but "world", which is TEAM_WORLD's. It can be given again once its team is destroyed.
    team: a team of this PE.
    Errors: ArgumentError, NotInitializedError.
    """
    member("name_team", team)
    if type(name) is not str or not name:
        refuse(ArgumentError, "name_team", "name", repr(name), "a string that is not empty")
    if name == WORLD or (_teams.get(name) and _teams[name] is not team):
        refuse(ArgumentError, "name_team", "name", repr(name), "a name that no other live team has")
    _teams[name] = team
    return name


@torch.compiler.assume_constant_result
def handle_of(name: str, routine: str = "ops.torch") -> str:
    """Return the handle of the team of this name. Errors: ArgumentError, NotInitializedError."""
    team = _found(routine, name, name)
    return f"{name} {team.me}/{team.size}"


def team_of(routine: str, handle: str) -> Team:
    """Return the team of a handle. Errors: ArgumentError if there is none such in this job, NotInitializedError."""
    name, _, numbers = handle.rpartition(" ")
    if not name:
        wants = "a handle such as 'world 0/2', which the function of pyshmem.ops.torch makes of a team's name"
        refuse(ArgumentError, routine, "team", repr(handle), wants)
    team = _found(routine, name, handle)
    if numbers != f"{team.me}/{team.size}":
        refuse(
            ArgumentError, routine, "team", repr(handle), f"{handle_of(name)!r}: the code was compiled for another job"
        )
    return team


def _found(routine: str, name: str, given: str) -> Team:
    team = TEAM_WORLD if name == WORLD else _teams.get(name)
    if team is None or (not team and team is not TEAM_WORLD):
        refuse(ArgumentError, routine, "team", repr(given), "'world', or what name_team returned for a live team")
    return member(routine, team)


class ByHandle:
    """Calls torch.ops.pyshmem.* by their names on a team, as the formulas of gradients do."""

    def __init__(self, handle: str) -> None:
        self._handle = handle

    @property
    def team(self) -> Team:
        return team_of("backward", self._handle)

    def __call__(self, name: str, *operands: Any, after: torch.Tensor | None = None, **options: Any) -> Any:
        """after: of gather_rows. It is no operand, so a second backward must not follow it."""
        if after is not None:
            options["after"] = after.detach()
        return getattr(torch.ops.pyshmem, name)(*operands, **options, team=self._handle)


def needed_of(inputs: tuple[Any, ...]) -> tuple[bool, ...]:
    """Return which operands require a gradient. In a second backward torch's ctx.needs_input_grad lacks its last entry."""
    return tuple(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)


def operator(
    *mutated: str, cast: Cast | None = None, differentiable: bool = False, first: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as operator pyshmem::<its name>. It gets ``team``, its last argument, by the handle.

    mutated: the arguments that it writes.  cast: what autocast makes of the first three.  differentiable: within torch.func
    the function itself is called, since torch takes no gradients of torch.library there.  first: users get the first of
    its results, and the others are for its gradients. Returns what users call.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        routine = function.__name__
        setattr(calls, routine, function)

        @wraps(function)
        def perform(*operands: Any, **options: Any) -> Any:
            return getattr(calls, routine)(*operands, **options)

        registered = custom_op(f"pyshmem::{routine}", perform, mutates_args=mutated)
        names = tuple(signature(function).parameters)

        @wraps(function)
        def call(*operands: Any, team: str = WORLD, **options: Any) -> Any:
            if cast is not None and autocast.enabled() and len(operands) <= len(names):
                options |= zip(names, operands, strict=False)
                found = [name for name in names[:3] if name in options]
                options |= zip(found, cast(*(options[name] for name in found)), strict=True)
                operands = ()
            within = differentiable and not torch.compiler.is_compiling() and transformed(*operands, *options.values())
            found = (perform if within else registered)(*operands, **options, team=handle_of(team, routine))
            return found[0] if first else found

        return call

    return register
