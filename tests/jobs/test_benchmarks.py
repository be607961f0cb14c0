"""The benchmarks' own machinery: rows, statistics, table, JSON and --compare. What they measure is not tested."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import replace
from functools import partial
from io import StringIO

import pytest

pytest.importorskip("rich")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import __main__ as command
from benchmarks import gpu_libraries, gpu_pt2pt, nodes, record, table
from benchmarks.figures import BOUND, Figure, Report, of_bound, ratio
from benchmarks.rows import KIB, MIB, Row, once, select
from benchmarks.runner import Contender, Effort, measure
from jobs import warm, warm_environment
from rich.console import Console

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = {name: command._suite(name) for modules in command.SUITES.values() for name in modules}
SECONDS = 100  # for a job that should take five
COPY = Row("Copies", "put", "put", 64 * KIB, bus=once, ceiling="engine")
WORD = Row("Host", "put[0]", "word")


def report(**figures):
    """Of two rows; each figure is (samples of COPY, samples of WORD)."""
    found = Report("gpu", list(figures), 2, {"date": "2026-11-22", "machine": {"CPU": "one"}})
    for number, row in enumerate((COPY, WORD)):
        found.results[row] = {name: Figure(name, samples=samples[number]) for name, samples in figures.items()}
    return found


def printed(found, *earlier):
    console = Console(width=200, file=StringIO(), color_system=None)
    table.describe(console, found)
    table.show(console, found, *earlier)
    return console.file.getvalue()


def start(*arguments, environment=None, launcher=None, cwd=ROOT):
    """Run a module, or what ``launcher`` says, in processes that have torch already."""
    foreign = ("PMI_", "OMPI_", "PYSHMEM_JOB", "SHMEM4PY")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    variables |= {"PYSHMEM_QUIET": "1", "PYTHONPATH": str(ROOT), **(environment or {})}
    command = [*map(str, (*(launcher or (warm_environment(), "-m")), *arguments))]
    try:
        return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as expired:
        pytest.fail(f"not over after {SECONDS} s: {command}\n{expired.stdout}\n{expired.stderr}")


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_rows_are_well_formed(suite):
    keys = [(row.key, row.parameters) for row in suite.rows]
    assert len(set(keys)) == len(keys) == len({row.key for row in suite.rows})
    groups = [name for name, _ in itertools.groupby(row.group for row in suite.rows)]
    assert len(groups) == len(set(groups))
    for row in suite.rows:
        assert row.operation.isidentifier() and row.steps > 0 and row.least_pes > 0
        assert not row.bus or (row.nbytes > 0 and row.bus(4) > 0)
        assert not row.ceiling or row.bus or suite.name in ("startup", "models")


@pytest.mark.parametrize("name", ["gpu_pt2pt", "gpu_collectives", "ops"])
def test_every_row_has_its_operation(name):
    text = (ROOT / "benchmarks" / "operations" / f"{name}.py").read_text()
    assert not [row.operation for row in SUITES[name].rows if f"    def {row.operation}(self, nbytes: int" not in text]


def test_rows_are_selected_by_group_name_and_size():
    def names(*only, n_pes=2):
        return {row.key for row in select(gpu_pt2pt.ROWS, only, n_pes)}

    assert names("put, quiet by the host 8 B") == names("put, quiet by the host 8\n") == {"put, quiet by the host 8"}
    assert names("Words by the host") == {"p by the host", "g by the host", "atomic_fetch_add by the host"}
    assert names("Pairs 64 MiB", "copy within") >= {f"copy within the memory of a GPU {256 * MIB}"}
    assert "put, PE 2 to 0" not in " ".join(names()) and not names("Words", n_pes=1)
    assert select(gpu_pt2pt.ROWS, None) == list(gpu_pt2pt.ROWS)


def test_figures_have_median_and_half_the_interquartile_range():
    assert Figure(samples=[3.0, 1.0, 2.0, 5.0, 4.0]).median == 3.0
    assert Figure(samples=[3.0, 1.0, 2.0, 5.0, 4.0]).spread == pytest.approx(1 / 3)
    assert Figure(samples=[7.0]).spread == 0.0
    assert ratio(Figure(samples=[1.0]), Figure()) is None
    assert ratio(Figure(samples=[1.0]), Figure(samples=[2.0])) == 0.5


def test_runner_takes_turns_divides_by_steps_and_leaves_out_what_is_wrong():
    order = []

    class TwoPeers:
        peers = ("pyshmem", "rival", "broken")

        def prepare(self, row, effort):
            figures = {"pyshmem": Figure(), "rival": Figure(), "broken": Figure(wrong="it is 3, not 4")}
            return [Contender(name, {name: figure}, partial(self.sample, name)) for name, figure in figures.items()]

        def sample(self, name, turn):
            order.append((turn, name))
            return {name: 8.0 + turn}

        def release(self):
            order.append("released")

    figures = measure(Row("A", "row", "row", steps=2), TwoPeers(), Effort(0.0, 3, 3))
    turns = [(0, "rival"), (0, "pyshmem"), (1, "pyshmem"), (1, "rival"), (2, "rival"), (2, "pyshmem")]
    assert order == [*turns, "released"]
    assert figures["pyshmem"].samples == figures["rival"].samples == [4.0, 4.5, 5.0]
    assert figures["broken"].samples == []


def test_bound_is_the_slowest_of_its_peers_that_were_measured():
    """It is a figure of its own."""
    row = Row("A", "row", "row", bound=("a", "b", "c"))

    class Peers:
        peers = ("pyshmem", "a", "b", "c")

        def prepare(self, row, effort):
            times = {"pyshmem": 5.0, "a": 3.0, "b": 4.0}
            known = [Contender(name, {name: Figure()}, lambda turn, n=name: {n: times[n]}) for name in times]
            return [*known, Contender("c", {"c": Figure(missing="there is none")}, lambda turn: {})]

        def release(self):
            pass

    found = Report("ops", list(Peers.peers), 2, {})
    figures = found.results[row] = measure(row, Peers(), Effort(0.0, 2, 2))
    assert figures[BOUND].samples == [4.0, 4.0] and figures[BOUND].statement == "b"
    assert of_bound(figures, figures["pyshmem"]) == 0.8
    text = printed(found)
    assert "5.00 s ±  0% 80.0%" in text and "4.00 s ±  0% " in text
    assert record.as_json(found)["rows"][0]["figures"]["pyshmem"]["of_bound"] == 0.8
    none = measure(replace(row, bound=("c",)), Peers(), Effort(0.0, 2, 2))
    assert none[BOUND].missing == "none of c was measured"


def test_json_comes_back_and_is_compared(tmp_path):
    old, new = report(pyshmem=([1e-6, 1e-6], [1e-6, 1e-6])), report(pyshmem=([1e-6, 1e-6], [2e-6, 2.1e-6]))
    path = tmp_path / "old.json"
    record.write(str(path), old)
    found = json.loads(path.read_text())
    assert found["suite"] == "gpu" and found["n_pes"] == 2 and found["machine"] == {"CPU": "one"} and found["date"]
    assert found["rows"][0]["figures"]["pyshmem"]["samples"] == [1e-6, 1e-6]
    assert found["rows"][0]["figures"]["pyshmem"]["busbw"] == pytest.approx(65.536)
    _, earlier = record.read(str(path), "gpu")
    assert earlier[WORD.key].samples == [1e-6, 1e-6]
    text = printed(new, earlier, "old.json")
    assert "2.05 slower" in text
    assert "slower than old.json beyond the spreads: 1 of 2 rows: put[0]" in text


def test_a_change_within_the_spreads_is_none():
    noisy = Figure(samples=[1.0, 1.2, 0.8])
    assert table.change(Figure(samples=[1.05]), noisy) == ""
    assert table.change(Figure(samples=[1.3]), noisy) == "slower"
    assert table.change(Figure(samples=[0.5]), noisy) == "faster"
    assert table.change(Figure(samples=[1.015]), Figure(samples=[1.0])) == ""  # GPUs at another clock


def test_spread_of_several_runs_is_the_distance_of_the_farthest_if_that_is_more():
    samples = [1.0, 1.0, 1.0, 1.1, 1.1, 1.1, 1.3, 1.3, 1.3]
    assert Figure(samples=samples).spread == pytest.approx(0.15 / 1.1)
    assert Figure(samples=samples, runs=[1.0, 1.1, 1.3]).spread == pytest.approx(0.2 / 1.1)
    assert Figure.read({"median": 1.1, "samples": samples, "runs": [1.0, 1.1, 1.3]}).spread == pytest.approx(0.2 / 1.1)
    assert Figure(samples=[1.0, 2.0, 3.0], runs=[2.0]).spread == pytest.approx(0.25)


def test_compare_refuses_a_file_before_it_measures(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    done = start("benchmarks.pt2pt", "--compare", tmp_path / "other.json")
    assert done.returncode == 1 and "not written by --json of these benchmarks" in done.stderr


def test_nodes_suite_checks_and_times_each_library_of_a_group(tmp_path):
    """The rows of pretended nodes, by the states of the target; a wrong result would leave a figure without samples."""
    path, place = tmp_path / "nodes.json", nodes.PRETENDED
    names = [
        f"{place}: {name}, target {state}"
        for name, state in zip(("put", "g", "atomic_fetch_add"), nodes.STATES, strict=True)
    ]
    names += [f"{place}: {name}" for name in ("get, target asleep", "flood of puts", "put_signal, round trip")]
    done = start("benchmarks.nodes", "--quick", "--json", path, "--only", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())["rows"]
    assert {row["row"] for row in found} == set(names)
    for row in found:
        libraries = {"pyshmem", nodes.MPI} | ({nodes.TCP} if "target" in row["row"] else set())
        timed = {name for name, figure in row["figures"].items() if figure.get("samples")}
        why = {name: figure for name, figure in row["figures"].items() if name not in timed}
        assert timed == libraries, why


def test_gpu_libraries_checks_each_row_and_names_the_libraries_that_are_missing(tmp_path):
    """Without a GPU, so of pyshmem alone; a wrong result would leave a row without samples."""
    path = tmp_path / "libraries.json"
    only = ("put 8 B", "4 KiB", "barrier", "atomic", "flag")
    environment = {"SHMEM_SYMMETRIC_SIZE": "64m", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    done = start("benchmarks.gpu_libraries", "--quick", "--json", path, "--only", *only, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())
    assert found["no_figures"] and found["missing"] == dict.fromkeys(gpu_libraries.LIBRARIES, "there is no GPU")
    assert all(row["figures"]["pyshmem"]["samples"] for row in found["rows"]) and len(found["rows"]) == 11


def test_a_library_that_is_not_installed_is_listed_and_not_started(monkeypatch):
    monkeypatch.setattr(gpu_libraries, "find_spec", lambda module: module == "iris")
    measured, missing = gpu_libraries.found("mpiexec", 2)
    assert [peer.name for peer in measured] == ["pyshmem", "Iris"] and missing == {"NVSHMEM": "not installed"}


OF_GPUS = {
    "gpu_pt2pt": ("host 8 B", "p by the host", "put in a kernel 8 B", "get in a kernel 8 B", "load of tiles in a kernel 4 KiB",
                  "fetch_add", "empty"),
    "gpu_collectives": ("eager 16 B", "barrier_all", "barrier_on_stream", "graph 64 B"),
    "ops": ("gemm_all_reduce S0", "gemm_all_gather by columns, a call", "gemm_reduce_scatter T0"),
}  # fmt: skip


@pytest.mark.parametrize("name, only", OF_GPUS.items(), ids=OF_GPUS)
def test_gpu_suite_tries_its_harness_without_a_gpu(name, only, tmp_path):
    launcher = (pathlib.Path(sys.executable).with_name("pyshmemrun"), "-n", 2, *warm())
    program, path = tmp_path / "program.py", tmp_path / "tried.json"
    program.write_text(
        f"import sys, runpy\nsys.path.insert(0, {str(ROOT)!r})\nrunpy.run_module('benchmarks.{name}', None, '__main__')"
    )
    arguments = (program, "--quick", "--only", *only, "--json", path)
    environment = {"SHMEM_SYMMETRIC_SIZE": "64m", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    done = start(*arguments, launcher=launcher, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the numbers are no figures" in done.stdout
    found = json.loads(path.read_text())
    assert found["no_figures"]
    assert found["rows"] and all(row["figures"]["pyshmem"]["samples"] for row in found["rows"])
    if name == "ops":  # GEMM beside copies: only where a schedule of copies could reach it
        beside = {row["row"]: row["figures"].get("GEMM beside copies", {}) for row in found["rows"]}
        assert [row for row, figure in beside.items() if figure.get("samples")] == ["gemm_reduce_scatter T0"]
