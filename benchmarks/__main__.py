"""All suites by one command: tables, JSON, pictures, comparison with an earlier run, and the figures of documentation.

Run, from a checkout with pyshmem built in it: python -m benchmarks [--suite NAME ...] [--only TEXT ...] [--json FILE]
[--plots FOLDER] [--compare FILE] [--medians FOLDER]. Each suite runs several times in turn, as a process; on GPUs it is a
job of one PE for each GPU. --from FILE prints, draws and writes what earlier runs measured instead.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import command, record, runs, sheets, table
from benchmarks.rows import select

# suite: its modules
SUITES = {
    "pt2pt": ("pt2pt", "gpu_pt2pt"),
    "collectives": ("collectives", "gpu_collectives"),
    "startup": ("startup",),
    "gpu_pt2pt": ("gpu_pt2pt",),
    "gpu_collectives": ("gpu_collectives",),
    "gpu_libraries": ("gpu_libraries",),
    "ops": ("ops",),
    "models": ("models",),
    "nodes": ("nodes",),
}
DEFAULT = ("pt2pt", "collectives", "startup", "ops")
ON_GPUS = ("gpu_pt2pt", "gpu_collectives", "ops", "models")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _read(options) if options.file else _measure(options)
    except (OSError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1


def _measure(options: argparse.Namespace) -> int:
    """Run each module's command, several times in turn, and collect their JSON. Returns 1 if one of them fails."""
    known = {run["suite"] for run in record.read_all(options.compare)} if options.compare else set()
    wanted = dict.fromkeys(module for name in options.suite or DEFAULT for module in SUITES[name])
    modules = [module for module in wanted if select(_suite(module).rows, options.only)]
    if options.list:
        for module in modules:
            print("\n".join(f"{module}: {row.group}: {row.key}" for row in select(_suite(module).rows, options.only)))
        return 0
    gpus = _gpus(options) if set(modules) & set(ON_GPUS) else 0
    for module in modules:
        if module in ON_GPUS and not gpus:
            print(f"{module}: not measured: {'--no-gpu' if options.no_gpu else 'there is no GPU'}\n")
    modules = [module for module in modules if gpus or module not in ON_GPUS]
    found: dict[str, list[dict[str, Any]]] = {module: [] for module in modules}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(1, options.runs + 1):
            for module in modules:
                path = Path(folder, f"{module}-{turn}.json")
                command_line = [*_launcher(module, gpus), *_passed(options, module), "--turn", str(turn)]
                command_line += ["--json", str(path)]
                begun = (turn - 1) * len(modules) + modules.index(module) + 1
                print(
                    f"{module}: run {turn} of {options.runs}; {begun} of {len(modules) * options.runs} in all",
                    file=sys.stderr,
                )
                status = _run(command_line, options.limit)
                failed += [f"{module} ({status})"] if status else []
                found[module] += record.read_all(str(path)) if path.exists() else []
    reports = [runs.together(each, _suite(module).rows) for module, each in found.items() if each]
    for report in reports:
        compare = options.compare if report.suite in known else None
        command.show(report, compare, _suite(report.suite).sweeps)
    _publish(options, [record.as_json(report) for report in reports])
    if failed:
        print(f"benchmarks: failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _run(command_line: list[str], limit: float) -> str:
    """Run a suite and return why it failed, or "", without its table. One that takes too long is ended, with its jobs."""
    with subprocess.Popen(command_line, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            return f"ended after the {limit:g} s of --limit"
    return f"exit status {process.returncode}" if process.returncode else ""


def _read(options: argparse.Namespace) -> int:
    """Show what a file holds, beside the earlier run where there is one."""
    found = [run for file in options.file for run in record.read_all(file)]
    names = {module for name in options.suite or SUITES for module in SUITES[name]}
    found = _of_suites([run for run in found if run["suite"] in names])
    earlier = {run["suite"] for run in record.read_all(options.compare)} if options.compare else set()
    for run in found:
        name = run["suite"]
        sheets.show(table.terminal(), run, record.read(options.compare, name)[1] if name in earlier else None)
    _publish(options, found)
    return 0


def _of_suites(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one run for each suite."""
    of: dict[str, list[dict[str, Any]]] = {}
    for run in found:
        of.setdefault(run["suite"], []).append(run)
    return [
        each[0] if len(each) == 1 else record.as_json(runs.together(each, _suite(suite).rows))
        for suite, each in of.items()
    ]


def _publish(options: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    if options.json:
        record.write_all(options.json, found)
    if options.plots:
        _draw(options.plots, found)
    if options.medians:
        print("written:", *(record.write_medians(options.medians, run) for run in found if not run.get("no_figures")))


def _draw(folder: Path, found: list[dict[str, Any]]) -> None:
    try:
        from benchmarks import plots
    except ImportError as error:
        print(f"not drawn: {error}; where it is installed: python -m benchmarks --from FILE --plots FOLDER")
        return
    folder.mkdir(parents=True, exist_ok=True)
    print("drawn:", *(path for run in found if not run.get("no_figures") for path in plots.sweeps(run, folder)))


def _suite(module: str) -> command.Suite:
    found: command.Suite = import_module(f"benchmarks.{module}").SUITE
    return found


def _launcher(module: str, gpus: int) -> list[str]:
    if module not in ON_GPUS:
        return [sys.executable, "-m", f"benchmarks.{module}"]
    return [str(Path(sys.executable).with_name("pyshmemrun")), "-n", str(gpus), "-m", f"benchmarks.{module}"]


def _passed(options: argparse.Namespace, module: str) -> list[str]:
    """The options that the module's command has too."""
    passed = [f"--{name}" for name in ("quick", "full", "alone") if getattr(options, name)]
    passed += ["--of-runs", str(options.runs), *(["--only", *options.only] if options.only else [])]
    passed += ["--budget", str(options.budget)] if options.budget else []
    return passed + (["-n", str(options.n)] if module not in (*ON_GPUS, "nodes") else [])


def _gpus(options: argparse.Namespace) -> int:
    if options.no_gpu:
        return 0
    import torch

    return min(torch.cuda.device_count(), options.gpus)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--suite", nargs="+", choices=SUITES, metavar="NAME", help=f"of {', '.join(SUITES)}")
    command.add_options(parser)
    parser.add_argument(
        "--runs", type=int, default=3, metavar="N", help="runs of each suite that share the samples (3)"
    )
    parser.add_argument("-n", type=int, default=2, metavar="PES", help="PEs of the suites on the CPU heap (2)")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="use at most N GPUs (8), a PE on each")
    parser.add_argument("--no-gpu", action="store_true", help="leave out the suites on GPUs")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="end a suite's run after S seconds (600)")
    parser.add_argument("--plots", metavar="FOLDER", type=Path, help="draw the sweeps, with the ceilings as lines")
    parser.add_argument("--medians", metavar="FOLDER", help="write each suite's medians: docs/figures")
    parser.add_argument(
        "--from", dest="file", nargs="+", metavar="FILE", help="measure nothing: take --json FILEs together"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
