"""Starts jobs of the programs that tests write, and ends whatever outlasts its time."""

import atexit
import functools
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress

import pytest

MPIEXEC = str(pathlib.Path(sys.executable).parent / "mpiexec")  # the environment's own MPICH
SECONDS = 100  # for a job that should take one or two; machines are slow and shared
WARM = pathlib.Path(__file__).with_name("warm.py")
SETTLED = b"settled?"  # the same in warm.py
EARLY = ("LD_", "OMP_", "PYTHON")  # variables that a process reads before its program


@functools.cache
def warm_server():
    """The process that has imported torch and Triton, and from which programs are forked. It ends with this one."""
    folder = tempfile.TemporaryDirectory()
    command = [sys.executable, str(WARM), "--serve", f"{folder.name}/socket"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdout.readline() == b"ready\n"
    atexit.register(lambda: (server.communicate(), folder.cleanup()))
    return server


def warm():
    """A command line that runs a program as Python does, in a process that has its modules already: see preloaded."""
    if warm_server().poll() is not None:  # a test that ends all processes of its own has ended it
        warm_server.cache_clear()
    return [sys.executable, "-I", "-S", str(WARM), warm_server().args[-1]]


def settle_warm():
    """Wait until no process of warm is left whose client has been killed: the server kills it, a moment later."""
    if warm_server.cache_info().currsize and warm_server().poll() is None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.settimeout(SECONDS)
            server.connect(warm_server().args[-1])
            server.send(SETTLED)
            assert server.recv(100), "the server of warm processes has ended"


@functools.cache
def warm_environment():
    """The folder of this Python and what is beside it, but that its programs are run as by warm. It ends with this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    for path in pathlib.Path(sys.executable).parent.iterdir():
        pathlib.Path(folder.name, path.name).symlink_to(path)
    python = pathlib.Path(folder.name, pathlib.Path(sys.executable).name)
    python.unlink()
    python.write_text(f'#!/bin/sh\nWARM_EXECUTABLE=$0 exec {shlex.join(warm())} "$@"\n')
    python.chmod(0o755)
    return python


def python(program, *arguments, tmp_path, environment=None, launcher=(), fresh=False):
    """Run the text ``program`` under ``launcher``, a command line; (status, stdout, stderr).

    fresh: in processes that have imported nothing. Otherwise what preloaded imports is there.
    """
    path = tmp_path / "program.py"
    path.write_text(program)
    foreign = ("PMI_", "OMPI_", "PYSHMEM_JOB", "PYTHONUNBUFFERED")  # unbuffered, lines of two PEs may mix
    variables = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    variables |= {"PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "16m", "PYTHONFAULTHANDLER": "1", **(environment or {})}
    fresh = fresh or any(name.startswith(EARLY) for name in environment or {})
    command = [*launcher, *([sys.executable] if fresh else warm()), str(path), *arguments]
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
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job did not end in {SECONDS} s:\n{_questioned(process, tmp_path)}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def _questioned(process, folder):
    """End a job that hangs. Return its processes, and what it has printed, with the stacks of its PEs."""
    lines = []
    for link in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # the process has ended
            if link.samefile(folder):
                words = (link.parent / "cmdline").read_text().split("\0")
                lines.append(f"{link.parent.name}: {' '.join(words)}")
                if words[0] == sys.executable:
                    os.kill(int(link.parent.name), signal.SIGABRT)  # prints its stacks
    try:
        out, err = process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return "\n".join([*lines, out, err])


def mpiexec(n, program, *arguments, tmp_path, **options):
    return python(program, *arguments, tmp_path=tmp_path, launcher=(MPIEXEC, "-n", str(n)), **options)
