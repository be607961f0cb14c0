"""What a program says of its own accesses."""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.check.record.recording import recorder
from pyshmem.check.record.tensors import ranges_of
from pyshmem.check.trace import now


def tell(kind: str, arrays: tuple[Any, ...]) -> None:
    """Record a read ("r") or a write ("w") of torch tensors or NumPy arrays."""
    for array in arrays if not recorder.idle else ():
        tensor = array if isinstance(array, torch.Tensor) else torch.from_numpy(array)
        recorder.write(now(), "acc", "reads" if kind == "r" else "writes", kind, ranges_of(tensor), None)
