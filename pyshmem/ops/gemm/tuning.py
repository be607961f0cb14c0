"""Which tile order a product takes: policies are measured for shapes, and a record has those that suit each shape.

The policies are those of Stream-K++ (arXiv 2408.11417), see orders. order="auto" uses the
user's record for this machine, or what tune has measured or load has read.
"""

from __future__ import annotations

import hashlib
import statistics
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, DtypeError, refuse
from pyshmem.host.teams import TEAM_WORLD
from pyshmem.kernels.method_tables import architecture, cache_file
from pyshmem.memory.arguments import name_of, require_init
from pyshmem.memory.heap import default
from pyshmem.ops.gemm.gemm_kernel import alone
from pyshmem.ops.gemm.problem import DTYPES, Problem, problem_of
from pyshmem.ops.gemm.product import Product, configuration, tiles_of
from pyshmem.ops.gemm.record import Record, Shape, distinct, population
from pyshmem.ops.machine import device, machine

Timer = Callable[[Shape, torch.dtype, list[str]], dict[str, float]]
Calls = Mapping[str, Callable[[], object]]
UNMEASURED, RAGGED = "data_parallel", "halves"  # the orders of shapes that no record has
EVEN = 0.8  # share of the programs with a tile, over all waves, below which the last wave is streamed
TELL_SECONDS = 10
ROUNDS = 5  # measurements of a policy, in turn with those of the others
STEPS = 4  # kernels in a measurement
AHEAD = 60_000  # cycles of a pause before each measurement, so that its kernels are all enqueued when it begins

_records: dict[torch.dtype, Record | None] = {}


def tune(
    shapes: Iterable[Shape] | None = None, dtype: torch.dtype = torch.bfloat16, path: str | Path | None = None,
    timer: Timer | None = None,
) -> Record:  # fmt: skip
    """Measure the tile orders of products (m, n, k) of one PE. Plans made from now on with order="auto" use the result.

    shapes: by default a population of 1024.  path: PE 0 writes the result there as JSON.
    timer: returns the seconds of each of the given policies for a shape and a type; by default they are measured on the GPU.
    Returns: the record of all shapes measured for the type so far. A policy suits a shape by the times of the slowest PE.
    Order: collective over all PEs. PE 0 says every ten seconds how many shapes are measured.
    Errors: ArgumentError, DtypeError, NotInitializedError; nothing was measured then.
    Spec: none.
    """
    require_init("tune")
    wanted = population(1024) if shapes is None else [_shape(each) for each in shapes]
    if dtype not in DTYPES:
        refuse(DtypeError, "tune", "dtype", str(dtype), "one of " + ", ".join(map(str, DTYPES)))
    row, programs = configuration(machine().arch, dtype, None), machine().programs
    if timer is None and not default().streams:
        refuse(ArgumentError, "tune", "timer", "None without a GPU", "a GPU, or a function that returns times")
    most = max((tiles_of(each, row) for each in wanted), default=1)
    measure = ProductTimer(most, gpu_clock) if timer is None else timer
    found = _records[dtype] = _records.get(dtype) or Record(machine_name(dtype))
    told = monotonic()
    for number, shape in enumerate(wanted):
        told = _tell(told, number, len(wanted))
        policies = list(distinct(shape, row, programs))
        found.add(shape, dtype, _slowest(measure(shape, dtype, policies)))
    if isinstance(measure, ProductTimer):
        measure.close()
    if path is not None and TEAM_WORLD.me == 0:
        found.save(path)
    return found


def load(path: str | Path, dtype: torch.dtype = torch.bfloat16) -> Record:
    """Use what tune has written. Plans made from now on with order="auto" use it.

    dtype: the type that was tuned.
    Errors: ArgumentError if it is another file, was measured on another machine, or differs between the PEs; OSError.
    Collective over all PEs.
    """
    require_init("load")
    found = Record.read(path)
    here = machine_name(dtype)
    if found.machine != here:
        refuse(ArgumentError, "load", "path", f"{path}, measured on {found.machine}", f"one measured on {here}")
    notes = TEAM_WORLD.meeting.share("load", hashlib.sha256(Path(path).read_bytes()).digest())
    for pe, note in enumerate(notes):
        if note != notes[0]:
            refuse(ArgumentError, "load", "path", f"another file on PE {pe} than on PE 0", "one file for all PEs")
    _records[dtype] = found
    return found


def forget() -> None:
    """Use no record any more."""
    _records.update(dict.fromkeys(DTYPES))


def cached(dtype: torch.dtype) -> Path:
    """Return the file from which a record for this kind of GPU is read without load: `pyshmem tune` writes it."""
    return cache_file(f"{architecture()}_{name_of(dtype)}", "tile_orders")


def _record(dtype: torch.dtype) -> Record | None:
    """Return the record in use. PEs that have read different files are told of the different orders of a plan."""
    if dtype not in _records:
        own = cached(dtype) if default().streams else None
        found = Record.read(own) if own and own.is_file() else None
        _records[dtype] = found if found and found.machine == machine_name(dtype) else None
    return _records[dtype]


def candidates(shape: Shape, dtype: torch.dtype = torch.bfloat16) -> tuple[str, ...]:
    """Return the policies that suit a product (m, n, k) by the record in use; none if the shape was not measured."""
    found = _record(dtype)
    return () if found is None else found.candidates(_shape(shape), dtype)


