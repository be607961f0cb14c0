"""Which launcher pyshmemrun takes, the command line that it gets, and what is said where there is none."""

import os
import pathlib
import re
import sys

import pytest
from pyshmem.launch.run import launchers, libmpi, pe, command as run
from launching import MPI, PYSHMEMRUN

from pyshmem.start import how_started


def refusal(capsys, *words):
    """What main() prints, in the one line it may take, when it refuses."""
    assert run.main([*map(str, words)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


def test_mpi4py_loads_the_mpi_of_the_launcher(start, launcher, program):
    prog = program(MPI + "print(MPI.Get_library_version().split(',')[0].split()[0])")
    job = start(*PYSHMEMRUN, "-n", 1, *launcher, prog)
    assert (job.wait(), job.errors) == (0, "")
    assert job.output == {"mpich": "MPICH\n", "openmpi": "Open\n", "intelmpi": "Intel(R)\n"}[launcher[1]]


@pytest.fixture
def fake(tmp_path):
    """Writes a command that prints a text, into a folder that is named."""

    def write(folder, name, text):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        return path

    return write


def test_launcher_is_the_environments_own_then_srun_in_an_allocation_then_that_on_path(fake, tmp_path, monkeypatch):
    own, path = (
        fake("environment", "mpiexec", "HYDRA build details:"),
        fake("path", "mpirun", "mpirun (Open MPI) 4.1.6"),
    )
    later, srun = fake("later", "mpiexec", "prterun (PRRTE) 3.0.11"), fake("later", "srun", "slurm 22.05.8")
    fake("path", "mpiexec", "something else 1.0")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "environment" / "python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{tmp_path}/later")

    def order(wanted):
        return [pathlib.Path(found.command[0]) for found in launchers.candidates(wanted)]

    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert order("auto") == [own, path, later]
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert order("auto") == [own, srun, path, later]
    assert (order("mpich"), order("openmpi"), order("srun")) == ([own], [path, later], [srun])


def test_command_lines_have_what_each_launcher_needs(fake, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    ssh = str(fake("with_ssh", "ssh", "").parent)

    def line(text, pes, environment, bind="share"):
        found = launchers.identify((str(fake(text.split()[-1], "launcher", text)),))
        return found.line(pes, {"PATH": ssh} | environment, bind)[1:]

    assert line("HYDRA build details: Version: 5.0.2", 4, {}) == ["-n", "4"]
    assert line("Intel(R) MPI Library for Linux* OS, Version 2021.18.1", 4, {}) == [
        "-genv",
        "I_MPI_PIN",
        "off",
        "-n",
        "4",
    ]
    root = "--allow-run-as-root"
    assert line("mpirun (Open MPI) 4.1.6", 2, {}) == ["--oversubscribe", "--bind-to", "none", root, "-n", "2"]
    assert line("mpiexec (OpenRTE) 4.1.4", 4, {"SHMEM_DEBUG": "1", "HOME": "/"}) == [
        *("--oversubscribe", "--bind-to", "none", root, "-x", "SHMEM_DEBUG", "-n", "4")
    ]
    isolated = ["--mca", "plm", "isolated"]
    for variables, wanted in (({}, isolated), ({"SLURM_JOB_ID": "7"}, []), ({"OMPI_MCA_plm_rsh_agent": "blaunch"}, [])):
        words = line("mpirun (Open MPI) 4.1.6", 2, {"PATH": "/nowhere"} | variables)
        assert words == ["--oversubscribe", "--bind-to", "none", root, *wanted, "-n", "2"]
    assert line("mpiexec (Open MPI) 5.0.11", 4, {}) == [
        *("--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", root, "-n", "4")
    ]
    assert line("slurm 22.05.8", 4, {}) == ["--kill-on-bad-exit=1", "--input=0", "--ntasks", "4"]
    assert "--overlap" in line("slurm 22.05.9", 4, {"SLURM_STEP_ID": "0"})
    assert "--cpu-bind=none" in line("slurm 22.05.9", 4, {}, "none")


def test_srun_gets_the_mpi_plugin_that_serves_the_library(fake, monkeypatch):
    monkeypatch.delenv("SLURM_MPI_TYPE", raising=False)
    both = launchers.identify((str(fake("both", "srun", "slurm 22.05.8: MPI plugin types are... pmix none pmi2")),))
    none = launchers.identify((str(fake("none", "srun", "slurm 22.05.8: MPI plugin types are... none")),))
    assert launchers.srun_mpi(both, "mpich") == ["--mpi=pmi2"]
    assert launchers.srun_mpi(both, "openmpi") == launchers.srun_mpi(both, "intelmpi") == ["--mpi=pmix"]
    with pytest.raises(
        launchers.LaunchError, match="--launcher: got srun, whose --mpi=list offers none of pmi2; expected"
    ):
        launchers.srun_mpi(none, "mpich")
    monkeypatch.setenv("SLURM_MPI_TYPE", "pmix_v5")
    assert launchers.srun_mpi(none, "mpich") == []  # the user has chosen


STEP = {"SLURM_STEP_ID": "0", "PMI_FD": "9"}


@pytest.mark.parametrize("device, variables, taken", [
    ("ch4:ucx ofi", STEP, "ofi"), ("ch4:ucx ofi", {**STEP, "MPIR_CVAR_CH4_NETMOD": "ucx"}, "ucx"), ("ch4:ucx", STEP, None),
    ("ch4:ucx ofi", {}, None), ("ch4:ucx ofi", {**STEP, "MPI_LOCALRANKID": "0"}, None),
])  # fmt: skip
def test_mpich_takes_libfabric_only_under_srun_if_it_has_it_and_the_user_has_not_chosen(
    device, variables, taken, monkeypatch
):
    for name in (*STEP, "MPI_LOCALRANKID", "MPIR_CVAR_CH4_NETMOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", "")
    monkeypatch.delenv("MPIR_CVAR_CH4_NETMOD")  # what the call sets is taken back
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    how_started.choose_network(f"MPICH Version: 5.0.2\nMPICH Device: {device}\n")
    assert os.environ.get("MPIR_CVAR_CH4_NETMOD") == taken


@pytest.mark.parametrize("own, other", [("mpich", "intelmpi"), ("intelmpi", "mpich")])
def test_a_launcher_starts_another_library_of_its_abi_only_if_its_own_is_not_found(
    own, other, fake, tmp_path, monkeypatch
):
    """As MPICH and Intel MPI have one. The environment's library is the other one."""
    said = {"mpich": "MPICH Version: 5.0.2", "intelmpi": "Intel(R) MPI Library 2021.18.1"}
    launcher = {"mpich": "HYDRA build details:", "intelmpi": "Intel(R) MPI Library"}
    found = launchers.identify((str(fake("bin", "mpiexec", launcher[own])),))
    there = tmp_path / "lib" / "libmpi.so.12"

    def loaded(environment):
        path = environment.get("MPI4PY_LIBMPI")
        return libmpi.Library(said[own if path == str(there) else other], path or "/lib/libmpi.so.12")

    monkeypatch.setattr(libmpi, "loaded", loaded)
    assert libmpi.matching(found, {}) == {}
    there.parent.mkdir()
    there.touch()
    assert libmpi.matching(found, {}) == {"MPI4PY_LIBMPI": str(there)}
    assert libmpi.matching(found, {"MPI4PY_LIBMPI": "/chosen"}) == {}
    assert libmpi.matching(found, {"MPI4PY_MPIABI": "mpich"}) == {}


def test_a_mismatch_of_mpis_is_explained(idle_launcher, program, tmp_path, monkeypatch, capsys):
    """mpi4py must load what it loads now, and the launcher says that it is of the other MPI."""
    library = libmpi.loaded(os.environ)
    assert library
    path = pathlib.Path(idle_launcher[1])
    if library.family == "mpich":
        path.write_text(path.read_text().replace("HYDRA build details: Version: 1.0", "mpiexec (OpenRTE) 4.0.9"))
    monkeypatch.setenv("MPI4PY_LIBMPI", library.path)
    monkeypatch.chdir(tmp_path)
    line = refusal(capsys, "-n", 2, "--mpiexec", path, program(""))
    other = "openmpi 4.0.9" if library.family == "mpich" else "mpich 1.0"
    got = f"pyshmemrun: --mpiexec: got {path}, which is {other}, while mpi4py loads {library.version} from {library.path}; "
    assert line.startswith(got + "expected both from one MPI: ") and "MPI4PY_LIBMPI" in line


def test_a_wrong_choice_of_mpi4pys_library_is_one_error_before_the_job_starts(program, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/absent/libmpi.so.12")
    monkeypatch.chdir(tmp_path)
    line = refusal(capsys, "-n", 2, program(""))
    assert line.startswith("pyshmemrun: MPI4PY_LIBMPI: got /absent/libmpi.so.12, which mpi4py cannot load: ")
    assert "No such file" in line and "; expected a library of MPI" in line


def test_debians_mpich_is_explained(fake, tmp_path, monkeypatch):
    """Its library has a name of its own, which mpi4py does not find."""
    found = launchers.identify((str(fake("bin", "mpiexec.mpich", "HYDRA build details:")),))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpich.so.12").touch()
    monkeypatch.setattr(libmpi, "loaded", lambda environment: None)
    with pytest.raises(
        launchers.LaunchError, match=f"whose library {tmp_path}/lib/libmpich.so.12 .*; expected .*pip install mpich"
    ):
        libmpi.matching(found, {})
    chosen = {"MPI4PY_LIBMPI": str(tmp_path / "lib" / "libmpich.so.12")}
    with pytest.raises(
        launchers.LaunchError, match="MPI4PY_LIBMPI: got .*; expected pip install mpich, .* a link to it"
    ):
        libmpi.matching(found, chosen)


@pytest.fixture
def machine(monkeypatch):
    """A machine of two sockets with three cores of two threads each; its numbers alternate between sockets."""
    cores = [[0, 6], [2, 8], [4, 10], [1, 7], [3, 9], [5, 11]]
    monkeypatch.setattr(pe, "processors", lambda: cores)
    kept = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, numbers: kept.append(sorted(numbers)))
    return kept


@pytest.mark.parametrize("unit, rank, size, kept", [
    ("share", 0, 2, [0, 2, 4, 6, 8, 10]), ("share", 1, 2, [1, 3, 5, 7, 9, 11]), ("share", 3, 4, [3, 5, 9, 11]),
    ("share", 1, 4, [2, 4, 8, 10]), ("core", 1, 2, [2, 8]), ("share", 5, 6, [5, 11]), ("share", 0, 1, list(range(12))),
])  # fmt: skip
def test_a_pe_keeps_to_its_share_of_the_cores_or_to_one(unit, rank, size, kept, machine, monkeypatch):
    monkeypatch.setenv("RANK_HERE", str(rank))
    monkeypatch.setenv("PES_HERE", str(size))
    pe.bind(unit, "RANK_HERE", "PES_HERE")
    assert machine == [kept]


def test_more_pes_than_cores_use_all(machine, monkeypatch):
    monkeypatch.setenv("RANK_HERE", "3")
    monkeypatch.setenv("PES_HERE", "7")
    pe.bind("share", "RANK_HERE", "PES_HERE")
    pe.bind("share", "UNSET", "PES_HERE")
    assert machine == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_pes_are_bound_unless_the_user_wants_none(start, launcher, program):
    for bind, pes in (("share", 1), ("none", 2)):
        prog = program("note(f'cores-{me}', str(sorted(os.sched_getaffinity(0))))")
        job = start(*PYSHMEMRUN, "-n", 2, *launcher, "--bind", bind, prog)
        assert job.wait() == 0, job.errors
        cores = [(job.folder / f"cores-{pe}").read_text() for pe in (0, 1)]
        assert len(set(cores)) == 3 - pes, cores


def test_no_launcher_at_all_is_explained(program, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.chdir(tmp_path)
    line = refusal(capsys, "-n", 2, program(""))
    assert re.fullmatch(
        r"pyshmemrun: --mpiexec: got none, and found no launcher .* on PATH; expected an MPI: .*mpich.*--mpiexec PATH\n",
        line,
    )


def test_what_cannot_be_run_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert refusal(capsys, "-n", 2, "absent.py").startswith(
        "pyshmemrun: PROGRAM: got 'absent.py', which is not a file; expected "
    )
    assert refusal(capsys, "-n", 2, "absent").startswith(
        "pyshmemrun: PROGRAM: got 'absent', which is not an executable "
    )
    line = refusal(capsys, "-n", 2, "--mpiexec", "/absent/mpiexec", "true")
    assert line.startswith("pyshmemrun: --mpiexec: got '/absent/mpiexec', which is not an executable; expected ")
    line = refusal(capsys, "-n", 2, "--mpiexec", "true", "true")
    assert line.startswith("pyshmemrun: --mpiexec: got 'true', which --version does not identify as a ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("words", [["prog.py"], ["-n", "0", "prog.py"], ["-n", "two", "prog.py"], ["-n", "2"]])
def test_a_wrong_command_line_is_refused_with_the_usage(words, capsys):
    with pytest.raises(SystemExit) as refused:
        run.main(words)
    assert refused.value.code == 2
    assert capsys.readouterr().err.startswith("usage: pyshmemrun -n PES [options] [-m] PROGRAM [argument ...]\n")


def test_help_tells_of_every_option_and_of_the_exit_status(capsys):
    with pytest.raises(SystemExit) as ended:
        run.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in (
        "-n PES", "-m ", "--mpiexec", "--launcher", "--heap-size", "--timeout", "-v", "Exit status:", "./a.out",
    ):  # fmt: skip
        assert word in text
