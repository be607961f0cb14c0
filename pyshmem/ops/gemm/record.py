"""What was measured on one kind of machine: for each policy a Bloom filter of the shapes that it suits (arXiv 2408.11417).

A shape that was added is always found, so "not in" is certain; "in" may be wrong, rarely. Filters are equal on all machines:
they hash by BLAKE2, not by Python's hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.gemm.orders import POLICIES, STREAM_K, whole_tiles
from pyshmem.ops.gemm.product import Configuration, tiles_of

Shape = tuple[int, int, int]  # m, n, k of one PE's product
LEAST, MOST, STEP = 128, 8192, 64
FORMAT = "pyshmem tile orders 2"
CAPACITY = 4096  # shapes of a filter. More are found too, with more errors
ERROR = 0.01  # the share of unsuitable shapes that a full filter lets pass
SLACK = 0.02  # a policy suits a shape if it takes at most so much longer than the fastest
BITS = math.ceil(-CAPACITY * math.log(ERROR) / math.log(2) ** 2)
HASHES = round(BITS / CAPACITY * math.log(2))


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
        self.filters = {policy: bytearray(-(-BITS // 8)) for policy in POLICIES}

    def add(self, shape: Shape, dtype: torch.dtype, times: Mapping[str, float]) -> None:
        """Put a shape into the filters of the policies that suit it. times: the seconds of each measured policy."""
        for policy in suitable(times):
            for place in _places(shape, dtype):
                self.filters[policy][place // 8] |= 1 << place % 8

    def candidates(self, shape: Shape, dtype: torch.dtype) -> tuple[str, ...]:
        """Return the policies that may suit a shape. The others certainly do not; a shape not measured has none."""
        places = list(_places(shape, dtype))
        return tuple(
            policy
            for policy, bits in self.filters.items()
            if all(bits[place // 8] >> place % 8 & 1 for place in places)
        )

    def save(self, path: str | Path) -> None:
        """Write a JSON file, of 50 KB for any number of shapes."""
        filters = {policy: base64.b64encode(bits).decode() for policy, bits in self.filters.items()}
        content = {"format": FORMAT, "machine": self.machine, "filters": filters}
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
            record.filters = {policy: bytearray(base64.b64decode(content["filters"][policy])) for policy in POLICIES}
        except (ValueError, KeyError, TypeError):
            refuse(ArgumentError, "tuning", "path", f"{path}, another file", f"a file with {FORMAT!r} that save wrote")
        return record


def _places(shape: Shape, dtype: torch.dtype) -> Iterator[int]:
    """The bits of a shape: multiples of one number from another on (Kirsch and Mitzenmacher, ESA 2006)."""
    digest = hashlib.blake2b(f"{shape} {dtype}".encode(), digest_size=16).digest()
    first, step = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
    return ((first + i * step) % BITS for i in range(HASHES))


def suitable(times: Mapping[str, float]) -> list[str]:
    """Return the policies that take at most SLACK longer than the fastest."""
    limit = min(times.values(), default=0.0) * (1 + SLACK)
    return [policy for policy, seconds in times.items() if seconds <= limit]
