"""The decision tree of benchmarks.seer, trained on times that follow a rule."""

import json
import pathlib
import sys

import numpy as np
import pytest

pytest.importorskip("rich")
pytest.importorskip("sklearn")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import seer
from pyshmem.irregular import SCHEDULES, selection

NAMES = ["program_mapped", "merge_path"]


def measured(count=400):
    """merge_path is ten times as fast where rows are uneven."""
    draw = np.random.default_rng(0)
    matrices = []
    for _ in range(count):
        rows, uneven = int(draw.integers(10, 2000)), bool(draw.random() < 0.5)
        features = {"rows": rows, "columns": 500, "atoms": rows * 6, "mean": 6.0, "empty": 0.0}
        features |= {"uneven": 3.0 if uneven else 0.1, "longest": 90 if uneven else 9}
        seconds = dict(zip(NAMES, (1e-5, 1e-6) if uneven else (1e-6, 1e-5), strict=True)) | {"torch.sparse": 2e-6}
        matrices.append({"features": features, "seconds": seconds, "gathering": 1e-5})
    return {"date": "2026-11-22", "matrices": matrices}


@pytest.fixture
def data(tmp_path):
    (tmp_path / "times.json").write_text(json.dumps(measured()))
    return seer.load([str(tmp_path / "times.json")])[0]


def grown(data):
    return seer.tree(data.features, data.seconds)


def test_the_tree_chooses_the_fastest_and_its_time_includes_the_pass_over_the_offsets(data):
    assert (seer.chosen(grown(data), data.features) == data.seconds.argmin(axis=1)).all()
    assert seer.ways(data, 10)[seer.TREE] == pytest.approx(data.best + 1e-5 / 10)


def test_figures_are_of_matrices_that_were_held_out(data):
    """Times without a rule: a tree that has seen a matrix would know it, one that has not errs half the time."""
    shuffled = np.random.default_rng(1).permutation(len(data.seconds))
    random = data._replace(seconds=data.seconds[shuffled])
    right = seer.held_out(random) == random.seconds.argmin(axis=1)
    assert 0.4 < right.mean() < 0.6
    assert (seer.held_out(data) == data.seconds.argmin(axis=1)).all()


def test_the_function_chooses_as_the_tree_does(data):
    model, written = grown(data), {}
    exec(seer.module(seer.branches(model, NAMES), "a test", ""), written)
    for features, number in zip(data.features, seer.chosen(model, data.features), strict=True):
        assert written["schedule_for"](*features) == NAMES[number]


def test_a_tree_is_python():
    branch = "rows <= 9", ("mean <= 2.5", "a", "b"), "c"
    python = ["if rows <= 9:", "    if mean <= 2.5:", '        return "a"', '    return "b"', 'return "c"']
    assert seer.statements(branch) == python


def test_the_selector_of_the_package_names_schedules_only():
    draw = np.random.default_rng(0)
    for _ in range(1000):
        rows, columns, atoms, longest = (int(10 ** draw.uniform(0, 8)) for _ in range(4))
        uneven, empty = 10 ** draw.uniform(-2, 3), draw.random()
        assert selection.schedule_for(rows, columns, atoms, atoms / rows, uneven, longest, empty) in SCHEDULES


@pytest.mark.parametrize(("longest", "schedule"), [(24, "program_mapped"), (25, "by_length"), (50_000, "by_length")])
def test_the_selector_of_the_package_takes_large_matrices_by_their_longest_row(longest, schedule):
    for atoms in (900_000, 1 << 33):
        assert selection.schedule_for(atoms // 5, 9, atoms, 5.0, 1.0, longest, 0.0) == schedule


def test_a_schedule_with_a_wrong_result_is_never_chosen(data, tmp_path):
    times = measured()
    for each in times["matrices"]:
        del each["seconds"]["merge_path"]
    times["matrices"][0]["seconds"]["merge_path"] = 1.0
    (tmp_path / "wrong.json").write_text(json.dumps(times))
    wrong, _ = seer.load([str(tmp_path / "wrong.json")])
    assert (seer.chosen(grown(wrong), wrong.features) == wrong.names.index("program_mapped")).all()


def test_the_report_says_what_each_way_to_choose_costs(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["seer", str(tmp_path / "times.json"), "--write", str(tmp_path / "made.py")])
    assert seer.main() == 0
    said = capsys.readouterr().out
    assert all(text in said for text in (*(f"always {name}" for name in NAMES), seer.TREE, "uneven <= "))
    assert "0 matrices on no GPU, 2026-11-22" in (tmp_path / "made.py").read_text()
