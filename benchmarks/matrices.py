"""Sparse matrices to measure with: a population drawn from a seed, and the Matrix Market files of a folder.

Numbers are drawn by NumPy on the host, so that a seed gives the same matrices everywhere, and torch sorts and counts them
on the device where the matrix is to be. A family is a function of a generator, the non-zeros that are wanted, and a device.
R-MAT is that of Chakrabarti, Zhan and Faloutsos (SDM 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse
import torch

LEAST, MOST, LARGEST = 1_000, 2_000_000, 20_000_000  # non-zeros: of nearly all matrices, and of the largest
SIZES = (50_000, 300_000, 1_000_000, 5_000_000, 20_000_000)  # of fixed families
LARGE = 0.05  # the part of the matrices with more than MOST
RMAT = (146, 195, 243)  # of 256: where the quadrants b, c and d begin; probabilities 0.57, 0.19, 0.19 and 0.05


class Pattern(NamedTuple):
    """The places of the non-zeros, (rows, columns), in any order and with duplicates, which are removed."""

    rows: torch.Tensor
    columns: torch.Tensor
    shape: tuple[int, int]


class Recipe(NamedTuple):
    """How a matrix is made: of a family with about so many non-zeros, or from a file."""

    name: str
    family: str
    atoms: int
    seed: int
    path: Path | None = None

    def make(self, device: str) -> torch.Tensor:
        """Return the matrix as a float32 CSR tensor with int32 indices."""
        if self.path:
            return read(self.path).to(device)
        family = (FAMILIES | FIXED)[self.family]
        return filled(family(np.random.default_rng(self.seed), self.atoms, device))


def population(count: int, seed: int = 0, least: int = LEAST, most: int = MOST, largest: int = LARGEST) -> list[Recipe]:
    """Return ``count`` recipes, the families in turn. The numbers of non-zeros are uniform in their logarithms."""
    draw = np.random.default_rng(seed)
    families = list(FAMILIES)
    found = []
    for number in range(count):
        low, high = (most, largest) if draw.random() < LARGE else (least, most)
        atoms = round(low * (high / low) ** draw.random())
        family = families[number % len(families)]
        found.append(Recipe(f"{family} {number}", family, atoms, int(draw.integers(1 << 62))))
    return found


def fixed(sizes: Sequence[int] = SIZES) -> list[Recipe]:
    """Return a recipe for each fixed family and each size. Families and sizes are mixed, for a run that ends early."""
    names, count = list(FIXED), len(sizes)
    places = [(i, (i + turn) % count) for turn in range(count) for i in range(len(names))]
    return [Recipe(f"{names[i]} {sizes[j]}", names[i], sizes[j], j) for i, j in places]


def files(folder: Path) -> list[Recipe]:
    """Return a recipe for each Matrix Market file in ``folder`` and below."""
    paths = sorted(path for path in folder.rglob("*.mtx*") if path.name.endswith((".mtx", ".mtx.gz")))
    return [Recipe(path.name.partition(".mtx")[0], "file", 0, 0, path) for path in paths]


def read(path: Path) -> torch.Tensor:
    """Return a Matrix Market file as a float32 CSR tensor with int32 indices. Complex numbers become their real parts.

    SciPy reads by fast_matrix_market since 1.12.
    """
    found = scipy.sparse.csr_matrix(scipy.io.mmread(path)).real
    parts = found.indptr.astype(np.int32), found.indices.astype(np.int32), found.data.astype(np.float32)
    return _tensor(*map(torch.from_numpy, parts), found.shape)


def filled(pattern: Pattern) -> torch.Tensor:
    """Return the matrix with these places, sorted and without duplicates. Values are positive, so that no sum cancels."""
    rows, columns = pattern.shape
    keys = torch.unique(pattern.rows * columns + pattern.columns)
    lengths = torch.bincount(keys // columns, minlength=rows)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    return _tensor(offsets, (keys % columns).int(), varied(len(keys), keys.device), pattern.shape)


def varied(count: int, device: Any) -> torch.Tensor:
    """Return ``count`` float32 numbers between 0.5 and 1.5 that look irregular: multiples of the golden ratio."""
    return (torch.arange(count, device=device, dtype=torch.float64) * 0.6180339887498949 % 1 + 0.5).float()


def _tensor(offsets: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, shape: Any) -> torch.Tensor:
    return torch.sparse_csr_tensor(offsets, columns, values, tuple(map(int, shape)), check_invariants=False)


def _between(draw: Any, low: float, high: float) -> int:
    """An integer whose logarithm is uniform."""
    return round(low * (high / low) ** draw.random())


def _drawn(draw: Any, below: int, count: int, device: str) -> torch.Tensor:
    return torch.from_numpy(draw.integers(below, size=count)).to(device)


# -- families


def banded(draw: Any, atoms: int, device: str) -> Pattern:
    """All elements at most so far from the diagonal."""
    return band(_between(draw, 1, min(80, max(atoms // 8, 2))), atoms, device)


def band(width: int, atoms: int, device: str) -> Pattern:
    """``width`` elements in each row, but fewer at the ends."""
    rows = max(atoms // width, 1)
    places = torch.arange(rows, device=device)[:, None]
    columns = places + torch.arange(width, device=device) - width // 2
    inside = (columns >= 0) & (columns < rows)
    return Pattern(places.expand_as(columns)[inside], columns[inside], (rows, rows))


def rmat(draw: Any, atoms: int, device: str) -> Pattern:
    """Edges of a graph whose degrees follow a power law: each goes into one of four quadrants, again and again."""
    levels = max(int(np.log2(max(atoms / _between(draw, 4, 40), 4))), 2)
    rows, columns = (torch.zeros(atoms, dtype=torch.int64, device=device) for _ in range(2))
    for _ in range(levels):
        drawn = torch.from_numpy(np.frombuffer(draw.bytes(atoms), dtype=np.uint8).copy()).to(device)
        b, c, d = (drawn >= each for each in RMAT)
        rows, columns = rows * 2 + c, columns * 2 + (b ^ c | d)
    return Pattern(rows, columns, (1 << levels, 1 << levels))


def blocks(draw: Any, atoms: int, device: str) -> Pattern:
    """Dense blocks: those on the diagonal, and others drawn."""
    side = _between(draw, 2, min(32, max(int(atoms**0.5 / 2), 2)))
    count = max(atoms // side**2, 2)
    across = max(count // _between(draw, 2, 6), 2)
    diagonal = torch.arange(across, device=device)
    others = max(count - across, 0)
    i = torch.cat([diagonal, _drawn(draw, across, others, device)])
    j = torch.cat([diagonal, _drawn(draw, across, others, device)])
    within = torch.arange(side, device=device)
    rows = (i[:, None, None] * side + within[:, None]).expand(-1, side, side)
    columns = (j[:, None, None] * side + within[None, :]).expand(-1, side, side)
    return Pattern(rows.flatten(), columns.flatten(), (across * side, across * side))


def uniform(draw: Any, atoms: int, device: str) -> Pattern:
    """Places drawn alike."""
    rows = max(atoms // _between(draw, 2, 100), 4)
    return Pattern(_drawn(draw, rows, atoms, device), _drawn(draw, rows, atoms, device), (rows, rows))


def _mesh(sides: tuple[int, ...], device: str) -> Pattern:
    """Each point of a mesh, and its neighbours along each axis."""
    points = torch.arange(int(np.prod(sides)), device=device)
    rows, columns, stride = [points], [points], 1
    for side in reversed(sides):
        first = points[points // stride % side < side - 1]
        rows += [first, first + stride]
        columns += [first + stride, first]
        stride *= side
    return Pattern(torch.cat(rows), torch.cat(columns), (len(points), len(points)))


def mesh_2d(draw: Any, atoms: int, device: str) -> Pattern:
    """Poisson's equation in a rectangle: five points."""
    height = max(_between(draw, 1, 8) * int((atoms / 5) ** 0.5) // 3, 2)
    return _mesh((height, max(atoms // (5 * height), 2)), device)


def mesh_3d(draw: Any, atoms: int, device: str) -> Pattern:
    """Poisson's equation in a box: seven points."""
    side = max(int((atoms / 7) ** (1 / 3)), 2)
    return _mesh((side, side, max(atoms // (7 * side * side), 2)), device)


def roads(draw: Any, atoms: int, device: str) -> Pattern:
    """A map: a part of the edges of a mesh, whose points are numbered by districts rather than by lines."""
    side = max(int((atoms / 2.6) ** 0.5), 3)
    mesh = _mesh((side, side), device)
    low, high = torch.minimum(mesh.rows, mesh.columns), torch.maximum(mesh.rows, mesh.columns)
    kept = (low * 7 + high * 13 + (low ^ high) * 31) % 100 < 65  # the same for an edge and its return
    names = torch.empty(side * side, dtype=torch.int64, device=device)
    points = torch.arange(side * side, device=device)
    district = (points // side // 16) * side + points % side // 16
    jitter = torch.from_numpy(draw.random(side * side)).to(device)
    names[torch.argsort(district + jitter)] = points
    edge = kept & (mesh.rows != mesh.columns)
    return Pattern(names[mesh.rows[edge]], names[mesh.columns[edge]], mesh.shape)


def empty_rows(draw: Any, atoms: int, device: str) -> Pattern:
    """Most rows are empty."""
    used = max(atoms // _between(draw, 2, 40), 2)
    rows = used * _between(draw, 2, 20)
    chosen = _drawn(draw, rows, used, device)
    return Pattern(chosen[_drawn(draw, used, atoms, device)], _drawn(draw, rows, atoms, device), (rows, rows))


def dense_row(draw: Any, atoms: int, device: str) -> Pattern:
    """One row has all elements, and the others a few."""
    size = max(atoms // _between(draw, 2, 10), 4)
    others = max(atoms - size, 1)
    rows = torch.cat([_drawn(draw, size, others, device), torch.full((size,), int(draw.integers(size)), device=device)])
    columns = torch.cat([_drawn(draw, size, others, device), torch.arange(size, device=device)])
    return Pattern(rows, columns, (size, size))


def _rows(draw: Any, lengths: Any, columns: int, device: str) -> Pattern:
    """Rows of about these lengths, their columns drawn alike."""
    count = torch.from_numpy(np.minimum(np.asarray(lengths, dtype=np.int64), columns)).to(device)
    rows = torch.repeat_interleave(torch.arange(len(count), device=device), count)
    return Pattern(rows, _drawn(draw, columns, len(rows), device), (len(count), columns))


def doubling(draw: Any, atoms: int, device: str) -> Pattern:
    """Rows whose lengths double stepwise."""
    steps = min(int(draw.integers(4, 13)), (atoms + 1).bit_length() - 1)
    each = max(round(atoms / (2.0**steps - 1)), 1)  # rows of a step
    lengths = np.repeat(2 ** np.arange(steps), each)
    return _rows(draw, lengths, max(len(lengths), 4 << steps), device)


def long_rows(draw: Any, atoms: int, device: str) -> Pattern:
    """A few rows that are long, over many columns."""
    length = _between(draw, min(500, atoms), min(100_000, atoms))
    return _rows(draw, np.full(max(atoms // length, 1), length), 8 * length, device)


def lognormal(draw: Any, atoms: int, device: str) -> Pattern:
    """Lengths whose logarithms are normal, so that few rows have most elements."""
    sigma, mean = 1 + 1.5 * draw.random(), _between(draw, 3, 40)
    lengths = draw.lognormal(np.log(mean) - sigma**2 / 2, sigma, size=max(atoms // mean, 4))
    return _rows(draw, lengths, len(lengths), device)


def geometric(draw: Any, atoms: int, device: str) -> Pattern:
    """Points of a square, in the order of cells, and their neighbours up to a distance."""
    degree = _between(draw, 5, 40)
    points = max(atoms // degree, 4)
    side = max(int((points * np.pi / degree) ** 0.5), 1)  # of cells, as wide as the distance
    cell = np.sort(draw.integers(side * side, size=points))
    place = torch.from_numpy(draw.random((points, 2)) + np.stack([cell // side, cell % side], 1)).to(device)
    cell = torch.from_numpy(cell).to(device)
    starts = torch.nn.functional.pad(torch.bincount(cell, minlength=side * side).cumsum(0), (1, 0))
    rows, columns = [], []
    for down, across in ((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
        i, j = cell // side + down, cell % side + across
        inside = (i >= 0) & (i < side) & (j >= 0) & (j < side)
        other = torch.where(inside, i * side + j, 0)
        counts = torch.where(inside, starts[other + 1] - starts[other], 0)
        point = torch.repeat_interleave(counts)
        found = starts[other][point] + torch.arange(len(point), device=device) - (counts.cumsum(0) - counts)[point]
        near = ((place[point] - place[found]) ** 2).sum(1) < 1
        rows.append(point[near])
        columns.append(found[near])
    return Pattern(torch.cat(rows), torch.cat(columns), (points, points))


Family = Callable[[Any, int, str], Pattern]
FAMILIES: dict[str, Family] = {
    "banded": banded,
    "power law": rmat,
    "blocks": blocks,
    "uniform": uniform,
    "mesh 2-D": mesh_2d,
    "mesh 3-D": mesh_3d,
    "roads": roads,
    "empty rows": empty_rows,
    "dense row": dense_row,
    "doubling": doubling,
    "long rows": long_rows,
    "lognormal": lognormal,
    "geometric": geometric,
}


# -- fixed families: their matrices differ in size alone


def stencil_27(draw: Any, atoms: int, device: str) -> Pattern:
    """Each point of a cube, and those that share a corner of its cell."""
    side = max(round((atoms / 27) ** (1 / 3)), 2)
    points = torch.arange(side**3, device=device)[:, None]
    steps = torch.arange(27, device=device)
    shift, inside = torch.zeros_like(steps), points >= 0
    for axis in range(3):
        step, stride = steps // 3**axis % 3 - 1, side**axis
        place = points // stride % side + step
        inside = inside & (place >= 0) & (place < side)
        shift = shift + step * stride
    return Pattern(points.expand(-1, 27)[inside], (points + shift)[inside], (side**3, side**3))


def near_in_a_plane(draw: Any, atoms: int, device: str) -> Pattern:
    """Points of a square, line by line, and about 16 others that lie around each, some of them twice."""
    points = max(atoms // 16, 16)
    lengths = torch.from_numpy(draw.poisson(16, points)).to(device)
    rows = torch.repeat_interleave(torch.arange(points, device=device), lengths)
    down, across = (torch.from_numpy(np.rint(draw.normal(0, 1.5, len(rows))).astype(int)).to(device) for _ in range(2))
    return Pattern(rows, (rows + down * int(points**0.5) + across) % points, (points, points))


def dense_blocks(draw: Any, atoms: int, device: str) -> Pattern:
    """Blocks of 32 by 32 on the diagonal."""
    rows = torch.arange(max(atoms // 1024, 1) * 32, device=device)[:, None]
    columns = rows // 32 * 32 + torch.arange(32, device=device)
    return Pattern(rows.expand_as(columns).flatten(), columns.flatten(), (len(rows), len(rows)))


def of_lengths(lengths: Callable[[Any, int], Any], columns: int = 1000) -> Family:
    """Return the family whose rows have about these lengths, over as many columns as rows, but ``columns`` at least."""

    def family(draw: Any, atoms: int, device: str) -> Pattern:
        found = np.asarray(lengths(draw, atoms)).astype(np.int64)
        return _rows(draw, found, max(len(found), columns), device)

    return family


def _scaled(draw: Any, weights: Any, atoms: int) -> Any:
    """Lengths in proportion to the weights, ``atoms`` in all."""
    return weights * (atoms / weights.sum()) + draw.random(len(weights))


def _poisson(mean: int) -> Family:
    return of_lengths(lambda draw, atoms: draw.poisson(min(mean, atoms / 4), max(atoms // mean, 4)))


def _lognormal(sigma: float, mean: int) -> Family:
    return of_lengths(lambda draw, atoms: _scaled(draw, draw.lognormal(0, sigma, max(atoms // mean, 4)), atoms))


def _one_long(draw: Any, atoms: int) -> Any:
    lengths = draw.poisson(5, max(atoms // 6, 4))
    lengths[len(lengths) // 3] = atoms // 6
    return lengths


FIXED: dict[str, Family] = {
    "Pareto 1.2": of_lengths(
        lambda draw, atoms: np.minimum(_scaled(draw, draw.pareto(1.2, max(atoms // 12, 4)) + 1, atoms), atoms // 4)
    ),
    "stencil 5": lambda draw, atoms, device: _mesh((max(round((atoms / 5) ** 0.5), 2),) * 2, device),
    "rows of 50000": of_lengths(lambda draw, atoms: np.full(max(atoms // 50_000, 1), min(50_000, atoms)), 400_000),
    "lognormal 2.5": _lognormal(2.5, 20),
    "Poisson 8": _poisson(8),
    "R-MAT": rmat,
    "stencil 27": stencil_27,
    "1 to 2048": of_lengths(lambda draw, atoms: np.repeat(2 ** np.arange(12), max(atoms // 4095, 1)), 4096),
    "near in a plane": near_in_a_plane,
    "one long row": of_lengths(_one_long),
    "band of 31": lambda draw, atoms, device: band(31, atoms, device),
    "Poisson 60": _poisson(60),
    "nine of ten empty": of_lengths(
        lambda draw, atoms: draw.poisson(10, max(atoms, 40)) * (draw.random(max(atoms, 40)) < 0.1)
    ),
    "lognormal 1.0": _lognormal(1.0, 30),
    "blocks of 32": dense_blocks,
    "4 or 600": of_lengths(lambda draw, atoms: np.where(draw.random(max(atoms // 10, 4)) < 0.01, 600, 4)),
    "Poisson 200": _poisson(200),
    "1 to 3": of_lengths(lambda draw, atoms: draw.integers(1, 4, max(atoms // 2, 4))),
    "stencil 7": lambda draw, atoms, device: _mesh((max(round((atoms / 7) ** (1 / 3)), 2),) * 3, device),
    "band of 9": lambda draw, atoms, device: band(9, atoms, device),
}
