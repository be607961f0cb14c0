"""All suites by one command: tables, JSON, pictures, comparison with an earlier run, and the tables of documentation.

Run, from a checkout with pyshmem built in it: python -m benchmarks [--suite NAME ...] [--only TEXT ...] [--json FILE]
[--plots FOLDER] [--compare FILE] [--write-docs PAGE]. Each suite runs in a process of its own; those on GPUs are jobs of one
PE for each GPU. --from FILE prints, draws and writes what an earlier run measured instead.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import record, sheets
from benchmarks.command import Suite
from benchmarks.rows import select

# suite: its modules
SUITES = {
    "host": ("host",),
    "pt2pt": ("pt2pt", "gpu_pt2pt"),
    "collectives": ("collectives", "gpu_collectives"),
    "startup": ("startup",),
    "gpu": ("gpu",),
    "gpu_pt2pt": ("gpu_pt2pt",),
    "gpu_collectives": ("gpu_collectives",),
    "gpu_libraries": ("gpu_libraries",),
    "ops": ("ops",),
    "models": ("models",),
    "nodes": ("nodes",),
}
DEFAULT = ("host", "pt2pt", "collectives", "startup", "gpu", "ops")
ON_GPUS = ("gpu_pt2pt", "gpu_collectives", "gpu", "ops", "models")
WITH_PLOTS = ("ops",)  # that draw pictures of their own too


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _read(options) if options.file else _measure(options)
    except (OSError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1


def _measure(options: argparse.Namespace) -> int:
    """Run each module's command and collect their JSON. Returns 1 if one of them fails."""
    known = {run["suite"] for run in record.read_all(options.compare)} if options.compare else set()
    wanted = dict.fromkeys(module for name in options.suite or DEFAULT for module in SUITES[name])
    modules = [module for module in wanted if select(_suite(module).rows, options.only)]
    if options.list:
        for module in modules:
            print("\n".join(f"{module}: {row.group}: {row.key}" for row in select(_suite(module).rows, options.only)))
        return 0
    gpus = _gpus(options) if set(modules) & set(ON_GPUS) else 0
    runs, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for module in modules:
            if module in ON_GPUS and not gpus:
                print(f"{module}: not measured: {'--no-gpu' if options.no_gpu else 'there is no GPU'}\n")
                continue
            path = Path(folder, f"{module}.json")
            command = [*_launcher(module, gpus), *_passed(options, module), "--json", str(path)]
            command += ["--compare", options.compare] if module in known else []
            status = _run(command, options.limit)
            found = record.read_all(str(path)) if path.exists() else []
            if status:
                failed.append(f"{module} ({status})")
                _show(options, found)
            runs += found
    _publish(options, runs)
    if failed:
        print(f"benchmarks: failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _run(command: list[str], limit: float) -> str:
    """Run a suite and return why it failed, or "". One that takes too long is ended, with its jobs."""
    with subprocess.Popen(command) as process:
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            return f"ended after the {limit:g} s of --limit"
    return f"exit status {process.returncode}" if process.returncode else ""


def _read(options: argparse.Namespace) -> int:
    """Show what a file holds, beside the earlier run where there is one."""
    runs = record.read_all(options.file)
    names = {module for name in options.suite or SUITES for module in SUITES[name]}
    runs = [run for run in runs if run["suite"] in names]
    _show(options, runs)
    _publish(options, runs)
    return 0


def _show(options: argparse.Namespace, runs: list[dict[str, Any]]) -> None:
    earlier = {run["suite"] for run in record.read_all(options.compare)} if options.compare else set()
    console = Console(width=None if sys.stdout.isatty() else 200)
    for run in runs:
        name = run["suite"]
        sheets.show(console, run, record.read(options.compare, name)[1] if name in earlier else None)


def _publish(options: argparse.Namespace, runs: list[dict[str, Any]]) -> None:
    if options.json:
        record.write_all(options.json, runs)
    if options.plots:
        _draw(options.plots, runs)
    if options.write_docs:
        print(f"{options.write_docs}: tables of", *sheets.write_docs(options.write_docs, runs) or ["no suite"])


def _draw(folder: Path, runs: list[dict[str, Any]]) -> None:
    try:
        from benchmarks import plots
    except ImportError as error:
        print(f"not drawn: {error}; where it is installed: python -m benchmarks --from FILE --plots FOLDER")
        return
    folder.mkdir(parents=True, exist_ok=True)
    print("drawn:", *(path for run in runs if not run.get("no_figures") for path in plots.sweeps(run, folder)))


def _suite(module: str) -> Suite:
    found: Suite = import_module(f"benchmarks.{module}").SUITE
    return found


def _launcher(module: str, gpus: int) -> list[str]:
    if module not in ON_GPUS:
        return [sys.executable, "-m", f"benchmarks.{module}"]
    return [str(Path(sys.executable).with_name("pyshmemrun")), "-n", str(gpus), "-m", f"benchmarks.{module}"]


def _passed(options: argparse.Namespace, module: str) -> list[str]:
    """The options that the module's command has too."""
    passed = [f"--{name}" for name in ("quick", "full", "alone") if getattr(options, name)]
    passed += ["--only", *options.only] if options.only else []
    passed += ["--budget", str(options.budget)] if options.budget else []
    passed += ["-n", str(options.n)] if module not in (*ON_GPUS, "nodes") else []
    return passed + (["--plots", str(options.plots)] if options.plots and module in WITH_PLOTS else [])


def _gpus(options: argparse.Namespace) -> int:
    if options.no_gpu:
        return 0
    import torch

    return min(torch.cuda.device_count(), options.gpus)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--suite", nargs="+", choices=SUITES, metavar="NAME", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows with a TEXT in group, name or bytes")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples, and fewer rows")
    parser.add_argument("--full", action="store_true", help="every size of the sweeps, and the largest jobs")
    parser.add_argument("--alone", action="store_true", help="without other libraries")
    parser.add_argument("-n", type=int, default=2, metavar="PES", help="PEs of the suites on the CPU heap (2)")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="use at most N GPUs (8), a PE on each")
    parser.add_argument("--no-gpu", action="store_true", help="leave out the suites on GPUs")
    parser.add_argument("--budget", type=float, metavar="S", help="begin no row of a suite after S seconds; list those")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="end a suite after S seconds (600)")
    parser.add_argument("--json", metavar="FILE", help="write every sample of all suites to FILE")
    parser.add_argument("--plots", metavar="FOLDER", type=Path, help="draw the sweeps, with the ceilings as lines")
    parser.add_argument("--compare", metavar="FILE", help="print the ratios to an earlier run's --json FILE")
    parser.add_argument("--write-docs", metavar="PAGE", help="write the tables between their marks in PAGE")
    parser.add_argument("--from", dest="file", metavar="FILE", help="measure nothing: take the runs of a --json FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
