"""shmem.launch: starts a kernel on all PEs of a team together."""

from __future__ import annotations

from typing import Any

from pyshmem.host.device_context import device_context
from pyshmem.host.teams import Team, member
from pyshmem.kernels.launch import prepare


def launch(
    kernel: Any, grid: Any, args: tuple[Any, ...], team: Team | None, cooperative: bool, options: dict[str, Any]
) -> int:
    """See shmem.launch."""
    group = member("launch", team)
    start = prepare(kernel, grid, (device_context(group, None), *args), cooperative, options, group.launches)
    group.meeting.sync("launch")
    start()
    group.launches += 1
    return group.launches - 1
