"""Hits in the L2 caches of a GPU of several chiplets, simulated for orders of attention's tiles.

A program makes a tile of 128 queries of a head and loads blocks of 64 keys and their values, one after the other. The GPU
deals programs to chiplets in turn; a processor that has made its tile takes the chiplet's next one. Programs are up to
``drift`` steps late: nothing binds them to each other. Simulated is a chiplet's cache, which replaces what was used longest
ago, during the first tiles of its processors. The orders are those of Choudhary et al., arXiv 2511.02132.
Run: python -m benchmarks.l2_attention [FILE.png, which it draws]
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.l2 import ITEM, MI300X, Gpu, plain
from pyshmem.ops.attention.heads import head_and_tile
from pyshmem.ops.chiplets import renumbered

QUERIES, KEYS, WIDTH = 128, 64, 128  # of a tile, of a block, elements of a head
TURNS = 3  # tiles of a processor
DRIFT = 32


class Shape(NamedTuple):
    """kv_heads: heads of keys, each shared by heads / kv_heads heads of queries."""

    heads: int
    kv_heads: int
    tokens: int

    @property
    def tiles(self) -> int:
        return -(-self.tokens // QUERIES)


SHAPES = (
    Shape(8, 8, 32768), Shape(32, 32, 32768), Shape(128, 128, 8192), Shape(128, 128, 32768), Shape(128, 128, 131072),
    Shape(64, 8, 32768),
)  # fmt: skip
Order = Callable[[Gpu, Shape, int], tuple[int, int]]  # (GPU, shape, program) to (head, tile)


def block_first(gpu: Gpu, shape: Shape, program: int) -> tuple[int, int]:
    """Tiles of one place in all heads follow each other: the naive order."""
    return program % shape.heads, program // shape.heads


def block_first_swizzled(gpu: Gpu, shape: Shape, program: int) -> tuple[int, int]:
    """The same, of the heads that a chiplet has: all chiplets have as many."""
    chiplet, number = program % gpu.chiplets, program // gpu.chiplets
    heads = shape.heads // gpu.chiplets
    return chiplet * heads + number % heads, number // heads


def head_first(gpu: Gpu, shape: Shape, program: int) -> tuple[int, int]:
    return plain(head_and_tile)(program, shape.tiles)  # type: ignore[no-any-return]


def head_first_swizzled(gpu: Gpu, shape: Shape, program: int) -> tuple[int, int]:
    """The order of ops.attention: programs of a chiplet have heads in succession."""
    number = plain(renumbered)(program, shape.heads * shape.tiles, gpu.chiplets)
    return plain(head_and_tile)(number, shape.tiles)  # type: ignore[no-any-return]


ORDERS: dict[str, Order] = {
    "block first": block_first, "block first, swizzled": block_first_swizzled, "head first": head_first,
    "head first, swizzled": head_first_swizzled,
}  # fmt: skip


def loads(gpu: Gpu, order: Order, shape: Shape, drift: int, chiplet: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (head of keys, block) of each load of a chiplet, in the order of time."""
    programs = iter(range(chiplet, shape.heads * shape.tiles, gpu.chiplets))
    processors, depth = gpu.programs // gpu.chiplets, -(-shape.tokens // KEYS)
    shared = shape.heads // shape.kv_heads
    heads, steps, left = [0] * processors, [depth] * processors, TURNS * processors
    while True:
        busy = False
        for processor in range(processors):
            if steps[processor] == depth:
                program = next(programs, None) if left else None
                if program is None:
                    continue
                left -= 1
                heads[processor] = order(gpu, shape, program)[0] // shared
                steps[processor] = -(left * 2654435761 % 4093 % (drift + 1))  # late
            busy = True
            if steps[processor] >= 0:
                yield heads[processor], steps[processor]
            steps[processor] += 1
        if not busy:
            return


def hit_rate(gpu: Gpu, order: Order, shape: Shape, drift: int = DRIFT) -> float:
    """Return the part of the loads that hit."""
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    room = gpu.l2 // (2 * KEYS * WIDTH * ITEM)  # blocks of keys with their values
    hits = total = 0
    for block in loads(gpu, order, shape, drift):
        total += 1
        if block in cache:
            hits += 1
            cache.move_to_end(block)
            continue
        cache[block] = None
        if len(cache) > room:
            cache.popitem(last=False)
    return hits / total


def table(gpu: Gpu = MI300X) -> str:
    """Return the results as Markdown."""
    lines = ["| heads, of keys, tokens | " + " | ".join(ORDERS) + " |", "| --- " * (1 + len(ORDERS)) + "|"]
    return "\n".join(lines + [line_of(gpu, shape) for shape in SHAPES])


def line_of(gpu: Gpu, shape: Shape) -> str:
    """Return a line of the table."""
    cells = [f"{hit_rate(gpu, order, shape):.0%}" for order in ORDERS.values()]
    return f"| {', '.join(map(str, shape))} | " + " | ".join(cells) + " |"


def plot(path: Path, gpu: Gpu = MI300X) -> None:
    """Draw the rates of each order for 8 to 128 heads, by tokens."""
    from benchmarks.plots import pyplot, save

    figure, every = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharey=True)
    tokens = [4096 << i for i in range(6)]
    for axes, heads in zip(every, (8, 32, 128), strict=True):
        for mark, (name, order) in zip("osv^", ORDERS.items(), strict=True):
            rates = [100 * hit_rate(gpu, order, Shape(heads, heads, each)) for each in tokens]
            axes.plot(tokens, rates, marker=mark, markersize=4, label=name)
        axes.set(xscale="log", xlabel="tokens", title=f"{heads} heads", ylim=(0, 100))
        axes.grid(visible=True, alpha=0.3)
    every[0].set(ylabel="hits in L2, %, simulated")
    every[0].legend(fontsize="small")
    figure.suptitle(f"Attention on {gpu.name}, programs up to {DRIFT} steps apart")
    save(figure, path)


if __name__ == "__main__":
    print(table())
    for name in sys.argv[1:]:
        plot(Path(name))
