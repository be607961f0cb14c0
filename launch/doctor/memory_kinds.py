"""What `pyshmem doctor` says of the kinds of memory that AMD GPUs have for heaps: where signals and barriers are faster.

Waits look at words of the heap. Other libraries keep such words in uncached memory, or poll coarse memory by atomics; loads
of coarse memory are right by the vendor's model, and which kind is faster has not been measured.
"""

from __future__ import annotations

import json
from pathlib import Path

KINDS = ("coarse", "uncached")
LEAST = 0.9  # a kind is proposed if a signal and a barrier take less than this part of the time that the other takes
SHARED = "PEs share one GPU, so these are times of its time slices; with one GPU per PE they are those of signals"
Times = dict[str, float]  # microseconds of a signal and of a barrier


def written(path: str, found: Times) -> None:
    Path(path).write_text(json.dumps(found))


def read(path: Path) -> Times | None:
    """Return what a job has written, None if it has ended before."""
    return dict(json.loads(path.read_text())) if path.exists() else None


def said(found: dict[str, Times], chosen: str, shared: bool = False) -> list[str]:
    """Return the lines that compare kinds of memory.

    chosen: the kind that init takes by itself.  shared: whether PEs share a GPU, on which kernels then wait for their turn.
    """
    lines = [SHARED] if shared and found else []
    lines += [
        f"{kind}: " + ", ".join(f"a {name} {us:.1f} us" for name, us in each.items()) for kind, each in found.items()
    ]
    other = next((kind for kind in found if kind != chosen), "")
    if chosen in found and other and not shared:
        better = all(found[other][name] < LEAST * us for name, us in found[chosen].items())
        lines.append(
            f"set PYSHMEM_HIP_MEMORY={other}" if better else f"{chosen} is as good: leave PYSHMEM_HIP_MEMORY unset"
        )
    return lines
