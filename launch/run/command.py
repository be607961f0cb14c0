"""The command line of pyshmemrun."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyshmem.base import interpreter
from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, grouped, listed
from pyshmem.base.parsers import parse_json, shown
from pyshmem.start import requirements
from pyshmem.timelines import merging
from pyshmem.timelines.report.units import whole
from pyshmem.version import __version__

from . import hosts, libmpi, pe
from .job import Job, end_descendants, let_signals_end
from .launchers import LAUNCHERS, Found, LaunchError, candidates, named, srun_mpi
from .leftovers import JobDirectory, remove_stale
from .output import Output, told
from .progress import Progress, left_early

FOUND = 3  # the exit status if the program ended well and the checker has found something
USAGE = "pyshmemrun -n PES [options] [-m] PROGRAM [argument ...]"
DESCRIPTION = """Start PES copies of PROGRAM, one per PE, through the MPI that mpi4py loads.

PROGRAM is a .py file or, after -m, a module, which runs under the Python that runs pyshmemrun. Any other PROGRAM is an
executable (./a.out, pytest), which is searched for beside that Python, then on PATH. Arguments after PROGRAM are
passed to it."""
EPILOG = """pyshmemrun uses the first launcher it finds: --mpiexec; the mpiexec of this Python's environment; srun inside
a Slurm allocation; mpiexec on PATH. It makes mpi4py load the MPI of the launcher.

The first PE that fails ends the job within 10 seconds, with all processes that the job started on this machine.
Exit status: that of the first failing PE, 128 + n if signal n killed it; 124 after --timeout, and where PEs have waited
PYSHMEM_WAIT_TIMEOUT seconds for one that does not start, come out of init, or end; 2 if the job cannot start.
INT, TERM, HUP, USR1 and USR2 are forwarded to the PEs; a second Ctrl-C kills them. Standard input goes to PE 0."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    _open_standard_files()
    parser = _parser()
    options = parser.parse_args(arguments)
    options.interactive |= options.cells
    if options.interactive == bool(options.program):
        parser.error("expected either a PROGRAM or -i")
    if options.check and options.trace:
        parser.error("expected either --check or --trace")
    if options.interactive:
        options.program, options.module = "pyshmem.launch.run.interactive", True
        options.arguments = ["--cells"] * options.cells
    try:
        return _launch(options)
    except (LaunchError, ArgumentError, OSError) as error:  # the last for a full disk
        print(f"pyshmemrun: {error}", file=sys.stderr)
        return 2


def _open_standard_files() -> None:
    """Open standard files that are closed on /dev/null: a pipe that took the number of one would be used as that one."""
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(file)
    if sys.stderr is None:  # print would take standard output instead
        sys.stderr = os.fdopen(2, "w")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "pyshmemrun",
        USAGE,
        DESCRIPTION,
        EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pyshmemrun of pyshmem {__version__}")
    tasks = os.environ.get("SLURM_NTASKS")
    parser.add_argument("-n", "-np", "--np", type=whole, required=not tasks, default=tasks, metavar="PES",
                        help="number of PEs; in a Slurm job the default is its number of tasks")  # fmt: skip
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module, as for python -m")
    parser.add_argument("--mpiexec", metavar="COMMAND", help="the launcher: its path, with options if needed")
    names = ["auto", *dict.fromkeys(row.name for row in LAUNCHERS)]
    parser.add_argument("--launcher", choices=names, default="auto", help="the kind of launcher to search for")
    parser.add_argument(
        "--heap-size", metavar="SIZE", help="each PE's heap, such as 512M or 2G; sets SHMEM_SYMMETRIC_SIZE"
    )
    parser.add_argument(
        "--timeout", type=whole, metavar="SECONDS", help="end the job after this time; its PEs print where they are"
    )
    parser.add_argument("--dump-after", type=whole, metavar="SECONDS",
                        help="then make each PE print where it is and what it waits for")  # fmt: skip
    parser.add_argument("--report", action="store_true", help="print the host, cores, NUMA node and GPU of each PE")
    parser.add_argument("-l", "--label", action="store_true", help="put the PE before each line of its output: [3] ...")
    parser.add_argument("--trace", type=_timeline, metavar="FILE",
                        help="write a timeline of all PEs' calls to FILE, out.json, for ui.perfetto.dev")  # fmt: skip
    _add_check(parser)
    parser.add_argument("--bind", choices=["share", "core", "none"], default="share",
                        help="the cores of a PE: its share of the host's, one, or all")  # fmt: skip
    hosts.add_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the launcher's command line and start nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the launcher's command line")
    parser.add_argument("-i", "--interactive", action="store_true", help="in place of PROGRAM: a prompt for all PEs")
    parser.add_argument("--cells", action="store_true", help=argparse.SUPPRESS)  # for notebook.py
    parser.add_argument("program", metavar="PROGRAM", nargs="?", help="the program that every PE runs")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="argument", help="passed to PROGRAM")
    return parser


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", dest="check", action="store_const", const="program",
                        help="report accesses that the memory model does not order")  # fmt: skip
    parser.add_argument("--check=all", dest="check", action="store_const", const="all",
                        help="also those between lines of pyshmem's operators")  # fmt: skip
    parser.add_argument("--check=schedules", dest="check", action="store_const", const="schedules",
                        help="report nothing; let calls take effect late, so that a wrong program fails")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="with --check=schedules, which schedule")
    parser.add_argument("--check-file", metavar="FILE", help="with --check, write what it finds to FILE as JSON")


