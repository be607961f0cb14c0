"""Partitioned tensors on disk: a folder with the layout, and the part of each PE as a file of NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.host.partitioned.layout import Cut, Layout
from pyshmem.host.partitioned.moves import bits
from pyshmem.memory.arguments import name_of

_LAYOUT = "layout.json"


def write(folder: Path, layout: Layout, pe: int, part: torch.Tensor) -> None:
    """Write the part of ``pe``, and as PE 0 the layout. Types that NumPy lacks are written as integers of their size."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(_part(folder, pe), _plain(part.cpu()).numpy())
    if pe == 0:
        description = {
            "dtype": name_of(part.dtype),
            **{name: getattr(layout, name) for name in ("shape", "mesh", "dims", "cuts")},
        }
        (folder / _LAYOUT).write_text(json.dumps(description))


def read_layout(folder: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Layout:
    """Return the layout of what was written. Errors: ArgumentError, DtypeError if it is of another shape or type."""
    told: dict[str, Any] = json.loads((folder / _LAYOUT).read_text())
    if tuple(told["shape"]) != shape:
        refuse(ArgumentError, "load", "folder", f"a tensor of shape {tuple(told['shape'])}", f"one of {shape}")
    if told["dtype"] != name_of(dtype):
        refuse(
            DtypeError, "load", "folder", f"{told['dtype']} elements", f"{name_of(dtype)}: no casting between arrays"
        )
    cuts = tuple(Cut(*cut) for cut in told["cuts"])
    return Layout(tuple(told["shape"]), tuple(told["mesh"]), tuple(told["dims"]), cuts)


def read(folder: Path, pe: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the part of ``pe``, mapped: only what is used of it is read."""
    return torch.from_numpy(np.load(_part(folder, pe), mmap_mode="c")).view(dtype)


def _part(folder: Path, pe: int) -> Path:
    return folder / f"part-{pe}.npy"


def _plain(part: torch.Tensor) -> torch.Tensor:
    lacking = part.dtype.is_floating_point and part.dtype.itemsize < 4 and part.dtype is not torch.float16
    return bits(part) if lacking else part
