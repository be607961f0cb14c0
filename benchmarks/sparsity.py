"""The sparsity roofline: what a pruned network loses in accuracy, and how fast its layers could be on this machine.

Run: python -m benchmarks.sparsity [--batch N] [--picture FILE.png] [--json FILE]. It measures the machine's roofs, prunes a
small network that is trained here on scikit-learn's digits, by three patterns, and predicts its speed-up. Then it holds the
model against kernels: products of a larger layer by irregular.spmm and by blocks. Without a GPU it only tries the method.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import record
from benchmarks.irregular import NO_FIGURES, Clock
from benchmarks.pruned_network import EPOCHS, HIDDEN, PRUNED, TUNED, accuracies
from benchmarks.sparsity_kernels import blocks_of, multiply, multiply_add
from benchmarks.sparsity_model import ANY, BLOCKS, Pattern, Roofs, dense_work, mask, sparse_work
from pyshmem import irregular

LAYER, TINY = 4096, 64  # outputs and inputs of the layer that is measured
SCHEDULES = ("row_split", "row_blocks", "nonzero_split")  # of irregular.spmm; the fastest counts
STEPS = 2048  # multiply-adds of each element


def measured_roofs(clock: Clock) -> Roofs:
    """Return what copies, torch's product of large matrices, and multiply-adds in registers reach."""
    device, kind = ("cuda", torch.float16) if clock.gpu else ("cpu", torch.float32)
    count, side, programs, steps = (1 << 28, 8192, 132 * 64, STEPS) if clock.gpu else (1 << 16, 128, 2, 4)
    source, target = (torch.ones(count, device=device) for _ in range(2))
    a = torch.ones(side, side, dtype=kind, device=device)
    numbers = torch.ones(programs * 2048, device=device)
    calls: dict[str, Callable[[], Any]] = {
        "memory": partial(target.copy_, source), "dense": partial(torch.mm, a, a),
        "single": partial(multiply_add[(programs,)], numbers, steps, 2048),
    }  # fmt: skip
    work = {"memory": 2 * source.nbytes, "dense": 2 * side**3, "single": 2 * numbers.numel() * steps}
    seconds = clock.seconds(calls, 2)
    return Roofs(*(work[name] / seconds[name] for name in Roofs._fields))


def predicted(pattern: Pattern, sparsity: float, sizes: Sequence[tuple[int, int]], batch: int, roofs: Roofs) -> float:
    """Return the speed-up of layers of these (outputs, inputs)."""
    dense = sum(dense_work(*size, batch).seconds(roofs) for size in sizes)
    return dense / sum(sparse_work(pattern, sparsity, *size, batch).seconds(roofs) for size in sizes)


# -- the model against kernels


def measured(clock: Clock, batch: int) -> list[dict[str, Any]]:
    """Return the speed-ups over torch's dense product of a layer, measured, with every result checked."""
    device, kind, side = ("cuda", torch.float16, LAYER) if clock.gpu else ("cpu", torch.float32, TINY)
    torch.manual_seed(0)
    weights, b = torch.randn(side, side, device=device), torch.randn(side, batch, device=device).to(kind)
    found = []
    for pattern, sparsity in PRUNED:
        if pattern.of:
            continue  # there is no kernel of it here
        pruned = (weights * mask(weights, pattern, sparsity)).to(kind)
        wanted = pruned.float() @ b.float()
        calls: dict[str, Callable[[], Any]] = {"dense": partial(torch.mm, pruned, b)}
        if pattern.side:
            calls["blocks"] = partial(multiply, blocks_of(pruned, pattern.side), b)
        else:
            matrix = irregular.csr(pruned.to_sparse_csr())
            calls |= {name: partial(irregular.spmm, matrix, b, name) for name in SCHEDULES[: 3 if clock.gpu else 1]}
        for name, call in calls.items():
            torch.testing.assert_close(call().float(), wanted, rtol=2e-2, atol=0.5, msg=f"{pattern.name} by {name}")
        seconds = clock.seconds(calls, 10)
        best = min((name for name in calls if name != "dense"), key=seconds.__getitem__)
        found.append({
            "pattern": pattern.name, "sparsity": sparsity, "by": best, "seconds": seconds[best],
            "dense": seconds["dense"], "speedup": seconds["dense"] / seconds[best],
        })  # fmt: skip
    return found


# -- the report


def network_table(dense: float, points: Sequence[dict[str, Any]], batch: int) -> Table:
    title = (
        f"digits, 64 x {HIDDEN} x {HIDDEN} x 10, {dense:.1%} right with all weights: the pruned layers, {batch} columns"
    )
    made = Table(title=title)
    for name in ("pattern", "sparsity", "right", "predicted speed-up"):
        made.add_column(name, justify="right")
    for each in points:
        made.add_row(each["pattern"], f"{each['sparsity']:.1%}", f"{each['right']:.1%}", f"{each['speedup']:.2f}")
    return made


