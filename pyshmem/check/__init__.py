"""The checker of the memory model: ``pyshmemrun --check`` reports accesses that nothing orders, with both lines.

A program tells it about accesses that it cannot see, those of NumPy, with ``reads`` and ``writes``. Without --check both
do nothing.
"""

from __future__ import annotations

from typing import Any

from pyshmem.base.environment import setting as _setting

active = bool(_setting("PYSHMEM_RACE_TRACES")[0])
scheduled = bool(_setting("PYSHMEM_SCHEDULE")[0])


def reads(*arrays: Any) -> None:
    """Say that the program reads these symmetric arrays now, or views of them."""
    _tell("r", arrays)


def writes(*arrays: Any) -> None:
    """Say that the program writes these symmetric arrays now, or views of them."""
    _tell("w", arrays)


def _tell(kind: str, arrays: tuple[Any, ...]) -> None:
    if active:
        from pyshmem.check.record.telling import tell

        tell(kind, arrays)
