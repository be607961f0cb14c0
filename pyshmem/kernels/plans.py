"""What calls that are kernels were found to need, remembered by what they were called with."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyshmem.runtime import _native
from pyshmem.runtime.errors import LaunchError, refuse

_MOST = 4096
known: dict[tuple[Any, ...], Any] = {}


def remember(key: tuple[Any, ...], plan: Any) -> Any:
    """Keep the plan, and give it back."""
    if len(known) >= _MOST:
        known.clear()
    known[key] = plan
    return plan


def launch(routine: str, plan: Any, stream: int, dest: int, src: int) -> None:
    """Enqueue what the plan says with these two addresses. Errors: LaunchError."""
    require_launched(routine, _native.launch_prepared(plan.prepared, stream, dest, src, *plan.counts))


def require_launched(routine: str, code: int) -> None:
    """Errors: LaunchError where the driver has answered a code but 0."""
    if code:
        refuse(LaunchError, routine, "stream", f"{code} from the driver", "a launch that succeeds")


@cache
def kernels() -> Any:
    """pyshmem.kernels.on_stream, which makes plans. It imports triton, which other programs do not need."""
    from pyshmem.kernels import on_stream

    return on_stream
