"""shmem.launch: starts a kernel on all PEs of a team together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from triton.runtime.autotuner import Autotuner, Config, Heuristics

from pyshmem.host.device_context import device_context
from pyshmem.host.grids import Grid
from pyshmem.host.partitioned import PartitionedTensor
from pyshmem.host.teams import Team, member
from pyshmem.host.tuning import choice
from pyshmem.kernels.launch import prepare
from pyshmem.runtime.errors import ArgumentError, refuse


class _Launch(NamedTuple):
    """What a launch is, but for the kernel."""

    group: Team
    grid: Any
    values: tuple[Any, ...]
    cooperative: bool

    def prepared(self, kernel: Any, options: dict[str, Any]) -> Callable[[], None]:
        """Compile ``kernel`` with the arguments that its decorators of Triton give it. Return what starts it."""
        if isinstance(kernel, Heuristics | Autotuner):
            named = {**dict(zip(kernel.arg_names, self.values, strict=False)), **options}
            return self._decorated(kernel, options, named)
        programs, own = self.grid, None
        if isinstance(self.grid, Grid):
            programs, own = self.grid.programs, self.grid.own
        start: Callable[[], None] = prepare(
            kernel, programs, own, self.values, self.cooperative, options, self.group.launches
        )
        return start

    def _decorated(self, kernel: Any, options: dict[str, Any], named: dict[str, Any]) -> Callable[[], None]:
        if isinstance(kernel, Heuristics):
            found: dict[str, Any] = {}
            for name, rule in kernel.values.items():
                found[name] = rule({**named, **found})
            return self.prepared(kernel.fn, {**options, **found})
        config = choice(kernel, named, options, self.group, lambda each: self._configured(kernel, options, each))
        if config.pre_hook:
            config.pre_hook({**named, **config.all_kwargs()})
        return self._configured(kernel, options, config)

    def _configured(self, tuner: Autotuner, options: dict[str, Any], config: Config) -> Callable[[], None]:
        return self.prepared(tuner.fn, {**options, **config.all_kwargs()})


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