def _timeline(text: str) -> Path:
    try:
        return Path(parse_json(text)).absolute()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {shown(text)}; expected {error}") from None


def _launch(options: argparse.Namespace) -> int:
    try:
        requirements.check_alone()
    except ImportError as error:
        raise LaunchError(str(error)) from None
    program = _program(options)
    # output arrives as it is printed, also before a crash; C programs use this Python
    environment = {"PYTHONUNBUFFERED": "1", **os.environ}
    environment["PYSHMEM_PYTHON"] = os.environ.get("PYSHMEM_PYTHON") or sys.executable
    if interpreter.chosen_here:  # chosen by this process for this machine; each PE chooses for itself
        environment.pop(interpreter.VARIABLE)
    environment.update(_asked(options))
    found, extra = _find(options, environment)
    remove_stale()
    directory = JobDirectory()
    if options.trace and not options.dry_run:
        options.trace.unlink(missing_ok=True)  # what is there afterwards is of this job
        shutil.rmtree(merging.parts_of(options.trace), ignore_errors=True)
    try:
        environment.update(extra, PYSHMEM_JOB_DIR=str(directory.path))
        library = libmpi.loaded(environment) if found.row.name == "srun" else None
        command = [*found.line(options.np, environment, options.bind), *hosts.words(options, found.row.name)]
        command += srun_mpi(found, library.kind) if library else []
        command += [sys.executable, "-I", "-S", pe.__file__, *_options(options, found), found.row.pe, *program]
        words = [*(f"{name}={value}" for name, value in extra.items()), *command]
        if options.dry_run:
            print(shlex.join(words))
            return 0
        if options.verbose:
            print(shlex.join(words), file=sys.stderr, flush=True)
        if options.check:
            schedules = options.check == "schedules"
            variable = (
                ("PYSHMEM_SCHEDULE", str(options.seed)) if schedules else ("PYSHMEM_RACE_TRACES", str(directory.path))
            )
            environment.update([variable])
        return _run(options, found, directory.path, command, environment)
    finally:
        directory.remove()


def _run(
    options: argparse.Namespace, found: Found, directory: Path, command: list[str], environment: dict[str, str]
) -> int:
    """Run the job, and print how it ended. Return its status."""
    notice, limit = (float(read(name)) for name in ("PYSHMEM_WAIT_NOTICE", "PYSHMEM_WAIT_TIMEOUT"))
    output = Output(directory, options.np)
    progress = Progress(directory, options.np, output.phases, notice, limit)
    job = Job(found.row, options.np, directory, progress, options.dump_after, options.interactive)
    try:
        job.run(command, environment, output.launcher, options.timeout)
    finally:
        end_descendants()
        output.finish()
        let_signals_end()
        findings = 0
        if options.trace:
            print(f"pyshmemrun --trace: {_traced(options.trace)}", file=sys.stderr, flush=True)
        if options.check in ("program", "all"):
            from pyshmem.check.analyse.report import report  # takes as long to import as all that other jobs need

            findings = report(directory, options.check_file, options.check == "all")
        lines = told(directory)
        if not lines:
            print(output.banner.decode(errors="replace"), end="", file=sys.stderr, flush=True)
        for line in lines:
            print(line, file=sys.stderr, flush=True)
    status = job.exit_status()
    reasons = [job.overdue] if job.overdue else progress.stopped() if status else []
    for line in (*reasons, *(_reasons(options, output, directory) if job.unexplained else ())):
        print(f"pyshmemrun: {line}", file=sys.stderr, flush=True)
    return status or (FOUND if findings else 0)


