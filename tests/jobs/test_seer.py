"""The decision trees of benchmarks.seer, trained on times that follow a rule."""

import io
import json
import pathlib
import sys

import numpy as np
import pytest

pytest.importorskip("rich")
pytest.importorskip("sklearn")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import seer
from rich.console import Console
from pyshmem.irregular import SCHEDULES, selector

NAMES = ["program_mapped", "merge_path"]


def measured(count=400, gathering=1e-5):
    """merge_path is ten times as fast where rows are uneven; that is known only of matrices with up to 1000 rows."""
    draw = np.random.default_rng(0)
    matrices = []
    for _ in range(count):
        rows, uneven = int(draw.integers(10, 2000)), bool(draw.random() < 0.5)
        mean = (4.0 if uneven else 8.0) if rows <= 1000 else 6.0
        features = {"rows": rows, "columns": 500, "atoms": int(rows * mean), "mean": mean, "empty": 0.0}
        features |= {"variance": (3.0 if uneven else 0.1) * mean**2, "longest": 90 if uneven else 9}
        seconds = dict(zip(NAMES, (1e-5, 1e-6) if uneven else (1e-6, 1e-5), strict=True)) | {"torch.sparse": 2e-6}
        matrices.append({"features": features, "seconds": seconds, "gathering": gathering})
    return {"date": "2026-11-22", "matrices": matrices}


@pytest.fixture
def data(tmp_path):
    (tmp_path / "times.json").write_text(json.dumps(measured()))
    return seer.load([str(tmp_path / "times.json")])[0]


def test_features_are_gathered_where_they_are_needed_and_worth_their_time(data):
    """At 100 products a pass costs a tenth of a product, and a wrong choice nine in half of the cases."""
    choice, gathers = seer.fit(data, 100).choose(data)
    assert (gathers == (data.known[:, 0] > 1000)).all()
    assert (choice == data.seconds.argmin(axis=1)).all()
    dear = data._replace(gathering=data.gathering * 1e6)
    assert not seer.fit(dear, 100).choose(dear)[1].any()


def test_figures_are_of_matrices_that_were_held_out(data):
    """Times without a rule: a tree that has seen a matrix would know it, one that has not errs half the time."""
    shuffled = np.random.default_rng(1).permutation(len(data.seconds))
    random = data._replace(seconds=data.seconds[shuffled])
    for way in (seer.by_known, seer.by_gathered):
        right = seer.out_of_fold(random, way) == random.seconds.argmin(axis=1)
        assert 0.4 < right.mean() < 0.6
    seconds, _ = seer.held_out(random, 100)
    assert seer.geometric(seconds / random.best) > 2
    seconds, _ = seer.held_out(data, 100)
    assert seer.geometric(seconds / data.best) < 1.1


def test_the_functions_choose_as_the_trees_do(data):
    selector = seer.fit(data, 100)
    written = {}
    exec(seer.module(selector, data, {"date": "2026-11-22"}, 100, ""), written)
    choice, gathers = selector.choose(data)
    for known, gathered, number, through in zip(data.known, data.gathered, choice, gathers, strict=True):
        assert written["gathers"](*known) == through
        assert (written["by_gathered"](*gathered) if through else written["by_known"](*known)) == NAMES[number]


def test_branches_that_end_alike_are_one(data):
    """All matrices are done best by one schedule, though by how much depends on their rows."""
    factor = np.where(data.known[:, 0] > 1000, 2.0, 3.0)
    model = seer.tree(data.known, np.stack([data.best, data.best * factor], axis=1))
    assert model.tree_.node_count > 1
    assert seer.branches(model, seer.KNOWN, NAMES) == "program_mapped"


def test_a_tree_is_python_and_text():
    found = "rows <= 9", ("mean <= 2.5", "a", "b"), "c"
    python = ["if rows <= 9:", "    if mean <= 2.5:", "        return a", "    return b", "return c"]
    assert seer.statements(found) == python
    console = Console(record=True, width=40, file=io.StringIO())
    console.print(seer.drawn(found))
    text = "rows <= 9?|├── yes: mean <= 2.5?|│   ├── yes: a|│   └── no: b|└── no: c"
    assert [line.rstrip() for line in console.export_text().splitlines()] == text.split("|")


def test_the_selector_of_the_package_names_schedules_only():
    draw = np.random.default_rng(0)
    for _ in range(1000):
        rows, columns, atoms, longest = (int(10 ** draw.uniform(0, 8)) for _ in range(4))
        known = rows, columns, atoms, atoms / rows
        assert selector.gathers(*known) in (True, False)
        uneven, empty = 10 ** draw.uniform(-2, 3), draw.random()
        assert {selector.by_known(*known), selector.by_gathered(*known, uneven, longest, empty)} <= set(SCHEDULES)


def test_a_schedule_with_a_wrong_result_is_never_chosen(data, tmp_path):
    found = measured()
    for each in found["matrices"]:
        del each["seconds"]["merge_path"]
    found["matrices"][0]["seconds"]["merge_path"] = 1.0
    (tmp_path / "wrong.json").write_text(json.dumps(found))
    wrong, _ = seer.load([str(tmp_path / "wrong.json")])
    assert (seer.fit(wrong, 100).choose(wrong)[0] == wrong.names.index("program_mapped")).all()


def test_the_report_says_what_each_way_to_choose_costs(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["seer", str(tmp_path / "times.json"), "--write", str(tmp_path / "made.py")])
    assert seer.main() == 0
    said = capsys.readouterr().out
    assert all(text in said for text in (*(f"always {name}" for name in NAMES), "two levels", "def by_gathered("))
    assert "0 matrices on no GPU, 2026-11-22" in (tmp_path / "made.py").read_text()
