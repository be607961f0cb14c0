"""What `pyshmem doctor` finds, the same on all PEs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm


class Finding(NamedTuple):
    """fault: what is wrong, or "".  advice: the setting to try then."""

    check: str
    fault: str
    advice: str
    note: str = ""


def gathered(world: Comm, check: str, advice: str, fault: str, note: str = "") -> Finding:
    """Return what the PEs with a fault say. fault: this PE's, or "".  Collective over ``world``."""
    faults = [f"PE {pe}: {text}" for pe, text in enumerate(world.allgather(fault)) if text]
    return Finding(check, "; ".join(faults), advice, note)
