"""The matrices of benchmarks.irregular, and its report in the interpreter, where it only tries the method."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("rich")
pytest.importorskip("scipy")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import scipy.io
import scipy.sparse
from benchmarks.irregular import features
from benchmarks.matrices import FAMILIES, FIXED, LARGEST, LEAST, SIZES, Recipe, files, fixed, population
from pyshmem import irregular

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its CSR tensors beta


def lengths_of(matrix):
    return matrix.crow_indices().diff()


def made(family, atoms=3000, seed=5):
    return Recipe(family, family, atoms, seed).make("cpu")


def test_a_population_is_the_same_for_a_seed_and_has_all_families_and_sizes():
    recipes = population(300)
    assert recipes == population(300) and recipes != population(300, seed=1)
    assert {each.family for each in recipes} == set(FAMILIES)
    atoms = [each.atoms for each in recipes]
    assert LEAST <= min(atoms) < 2 * LEAST and 10**7 < max(atoms) <= LARGEST


def test_every_fixed_family_has_a_matrix_of_every_size_and_the_first_twenty_are_of_all():
    pairs = [(each.family, each.atoms) for each in fixed()]
    assert sorted(pairs) == sorted((family, size) for family in FIXED for size in SIZES)
    assert {family for family, _ in pairs[:20]} == set(FIXED) and {size for _, size in pairs[:20]} == set(SIZES)


@pytest.mark.parametrize(
    ("family", "atoms"),
    [(family, atoms) for family in FAMILIES for atoms in (20, 3000)] + [(each, 9000) for each in FIXED],
)
def test_a_matrix_is_valid_repeatable_and_about_as_large_as_wanted(family, atoms):
    matrix, again = made(family, atoms), made(family, atoms)
    assert torch.equal(matrix.col_indices(), again.col_indices())
    assert torch.equal(matrix.crow_indices(), again.crow_indices())
    found = irregular.csr(matrix)  # checks all indices
    assert atoms / 4 <= found.atoms <= 2 * atoms
    for row in range(found.rows):
        columns = found.columns[found.offsets[row] : found.offsets[row + 1]]
        assert (columns.diff() > 0).all(), "sorted, without duplicates"


def test_families_have_the_rows_that_they_are_named_for():
    lengths = {family: lengths_of(made(family, 30_000)).double() for family in FAMILIES}
    uneven = {family: (each.std() / each.mean()).item() for family, each in lengths.items()}
    assert lengths["dense row"].max() == len(lengths["dense row"])
    assert (lengths["empty rows"] == 0).double().mean() > 0.3
    assert lengths["mesh 2-D"].max() == 5 and lengths["mesh 3-D"].max() == 7 and lengths["roads"].max() <= 4
    assert min(uneven["power law"], uneven["dense row"]) > 1.5
    assert max(uneven[each] for each in ("banded", "mesh 2-D", "mesh 3-D", "uniform")) < 1
    longest = {family: int(lengths_of(made(family, 30_000)).max()) for family in FIXED}
    stencils = {"stencil 5": 5, "stencil 7": 7, "stencil 27": 27, "band of 9": 9, "band of 31": 31, "blocks of 32": 32}
    assert longest | stencils | {"1 to 3": 3} == longest and longest["one long row"] > 100 * longest["1 to 3"]


def test_matrix_market_files_of_a_folder_are_matrices(tmp_path):
    whole = scipy.sparse.coo_matrix(([1.0, 2.0, 4.0], ([0, 1, 2], [0, 0, 2])), shape=(3, 3))
    (tmp_path / "below").mkdir()
    scipy.io.mmwrite(tmp_path / "below" / "half.mtx", whole, symmetry="symmetric")
    scipy.io.mmwrite(tmp_path / "complex.mtx", scipy.sparse.coo_matrix(np.array([[0, 3 + 1j]])))
    found = {each.name: each.make("cpu").to_dense().tolist() for each in files(tmp_path)}
    assert found == {"half": [[1, 2, 0], [2, 0, 0], [0, 0, 4]], "complex": [[0, 3]]}


def test_features_are_those_of_the_row_lengths():
    matrix = irregular.CSR(torch.tensor([0, 3, 3, 4]), torch.tensor([0, 4, 1, 2]), torch.ones(4), (3, 5))
    wanted = {"rows": 3, "columns": 5, "atoms": 4, "longest": 3, "mean": 4 / 3, "empty": 1 / 3}
    assert features(matrix) == pytest.approx(wanted | {"uneven": (14 / 9) ** 0.5 * 3 / 4})


def test_the_report_has_every_schedule_and_family_and_calls_its_times_no_figures(tmp_path):
    command = [sys.executable, "-m", "benchmarks.irregular", "--json", str(tmp_path / "found.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times are no figures" in done.stdout.replace("\n", " ")
    assert all(f"{name}" in done.stdout for name in irregular.SCHEDULES)
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["remarks"] == {} and {each["family"] for each in written["matrices"]} == set(FAMILIES)
    for each in written["matrices"]:
        assert set(irregular.SCHEDULES) < set(each["seconds"]) and each["features"]["atoms"] > 0
