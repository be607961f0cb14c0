"""Plans of collective kernels. Each launch is planned once for its arguments; the plan, a bound kernel, is cached."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyshmem.diagnosis.event_ring import ring

_MOST = 4096


class _Known(dict[tuple[Any, ...], Any]):
    """Plans by the description of a call. They are bound to device contexts, so they are made again when those change."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    rebind = dict.clear


known = _Known()
ring.holders.add(known)


def remember(key: tuple[Any, ...], plan: Any) -> Any:
    """Cache the plan, and return it."""
    if len(known) >= _MOST:
        known.clear()
    known[key] = plan
    return plan


@cache
def kernels() -> Any:
    """Return pyshmem.kernels.on_stream, which makes plans. It imports triton, which other programs do not need."""
    from pyshmem.kernels import on_stream

    return on_stream
