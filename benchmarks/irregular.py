"""SpMV by every schedule of pyshmem.irregular over a population of matrices, beside cuSPARSE and SciPy, on one GPU.

Run: python -m benchmarks.irregular [--matrices N | --fixed | --folder FOLDER of Matrix Market files] [--columns N, for
SpMM] [--values float64] [--indices int64] [--json FILE]. Every result is compared with SciPy's in float64 before it is
timed. Times are those of CUDA graphs of repeated products, so matrices smaller than the L2 cache are read from it, by all
peers alike. Without a GPU a tiny population only tries the method.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import cusparse, record
from benchmarks.accelerator import issued
from benchmarks.floors import EACH_ONCE, FLOORS, floors
from benchmarks.matrices import FAMILIES, FIXED, Recipe, files, fixed, population, varied
from pyshmem import irregular

NO_FIGURES = "There is no GPU: a tiny population tries the method in Triton's interpreter. Its times are no figures."
CAPTION = (
    "geometric mean, and the least, of the fastest library's time divided by the schedule's. uneven: the quarter of the "
    "matrices with the greatest standard deviation of row lengths, divided by their mean. fastest: on this part of the "
    "matrices. each byte once, x by columns: the same loads and stores by a kernel that knows no rows, the most that a "
    "product could reach."
)
AUTO, LIBRARY, SCIPY = "auto", "torch.sparse", "SciPy"
LIBRARIES = (LIBRARY, *cusparse.ALGORITHMS)
OTHERS = (*LIBRARIES, SCIPY, *FLOORS)
ENDS = (1e5, 5e5, 2e6, 1e7, np.inf)  # non-zeros of the matrices of a column are fewer
TINY = {"least": 20, "most": 60, "largest": 90}  # the interpreter scans an atom in a millisecond
TOLERANCES = {"float16": 2e-3, "float32": 5e-5, "float64": 1e-12}  # of sums of positive numbers
INDICES = "int32", "int64"
CALLS, ATOMS = 20, 4_000_000  # products in a graph: fewer for large matrices, of ATOMS non-zeros in all
REPLAY, EAGER = 100_000, 200_000  # cycles of a pause that is longer than the host needs for a graph, and for a call
Call = Callable[[], Any]


class Found(NamedTuple):
    """One matrix: what it looks like, and the seconds of a product by peer."""

    name: str
    family: str
    features: dict[str, float]
    seconds: dict[str, float]


def features(matrix: irregular.CSR) -> dict[str, float]:
    """Return the size of a matrix and the lengths of its rows, which has some.

    uneven: the standard deviation of the lengths divided by their mean.  empty: the fraction of the rows without elements.
    """
    lengths = matrix.offsets.diff().double()
    uneven = float(lengths.std(correction=0) / lengths.mean())
    sizes = {"rows": matrix.rows, "columns": matrix.shape[1], "atoms": matrix.atoms, "longest": matrix.longest}
    return sizes | {"mean": float(lengths.mean()), "uneven": uneven, "empty": float((lengths == 0).double().mean())}


class Clock:
    """Seconds of calls: of CUDA graphs, by events, or of the host."""

    def __init__(self, rounds: int) -> None:
        self.gpu = torch.cuda.is_available()
        self.rounds = rounds if self.gpu else 1
        self.stream = torch.cuda.Stream() if self.gpu else None

    def seconds(self, calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
        """Return the median seconds of each call. Rounds go from peer to peer, so that all see the same noise."""
        repeats = repeats if self.gpu else 1
        steps = {name: self.captured(call, repeats) if self.gpu else (call, 0) for name, call in calls.items()}
        samples: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(self.rounds):
            for name, step in steps.items():
                samples[name].append(self.once(*step) / repeats)
        return {name: statistics.median(each) for name, each in samples.items()}

    def captured(self, call: Call, repeats: int) -> tuple[Call, int]:
        """Return (a CUDA graph of repeated calls, the cycles that the host needs to enqueue it).

        The calls themselves stand for the graph if they cannot be captured. They run once before: libraries allocate then.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            call()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="relaxed"):
                for _ in range(repeats):
                    call()
        except RuntimeError:
            return partial(issued, call, repeats), EAGER * repeats
        graph.replay()
        return graph.replay, REPLAY

    def wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def ready(self, cycles: int) -> None:
        """Let the GPU wait for the host, so that what follows runs without gaps."""
        torch.cuda._sleep(cycles)

    def once(self, step: Call, cycles: int) -> float:
        if not self.gpu:
            return issued(step, 1)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.ready(cycles)
        begin.record()
        step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def ours(matrix: irregular.CSR, x: torch.Tensor, sizes: Sequence[int]) -> dict[str, Call]:
    """Return the product by every schedule, with its own size or with each of ``sizes``."""
    multiply = irregular.spmv if x.dim() == 1 else irregular.spmm
    if not sizes:
        return {name: partial(multiply, matrix, x, name) for name in (AUTO, *irregular.SCHEDULES)}
    pairs = product(irregular.SCHEDULES, sizes)
    return {f"{name} {size}": partial(multiply, matrix, x, name, size) for name, size in pairs}


