"""The launchers that pyshmemrun supports, one row each: how to identify it, its options, and how to end a job.

The number of PEs that Slurm and others set is read by run, the list of nodes by hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2, Signals
from types import MappingProxyType
from typing import NamedTuple


class LaunchError(Exception):
    """The job cannot be started. The message names the option, what it got and what it wants."""


class Launcher(NamedTuple):
    """The properties of one launcher."""

    name: str  # its name for --launcher
    family: str  # the MPI that its processes must load; "" if it starts any MPI
    version: str  # pattern in the output of --version
    pe: str  # variable with the number of a process
    np: str  # option for the number of processes
    passes: frozenset[Signals]  # signals that reach the processes when sent to the launcher
    end: Signals  # ends all processes on all nodes when sent to the launcher, even if they ignore SIGTERM
    always: tuple[str, ...] = ()
    as_root: tuple[str, ...] = ()
    local: tuple[str, str] | None = None  # variables: the number of a process on its host, and of the processes there
    bind: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # its options for --bind, if it binds processes itself
    in_step: tuple[str, ...] = ()  # inside a Slurm step
    one_host: tuple[str, ...] = ()  # where neither a batch system nor ssh starts processes on other hosts
    export: str = ""  # option that exports a variable to other nodes, if not all are exported
    leftovers: tuple[str, ...] = ()  # files that it leaves when it is killed


LAUNCHERS = (
    Launcher(
        name="mpich",  # Hydra: by default it does not bind or count cores
        family="mpich",
        version="HYDRA",
        pe="PMI_RANK",
        np="-n",
        passes=frozenset((SIGINT, SIGTERM, SIGUSR1)),  # SIGHUP and SIGUSR2 kill mpiexec
        end=SIGKILL,
        local=("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        leftovers=("/tmp/hydra_hwloc_xmlfile_*",),
    ),
    Launcher(
        name="intelmpi",  # a Hydra that binds, and ignores the numbers of -hosts a:3,b:1
        family="intelmpi",
        version=r"Intel\(R\) MPI",
        pe="PMI_RANK",
        np="-n",
        passes=frozenset((SIGINT, SIGTERM)),
        end=SIGKILL,
        local=("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        always=("-genv", "I_MPI_PIN", "off"),
    ),
    Launcher(
        name="openmpi",
        family="openmpi",
        version=r"\(OpenRTE\)|\(Open MPI\) [1-4]\b",
        pe="OMPI_COMM_WORLD_RANK",
        np="-n",
        passes=frozenset((SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2)),  # the first three arrive as SIGTERM
        end=SIGKILL,
        always=("--oversubscribe", "--bind-to", "none"),
        as_root=("--allow-run-as-root",),
        local=("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        one_host=("--mca", "plm", "isolated"),  # otherwise it ends where there is no ssh, as in most containers
        export="-x",
        leftovers=("{tmp}/ompi.*/pid.{pid}",),
    ),
    Launcher(
        name="openmpi",  # 5 and later, whose mpiexec is PRRTE's prterun
        family="openmpi",
        version=r"\(PRRTE\)|\(Open MPI\)",
        pe="OMPI_COMM_WORLD_RANK",
        np="-n",
        passes=frozenset((SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2)),
        end=SIGKILL,  # after SIGTERM it waits forever for a process that ignores SIGTERM
        # without slot, two PEs on a:1,b:1 are both on a
        always=("--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"),
        as_root=("--allow-run-as-root",),
        local=("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        export="-x",
        leftovers=("{tmp}/ompi.{pid}",),
    ),
    Launcher(
        name="srun",
        family="",
        version="slurm",
        pe="SLURM_PROCID",
        np="--ntasks",
        passes=frozenset((SIGUSR1, SIGUSR2)),  # SIGTERM and SIGHUP make it kill all processes at once
        end=SIGTERM,  # killed itself, it would leave them running
        always=("--kill-on-bad-exit=1", "--input=0"),
        bind={"core": ("--cpu-bind=cores",), "none": ("--cpu-bind=none",)},  # otherwise as the site has configured it
        in_step=("--overlap",),  # a new step would wait for the processors that the present one holds
    ),
)
# What MPICH, Intel MPI, Open MPI 4 and Open MPI 5 leave when their processes are killed, and PEs in the middle of init.
SEGMENTS = ("/dev/shm/mpich_*", "/dev/shm/Intel_MPI_*", "/dev/shm/vader_segment.*", "/dev/shm/sm_segment.*",
            "/dev/shm/pyshmem-mailbox-*", "/dev/shm/pyshmem-start-*")  # fmt: skip
COMMANDS = ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi")
BATCH = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")  # of batch systems that start processes on other hosts
EXPORTED = ("MPI4PY_", "PYSHMEM_", "PYTHON", "SHMEM_", "TRITON_")
# For each MPI, the values of srun's --mpi that connect its processes, the best first. Without one of them srun starts n
# jobs of one PE. Seen with MPICH 5.0.2, Open MPI 4.1.4 and 5.0.11, and Intel MPI 2021.18 with pmix, under Slurm 22.05.
SRUN_MPI = {
    "mpich": ("pmi2",),  # with pmix, MPICH 5.0.2 aborts in MPI_Init
    "intelmpi": ("pmix", "pmi2"),  # each wants its library in I_MPI_PMI_LIBRARY
    "openmpi": ("pmix", "pmi2"),
    "cray": ("cray_shasta", "pmi2"),
}


class Found(NamedTuple):
    """A launcher on this machine: its row, the start of its command line, and its version."""

    row: Launcher
    command: tuple[str, ...]
    version: str

    def line(self, pes: int, environment: Mapping[str, str], bind: str = "share") -> list[str]:
        """The command line up to the program."""
        row = self.row
        words = [*self.command, *row.always]
        words += row.as_root if os.geteuid() == 0 else ()
        words += row.bind.get(bind, ())
        words += row.in_step if "SLURM_STEP_ID" in environment else ()
        words += row.one_host if row.one_host and not _starts_elsewhere(environment) else ()
        if row.export:
            words += [word for name in sorted(environment) if name.startswith(EXPORTED) for word in (row.export, name)]
        return [*words, row.np, str(pes)]


def _starts_elsewhere(environment: Mapping[str, str]) -> bool:
    """Return whether a launcher may start processes on other hosts, or the user has said how."""
    if any(shutil.which(command, path=environment.get("PATH")) for command in ("ssh", "rsh")):
        return True
    return any(name in BATCH or name.startswith("OMPI_MCA_plm") for name in environment)


def candidates(wanted: str) -> Iterator[Found]:
    """The launchers of kind ``wanted`` (auto: any) on this machine, in order of preference."""
    for path in _paths(wanted):
        found = identify((str(path),))
        if found and wanted in ("auto", found.row.name):
            yield found


def _paths(wanted: str) -> Iterator[Path]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    if wanted != "srun" and sys.prefix not in ("/usr", "/usr/local"):
        yield from _executables([Path(sys.executable).parent], COMMANDS)  # a virtual or conda environment's own MPI
    if wanted == "srun" or (wanted == "auto" and "SLURM_JOB_ID" in os.environ):
        yield from _executables(folders, ("srun",))
    if wanted != "srun":
        yield from _executables(folders, COMMANDS)


def _executables(folders: list[Path], names: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for name in names:
            if os.access(folder / name, os.X_OK):
                yield folder / name


def named(command: tuple[str, ...], wanted: str) -> Found:
    """The launcher that --mpiexec names.  Errors: LaunchError if it does not exist or is not supported."""
    text = " ".join(command)
    if not command or not shutil.which(command[0]):
        raise LaunchError(
            f"--mpiexec: got {text!r}, which is not an executable; expected the path of mpiexec, mpirun or srun"
        )
    found = identify(command)
    if not found:
        raise LaunchError(f"--mpiexec: got {text!r}, which --version does not identify as a "
                          "supported launcher; expected MPICH's Hydra, Intel MPI, Open MPI or srun")  # fmt: skip
    if wanted not in ("auto", found.row.name):
        raise LaunchError(
            f"--launcher: got {wanted} with --mpiexec {text!r}, which is {found.version}; expected launchers that agree"
        )
    return found


@cache
def identify(command: tuple[str, ...]) -> Found | None:
    """Identify the launcher by its version; None if it is not in LAUNCHERS."""
    try:
        said = _ask(command[0], "--version")
    except (OSError, subprocess.TimeoutExpired):
        return None  # it does not run on this machine
    for row in LAUNCHERS:
        if re.search(row.version, said):
            number = re.search(r"\d+\.\d+[\w.]*", said)
            return Found(row, command, f"{row.name} {number[0] if number else ''}".strip())
    return None


def srun_mpi(found: Found, kind: str) -> list[str]:
    """srun's --mpi option for the MPI ``kind``; empty if the user or the site has chosen, or if the MPI is unknown."""
    if not kind or "SLURM_MPI_TYPE" in os.environ or any(word.startswith("--mpi") for word in found.command):
        return []
    offered = set(re.findall(r"\w+", _ask(found.command[0], "--mpi=list")))
    for value in SRUN_MPI[kind]:
        if value in offered:
            return [f"--mpi={value}"]
    raise LaunchError(f"--launcher: got srun, whose --mpi=list offers none of {', '.join(SRUN_MPI[kind])}; "
                      f"expected one of them for {kind}, or --mpiexec with that MPI's own mpiexec")  # fmt: skip


def _ask(command: str, option: str) -> str:
    said = subprocess.run([command, option], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return said.stdout + said.stderr
