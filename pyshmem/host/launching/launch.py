"""shmem.launch: starts a kernel on all PEs of a team together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from triton.runtime.autotuner import Autotuner, Config, Heuristics

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.device_context import device_context
from pyshmem.host.launching.grids import Grid
from pyshmem.host.launching.tuning import choice
from pyshmem.host.partitioned import PartitionedTensor
from pyshmem.host.teams import Team, member
from pyshmem.kernels.launch import prepare


class _Launch(NamedTuple):
    """What a launch is, but for the kernel."""

    group: Team
    grid: Any
    values: tuple[Any, ...]
    cooperative: bool

    def prepared(self, kernel: Any, options: dict[str, Any]) -> Callable[[], None]:
        """Compile ``kernel`` with the arguments that its decorators of Triton give it. Return what starts it."""
        inner, options = undecorated(kernel, self.values, options, self._choice)
        programs, own = self.grid, None
        if isinstance(self.grid, Grid):
            programs, own = self.grid.programs, self.grid.own
        start: Callable[[], None] = prepare(
            inner, programs, own, self.values, self.cooperative, options, self.group.launches
        )
        return start

    def _choice(self, tuner: Autotuner, named: dict[str, Any], options: dict[str, Any]) -> Config:
        def configured(config: Config) -> Callable[[], None]:
            return self.prepared(tuner.fn, {**options, **config.all_kwargs()})

        return choice(tuner, named, options, self.group, configured)


def undecorated(
    kernel: Any, values: tuple[Any, ...], options: dict[str, Any], pick: Callable[..., Config]
) -> tuple[Any, dict[str, Any]]:
    """Return the kernel inside triton.autotune and heuristics, and ``options`` with the arguments that they give it.

    pick: takes an Autotuner, all arguments by name and the options; returns its configuration.
    """
    while isinstance(kernel, Heuristics | Autotuner):
        named = {**dict(zip(kernel.arg_names, values, strict=False)), **options}
        if isinstance(kernel, Heuristics):
            found: dict[str, Any] = {}
            for name, rule in kernel.values.items():
                found[name] = rule({**named, **found})
        else:
            config = pick(kernel, named, options)
            found = config.all_kwargs()
            if config.pre_hook:
                config.pre_hook({**named, **found})
        kernel, options = kernel.fn, {**options, **found}
    return kernel, options


def launch(
    kernel: Any, grid: Any, args: tuple[Any, ...], team: Team | None, cooperative: bool, options: dict[str, Any]
) -> int:
    """See shmem.launch."""
    group = member("launch", _team_of(grid, team))
    values = (device_context(group, None), *map(operand, args))
    named = {name: operand(value) for name, value in options.items()}
    start = _Launch(group, grid, values, cooperative).prepared(kernel, named)
    group.meeting.sync("launch")
    start()
    group.launches += 1
    return group.launches - 1


def operand(value: Any) -> Any:
    """Return what a kernel takes for an argument: for a partitioned tensor its partition."""
    return value.partition if isinstance(value, PartitionedTensor) else value


def _team_of(grid: Any, team: Team | None) -> Team | None:
    if not isinstance(grid, Grid) or grid.team is None:
        return team
    if team is not None and team != grid.team:
        refuse(ArgumentError, "launch", "team", repr(team), f"that of the grid's partition, {grid.team!r}")
    return grid.team
