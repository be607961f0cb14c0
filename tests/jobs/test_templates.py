"""The job scripts start a job where a stand-in for the site's commands runs them: modules, environment, scheduler."""

import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest
from jobs import warm
from pyshmem.launch.run import launchers

FOLDER = pathlib.Path(launchers.__file__).parents[1] / "templates"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.sh"))
BIN = pathlib.Path(sys.executable).parent
PROGRAM = """
import os, sys
import pyshmem as shmem
shmem.init(device="cpu")
print(f"PE {shmem.my_pe()} of {shmem.n_pes()}: {sys.argv[1:]} {os.environ['PYSHMEM_HEAP']}")
"""
# flux run [options] command: the options that the scripts use are words of their own
FLUX = f"""#!/bin/sh
shift
while [ "${{1#--}}" != "$1" ]; do shift; done
exec {BIN}/mpiexec -n 2 "$@"
"""


def submitted(script, tmp_path, lacks="", text=None):
    """The script as a scheduler runs it, where all that it needs is there but for ``lacks``; ``text``: of one without a file."""
    (tmp_path / "warm.py").write_text(PROGRAM)
    command = [*warm(), str(tmp_path / "warm.py")]  # the script's process, once it has started, is one that has torch
    (tmp_path / "program.py").write_text(f"import os, sys\nos.execv(sys.executable, {command} + sys.argv[1:])")
    (tmp_path / "shmem" / "bin").mkdir(parents=True)
    if lacks != "activate":
        (tmp_path / "shmem" / "bin" / "activate").write_text(f'PATH="{BIN}:$PATH"\n')
    (tmp_path / "flux").write_text(FLUX)
    (tmp_path / "flux").chmod(0o755)
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n")
    scheduler = {
        "slurm": {"SLURM_NTASKS": "2"},
        "pbs": {"PBS_O_WORKDIR": str(tmp_path), "PBS_NODEFILE": str(tmp_path / "nodes"), "PROGRAM": "program.py one"},
        "flux": {},
    }[script.partition("-")[0]]
    path = f"{tmp_path}:{BIN if lacks else ''}:{os.environ['PATH']}"  # what is lacking must not keep the program from running
    modules = {} if lacks == "module" else {"BASH_FUNC_module%%": "() { :; }"}
    words = [] if script.startswith("pbs") else ["program.py", "one"]
    text = text or (FOLDER / script).read_text()
    text = text.replace("PYSHMEM_HEAP=cuda", "PYSHMEM_HEAP=cpu")  # there may be no GPU here
    (tmp_path / script).write_text(text)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": path,
        **modules,
        **scheduler,
        "SHMEM_SYMMETRIC_SIZE": "1m",
    }
    command = ["bash", str(tmp_path / script), *words]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_starts_the_program_on_the_pes_that_the_scheduler_gives(script, tmp_path):
    done = submitted(script, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"PE \d of 2: \['one'\] cpu", done.stdout)
    assert sorted(lines) == [f"PE {pe} of 2: ['one'] cpu" for pe in range(2)], done.stdout


def test_the_script_of_the_page_on_clusters_starts_a_program_on_the_tasks_of_two_nodes(tmp_path, monkeypatch):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    (text,) = re.findall(r"^```bash\n(#!/bin/bash\n.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert "\n#SBATCH --nodes=2\n" in text
    monkeypatch.setenv("PYSHMEM_HEAP", "cpu")
    done = submitted("slurm-two.sh", tmp_path, text=text)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"PE \d of 2: \['one'\] cpu", done.stdout)) == [
        f"PE {pe} of 2: ['one'] cpu" for pe in range(2)
    ]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("lacks", ["module", "activate"])
def test_script_stops_where_modules_or_the_environment_are_missing(script, lacks, tmp_path):
    """Another Python, and another MPI, would run the program."""
    done = submitted(script, tmp_path, lacks)
    assert done.returncode != 0 and done.stdout == "", done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_says_how_many_threads_a_pe_has(script):
    assert re.search(r"^export .*\bOMP_NUM_THREADS=\d", (FOLDER / script).read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script.startswith("slurm")])
def test_a_slurm_script_takes_no_variables_of_the_shell_that_submits_it_and_gives_srun_its_own(script):
    text = (FOLDER / script).read_text()
    assert "\n#SBATCH --export=NONE\n" in text and "\nexport SLURM_EXPORT_ENV=ALL " in text


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_marks_what_a_site_changes(script):
    """All that names a site's queue, account, time, cores, GPUs or modules."""
    lines = (FOLDER / script).read_text().splitlines()
    for number, line in enumerate(lines):
        if re.search(
            r"--(account|partition|queue|time|ntasks-per|gpus-per-node|nslots)|PBS -[lqA] |module load|activate", line
        ):
            assert "# SITE" in line or "# SITE" in lines[number - 1], line
    assert lines[1].startswith("# one PE a ")


def test_there_are_scripts_for_three_schedulers_and_two_kinds_of_pe():
    assert [f"{scheduler}-{kind}.sh" for scheduler in ("flux", "pbs", "slurm") for kind in ("core", "gpu")] == SCRIPTS
    assert not any(stat.S_IMODE((FOLDER / script).stat().st_mode) & 0o111 for script in SCRIPTS)  # they are submitted


# What shows all GPUs of the job to each of its tasks. A scheduler that hides some by a control group keeps AMD's driver
# from importing their memory, and PEs from finding out which GPUs reach each other.
SHOWN = {
    "slurm-gpu.sh": ["#SBATCH --gpus-per-node=", "#SBATCH --gpu-bind=none"],
    "pbs-gpu.sh": ["#PBS -l select=1:"],  # one chunk: all of its tasks see its GPUs
    "flux-gpu.sh": ["flux run .*--setopt=gpu-affinity=on "],
}
HIDING = (
    r"^[^#\n]*(ROCR|HIP|CUDA)_VISIBLE_DEVICES|gpu-affinity=(per-task|map:|off)|SBATCH .*--gpus-per-task"
    r"|--gpu-bind=(?!none)|--ntasks-per-gpu|:mpiprocs=1:ngpus=1"
)


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script.endswith("gpu.sh")])
def test_a_script_for_gpus_shows_every_task_all_gpus_of_the_job(script):
    text = (FOLDER / script).read_text()
    assert all(re.search(f"^{each}", text, re.MULTILINE) for each in SHOWN[script])
    assert not re.search(HIDING, text, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --gpus-per-task=1", "#SBATCH --gpu-bind=single:1", "export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID",
        "flux run --setopt=gpu-affinity=per-task python", "#PBS -l select=4:ncpus=8:mpiprocs=1:ngpus=1",
    ],
)  # fmt: skip
def test_a_line_that_hides_gpus_would_be_seen(line):
    assert re.search(HIDING, line, re.MULTILINE)