def kernel_table(found: Sequence[dict[str, Any]], batch: int, side: int) -> Table:
    made = Table(title=f"a layer of {side} x {side} times {batch} columns: the model against kernels")
    for name in ("pattern", "sparsity", "dense, µs", "sparse, µs", "by", "speed-up", "predicted", "of the roofline"):
        made.add_column(name, justify="right")
    for each in found:
        times = (f"{each[name] * 1e6:.1f}" for name in ("dense", "seconds"))
        shares = f"{each['speedup']:.2f}", f"{each['predicted']:.2f}", f"{each['roofline'] / each['seconds']:.0%}"
        made.add_row(each["pattern"], f"{each['sparsity']:.1%}", *times, each["by"], *shares)
    return made


def draw(
    path: str, dense: float, points: Sequence[dict[str, Any]], kernels: Sequence[dict[str, Any]], note: str
) -> None:
    """Draw accuracy over predicted speed-up, and measured over predicted speed-up."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for mark, name in zip("os^", (ANY.name, BLOCKS.name, "n:m"), strict=True):
        mine = sorted((each for each in points if each["family"] == name), key=lambda each: each["sparsity"])
        left.plot([each["speedup"] for each in mine], [100 * each["right"] for each in mine], marker=mark, label=name)
        for each in mine:
            text = each["pattern"] if name == "n:m" else f"{each['sparsity']:.0%}"
            left.annotate(
                text,
                (each["speedup"], 100 * each["right"]),
                fontsize="x-small",
                xytext=(3, 4),
                textcoords="offset points",
            )
        held = [each for each in kernels if each["pattern"] == name]
        if held:
            right.plot([each["predicted"] for each in held], [each["speedup"] for each in held], mark, label=name)
    left.axhline(100 * dense, color="black", linestyle=":", label="all weights")
    left.set(xlabel="predicted speed-up of the pruned layers", ylabel="digits that are recognised, %", xscale="log")
    most = max(each["predicted"] for each in kernels)
    right.plot((0.1, most), (0.1, most), color="black", linestyle=":", label="as predicted")
    right.set(xlabel="predicted speed-up of a layer", ylabel="measured speed-up", xscale="log", yscale="log")
    for axes in (left, right):
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(f"The sparsity roofline, {note}", fontsize="medium")
    figure.savefig(path, dpi=110)


def measure(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Return the roofs, what the network loses, and the kernels beside the model."""
    roofs, side = measured_roofs(clock), LAYER if clock.gpu else TINY
    dense, right = accuracies(options.epochs, min(options.epochs, TUNED))
    sizes = (HIDDEN, 64), (HIDDEN, HIDDEN)
    points = [
        {"pattern": pattern.name, "family": "n:m" if pattern.of else pattern.name, "sparsity": sparsity,
         "right": right[pattern.name, sparsity], "speedup": predicted(pattern, sparsity, sizes, options.batch, roofs)}
        for pattern, sparsity in PRUNED
    ]  # fmt: skip
    kernels = measured(clock, options.batch)
    for each in kernels:
        pattern = BLOCKS if each["pattern"] == BLOCKS.name else ANY
        each["predicted"] = predicted(pattern, each["sparsity"], [(side, side)], options.batch, roofs)
        each["roofline"] = sparse_work(pattern, each["sparsity"], side, side, options.batch).seconds(roofs)
    return {"roofs": roofs._asdict(), "dense": dense, "side": side, "points": points, "kernels": kernels}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparsity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="columns that a layer is multiplied with")
    parser.add_argument("--epochs", type=int, default=EPOCHS, metavar="N", help="of the training before pruning")
    parser.add_argument("--picture", metavar="FILE", help="draw to FILE.png")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse ")  # torch calls its CSR tensors beta
    clock = Clock(9)
    found = measure(options, clock)
    note = torch.cuda.get_device_name() if clock.gpu else "without a GPU: no figures"
    console = Console(width=None if sys.stdout.isatty() else 140)
    if not clock.gpu:
        console.print(NO_FIGURES, style="bold")
    memory, dense, single = (value / 1e12 for value in found["roofs"].values())
    rates = f"memory {memory:.2f} TB/s, dense {dense:.0f} Tflop/s, single {single:.1f} Tflop/s"
    console.print(f"roofs of {note}: {rates}", highlight=False)
    console.print(network_table(found["dense"], found["points"], options.batch))
    console.print(kernel_table(found["kernels"], options.batch, found["side"]))
    if options.picture:
        draw(options.picture, found["dense"], found["points"], found["kernels"], note)
    if options.json:
        text = json.dumps({"benchmark": "sparsity", **record.facts(), "batch": options.batch, **found}, indent=1)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
