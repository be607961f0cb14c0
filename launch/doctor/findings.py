"""What `pyshmem doctor` finds, the same on all PEs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm


class Finding(NamedTuple):
    """fault: what is wrong, or "".  advice: the setting to try then.  skipped: why it was not examined, or ""."""

    check: str
    fault: str
    advice: str
    note: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        if self.fault:
            return f"{self.check}: FAILED: {self.fault}\n{'':14} try: {self.advice}"
        return f"{self.check}: {f'not examined: {self.skipped}' if self.skipped else f'ok  {self.note}'.rstrip()}"


def gathered(world: Comm, check: str, advice: str, fault: str, note: str = "") -> Finding:
    """Return what the PEs with a fault say. fault: this PE's, or "".  Collective over ``world``."""
    faults = [f"PE {pe}: {text}" for pe, text in enumerate(world.allgather(fault)) if text]
    return Finding(check, "; ".join(faults), advice, note)
