"""Which schedule suits a matrix: a decision tree trained on the times that benchmarks.irregular has written.

Run: python -m benchmarks.seer FILE [FILE ...] [--products N] [--write MODULE]. Idea: Seer (arXiv 2403.17017). The figures
are of matrices that were held out. The module has the tree as a function of the matrix's features.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor

from benchmarks.irregular import LIBRARY, OTHERS
from pyshmem.irregular.features import Features

FEATURES = Features._fields
WHOLE = ("rows", "columns", "atoms", "longest")  # whole numbers
FOLDS, DEPTH, LEAF = 5, 4, 4  # folds of cross-validation; of a tree, and the least matrices in its leaves
TREE = "the tree"
FAILED = 100.0  # times the slowest schedule: a wrong result
CAPTION = (
    "time / best: of the schedules' times of each matrix, the geometric mean, 95 % and most. The tree's time includes the "
    "pass over the offsets that its features take."
)
Array = Any


class Data(NamedTuple):
    """For each matrix its features, and the seconds of a product by every schedule, of gathering and of the library."""

    names: list[str]
    features: Array
    seconds: Array
    gathering: Array
    library: Array

    @property
    def best(self) -> Array:
        return self.seconds.min(axis=1)

    def of(self, choice: Array) -> Array:
        """Return the seconds of the schedules chosen."""
        return self.seconds[np.arange(len(choice)), choice]


def load(paths: Sequence[str]) -> tuple[Data, dict[str, Any]]:
    """Return the measurements of all files together, and the facts of the first."""
    runs = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    matrices = [each for run in runs for each in run["matrices"]]
    names = [
        name for name in dict.fromkeys(name for each in matrices for name in each["seconds"]) if name not in OTHERS
    ]
    rows = []
    for each in matrices:
        seconds = [each["seconds"].get(name, np.inf) for name in names]
        slowest = max(time for time in seconds if time < np.inf)
        seconds = [min(time, FAILED * slowest) for time in seconds]
        features = [each["features"][name] for name in FEATURES]
        rows.append((features, seconds, each["gathering"], each["seconds"].get(LIBRARY, np.nan)))
    return Data(names, *map(np.array, zip(*rows, strict=True))), runs[0]


# -- the tree


def tree(features: Array, seconds: Array) -> Any:
    """Return a tree of the logarithms of times. Its leaves choose the least, and so err where that costs little."""
    logarithms = np.log(seconds / seconds.min(axis=1, keepdims=True))
    return DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAF, random_state=0).fit(features, logarithms)


def chosen(model: Any, features: Array) -> Array:
    return model.predict(features).argmin(axis=1)


def held_out(data: Data) -> Array:
    """Return the choice for each matrix by a tree of the other folds."""
    choice = np.zeros(len(data.seconds), dtype=int)
    for rest, held in KFold(FOLDS, shuffle=True, random_state=0).split(data.seconds):
        choice[held] = chosen(tree(data.features[rest], data.seconds[rest]), data.features[held])
    return choice


# -- the tree as text


Branch = str | tuple[str, Any, Any]  # a schedule, or (condition, branch if it holds, branch if not)


def branches(model: Any, names: Sequence[str], node: int = 0) -> Branch:
    """Return the tree in words. Branches that end alike are one."""
    inner = model.tree_
    if inner.children_left[node] < 0:
        return names[int(inner.value[node].ravel().argmin())]
    holds, fails = (branches(model, names, side[node]) for side in (inner.children_left, inner.children_right))
    if holds == fails:
        return holds
    name, limit = FEATURES[inner.feature[node]], inner.threshold[node]
    text = f"{int(limit)}" if name in WHOLE else f"{limit:.4g}"
    return f"{name} <= {text}", holds, fails


def statements(branch: Branch) -> list[str]:
    """Return the tree as Python statements."""
    if isinstance(branch, str):
        return [f'return "{branch}"']
    condition, holds, fails = branch
    return [f"if {condition}:", *(f"    {line}" for line in statements(holds)), *statements(fails)]


def module(branch: Branch, source: str, figures: str) -> str:
    """Return the text of a module with the tree. source: what it was trained on, and how.  figures: what it reaches."""
    arguments = ", ".join(f"{each}: {'int' if each in WHOLE else 'float'}" for each in FEATURES)
    body = "\n".join(f"    {line}" for line in statements(branch))
    return f'''"""Which schedule suits a matrix: a decision tree. Idea: Seer (arXiv 2403.17017).

Written by {source}.
{figures}
"""

from __future__ import annotations


def schedule_for({arguments}) -> str:
    """The schedule for a matrix with these features. See pyshmem.irregular.features."""
{body}
'''


# -- the report


def ways(data: Data, products: int) -> dict[str, Array]:
    """Return the seconds of each matrix by each way to choose."""
    every = {f"always {name}": data.seconds[:, number] for number, name in enumerate(data.names)}
    return every | {TREE: data.of(held_out(data)) + data.gathering / products, "the best of each matrix": data.best}


def single(every: dict[str, Array]) -> str:
    """Return which schedule alone is the best of all."""
    return min((name for name in every if name.startswith("always")), key=lambda name: geometric(every[name]))


def report(data: Data, products: int) -> Table:
    """One line for each way to choose."""
    every = ways(data, products)
    alone = single(every)
    table = Table(
        title=f"{len(data.best)} matrices, held out in turn; {products} products for each choice", caption=CAPTION
    )
    table.add_column("schedule", no_wrap=True)
    for title in ("time / best", "95 %", "most", "right", f"speedup over {alone}", "over the library"):
        table.add_column(title, justify="right")
    for name, seconds in every.items():
        if name == TREE:
            table.add_section()
        regret = seconds / data.best
        cells = [geometric(regret), np.percentile(regret, 95), regret.max()]
        right = f"{np.mean(seconds <= data.best * 1.02):.0%}"
        over = [geometric(other / seconds) for other in (every[alone], data.library)]
        bold = "bold" if name == TREE else ""
        table.add_row(name, *(f"{each:.2f}" for each in cells), right, *(f"{each:.2f}" for each in over), style=bold)
    return table


def geometric(values: Array) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seer", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="--json of benchmarks.irregular")
    parser.add_argument("--products", type=int, default=100, metavar="N", help="that a choice serves")
    parser.add_argument("--write", metavar="MODULE", help="write the tree as a Python function")
    options = parser.parse_args()
    data, facts = load(options.files)
    console = Console(width=None if sys.stdout.isatty() else 140)
    if "no_figures" in facts:
        console.print(facts["no_figures"], style="bold")
    console.print(report(data, options.products))
    branch = branches(tree(data.features, data.seconds), data.names)
    console.print("\n".join(statements(branch)), highlight=False)
    if options.write:
        every = ways(data, options.products)
        source = (
            f"python -m benchmarks.seer --products {options.products} from SpMV in float32 of {len(data.best)} "
            f"matrices on {facts.get('GPU', 'no GPU')}, {facts['date'][:10]}"
        )
        regret, gain = geometric(every[TREE] / data.best), geometric(every[single(every)] / every[TREE])
        figures = (
            f"Of matrices that were held out: {regret:.2f} times the time of the best schedule,\n"
            f"in the geometric mean, and {gain:.2f} times as fast as the best single schedule."
        )
        Path(options.write).write_text(module(branch, source, figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