def _traced(path: Path) -> str:
    """What has become of a timeline. PEs that were killed have left their parts of it."""
    # where there is a file, the PEs have written it, and have said what it lacks
    lacks = [] if path.is_file() else merging.finish(path, whole=False)
    if not path.is_file():
        return "\n".join(lacks) or "wrote nothing: no PE has called shmem.init"
    name = os.path.relpath(path)
    wrote = f"wrote {name}: open it in https://ui.perfetto.dev; pyshmem taxes {name} says where the time went"
    return "\n".join([*lacks, wrote])


def _asked(options: argparse.Namespace) -> dict[str, str]:
    """The variables that options stand for."""
    dump = options.dump_after or options.timeout
    values = {
        "PYSHMEM_DUMP": dump and (os.environ.get("PYSHMEM_DUMP") or pe.DUMP.name),
        "SHMEM_SYMMETRIC_SIZE": options.heap_size,
        "PYSHMEM_REPORT": options.report and "1",
        "PYSHMEM_TRACE": options.trace and str(options.trace),
    }
    return {name: value for name, value in values.items() if value}


def _reasons(options: argparse.Namespace, output: Output, directory: Path) -> Iterator[str]:
    """Why the launcher may have failed where no PE has told of a failure."""
    early = [pe for pe in range(options.np) if left_early(directory, pe)]
    if early:
        yield f"{listed(early)} ended without MPI_Finalize, by os._exit or the like: launchers take this for a failure"
    if not output.away:
        yield from hosts.unknown(options)
    lost = grouped(output.unheard)
    if lost:
        where = ", ".join(f"{listed(pes)} on {host}" for host, pes in lost.items())
        yield f"the launcher has failed, and no PE tells why; no end was reported by {where}: that host may be lost"


def _options(options: argparse.Namespace, found: Found) -> list[str]:
    """The options of pe.py."""
    label = [f"--label={len(str(options.np - 1))}"] if options.label else []
    if not found.row.local or options.bind == "none":
        return label
    return [*label, f"--bind={','.join((options.bind, *found.row.local))}"]


def _program(options: argparse.Namespace) -> list[str]:
    """The command that starts the program, with its path resolved once here instead of on every PE."""
    name: str = options.program
    if options.module:
        return [sys.executable, "-m", name, *options.arguments]
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise LaunchError(f"PROGRAM: got {name!r}, which is not a file; expected the path of a Python program")
        return [sys.executable, name, *options.arguments]
    beside = os.path.dirname(sys.executable)
    path = shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))
    if not path:
        raise LaunchError(f"PROGRAM: got {name!r}, which is not an executable beside {sys.executable} or on PATH; "
                          "expected a .py file, -m and a module, or an executable (./a.out)")  # fmt: skip
    return [path, *options.arguments]


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        wants = "the path of mpiexec, mpirun or srun, with options as a shell reads them"
        raise LaunchError(f"--mpiexec: got {shown(command)}: {error}; expected {wants}") from None


def _find(options: argparse.Namespace, environment: dict[str, str]) -> tuple[Found, dict[str, str]]:
    """The launcher to use, with the variables that make mpi4py load its MPI."""
    if options.mpiexec:
        is_path = os.access(options.mpiexec, os.X_OK)  # which may have a space in it
        command = (options.mpiexec,) if is_path else _words(options.mpiexec)
        choices = iter([named(command, options.launcher)])
    else:
        choices = candidates(options.launcher)
    faults = []
    for found in choices:
        try:
            return found, libmpi.matching(found, environment)
        except LaunchError as fault:
            faults.append((found, fault))
    if not faults:
        kind = "launcher" if options.launcher == "auto" else options.launcher
        raise LaunchError(f"--mpiexec: got none, and found no {kind} beside {sys.executable} nor on PATH; expected an MPI: "
                          "pip install mpich brings one, or name yours with --mpiexec PATH")  # fmt: skip
    if options.module or options.program.endswith(".py"):
        raise faults[0][1]
    return faults[0][0], {}  # an executable need not use mpi4py