def _unmeasured(shape: Shape, dtype: torch.dtype, reason: str) -> tuple[str, str]:
    """Return (policy, why) where no times are known: stream the last wave if few of its programs would have a tile."""
    here = machine()
    row, programs = configuration(here.arch, dtype, None), here.programs
    tiles = tiles_of(shape, row)
    even = tiles >= EVEN * programs * -(-tiles // programs)
    return (
        (UNMEASURED, reason)
        if even or not row.cuts(shape[2])
        else (RAGGED, f"{reason}, and the last wave has few tiles")
    )


def order_for(shape: Shape, dtype: torch.dtype) -> tuple[str, str]:
    """Return (policy, why) for a product (m, n, k) of one PE."""
    found = _record(dtype)
    if found is None:
        return _unmeasured(shape, dtype, "no tile orders were measured")
    able = found.candidates(shape, dtype)
    if able:
        return able[0], f"the first of {len(able)} that suit"
    return _unmeasured(shape, dtype, "the tile orders of this shape were not measured")


def order_of(problem: Problem) -> tuple[str, str]:
    """Return (policy, why) for a problem, by the largest product of a PE, so that it is the same on all of them."""
    if problem.options.tile is not None:
        return UNMEASURED, "tile orders are measured for the tiles of the table"
    return order_for(problem.largest, problem.a.dtype)


def _tell(told: float, number: int, total: int) -> float:
    """Print how far tune is, on PE 0 and every ten seconds. Return when it was told last."""
    now = monotonic()
    if now - told < TELL_SECONDS:
        return told
    if TEAM_WORLD.me == 0:
        print(f"pyshmem: tune has measured {number} of {total} shapes", file=sys.stderr, flush=True)
    return now


def _shape(given: Any) -> Shape:
    """Errors: ArgumentError."""
    if not isinstance(given, (tuple, list)) or len(given) != 3 or not all(type(i) is int and i > 0 for i in given):
        refuse(ArgumentError, "tune", "shapes", repr(given), "(m, n, k), ints of 1 or more")
    return given[0], given[1], given[2]


def _slowest(mine: dict[str, float]) -> dict[str, float]:
    """The longest time of any PE for each policy. Collective over all PEs, which have measured the same policies."""
    form = f"<{len(mine)}d"
    notes = TEAM_WORLD.meeting.share("tune", struct.pack(form, *mine.values()))
    return dict(zip(mine, map(max, zip(*(struct.unpack(form, note) for note in notes), strict=True)), strict=True))


class ProductTimer:
    """Measures products of random operands that lie in memory as nn.Linear's do: both along K."""

    def __init__(self, tiles: int, clock: Callable[[Calls], dict[str, float]]) -> None:
        """tiles: at most so many are streamed.  clock: returns the seconds of each call. Collective over all PEs."""
        self._clock = clock
        self._words = shmem.zeros(max(tiles, 1), dtype=torch.uint64)
        self._made: dict[Any, torch.Tensor] = {}

    def __call__(self, shape: Shape, dtype: torch.dtype, policies: Iterable[str]) -> dict[str, float]:
        """Return the median seconds of the product under each policy."""
        m, n, k = shape
        a, b, out = self._matrix("a", m, k, dtype), self._matrix("b", n, k, dtype).T, self._matrix("c", m, n, dtype)
        problem = problem_of("gemm_all_gather", a, b, TEAM_WORLD, "rows", {})
        kernels = {policy: self._kernel(problem, policy, a, b) for policy in policies}
        return self._clock({policy: partial(kernel, a, b, out) for policy, kernel in kernels.items()})

    def _kernel(self, problem: Problem, policy: str, a: torch.Tensor, b: torch.Tensor) -> Any:
        product = Product(problem, policy, problem.m, problem.a, False)
        return alone(product, a, b, 0, 0, self._words)

    def _matrix(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """A contiguous part of memory that is kept from shape to shape and grows with them."""
        held = self._made.get((name, dtype))
        if held is None or held.numel() < rows * columns:
            held = torch.randn(rows * columns, dtype=dtype, device=device())
            self._made[name, dtype] = held
        return held[: rows * columns].view(rows, columns)

    def close(self) -> None:
        """Free the symmetric memory. Collective over all PEs."""
        shmem.free(self._words)


def gpu_clock(calls: Calls) -> dict[str, float]:
    """Return the median seconds of each call on torch's current stream. The calls are measured in turn, in ROUNDS rounds."""
    for call in calls.values():
        call()
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda._sleep(AHEAD)  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(STEPS):
                call()
            end.record()
            marks[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(begin.elapsed_time(end) for begin, end in pairs) / 1e3 / STEPS
        for name, pairs in marks.items()
    }


def machine_name(dtype: torch.dtype) -> str:
    """Return what a record's times depend on: the GPU, its programs, and the tiles of the type."""
    here = machine()
    row = configuration(here.arch, dtype, None)
    gpu = torch.cuda.get_device_name() if default().streams else "CPU"
    return f"{gpu}, {here.programs} programs, tiles {row.BM} x {row.BN} x {row.BK}"
