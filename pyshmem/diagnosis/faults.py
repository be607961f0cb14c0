"""Faults that kernels have recorded: what finds them registers here, and finalize asks once more before it ends."""

from __future__ import annotations

from collections.abc import Callable

checks: list[Callable[[], None]] = []  # each raises the fault that it knows of, if there is one


def raise_recorded() -> None:
    """Errors: that of a check."""
    for check in checks:
        check()
