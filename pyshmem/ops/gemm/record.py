"""What was measured on one kind of machine: for each shape the tile orders that suit it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.gemm.orders import POLICIES, STREAM_K, whole_tiles
from pyshmem.ops.gemm.product import Configuration, tiles_of

Shape = tuple[int, int, int]  # m, n, k of one PE's product
LEAST, MOST, STEP = 128, 8192, 64
FORMAT = "pyshmem tile orders 3"
SLACK = 0.02  # a policy suits a shape if it takes at most so much longer than the fastest


def population(count: int, seed: int = 0) -> list[Shape]:
    """Return ``count`` different shapes: m, n and k between 128 and 8192, uniform in their logarithms, multiples of 64.

    The limits are those of the population of Stream-K (arXiv 2301.03598).
    """
    draw = random.Random(seed)
    found: dict[Shape, None] = {}
    while len(found) < count:
        m, n, k = (round(LEAST * (MOST / LEAST) ** draw.random() / STEP) * STEP for _ in range(3))
        found[m, n, k] = None
    return list(found)


def distinct(shape: Shape, row: Configuration, programs: int) -> Mapping[str, int]:
    """Return the policies of Stream-K++ that differ for a shape, with their whole tiles. Of equal ones the first stays."""
    tiles = tiles_of(shape, row)
    found: dict[int, str] = {}
    for policy in STREAM_K:
        found.setdefault(whole_tiles(tiles, programs, POLICIES[policy], row.cuts(shape[2])), policy)
    return {policy: whole for whole, policy in found.items()}


class Record:
    """Suitable policies of shapes. machine: what the times were measured on, tile sizes included."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.policies: dict[str, list[str]] = {}

    def add(self, shape: Shape, dtype: torch.dtype, times: Mapping[str, float]) -> None:
        """Keep the policies that suit a shape. times: the seconds of each measured policy."""
        self.policies[_name(shape, dtype)] = suitable(times)

    def candidates(self, shape: Shape, dtype: torch.dtype) -> tuple[str, ...]:
        """Return the policies that suit a shape. A shape not measured has none."""
        known = self.policies.get(_name(shape, dtype), ())
        return tuple(policy for policy in POLICIES if policy in known)

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        content = {"format": FORMAT, "machine": self.machine, "policies": self.policies}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Return what save has written. Errors: ArgumentError if the file is another one; OSError."""
        try:
            content = json.loads(Path(path).read_text())
            if content["format"] != FORMAT:
                raise ValueError(content["format"])
            record = cls(content["machine"])
            record.policies = dict(content["policies"])
        except (ValueError, KeyError, TypeError):
            refuse(ArgumentError, "tuning", "path", f"{path}, another file", f"a file with {FORMAT!r} that save wrote")
        return record


def _name(shape: Shape, dtype: torch.dtype) -> str:
    return " ".join(map(str, (*shape, dtype)))


def suitable(times: Mapping[str, float]) -> list[str]:
    """Return the policies that take at most SLACK longer than the fastest."""
    limit = min(times.values(), default=0.0) * (1 + SLACK)
    return [policy for policy, seconds in times.items() if seconds <= limit]
