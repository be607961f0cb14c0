"""Starts jobs of the programs that tests write, and ends whatever outlasts its time."""

import os
import pathlib
import signal
import subprocess
import sys

MPIEXEC = str(pathlib.Path(sys.executable).parent / "mpiexec")  # the environment's own MPICH
SECONDS = 100  # for a job that should take one or two; machines are slow and shared


def python(program, *arguments, tmp_path, environment=None, launcher=()):
    """Run the text ``program`` under ``launcher``, a command line; (status, stdout, stderr)."""
    path = tmp_path / "program.py"
    path.write_text(program)
    foreign = ("PMI_", "OMPI_", "PYSHMEM_JOB", "PYTHONUNBUFFERED")  # unbuffered, lines of two PEs may mix
    variables = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    variables |= {"PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "16m", **(environment or {})}
    command = [*launcher, sys.executable, str(path), *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        start_new_session=True,
        cwd=tmp_path,
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def mpiexec(n, program, *arguments, tmp_path, **options):
    return python(program, *arguments, tmp_path=tmp_path, launcher=(MPIEXEC, "-n", str(n)), **options)
