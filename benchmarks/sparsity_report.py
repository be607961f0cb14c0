"""What benchmarks.sparsity found: tables and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from benchmarks.pruned_network import HIDDEN
from benchmarks.sparsity_model import ANY, BLOCKS, PATTERNS

HALF = 0.5  # of a bound: from there on it says how fast a kernel is


def network_table(dense: float, points: Sequence[dict[str, Any]], batch: int) -> Table:
    title = (
        f"digits, 64 x {HIDDEN} x {HIDDEN} x 10, {dense:.1%} right with all weights: the pruned layers, {batch} columns"
    )
    made = Table(title=title)
    for name in ("pattern", "sparsity", "right", "predicted speed-up", "with launches"):
        made.add_column(name, justify="right")
    for each in points:
        cells = f"{each['sparsity']:.1%}", f"{each['right']:.1%}", f"{each['speedup']:.2f}", f"{each['launched']:.2f}"
        made.add_row(each["pattern"], *cells)
    return made


def kernel_tables(found: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield a table for each layer and batch. of the roofline, of the bound: the parts that the sparse product reaches."""
    titles = (
        "pattern", "sparsity", "dense, µs", "sparse, µs", "by", "speed-up", "predicted", "by the bound", "of the roofline",
        "of the bound",
    )  # fmt: skip
    keys = "outputs", "inputs", "batch"
    for layer in dict.fromkeys(tuple(each[key] for key in keys) for each in found):
        made = Table(
            title="a layer of {} x {} times {} columns: the roofline and the bound against kernels".format(*layer)
        )
        for name in titles:
            made.add_column(name, justify="right", no_wrap=True)
        for each in (each for each in found if tuple(each[key] for key in keys) == layer):
            times = (f"{each[name] * 1e6:.1f}" for name in ("dense", "seconds"))
            speedups = (f"{each[name]:.2f}" for name in ("speedup", "predicted", "bounded"))
            shares = (f"{share(each, name):.0%}" for name in ("roofline", "bound"))
            made.add_row(each["pattern"], f"{each['sparsity']:.1%}", *times, each["by"], *speedups, *shares)
        yield made


def share(found: dict[str, Any], bound: str) -> float:
    return float(found[bound] / found["seconds"])


def draw(
    path: str, dense: float, points: Sequence[dict[str, Any]], kernels: Sequence[dict[str, Any]], note: str
) -> None:
    """Draw accuracy over predicted speed-up, and measured over predicted speed-up, by the roofline and by the bound."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, *others) = pyplot.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for mark, name in zip("os^", (ANY.name, BLOCKS.name, "n:m"), strict=True):
        mine = sorted((each for each in points if each["family"] == name), key=lambda each: each["sparsity"])
        left.plot([each["speedup"] for each in mine], [100 * each["right"] for each in mine], marker=mark, label=name)
        for each in mine:
            text = each["pattern"] if name == "n:m" else f"{each['sparsity']:.0%}"
            place = (each["speedup"], 100 * each["right"])
            left.annotate(text, place, fontsize="x-small", xytext=(3, 4), textcoords="offset points")
    left.axhline(100 * dense, color="black", linestyle=":", label="all weights")
    left.set(xlabel="predicted speed-up of the pruned layers", ylabel="digits that are recognised, %", xscale="log")
    for axes, key, text in zip(
        others, ("predicted", "bounded"), ("by the roofline", "by the bound with inputs and waits"), strict=True
    ):
        draw_kernels(axes, kernels, key)
        axes.set(xlabel=f"speed-up of a layer {text}", ylabel="measured", xscale="log", yscale="log")
    for axes in (left, *others):
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.suptitle(f"The sparsity roofline, {note}", fontsize="medium")
    figure.savefig(path, dpi=110)


def draw_kernels(axes: Any, kernels: Sequence[dict[str, Any]], key: str) -> None:
    """Draw measured over predicted speed-up; filled marks are of the smaller batch."""
    least, most = (pick(each[key] for each in kernels) for pick in (min, max))
    axes.plot((least, most), (least, most), color="black", linestyle=":", label="as predicted")
    axes.fill_between(
        (least, most), (HALF * least, HALF * most), (least, most), color="black", alpha=0.08, label="to a half"
    )
    few = min(each["batch"] for each in kernels)
    for number, (pattern, mark) in enumerate(zip(PATTERNS, "osDv", strict=True)):
        for batch in dict.fromkeys(each["batch"] for each in kernels):
            held = [each for each in kernels if (each["pattern"], each["batch"]) == (pattern.name, batch)]
            fill = "full" if batch == few else "none"
            places = [each[key] for each in held], [each["speedup"] for each in held]
            axes.plot(*places, mark, color=f"C{number}", fillstyle=fill, label=f"{pattern.name}, {batch}")
