"""Hits in the L2 caches of a GPU of several chiplets, simulated for the tile orders of pyshmem.ops.

A program loads a block of each operand in each step of its K loop. Programs are dealt to chiplets in turn, and each chiplet
has a cache of its own, which replaces what was used longest ago. Programs step together, each up to ``drift`` steps late.
Run: python -m benchmarks.l2. benchmarks.l2_attention is about the orders of attention's tiles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyshmem.ops.chiplets import renumbered
from pyshmem.ops.gemm.configurations import Configuration
from pyshmem.ops.gemm.orders.grouped import tile_at

ITEM = 2  # bytes of an element
Load = tuple[str, int, int]  # operand, block of its rows or columns, block of K


class Gpu(NamedTuple):
    name: str
    programs: int
    chiplets: int
    l2: int  # bytes of each chiplet's


class Order(NamedTuple):
    """group: rows of tiles in a band.  renumbers: whether programs are renumbered by chiplet."""

    name: str
    group: int
    renumbers: bool


MI300X = Gpu("MI300X (gfx942)", 304, 8, 4 << 20)
TILES = Configuration(128, 256, 64, 8, 2)
ORDERS = (
    Order("by rows", 1, False),
    Order("by rows, renumbered", 1, True),
    Order("grouped", 8, False),
    Order("grouped, renumbered", 8, True),
)
SHAPES = ((4096, 4096, 4096), (8192, 8192, 4096), (8192, 8448, 4096), (4864, 4096, 4096), (16384, 4096, 2048))
DRIFT = 2


def tiles_of(gpu: Gpu, order: Order, m: int, n: int, row: Configuration) -> list[list[tuple[int, int]]]:
    """Return the (row, column) of the tiles that each program makes, by the number that the GPU gave the program."""
    high, wide = -(-m // row.BM), -(-n // row.BN)
    found = []
    for program in range(gpu.programs):
        first = plain(renumbered)(program, gpu.programs, gpu.chiplets if order.renumbers else 1)
        indices = range(first, high * wide, gpu.programs)
        found.append([plain(tile_at)(index, high, wide, order.group) for index in indices])
    return found


def plain(kernel: Any) -> Any:
    """The Python function of a kernel's function: the orders compute with integers alone."""
    return kernel.fn


def loads(
    gpu: Gpu, order: Order, shape: tuple[int, int, int], row: Configuration, drift: int
) -> Iterator[tuple[int, Load]]:
    """Yield (chiplet, block) of each load, in the order of time."""
    m, n, k = shape
    depth, tiles = -(-k // row.BK), tiles_of(gpu, order, m, n, row)
    late = [program * 7 % (drift + 1) for program in range(gpu.programs)]
    for step in range(max(map(len, tiles)) * depth + drift):
        for program, made in enumerate(tiles):
            turn, block = divmod(step - late[program], depth)
            if 0 <= turn < len(made):
                i, j = made[turn]
                yield program % gpu.chiplets, ("a", i, block)
                yield program % gpu.chiplets, ("b", j, block)


def hit_rate(
    gpu: Gpu, order: Order, shape: tuple[int, int, int], row: Configuration = TILES, drift: int = DRIFT
) -> tuple[float, int]:
    """Return (the part of the loads that hit, the bytes loaded from beyond the caches)."""
    nbytes = {"a": row.BM * row.BK * ITEM, "b": row.BN * row.BK * ITEM}
    caches: list[OrderedDict[Load, None]] = [OrderedDict() for _ in range(gpu.chiplets)]
    used = [0] * gpu.chiplets
    hits = total = missed = 0
    for chiplet, block in loads(gpu, order, shape, row, drift):
        cache = caches[chiplet]
        total += 1
        if block in cache:
            hits += 1
            cache.move_to_end(block)
            continue
        missed += nbytes[block[0]]
        cache[block] = None
        used[chiplet] += nbytes[block[0]]
        while used[chiplet] > gpu.l2:
            used[chiplet] -= nbytes[cache.popitem(last=False)[0][0]]
    return hits / total, missed


def table(gpu: Gpu = MI300X) -> str:
    """Return the results as Markdown."""
    lines = ["| M, N, K | " + " | ".join(order.name for order in ORDERS) + " |", "| --- " * (1 + len(ORDERS)) + "|"]
    for shape in SHAPES:
        found = [hit_rate(gpu, order, shape) for order in ORDERS]
        cells = [f"{rate:.0%}, {missed / 1e9:.2f} GB" for rate, missed in found]
        lines.append(f"| {', '.join(map(str, shape))} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
