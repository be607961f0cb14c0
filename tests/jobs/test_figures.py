"""python -m benchmarks: sweeps, sheets, pages, pictures, and a small real run of each CPU suite."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("rich")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import __main__ as command
from benchmarks import collectives, cpu, jobs, plots, pt2pt, record, runs, sheets, startup
from benchmarks.command import Suite
from benchmarks.figures import Figure, Report, of_ceiling
from benchmarks.peers import Peer
from benchmarks.rows import KIB, MIB, Row, in_turn, once, select, sweep
from benchmarks.runner import Contender, Effort, measure
from PIL import Image
from test_benchmarks import start

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import pages  # noqa: E402

PUT = [Row("put", "put", "put", n, bus=once, ceiling="memcpy", alias="osu_oshm_put") for n in (8, 64 * KIB, 16 * MIB)]
RATE = Row("rate", "puts", "puts", 8, bus=once, messages=True)
BARRIERS = [Row("Barrier by PEs", f"barrier_all, {n} PEs", "barrier_all", pes=n) for n in (2, 4, 32)]


def run(factor=1.0, suite="pt2pt"):
    """A run in which a put takes 1 µs and 10 GB/s, and the ceiling half as long."""
    found = Report(suite, ["pyshmem", "rival"], 2, {"date": "2026-11-22T00:00", "machine": {"CPU": "one", "cores": 2}})
    found.facts["versions"] = {"Python": "3"}
    for row in PUT:
        seconds = factor * (1e-6 + row.nbytes * 1e-10)
        found.results[row] = {
            "pyshmem": Figure("put()", samples=[seconds, seconds]),
            "memcpy": Figure(samples=[seconds / 2] * 2),
            "rival": Figure("its put", wrong="PE 1 has 3, not 4; "),
        }
    found.results[RATE] = {"pyshmem": Figure(samples=[factor * 4e-7])}
    for row in BARRIERS:
        found.results[row] = {"pyshmem": Figure(samples=[factor * 1e-6 * row.pes] * 2)}
    return found


def cells(found, title, earlier=None):
    """Of a sheet, as one dictionary for each line."""
    sheet = next(each for each in sheets.sheets(record.as_json(found), earlier) if title in each.title)
    return [dict(zip(sheet.header, line, strict=True)) for line in sheet.lines]


def test_a_sweep_has_both_ends_and_full_runs_every_power_of_two():
    sizes = sweep(8, 256 * MIB)
    assert list(sizes) == [8 << place for place in range(26)]
    assert [n for n, dense in sizes.items() if not dense] == [8 * 8**place for place in range(9)] + [256 * MIB]
    rows = [Row("a", "a", "a", n, dense=dense) for n, dense in sizes.items()]
    assert len(select(rows, None, dense=True)) == 26 and len(select(rows, None, dense=False)) == 10


def test_quick_leaves_out_rows_that_are_not_brief_unless_they_are_asked_for():
    rows = [Row("a", "a", "a", 8), Row("a", "a", "a", 16, brief=False)]
    assert select(rows, None, quick=True) == rows[:1] and select(rows, None) == rows
    assert select(rows, ["a 16"], quick=True) == rows[1:]


def test_no_row_begins_after_the_budget_and_those_are_listed(tmp_path, capsys):
    """The third row would begin at 11 s, by the clock that all PEs agree on."""

    class Immediate:
        peers = ("pyshmem",)

        def prepare(self, row, effort):
            return [Contender("pyshmem", {"pyshmem": Figure()}, lambda turn: {"pyshmem": 1.0})]

        def release(self):
            pass

    suite = Suite("gpu", PUT, Effort(0.0, 1, 1), Effort(0.0, 1, 1))
    options = suite.parser("").parse_args(["--budget", "10", "--json", str(tmp_path / "found.json")])
    times = iter([0.5, 9.9, 11.0])
    report = Report("gpu", ["pyshmem"], 2, {})
    assert suite.run(Immediate(), options, report, agreed=lambda seconds: next(times)) == 0
    assert list(report.results) == PUT[:2] and report.left_out == [PUT[2].key]
    (found,) = record.read_all(str(tmp_path / "found.json"))
    assert found["left_out"] == report.left_out and len(found["rows"]) == 2
    assert f"left out after the time of --budget: 1 rows: {PUT[2].key}" in capsys.readouterr().out


def test_groups_share_the_budget_and_jobs_of_their_own_come_last():
    rows = [Row(group, f"{group}{n}", "put", pes=pes) for group, pes in (("a", 0), ("b", 4), ("c", 0)) for n in (1, 2)]
    assert [row.name for row in in_turn(rows)] == ["a1", "c1", "a2", "c2", "b1", "b2"]
    assert [row.name for row in in_turn(rows, 1, 2)] == ["c2", "b1", "b2", "a1", "c1", "a2"]


def test_samples_of_several_runs_are_taken_together():
    both = [record.as_json(run()), record.as_json(run(1.5))]
    both[0]["left_out"] = [BARRIERS[2].key, "other"]
    del both[0]["rows"][-1]
    both[1]["rows"][0]["figures"] |= {"memcpy": {"missing": "no memory"}, "rival": {"samples": [1e-6]}}
    found = runs.together(both, [*PUT, RATE, *BARRIERS])
    assert list(found.results) == [*PUT, RATE, *BARRIERS] and found.left_out == ["other"]
    ours = found.results[PUT[0]]["pyshmem"]
    assert ours.samples == pytest.approx([1.0008e-6] * 2 + [1.5012e-6] * 2) and ours.spread == pytest.approx(0.2)
    assert len(found.results[PUT[0]]["memcpy"].samples) == 2 and not found.results[PUT[0]]["memcpy"].missing
    assert found.results[PUT[0]]["rival"].wrong and not found.results[PUT[0]]["rival"].samples
    again = runs.together([record.as_json(found)], [*PUT, RATE, *BARRIERS])
    assert again.results[PUT[0]]["pyshmem"] == ours, "a run of several runs keeps their spread"


def test_sheets_show_rates_shares_of_the_ceiling_and_the_names_of_others():
    first, middle, last = cells(run(), "put")
    assert first["pyshmem, µs"] == "1.00" and middle["pyshmem, µs"] == "7.55" and last["bytes"] == "16 Mi"
    assert middle["MB/s"] == "8676" and middle["of ceiling"] == "50%"
    assert [line["measured by others as"] for line in (first, middle)] == ["osu_oshm_put", ""]
    (rate,) = cells(run(), "rate")
    assert rate["messages/s"] == "2500000" and rate["MB/s"] == "20.0"


def test_a_peer_with_a_wrong_result_has_no_figure():
    for line in cells(run(), "put"):
        assert line["rival, µs"] == "wrong result" and "ours / rival" not in line
    figures = record.as_json(run())["rows"][0]["figures"]["rival"]
    assert figures["wrong"] and not {"median", "samples", "busbw"} & set(figures)


def test_a_ceiling_is_that_of_the_same_job():
    row = PUT[0]
    figures = {name: Figure(samples=[s]) for name, s in (("pyshmem", 4.0), ("memcpy", 2.0), ("rival", 8.0))}
    figures["memcpy beside rival"] = Figure(samples=[6.0])
    assert of_ceiling(row, figures, "pyshmem") == 0.5 and of_ceiling(row, figures, "rival") == 0.75
    assert of_ceiling(row, figures, "memcpy") is None is of_ceiling(row, figures, "memcpy beside rival")


def test_compare_marks_what_lies_outside_both_spreads(tmp_path):
    record.write_all(str(tmp_path / "old.json"), [record.as_json(run(0.5)), record.as_json(run(suite="gpu"))])
    _, earlier = record.read(str(tmp_path / "old.json"), "pt2pt")
    assert [line["ratio"] for line in cells(run(), "put", earlier)] == ["2.00 slower"] * 3
    assert cells(run(0.5), "rate", earlier)[0]["ratio"] == "1.00"
    with pytest.raises(ValueError, match="it has pt2pt, gpu but not startup"):
        record.read(str(tmp_path / "old.json"), "startup")


def test_medians_of_a_run_give_the_tables_of_pages_without_its_samples(tmp_path):
    found = run()
    noisy = PUT[1]
    found.results[noisy]["pyshmem"] = Figure(samples=[1e-6, 9e-6, 1e-4])
    path = record.write_medians(str(tmp_path), record.as_json(found))
    text = path.read_text()
    assert path.name == "pt2pt.json" and "samples" not in text and len(text.splitlines()) == 2 + 3  # a line for a group
    (kept,) = record.read_all(str(path))
    assert [row["key"] for row in kept["rows"]] == [row.key for row in found.results if row is not noisy]
    lines = sheets.markdown(kept).splitlines()
    assert "| put | 8 | 1.00 | 0% | 7.99 | 50% | osu_oshm_put |" in lines
    of_all = sheets.markdown(record.as_json(found)).splitlines()
    assert [line for line in lines if "barrier" in line] == [line for line in of_all if "barrier" in line]


@pytest.mark.parametrize("suite", pages.SUITES)
def test_figures_of_the_documentation_are_those_of_rows_that_can_be_measured_again(suite):
    (found,) = record.read_all(str(ROOT / "docs/figures" / f"{suite}.json"))
    rows = {(row.group, row.key, row.unit) for row in command._suite(suite).rows}
    assert found["suite"] == suite and found["rows"]
    assert not [row for row in found["rows"] if (row["group"], row["key"], row["unit"]) not in rows]
    assert f"## {suite}" in pages.figures().splitlines()


def test_pictures_show_sweeps_over_sizes_and_over_pes(tmp_path):
    drawn = plots.sweeps(record.as_json(run()), tmp_path)
    assert [path.name for path in drawn] == ["pt2pt_put.png", "pt2pt_Barrier_by_PEs.png"]
    for path in drawn:
        with Image.open(path) as image:
            assert len(image.convert("RGB").getcolors(image.width * image.height)) > 20


def test_what_an_earlier_run_measured_is_shown_drawn_and_written_again(tmp_path, capsys):
    record.write_all(str(tmp_path / "run.json"), [record.as_json(run())])
    again = tmp_path / "again.json"
    status = command.main(["--from", str(tmp_path / "run.json"), "--plots", str(tmp_path), "--json", str(again)])
    said = capsys.readouterr().out
    assert status == 0 and "osu_oshm_put" in said and "pt2pt_put.png" in said
    assert record.read_all(str(again)) == record.read_all(str(tmp_path / "run.json"))
    (tmp_path / "other.json").write_text("[]")
    assert command.main(["--from", str(tmp_path / "other.json")]) == 1
    assert "not written by --json of these benchmarks" in capsys.readouterr().err


def test_a_suite_that_fails_or_takes_too_long_is_named():
    assert (
        command._run([sys.executable, "-c", "import signal; signal.pause()"], 0.1) == "ended after the 0.1 s of --limit"
    )
    assert command._run([sys.executable, "-c", "raise SystemExit(3)"], 60) == "exit status 3"
    assert command._run([sys.executable, "-c", ""], 60) == ""


# -- real jobs


ONLY = {
    "pt2pt": ("8 B", "both ways, quiet 512 B", "atomic_swap", "Pairs", "matrix"),
    "collectives": ("8 B", "barrier_all, 2 PEs"),
    "startup": ("mappings, 2 PEs", "private memory, 2 PEs", "job, 1 PE"),
}
RUNS = {"collectives": 2}
ROWS = {module.SUITE.name: module.ROWS for module in (pt2pt, collectives, startup)}


@pytest.mark.parametrize("suite", ONLY)
def test_suite_checks_and_times_pyshmem_and_mpi4py(suite, tmp_path):
    """And compares with an earlier run, in which the first row took less time than any noise of the machine can hide."""
    path, old, first = tmp_path / "run.json", tmp_path / "old.json", select(ROWS[suite], ONLY[suite], 2, False)[0]
    earlier = Report(suite, ["pyshmem"], 2, {}, {first: {"pyshmem": Figure(samples=[1e-15, 1e-15])}})
    record.write(str(old), earlier)
    options = ("--quick", "--runs", RUNS.get(suite, 1), "--no-gpu", "--suite", suite, "--json", path, "--compare", old)
    done = start("benchmarks", *options, "--only", *ONLY[suite], environment={"SHMEM4PY_PYTHON": "no-such-python"})
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = record.read_all(str(path))
    assert found["suite"] == suite and found["n_pes"] == 2 and found["machine"]["cores"] and found["date"]
    assert f"slower than {old} beyond the spreads: 1 of 1 rows: {first.key}" in done.stdout
    assert list(found["missing"]) == ["shmem4py"] and "missing: shmem4py: not installed" in done.stdout
    assert [row["key"] for row in found["rows"]] == [row.key for row in select(ROWS[suite], ONLY[suite], 2, False)]
    for row in found["rows"]:
        figures = row["figures"]
        assert not any(figure.get("wrong") for figure in figures.values()), row
        assert figures["pyshmem"]["median"] > 0 and figures["pyshmem"]["spread"] >= 0
        assert len(figures["pyshmem"].get("runs", [0])) == RUNS.get(suite, 1)
        assert not row["bytes"] or figures["pyshmem"]["busbw"] > 0
    both = {row["row"] for row in found["rows"] if row["figures"].get("mpi4py", {}).get("samples")}
    assert len(both) >= (1 if suite == "startup" else 4), both


WRONG = """
from benchmarks.peers.mpi_calls import Library as Right


