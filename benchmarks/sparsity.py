"""The sparsity roofline: what a pruned network loses in accuracy, and how fast its layers could be on this machine.

Run: python -m benchmarks.sparsity [--batch N] [--picture FILE.png] [--json FILE]. It measures the machine's roofs, prunes a
small network that is trained here on scikit-learn's digits, by three patterns, and predicts its speed-up. Then it holds the
model against kernels: products of larger layers by irregular.spmm and by blocks, with weights that come from memory, since
copies of them take turns. Without a GPU it only tries the method.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from benchmarks import record
from benchmarks.irregular import NO_FIGURES, Clock
from benchmarks.pruned_network import EPOCHS, HIDDEN, PRUNED, SPARSITIES, TUNED, accuracies
from benchmarks.sparsity_kernels import (
    FEW,
    MANY,
    Blocks,
    Tiles,
    blocks_of,
    follow,
    multiply,
    multiply_add,
    nothing,
    read,
    tiles_for,
)
from benchmarks.sparsity_model import PATTERNS, Pattern, Roofs, Work, dense_work, mask, sparse_work
from benchmarks.sparsity_report import draw, kernel_tables, network_table
from pyshmem import irregular

LAYERS, TINY = ((4096, 4096), (8192, 28672)), ((64, 128),)  # outputs and inputs of the layers that are measured
STEPS = 2048  # multiply-adds of each element
HOP, HOPS = 300_007, 200  # numbers between two loads that wait for each other, so that each is from memory; the loads
COLD, COPIES = 3, 128  # copies of weights fill the cache so many times; the most of them
REPEATS = 5  # of a product in a graph, at least
UNITS = {"memory": "TB/s", "cache": "TB/s", "dense": "Tflop/s", "single": "Tflop/s"}
Call = Callable[[], Any]


def measured_roofs(clock: Clock) -> Roofs:
    """Return what reads, torch's product of large matrices, multiply-adds in registers, and an empty kernel reach."""
    device, kind = ("cuda", torch.float16) if clock.gpu else ("cpu", torch.float32)
    large, small, side, programs, steps = (
        (1 << 28, 1 << 22, 8192, 132 * 64, STEPS) if clock.gpu else (4096, 4096, 128, 2, 4)
    )
    a = torch.ones(side, side, dtype=kind, device=device)
    numbers, found = torch.ones(max(large, programs * 2048), device=device), torch.empty(programs, device=device)
    readers = programs // 8 or 1
    calls: dict[str, Call] = {
        "memory": partial(read[(readers,)], numbers, found, large, 1, 4096),
        "cache": partial(read[(readers,)], numbers, found, small, 32, 4096),
        "dense": partial(torch.mm, a, a),
        "single": partial(multiply_add[(programs,)], numbers, steps, 2048),
    }  # fmt: skip
    work = {"memory": 4 * large, "cache": 4 * small * 32, "dense": 2 * side**3, "single": 2 * programs * 2048 * steps}
    seconds = clock.seconds(calls, 2)
    places = (torch.arange(large // 8, device=device, dtype=torch.int32) + HOP) % (large // 8)
    waiting = partial(follow[(1,)], places, torch.zeros(1, dtype=torch.int32, device=device), HOPS, num_warps=1)
    once = clock.seconds({"launch": partial(nothing[(1,)], found), "wait": waiting}, 20)
    return Roofs(
        **{name: work[name] / seconds[name] for name in calls}, launch=once["launch"], wait=once["wait"] / HOPS
    )


def predicted(
    pattern: Pattern, sparsity: float, sizes: Sequence[tuple[int, int]], batch: int, roofs: Roofs,
    seconds: Callable[[Work, Roofs], float] = Work.seconds,
) -> float:  # fmt: skip
    """Return the speed-up of layers of these (outputs, inputs). seconds: Work.bound for that of the second bound."""
    dense = sum(seconds(dense_work(*size, batch), roofs) for size in sizes)
    return dense / sum(seconds(sparse_work(pattern, sparsity, *size, batch), roofs) for size in sizes)


# -- the model against kernels


class Layer(NamedTuple):
    """Pruned weights, (outputs, inputs), in the way of their pattern and as a dense matrix."""

    pattern: Pattern
    sparsity: float
    dense: torch.Tensor

    def operands(self) -> Any:
        """Return the weights for kernels: blocks, or a matrix of pyshmem.irregular with indices of 32 bits."""
        if self.pattern.side:
            return blocks_of(self.dense, self.pattern.side)
        found = self.dense.to_sparse_csr()
        indices = (each.int() for each in (found.crow_indices(), found.col_indices()))
        return irregular.csr(torch.sparse_csr_tensor(*indices, found.values(), found.shape, check_invariants=False))


def layers(clock: Clock) -> Iterator[Layer]:
    device, kind = ("cuda", torch.float16) if clock.gpu else ("cpu", torch.float32)
    for size in LAYERS if clock.gpu else TINY:
        torch.manual_seed(0)
        weights = torch.randn(size, device=device)
        for pattern in PATTERNS:
            for sparsity in SPARSITIES if clock.gpu else SPARSITIES[:1]:
                yield Layer(pattern, sparsity, (weights * mask(weights, pattern, sparsity)).to(kind))


def cold(clock: Clock, weights: Any, nbytes: float) -> list[Any]:
    """Return the weights and copies of them, so that each is out of the cache before it is used again."""
    cache = torch.cuda.get_device_properties().L2_cache_size if clock.gpu else 0
    return [weights] + [copied(weights) for _ in range(min(int(COLD * cache / nbytes), COPIES - 1))]


def copied(weights: Any) -> Any:
    if isinstance(weights, irregular.CSR):
        return irregular.CSR(weights.offsets.clone(), weights.columns.clone(), weights.values.clone(), weights.shape)
    return weights.copy() if isinstance(weights, Blocks) else weights.clone()


def in_turn(clock: Clock, call: Callable[..., Any], weights: Sequence[Any], b: torch.Tensor) -> Call:
    """Return a call that multiplies the next of the weights each time. All of them have been multiplied once then."""
    every = [partial(call, each, b) for each in weights]
    with torch.cuda.stream(clock.stream) if clock.gpu else nullcontext():
        for each in every:
            each()
    clock.wait()
    following = cycle(every)
    return lambda: next(following)()


def describe(tiles: Tiles) -> str:
    return "tiles " + " ".join(map(str, tiles))


def measured(clock: Clock, layer: Layer, held: Any, batch: int) -> dict[str, Any]:
    """Return the speed-up of a layer, whose operands are ``held``, over torch's dense product, with every result checked."""
    (outputs, inputs), pattern = layer.dense.shape, layer.pattern
    b = torch.randn(inputs, batch, device=layer.dense.device).to(layer.dense.dtype)
    wanted = layer.dense.float() @ b.float()
    ways: dict[str, Callable[..., Any]] = {"spmm": irregular.spmm}
    if pattern.side:
        ways = {describe(tiles): partial(multiply, tiles=tiles) for tiles in tiles_for(pattern.side, batch)}
    nbytes = sparse_work(pattern, layer.sparsity, outputs, inputs, 0).nbytes
    dense = cold(clock, layer.dense, layer.dense.nbytes), {"dense": torch.mm}
    seconds: dict[str, float] = {}
    for weights, calls in (dense, (cold(clock, held, nbytes), ways)):
        for name, call in calls.items():
            got, described = call(weights[0], b).float(), f"{pattern.name}, {layer.sparsity:.1%}, by {name}"
            torch.testing.assert_close(got, wanted, rtol=2e-2, atol=0.01 * inputs**0.5, msg=described)
            seconds |= clock.seconds({name: in_turn(clock, call, weights, b)}, max(len(weights), REPEATS))
    best = min(ways, key=seconds.__getitem__)
    return {
        "outputs": outputs, "inputs": inputs, "batch": batch, "pattern": pattern.name, "sparsity": layer.sparsity,
        "by": best, "seconds": seconds[best], "dense": seconds["dense"], "speedup": seconds["dense"] / seconds[best],
    }  # fmt: skip


def beside_the_model(found: dict[str, Any], pattern: Pattern, roofs: Roofs) -> dict[str, Any]:
    """Return what the model says of a measured layer: the roofline, and the bound that also counts inputs and waits."""
    size, sparsity = (found["outputs"], found["inputs"]), found["sparsity"]
    work = sparse_work(pattern, sparsity, *size, found["batch"])
    return {
        "predicted": predicted(pattern, sparsity, [size], found["batch"], roofs),
        "bounded": predicted(pattern, sparsity, [size], found["batch"], roofs, Work.bound),
        "roofline": work.seconds(roofs), "bound": work.bound(roofs),
    }  # fmt: skip


def measure(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Return the roofs, what the network loses, and the kernels beside the model."""
    roofs = measured_roofs(clock)
    dense, right = accuracies(options.epochs, min(options.epochs, TUNED))
    sizes = (HIDDEN, 64), (HIDDEN, HIDDEN)
    points = [
        {"pattern": pattern.name, "family": "n:m" if pattern.of else pattern.name, "sparsity": sparsity,
         "right": right[pattern.name, sparsity],
         "speedup": predicted(pattern, sparsity, sizes, options.batch, roofs._replace(launch=0.0)),
         "launched": predicted(pattern, sparsity, sizes, options.batch, roofs)}
        for pattern, sparsity in PRUNED
    ]  # fmt: skip
    kernels = []
    for layer in layers(clock):
        held = layer.operands()
        for batch in (FEW, MANY) if clock.gpu else (options.batch,):
            found = measured(clock, layer, held, batch)
            kernels.append(found | beside_the_model(found, layer.pattern, roofs))
    return {"roofs": roofs._asdict(), "dense": dense, "points": points, "kernels": kernels}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparsity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--batch", type=int, default=32, metavar="N", help="columns that the network is multiplied with"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, metavar="N", help="of the training before pruning")
    parser.add_argument("--picture", metavar="FILE", help="draw to FILE.png")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse ")  # torch calls its CSR tensors beta
    clock = Clock(9)
    found = measure(options, clock)
    note = torch.cuda.get_device_name() if clock.gpu else "without a GPU: no figures"
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not clock.gpu:
        console.print(NO_FIGURES, style="bold")
    roofs = found["roofs"]
    rates = ", ".join(f"{name} {roofs[name] / 1e12:.4g} {unit}" for name, unit in UNITS.items())
    times = ", ".join(f"a {name} {roofs[name] * 1e6:.2f} µs" for name in ("launch", "wait"))
    console.print(f"roofs of {note}: {rates}, {times}", highlight=False)
    console.print(network_table(found["dense"], found["points"], options.batch))
    for table in kernel_tables(found["kernels"]):
        console.print(table)
    if options.picture:
        draw(options.picture, found["dense"], found["points"], found["kernels"], note)
    if options.json:
        text = json.dumps({"benchmark": "sparsity", **record.facts(), "batch": options.batch, **found}, indent=1)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
