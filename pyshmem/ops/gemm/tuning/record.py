"""What was measured on one kind of machine: times of policies by shape and type, and the filters made of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from pyshmem.ops.gemm.orders.streamed import POLICIES
from pyshmem.ops.gemm.tuning.bloom import Bloom
from pyshmem.ops.gemm.tuning.population import Shape
from pyshmem.runtime.errors import ArgumentError, refuse

FORMAT = "pyshmem tile orders 1"
CAPACITY = 4096  # shapes of a filter. More are found too, with more errors
ERROR = 0.01  # the part of unsuitable shapes that a full filter lets pass
SLACK = 0.02  # a policy suits a shape if it takes at most so much longer than the fastest


class Record:
    """Suitable policies of shapes. machine: what the times were measured on, tile sizes included."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.filters = {policy: Bloom.of_capacity(CAPACITY, ERROR) for policy in POLICIES}
        self.times: dict[str, dict[str, float]] = {}

    def add(self, shape: Shape, dtype: torch.dtype, times: Mapping[str, float]) -> None:
        """Store the seconds of each measured policy, and the suitable ones in their filters."""
        key = key_of(shape, dtype)
        self.times[key] = dict(times)
        for policy in suitable(times):
            self.filters[policy].add(key)

    def candidates(self, shape: Shape, dtype: torch.dtype) -> tuple[str, ...]:
        """Return the policies that may suit a shape. The others certainly do not; none is left of a shape not measured."""
        key = key_of(shape, dtype)
        return tuple(policy for policy, each in self.filters.items() if key in each)

    def fastest(self, shape: Shape, dtype: torch.dtype) -> str | None:
        """Return the fastest candidate whose time is known, or None."""
        times = self.times.get(key_of(shape, dtype), {})
        known = [policy for policy in self.candidates(shape, dtype) if policy in times]
        return min(known, key=times.__getitem__) if known else None

    def save(self, path: str | Path, times: bool = True) -> None:
        """Write a JSON file. times: whether with all times; without them it has the filters alone, some 50 KB."""
        content = {
            "format": FORMAT,
            "machine": self.machine,
            "filters": dict(self._packed()),
            "times": self.times if times else {},
        }
        Path(path).write_text(json.dumps(content, indent=1) + "\n")

    def _packed(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for policy, each in self.filters.items():
            bits = base64.b64encode(each.content).decode()
            yield policy, {"nbits": each.nbits, "hashes": each.hashes, "bits": bits}

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Return what save has written. Errors: ArgumentError if the file is another one; OSError."""
        try:
            content = json.loads(Path(path).read_text())
            if content["format"] != FORMAT:
                raise ValueError(content["format"])
            found = cls(content["machine"])
            for policy, packed in content["filters"].items():
                bits = base64.b64decode(packed["bits"])
                found.filters[policy] = Bloom(packed["nbits"], packed["hashes"], bits)
            found.times = content["times"]
        except (ValueError, KeyError, TypeError):
            refuse(ArgumentError, "tuning", "path", f"{path}, another file", f"a file with {FORMAT!r} that save wrote")
        return found


def key_of(shape: Shape, dtype: torch.dtype) -> str:
    m, n, k = shape
    return f"{m}x{n}x{k} {str(dtype).removeprefix('torch.')}"


def suitable(times: Mapping[str, float]) -> list[str]:
    """Return the policies that take at most SLACK longer than the fastest."""
    limit = min(times.values(), default=0.0) * (1 + SLACK)
    return [policy for policy, seconds in times.items() if seconds <= limit]