class Library(Right):
    def put_quiet(self, nbytes):
        return super().put_quiet(nbytes)._replace(statement="None")
"""


def test_a_peer_that_gives_a_wrong_result_or_does_not_start_gets_no_figure(tmp_path, monkeypatch):
    """Beside pyshmem: a library whose put moves nothing, and one whose job fails. The run goes on."""
    (tmp_path / "puts_nothing.py").write_text(WRONG)
    (tmp_path / "sitecustomize.py").write_text(f"import benchmarks.peers as p; p.__path__.append({str(tmp_path)!r})")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{jobs.ROOT}")
    monkeypatch.setenv("PYSHMEM_QUIET", "1")
    mpiexec = cpu.peers.find(None)
    ours = cpu.peers.pyshmem("pyshmem", str(jobs.ROOT), None)
    wrong = Peer("wrong", "puts_nothing", sys.executable, [mpiexec])
    dead = Peer("dead", "no_such_module", sys.executable, [mpiexec])
    wanted = [(cpu.peers.bound(peer, 2, False), 2) for peer in (ours, wrong, dead)]
    facts = {}
    clock = jobs.GroupsClock(["pyshmem", "wrong", "dead"], lambda row: wanted, facts)
    row = next(row for row in pt2pt.ROWS if row.key == "put, quiet 8")
    with clock.stack:
        figures = measure(row, clock, Effort(1e-4, 2, 2))
    assert figures["pyshmem"].samples and not figures["pyshmem"].wrong
    assert "PE 1 has" in figures["wrong"].wrong and not figures["wrong"].samples
    assert "did not start" in figures["dead"].missing or "No module" in figures["dead"].missing
    assert list(facts) == ["pyshmem", "wrong"]


def test_bench_without_its_packages_says_how_they_are_installed(monkeypatch, capsys):
    from pyshmem.launch import bench

    monkeypatch.setattr(bench, "NEEDED", ("rich", "no_such_module"))
    assert bench.main([]) == 1
    assert capsys.readouterr().err == "pyshmem bench: no_such_module missing: pip install no_such_module\n"


def test_bench_finds_the_suites_that_are_installed_in_the_package(tmp_path, monkeypatch, capfd):
    from pyshmem.launch import bench

    (tmp_path / "pyshmem" / "launch").mkdir(parents=True)
    (tmp_path / "pyshmem" / "suites").mkdir()
    (tmp_path / "pyshmem" / "suites" / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "pyshmem" / "launch" / "bench.py"))
    assert bench.main(["--list", "--suite", "startup"]) == 0
    assert capfd.readouterr().out.startswith("startup: ")


def test_bench_lists_its_rows_without_the_packages_of_extras(tmp_path):
    """What the first line of the installation brings is enough."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules.update(matplotlib=None, scipy=None)")
    command = [sys.executable, "-m", "pyshmem", "bench", "--list"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=200
    )
    assert done.returncode == 0 and "\npt2pt: " in "\n" + done.stdout, done.stderr


def test_a_wheel_has_all_suites():
    program = "from distutils.core import run_setup\nd = run_setup('setup.py', stop_after='init')\nprint(d.packages, d.package_dir)"
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools\n" + program], capture_output=True, text=True, cwd=ROOT
    )
    for folder in {file.parent.relative_to(ROOT) for file in (ROOT / "benchmarks").rglob("*.py")}:
        name = "pyshmem.suites." + ".".join(folder.parts)
        assert f"'{name}'," in done.stdout or f"'{name}']" in done.stdout, done.stderr
        assert f"'{name}': '{folder}'" in done.stdout


def test_bench_lists_the_rows_of_suites_from_any_folder_without_a_gpu(tmp_path):
    launcher = (pathlib.Path(sys.executable).with_name("pyshmem"),)
    done = start("bench", "--list", "--suite", *command.SUITES, launcher=launcher, cwd=tmp_path)
    names = dict.fromkeys(name for modules in command.SUITES.values() for name in modules)
    rows = [f"{name}: {row.group}: {row.key}" for name in names for row in command._suite(name).rows]
    assert done.returncode == 0 and done.stdout.splitlines() == rows, done.stderr
