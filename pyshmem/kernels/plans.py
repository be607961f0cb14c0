"""Plans of collective kernels. Each launch is planned once for its arguments; the plan is cached."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyshmem.runtime._native import launch_prepared
from pyshmem.runtime.gpu.launch import refuse_launch

_MOST = 4096
known: dict[tuple[Any, ...], Any] = {}


def remember(key: tuple[Any, ...], plan: Any) -> Any:
    """Cache the plan, and return it."""
    if len(known) >= _MOST:
        known.clear()
    known[key] = plan
    return plan


def launch(routine: str, plan: Any, stream: int, dest: int, src: int) -> None:
    """Enqueue the plan's kernel with these two addresses. Errors: LaunchError."""
    require_launched(routine, launch_prepared(plan.prepared, stream, dest, src, *plan.counts))


def require_launched(routine: str, code: int) -> None:
    """Errors: LaunchError if the driver returned an error code."""
    if code:
        refuse_launch(routine, "its kernel", code)


@cache
def kernels() -> Any:
    """Return pyshmem.kernels.on_stream, which makes plans. It imports triton, which other programs do not need."""
    from pyshmem.kernels import on_stream

    return on_stream
