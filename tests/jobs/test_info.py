"""pyshmem info: true where all is there, and where something is missing it says what and how to get it."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from jobs import mpiexec
from pyshmem.launch import commands, info
from pyshmem.launch.run import libmpi
from pyshmem.launch.run.launchers import LaunchError


@pytest.mark.parametrize(
    "command", [["-m", "pyshmem"], [os.path.join(os.path.dirname(sys.executable), "pyshmem"), "info"]]
)
def test_info_prints_every_section_and_that_nothing_is_missing(command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    for pattern in (
        r"^pyshmem +\d\S*, OpenSHMEM 1\.6, in /",
        r"^ +Python 3\S+, torch \S+, triton \S+, numpy \S+, mpi4py \S+",
        r"^MPI +.*, in /.*libmpi",
        r"^ +MPI \d\.\d, threads: \w+",
        r"^ +libfabric( \d+\.\d+, in \S+: .*shm.*: (no )?fabric \S+|: no libfabric from 1.9 on )",
        r"^launcher +/\S+ \((mpich|openmpi|srun) \S+\)",
        r"^machine +\S+: Linux .*, \d+ cores, \S+ GiB free",
        r"^ +heap in CPU memory: \S+ GiB for each of \d+ PEs",
        r"^GPUs +",
        r"^variables +",
        r"^missing +nothing$",
    ):
        assert re.search(pattern, done.stdout, re.MULTILINE), (pattern, done.stdout)


NO_GPUS = SimpleNamespace(
    cuda=SimpleNamespace(is_available=lambda: False), version=SimpleNamespace(cuda=None, hip="7.2")
)


def lines(describe):
    missing = []
    return list(describe(missing)), missing


def test_info_says_how_to_get_a_missing_package(monkeypatch, capsys):
    def fail():
        raise ImportError("pyshmem needs torch >= 2.11, which is not installed: pip install torch")

    monkeypatch.setattr(info.requirements, "check", fail)
    assert info.main([]) == 1
    assert capsys.readouterr().out.endswith(
        "missing    pyshmem needs torch >= 2.11, which is not installed: pip install torch\n"
    )


def test_info_lists_what_only_some_commands_lack_and_jobs_run_without_it(monkeypatch, capsys):
    monkeypatch.setattr(info, "SECTIONS", {})
    monkeypatch.setattr(info, "OPTIONAL", {"no_such_module": "pyshmem top", "numpy": "pyshmem bench"})
    assert info.main([]) == 0
    assert capsys.readouterr().out == "missing    no_such_module, for pyshmem top: pip install no_such_module\n"


@pytest.mark.parametrize("allowed", [False, True])
def test_info_names_the_groups_of_amds_devices_to_a_user_who_may_not_open_them(allowed, monkeypatch, tmp_path):
    device = tmp_path / "kfd"
    device.touch()
    monkeypatch.setattr(info, "AMD_DEVICE", str(device))
    monkeypatch.setattr(info.os, "access", lambda path, mode: allowed)
    monkeypatch.setattr(info, "import_module", lambda name: NO_GPUS)
    said, missing = lines(info._gpus)
    assert said[1:] == (
        []
        if allowed
        else [f"no access to {device}: this user must be in the groups of AMD's devices, render and video"]
    )


def test_info_says_how_to_get_an_mpi(monkeypatch):
    monkeypatch.setattr(libmpi, "loaded", lambda environment: None)
    said, missing = lines(info._mpi)
    assert said == ["no library that mpi4py can load"] and missing[0].startswith("an MPI: pip install mpich")


def test_info_names_the_variable_that_has_chosen_a_library_that_cannot_be_loaded(monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/absent/libmpi.so.12")
    said, missing = lines(info._mpi)
    assert said == ["no library that mpi4py can load"]
    assert missing[0].startswith("MPI4PY_LIBMPI: got /absent/libmpi.so.12, which mpi4py cannot load: ")


def test_info_says_that_mpi_does_not_start(monkeypatch):
    monkeypatch.setattr(info, "ABILITIES", "raise SystemExit('no fabric')")
    said, missing = lines(info._mpi)
    assert said[1:] == ["MPI_Init fails: no fabric"] and len(missing) == 1


def test_info_says_how_to_get_a_launcher(monkeypatch):
    monkeypatch.setattr(info, "candidates", lambda wanted: iter(()))
    assert lines(info._launcher) == (
        ["none that fits the library"],
        ["a launcher: pip install mpich, or name one with pyshmemrun --mpiexec PATH"],
    )


def test_info_repeats_why_a_launcher_does_not_fit(monkeypatch):
    def matching(found, environment):
        raise LaunchError("--mpiexec: got another MPI's")

    monkeypatch.setattr(libmpi, "matching", matching)
    assert lines(info._launcher)[1] == ["--mpiexec: got another MPI's"]


def test_info_lists_gpus_their_peer_access_and_the_mapping(monkeypatch):
    device = SimpleNamespace(name="H200", total_memory=141 << 30, major=9, minor=0)
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_properties=lambda index: device,
        can_device_access_peer=lambda a, b: a < b,
    )

    def no_context(*shape, device):
        raise RuntimeError("the GPU is in use")

    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0", hip=None), empty=no_context)
    monkeypatch.setattr(info, "import_module", lambda name: torch)
    monkeypatch.setenv("PATH", "")
    assert lines(info._gpus)[0] == [
        "0: H200, 141 GiB, sm_90",
        "1: H200, 141 GiB, sm_90",
        "peer access: no: 1-0",
        "heap in GPU memory: none: the GPU is in use",
    ]


def test_info_names_rocms_library_and_the_release_that_torch_is_built_for(monkeypatch):
    device = SimpleNamespace(name="MI300X", total_memory=192 << 30, gcnArchName="gfx942:sramecc+")
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda index: device
    )

    def no_context(*shape, device):
        raise RuntimeError("the GPU is in use")

    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=None, hip="7.14.60850"), empty=no_context)
    library = "/venv/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7"
    monkeypatch.setattr(info, "import_module", lambda name: torch)
    monkeypatch.setattr("pyshmem.memory.gpu.driver.default_library", lambda vendor: library)
    monkeypatch.setenv("PATH", "")
    assert lines(info._gpus)[0][1] == f"torch is built for ROCm 7.14.60850; its library is {library}"


def test_shmem_info_prints_versions_mpi_pes_and_nodes(tmp_path):
    program = "import pyshmem as shmem\nshmem.init()"
    status, out, err = mpiexec(2, program, tmp_path=tmp_path, environment={"SHMEM_INFO": "1"})
    assert status == 0, err
    assert re.search(r"^pyshmem \S+, Python \S+, torch \S+, .*mpi4py \S+, .*MPI", out, re.MULTILINE), out
    assert re.search(r"^2 PEs on 1 node, threads: [A-Z]+$", out, re.MULTILINE), out


def test_info_says_which_values_come_from_the_sites_file(monkeypatch, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('PYSHMEM_FAR = "tcp"\nPYSHMEM_WAIT_TIMEOUT = 60\n')
    monkeypatch.setenv("PYSHMEM_CONFIG", str(path))
    monkeypatch.setenv("PYSHMEM_WAIT_TIMEOUT", "7")
    said, missing = lines(info._variables)
    assert (said[-1], missing) == (f"from {path}: PYSHMEM_FAR=tcp", []) and "PYSHMEM_WAIT_TIMEOUT=7" in said[0]
    path = tmp_path / "other.toml"
    path.write_text("PYSHMEM_FARR = 1\n")
    monkeypatch.setenv("PYSHMEM_CONFIG", str(path))
    assert "PYSHMEM_FARR is none" in lines(info._variables)[1][0]


def test_help_has_a_line_for_each_command(capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and "pyshmemrun" in said
    for name in commands.COMMANDS:
        assert re.search(rf"^    {name} +\w", said, re.M), said


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"], ["doctor", "--nonsense"]])
def test_a_command_that_there_is_not_ends_with_status_2_and_names_those_that_there_are(words, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(words)
    assert ended.value.code == 2 and "usage: pyshmem" in capsys.readouterr().err
