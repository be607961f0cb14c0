"""The examples, run as their readers run them: each says that it is right, and leaves nothing but the files it promises."""

import ast
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"
SECONDS = 90  # of one job; generous, machines are slow and shared
GRACE = 15  # for the launcher to end its job
LINES = 60

# What an example prints on n PEs, a pattern a line, and the pictures it draws.
EXAMPLES = {
    "gemm_all_scatter.py": (
        lambda n: [rf"{n} PEs: all have C = A @ B, 512 x 512 x 512 in float16, relative error \d\.\de-0[67]"],
        [],
    ),
    "heat.py": (
        lambda n: [
            f"{n} PEs: 600 steps on 240 x 240 points, equal to the serial solution in every bit, drawn in heat.png"
        ],
        ["heat.png"],
    ),
    "hello.py": (lambda n: [rf"PE {pe} of {n} is process \d+" for pe in range(n)], []),
    "histogram.py": (lambda n: [f"{n} PEs: {n * 65536} values counted into 1000 bins, every bin right"], []),
    "pi.py": (lambda n: [rf"{n} PEs, 1000000 midpoints: pi = 3\.14159265358\d+, error \d\.\de-1[34]"], []),
    "ring.py": (lambda n: [f"{n} PEs: the list came back signed by {re.escape(str([*range(n)]))}"], []),
    "ring_broadcast.py": (lambda n: [f"{n} PEs: 1000 elements came round, by host calls and by a kernel"], []),
}


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_right(name, n, tmp_path):
    lines, pictures = EXAMPLES[name]
    status, output, errors = run(FOLDER / name, n, tmp_path)
    assert status == 0, errors
    assert re.fullmatch("".join(line + "\n" for line in lines(n)), output), output + errors
    assert sorted(os.listdir(tmp_path)) == pictures
    for picture in pictures:
        with Image.open(tmp_path / picture) as image:
            assert len(image.convert("RGB").getcolors(image.width * image.height)) > 100


def test_every_example_is_run():
    assert sorted(path.name for path in FOLDER.iterdir() if path.name != "__pycache__") == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_and_its_docstring_true(name):
    text = (FOLDER / name).read_text()
    first = ast.parse(text).body[0]
    code = [line for line in text.splitlines()[first.end_lineno :] if re.match(r"\s*[^\s#]", line)]
    assert len(code) <= LINES
    assert f"\nRun: pyshmemrun -n 4 examples/{name}\n" in first.value.value
    assert re.search("Prints: " + EXAMPLES[name][0](4)[0], first.value.value)


def run(path, n, cwd):
    """Run a program on n PEs in the folder cwd, SECONDS at most; its exit status, output and errors."""
    command = [f"{os.path.dirname(sys.executable)}/pyshmemrun", "-n", str(n), str(path)]
    environment = {**os.environ, "PYSHMEM_QUIET": "1"}  # no line on where kernels run
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=cwd, env=environment, text=True, start_new_session=True, **pipes) as job:
        try:
            output, errors = job.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGTERM)  # the launcher then ends the PEs, which are in groups of their own
            try:
                job.wait(GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
            pytest.fail(f"{path.name} on {n} PEs: not over after {SECONDS} s\n" + "".join(job.communicate()))
    return job.returncode, output, errors