def libraries(matrix: torch.Tensor, x: torch.Tensor) -> dict[str, Call]:
    """Return the products of the libraries for this device. torch calls cuSPARSE on NVIDIA GPUs, where we do it too."""
    nvidia = matrix.is_cuda and torch.version.cuda is not None
    return {LIBRARY: partial(torch.matmul, matrix, x)} | (cusparse.products(matrix, x) if nvidia else {})


class Bench:
    """What is measured, and by what. columns: of the dense operand; 0 is a vector.  kinds: of values and of indices."""

    def __init__(
        self, recipes: Sequence[Recipe], sizes: Sequence[int], rounds: int, columns: int, kinds: tuple[str, str]
    ) -> None:
        self.recipes, self.sizes, self.columns, self.kinds = recipes, sizes, columns, kinds
        self.tolerance = TOLERANCES[kinds[0]]
        self.clock = Clock(rounds)
        self.device = "cuda" if self.clock.gpu else "cpu"
        self.remarks: dict[str, str] = {}

    def measure(self, console: Console, limit: float) -> list[Found]:
        """Measure the matrices; after ``limit`` seconds no further one."""
        end = time.perf_counter() + limit
        every = track(self.recipes, "measuring", console=console, transient=True)
        return [self.matrix(each) for each in every if time.perf_counter() < end]

    def matrix(self, recipe: Recipe) -> Found:
        made, kind = self.converted(recipe.make(self.device)), getattr(torch, self.kinds[0])
        matrix, x = irregular.csr(made), varied(made.shape[1] * max(self.columns, 1), self.device).to(kind)
        if self.columns:
            x = x.reshape(-1, self.columns)
        wide = torch.promote_types(kind, torch.float32)  # SciPy has no products of 16 bits
        arrays = (each.cpu().numpy() for each in (made.values().to(wide), made.col_indices(), made.crow_indices()))
        host, vector = scipy.sparse.csr_matrix(tuple(arrays), shape=tuple(made.shape)), x.to(wide).cpu().numpy()
        wanted = host.astype(np.float64) @ vector.astype(np.float64)
        calls = self.able(recipe, ours(matrix, x, self.sizes) | libraries(made, x), wanted)
        least = {} if self.columns else floors(matrix, x)
        repeats = max(min(ATOMS // max(matrix.atoms, 1), CALLS), 2)
        seconds = self.clock.seconds(calls | least, repeats)
        seconds[SCIPY] = min(issued(lambda: host @ vector, 1) for _ in range(3))
        return Found(recipe.name, recipe.family, features(matrix), seconds)

    def converted(self, made: torch.Tensor) -> torch.Tensor:
        """Return the matrix with values and indices of the kinds that are measured."""
        values, indices = (getattr(torch, each) for each in self.kinds)
        parts = (each.to(indices) for each in (made.crow_indices(), made.col_indices()))
        return torch.sparse_csr_tensor(*parts, made.values().to(values), tuple(made.shape))

    def able(self, recipe: Recipe, calls: dict[str, Call], wanted: Any) -> dict[str, Call]:
        """Return the peers whose result is right. Remarks say why another one is not timed."""
        found = {}
        for name, call in calls.items():
            try:
                got = call()
                self.clock.wait()
            except RuntimeError as error:
                self.remarks[name] = f"fails for {recipe.name}: {error}"
                continue
            got = got.cpu().numpy()
            wrong = np.flatnonzero(np.abs(got - wanted) > self.tolerance * np.abs(wanted))
            if wrong.size or got.shape != wanted.shape:
                place = int(wrong[0]) if wrong.size else 0
                values = f"{got.flat[place]}, and {wanted.flat[place]} in float64"
                self.remarks[name] = f"wrong for {recipe.name}: element {place} is {values}"
                continue
            found[name] = call
        return found


# -- the report


def fastest(found: Found, names: Iterable[str]) -> float:
    """Return the least seconds of these peers; infinite if none was timed."""
    return min((found.seconds[name] for name in names if name in found.seconds), default=np.inf)


def names_of(every: Sequence[Found]) -> list[str]:
    """Return our schedules that were timed, in order."""
    return [
        name for name in dict.fromkeys(name for each in every for name in each.seconds) if name not in (AUTO, *OTHERS)
    ]


def speedups(every: Sequence[Found], names: Iterable[str]) -> list[float]:
    """Return the time of the fastest library divided by that of the fastest of ``names``, where both were timed."""
    found = [(fastest(each, LIBRARIES), fastest(each, names)) for each in every]
    return [library / our for library, our in found if library < np.inf and our < np.inf]


def speedup(every: Sequence[Found], names: Iterable[str]) -> float:
    """Return the geometric mean of the speedups."""
    return geometric_mean(speedups(every, names))


def with_least(every: Sequence[Found], names: Iterable[str]) -> str:
    found = speedups(every, names)
    return f"{geometric_mean(found):.2f}, {min(found):.2f}" if found else "-"


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of those that were measured; not a number if none was."""
    found = [value for value in values if 0 < value < np.inf]
    return statistics.geometric_mean(found) if found else np.nan


def unevenness(found: Found) -> float:
    return float(found.features["uneven"])


def most_uneven(every: Sequence[Found]) -> list[Found]:
    """Return the quarter of the matrices with the most uneven rows."""
    return sorted(every, key=unevenness, reverse=True)[: -(-len(every) // 4)]


def schedule_table(every: Sequence[Found]) -> Table:
    """One line for each schedule, for the fastest of them, and for the others."""
    names, groups = names_of(every), by_size(every)
    table = Table(title=f"products with {len(every)} matrices: speedup over the library", caption=CAPTION)
    table.add_column("schedule", no_wrap=True)
    for title in ("fastest", *groups, "uneven"):
        table.add_column(title, justify="right")
    columns = [*groups.values(), most_uneven(every)]
    table.add_row(AUTO, "", *(with_least(group, [AUTO]) for group in columns))
    for name in names:
        won = statistics.mean(each.seconds.get(name) == fastest(each, names) for each in every)
        table.add_row(name, f"{won:.0%}", *(with_least(group, [name]) for group in columns))
    table.add_section()
    table.add_row("the fastest of these", "", *(with_least(group, names) for group in columns), style="bold")
    for name in (*FLOORS, *LIBRARIES, SCIPY):
        if any(name in each.seconds for each in every):
            table.add_row(name, "", *(with_least(group, [name]) for group in columns))
    table.add_row("matrices", "", *(str(len(group)) for group in columns))
    return table


def by_size(every: Sequence[Found]) -> dict[str, list[Found]]:
    """Return the matrices by their numbers of non-zeros, and all."""
    found = {}
    for least, end in pairwise((0, *ENDS)):
        group = [each for each in every if least <= each.features["atoms"] < end]
        if group:
            found[f"to {end:.0e}" if end < np.inf else f"from {least:.0e}"] = group
    return found | {"all": list(every)}


def family_table(every: Sequence[Found]) -> Table:
    """One line for each family: the speedup, and in brackets that of the bytes alone, where these were timed."""
    names = [AUTO] if any(AUTO in each.seconds for each in every) else names_of(every)
    table = Table(
        title=f"by family: speedup of {AUTO if names == [AUTO] else 'the fastest'}, and that of each byte once"
    )
    table.add_column("family", no_wrap=True)
    groups = by_size(every)
    for title in groups:
        table.add_column(title, justify="right")
    for family in families_of(every):
        cells = []
        for group in groups.values():
            found, bound = (speedups(of_family(group, family), peers) for peers in (names, [EACH_ONCE]))
            cells.append(f"{geometric_mean(found):.2f}" + (f" ({geometric_mean(bound):.2f})" if bound else ""))
        table.add_row(family, *(cell.replace("nan", "-") for cell in cells))
    return table


def families_of(every: Sequence[Found]) -> list[str]:
    return [family for family in (*FAMILIES, *FIXED, "file") if of_family(every, family)]


def of_family(every: Sequence[Found], family: str) -> list[Found]:
    return [each for each in every if each.family == family]


def lines(every: Sequence[Found]) -> Iterable[str]:
    """The figures in words."""
    names, uneven = names_of(every), most_uneven(every)
    yield (
        f"fastest of ours over the library: {speedup(every, names):.2f} on all {len(every)} matrices, "
        f"{speedup(uneven, names):.2f} on the quarter with the most uneven rows"
    )


def as_json(every: Sequence[Found], bench: Bench) -> dict[str, Any]:
    facts: dict[str, Any] = {"benchmark": "irregular", "columns": bench.columns, "kinds": bench.kinds, **record.facts()}
    if bench.clock.gpu:
        facts["GPU"] = torch.cuda.get_device_name()
    else:
        facts["no_figures"] = NO_FIGURES
    return facts | {"remarks": bench.remarks, "matrices": [each._asdict() for each in every]}


def chosen(options: argparse.Namespace, gpu: bool) -> list[Recipe]:
    """Return the matrices to measure: of a folder, of fixed families, or of the population."""
    if options.folder:
        return files(options.folder)
    if options.fixed:
        return fixed() if gpu else fixed([60])
    count = (36 if options.quick else options.matrices) if gpu else len(FAMILIES)
    return population(count, options.seed, **({} if gpu else TINY))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.irregular", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--matrices", type=int, default=300, metavar="N", help="the size of the population")
    parser.add_argument("--fixed", action="store_true", help="twenty families in five sizes in place of the population")
    parser.add_argument("--folder", type=Path, help="the Matrix Market files of a folder in place of the population")
    parser.add_argument("--seed", type=int, default=0, help="of the population")
    parser.add_argument("--sizes", type=int, nargs="+", default=(), metavar="N", help="of segments, for every schedule")
    parser.add_argument(
        "--columns", type=int, default=0, metavar="N", help="SpMM with so many columns in place of SpMV"
    )
    parser.add_argument("--values", choices=TOLERANCES, default="float32", help="the type of the values")
    parser.add_argument("--indices", choices=INDICES, default="int32", help="the type of the indices")
    parser.add_argument("--quick", action="store_true", help="36 matrices")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="begin no matrix afterwards")
    parser.add_argument("--json", metavar="FILE", help="write features and times to FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse ")  # torch calls its CSR tensors beta
    begin, gpu = time.perf_counter(), torch.cuda.is_available()
    recipes = chosen(options, gpu)
    kinds = options.values, options.indices
    bench = Bench(recipes, options.sizes, 5 if options.quick else 9, options.columns, kinds)
    every = bench.measure(Console(stderr=True), options.limit)
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not gpu:
        console.print(NO_FIGURES, style="bold")
    console.print(schedule_table(every))
    console.print(family_table(every))
    for line in (*lines(every), *(f"{name}: {text}" for name, text in bench.remarks.items())):
        console.print(line, highlight=False, markup=False)
    console.print(f"{time.perf_counter() - begin:.0f} s in all", highlight=False)
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(every, bench), indent=1) + "\n", encoding="utf-8")
    return int(any(name not in OTHERS for name in bench.remarks))


if __name__ == "__main__":
    sys.exit(main())
