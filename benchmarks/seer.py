"""Which schedule suits a matrix: decision trees trained on the times that benchmarks.irregular has written.

Run: python -m benchmarks.seer FILE [FILE ...] [--products N] [--write MODULE]. Two levels, as in Seer (arXiv 2403.17017):
one tree chooses by what is known of a matrix, one by what costs a pass over its offsets, and a third, by what is known,
whether that pass is worth its time. The figures are of matrices that were held out. The module has the trees as functions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.tree import Tree
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor

from benchmarks.irregular import LIBRARY, OTHERS

KNOWN = ("rows", "columns", "atoms", "mean")
GATHERED = (*KNOWN, "uneven", "longest", "empty")
UNEVEN = "uneven: the standard deviation of the lengths of rows, divided by their mean"
FOLDS, DEPTH, LEAF = 5, 4, 4  # parts that are held out in turn; of a tree, and the least matrices in its leaves
CAUTION = 4  # times as much counts what is lost by not looking, which has no limit
FAILED = 100.0  # times the slowest schedule: a wrong result
CAPTION = (
    "time / best: of the schedules' times of each matrix, the geometric mean, 95 % and most. With the pass over the offsets "
    "where it was made."
)
Array = Any


class Data(NamedTuple):
    """Of each matrix: its features, and the seconds of a product by every schedule, of gathering and of the library."""

    names: list[str]
    known: Array
    gathered: Array
    seconds: Array
    gathering: Array
    library: Array

    def part(self, chosen: Array) -> Data:
        return Data(self.names, *(each[chosen] for each in self[1:]))

    @property
    def best(self) -> Array:
        return self.seconds.min(axis=1)

    def of(self, choice: Array) -> Array:
        """Return the seconds of the schedules chosen."""
        return self.seconds[np.arange(len(choice)), choice]


def load(paths: Sequence[str]) -> tuple[Data, dict[str, Any]]:
    """Return the measurements of all files together, and the facts of the first."""
    found = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    matrices = [each for run in found for each in run["matrices"]]
    names = [
        name for name in dict.fromkeys(name for each in matrices for name in each["seconds"]) if name not in OTHERS
    ]
    rows = []
    for each in matrices:
        features = dict(each["features"])
        features["uneven"] = features["variance"] ** 0.5 / max(features["mean"], 1e-9)
        seconds = [each["seconds"].get(name, np.inf) for name in names]
        slowest = max(time for time in seconds if time < np.inf)
        seconds = [min(time, FAILED * slowest) for time in seconds]
        row = [[features[name] for name in KNOWN], [features[name] for name in GATHERED], seconds]
        rows.append((*row, each["gathering"], each["seconds"].get(LIBRARY, np.nan)))
    return Data(names, *map(np.array, zip(*rows, strict=True))), found[0]


# -- trees


def tree(features: Array, seconds: Array) -> Any:
    """Return a tree of the logarithms of times. Its leaves choose the least, and so err where that costs little."""
    logarithms = np.log(seconds / seconds.min(axis=1, keepdims=True))
    return DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAF, random_state=0).fit(features, logarithms)


def chosen(model: Any, features: Array) -> Array:
    return model.predict(features).argmin(axis=1)


def out_of_fold(data: Data, choose: Callable[[Data, Data], Array]) -> Array:
    """Return the choices for each part of the matrices by what ``choose`` learns from the other parts."""
    found = np.zeros(len(data.seconds), dtype=int)
    for rest, held in KFold(FOLDS, shuffle=True, random_state=0).split(data.seconds):
        found[held] = choose(data.part(rest), data.part(held))
    return found


def by_known(train: Data, test: Data) -> Array:
    return chosen(tree(train.known, train.seconds), test.known)


def by_gathered(train: Data, test: Data) -> Array:
    return chosen(tree(train.gathered, train.seconds), test.gathered)


class Selector(NamedTuple):
    """The three trees. ``gate`` gives the logarithms of the time by what is known and by what is gathered."""

    known: Any
    gathered: Any
    gate: Any

    def choose(self, data: Data) -> tuple[Array, Array]:
        """Return (the schedule of each matrix, whether features were gathered)."""
        gathers = chosen(self.gate, data.known) == 1
        return np.where(gathers, chosen(self.gathered, data.gathered), chosen(self.known, data.known)), gathers


def fit(data: Data, products: int) -> Selector:
    """Train the trees. The gate learns from choices for matrices that the other two had not seen."""
    without = data.of(out_of_fold(data, by_known))
    without = without * (without / data.best) ** CAUTION
    with_features = data.of(out_of_fold(data, by_gathered)) + data.gathering / products
    gate = tree(data.known, np.stack([without, with_features], axis=1))
    return Selector(tree(data.known, data.seconds), tree(data.gathered, data.seconds), gate)


def held_out(data: Data, products: int) -> tuple[Array, Array]:
    """Return (the seconds of the selector's choices, with gathering; whether it gathered), each matrix held out once."""
    seconds, gathered = np.zeros(len(data.seconds)), np.zeros(len(data.seconds), dtype=bool)
    for rest, held in KFold(FOLDS, shuffle=True, random_state=1).split(data.seconds):
        choice, gathers = fit(data.part(rest), products).choose(data.part(held))
        seconds[held] = data.part(held).of(choice) + gathers * data.gathering[held] / products
        gathered[held] = gathers
    return seconds, gathered


# -- the trees as text


Branch = str | tuple[str, Any, Any]  # what is chosen, or (condition, branch if it holds, branch if not)


def branches(model: Any, features: Sequence[str], labels: Sequence[str], node: int = 0) -> Branch:
    """Return the tree in words. Branches that end alike are one."""
    inner = model.tree_
    if inner.children_left[node] < 0:
        return labels[int(inner.value[node].ravel().argmin())]
    holds, fails = (
        branches(model, features, labels, side[node]) for side in (inner.children_left, inner.children_right)
    )
    if holds == fails:
        return holds
    name, limit = features[inner.feature[node]], inner.threshold[node]
    text = f"{int(limit)}" if name in ("rows", "columns", "atoms", "longest") else f"{limit:.4g}"
    return f"{name} <= {text}", holds, fails


def statements(found: Branch) -> list[str]:
    """Return the tree as Python statements."""
    if isinstance(found, str):
        return [f"return {found}"]
    condition, holds, fails = found
    return [f"if {condition}:", *(f"    {line}" for line in statements(holds)), *statements(fails)]


def drawn(found: Branch, before: str = "") -> Tree:
    """Return the tree as one of text."""
    if isinstance(found, str):
        return Tree(before + found)
    made = Tree(f"{before}{found[0]}?")
    for answer, branch in zip(("yes: ", "no: "), found[1:], strict=True):
        made.add(drawn(branch, answer))
    return made


def functions(selector: Selector, names: Sequence[str]) -> Iterator[str]:
    """Yield the trees as Python functions."""
    quoted = [f'"{name}"' for name in names]
    models = [
        ("gathers", "bool", KNOWN, selector.gate, ("False", "True"), "Whether a pass over the offsets is worth its time."),
        ("by_known", "str", KNOWN, selector.known, quoted, "The schedule by what is known of a matrix."),
        ("by_gathered", "str", GATHERED, selector.gathered, quoted, f"The schedule. {UNEVEN}."),
    ]  # fmt: skip
    for name, kind, features, model, labels, text in models:
        whole = {"rows", "columns", "atoms", "longest"}
        arguments = ", ".join(f"{each}: {'int' if each in whole else 'float'}" for each in features)
        yield f'def {name}({arguments}) -> {kind}:\n    """{text}"""\n' + "\n".join(
            f"    {line}" for line in statements(branches(model, features, labels))
        )


def module(selector: Selector, data: Data, facts: dict[str, Any], products: int, figures: str) -> str:
    """Return the text of a module with the trees."""
    where = f"{len(data.seconds)} matrices on {facts.get('GPU', 'no GPU')}, {facts['date'][:10]}"
    head = [
        '"""Which schedule suits a matrix: decision trees, in the two levels of Seer (arXiv 2403.17017).',
        "",
        f"Written by python -m benchmarks.seer --products {products} from SpMV in float32 of {where}.",
        f"{figures}",
        '"""',
        "",
        "from __future__ import annotations",
    ]
    return "\n".join(head) + "\n\n\n" + "\n\n\n".join(functions(selector, data.names)) + "\n"


# -- the report


def report(data: Data, products: int) -> Table:
    """One line for each way to choose."""
    ways = {f"always {name}": data.seconds[:, number] for number, name in enumerate(data.names)}
    alone = min(ways, key=lambda name: geometric(ways[name] / data.best))
    known, gathered = (data.of(out_of_fold(data, way)) for way in (by_known, by_gathered))
    ways["tree of known features"] = known
    ways["tree of gathered features"] = gathered + data.gathering / products
    ways["two levels"], passes = held_out(data, products)
    ways["the best of each matrix"] = data.best
    table = Table(
        title=f"{len(data.best)} matrices, held out in turn; {products} products for each choice", caption=CAPTION
    )
    table.add_column("schedule", no_wrap=True)
    for title in ("time / best", "95 %", "most", "right", f"speedup over {alone}", "over the library"):
        table.add_column(title, justify="right")
    for name, seconds in ways.items():
        if name == "tree of known features":
            table.add_section()
        regret = seconds / data.best
        cells = [geometric(regret), np.percentile(regret, 95), regret.max()]
        right = f"{np.mean(seconds <= data.best * 1.02):.0%}"
        over = [geometric(other / seconds) for other in (ways[alone], data.library)]
        bold = "bold" if name == "two levels" else ""
        table.add_row(name, *(f"{each:.2f}" for each in cells), right, *(f"{each:.2f}" for each in over), style=bold)
    table.caption = f"{CAPTION} Two levels made it for {passes.mean():.0%} of the matrices."
    return table


def geometric(values: Array) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seer", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="--json of benchmarks.irregular")
    parser.add_argument("--products", type=int, default=100, metavar="N", help="that a choice serves")
    parser.add_argument("--write", metavar="MODULE", help="write the trees as Python functions")
    options = parser.parse_args()
    data, facts = load(options.files)
    console = Console(width=None if sys.stdout.isatty() else 140)
    if "no_figures" in facts:
        console.print(facts["no_figures"], style="bold")
    for products in sorted({1, 10, options.products}):
        console.print(report(data, products))
    selector = fit(data, options.products)
    for text in functions(selector, data.names):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    for model, features in ((selector.known, KNOWN), (selector.gathered, GATHERED)):
        console.print(drawn(branches(model, features, data.names)), highlight=False)
    if options.write:
        seconds, _ = held_out(data, options.products)
        alone = min(geometric(data.seconds[:, number] / seconds) for number in range(len(data.names)))
        figures = (
            f"Of matrices that were held out: {geometric(seconds / data.best):.2f} times the time of the best schedule,\n"
            f"in the geometric mean, and {alone:.2f} times as fast as the best single schedule."
        )
        Path(options.write).write_text(module(selector, data, facts, options.products, figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
