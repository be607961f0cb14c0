"""The programs of the pages are run as they stand there, by the commands that stand there, and print what the pages show."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from jobs import warm
from pyshmem.distributed.compiled import compiled, has_compiler
from surroundings import SECONDS, until
from trace_format import checked

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/learn").glob("*.md"))]
BIN = pathlib.Path(sys.executable).parent
PROGRAM = re.compile(r"```python\n(# (\S+\.py)\n.*?)```", re.DOTALL)
RUN = re.compile(r"^\$ ((?:\w+=\S+ )*pyshmemrun .*\.py.*)\n((?:[^$`].*\n|\n)*)", re.MULTILINE)

PROGRAMS = {page.name: {name: text for text, name in PROGRAM.findall(page.read_text())} for page in PAGES}
RUNS = [
    (page.name, command, shown)
    for page in PAGES
    for command, shown in RUN.findall(page.read_text())
    if "examples/" not in command
]
LESSON = re.compile(r"0[1-8]-.*\.md")  # of docs/learn; the last two are operators, whose kernels have many events
COMPLETE = [page for page, programs in PROGRAMS.items() if programs and page != "torch.md"]  # started by torchrun there


def prepared(command, **variables):
    """The words of a command line such as "SHMEM_DEBUG=1 pyshmemrun -n 2 hang.py", and its environment."""
    words = shlex.split(command)
    settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    words = words[len(settings) :]
    if "--" not in command.replace("--check ", ""):  # options by which pyshmemrun watches the processes that it starts
        program = next(place for place, word in enumerate(words) if word.endswith(".py"))
        words[program:program] = warm()
    environment = {
        **os.environ,
        "PYSHMEM_QUIET": "1",
        "SHMEM_SYMMETRIC_SIZE": "64m",
        "PYSHMEM_WAIT_TIMEOUT": "60",
        **settings,
        **variables,
    }
    return [BIN / words[0], *words[1:]], environment


def run(command, folder, **variables):
    """(status, what was printed) of a command line."""
    words, environment = prepared(command, **variables)
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, cwd=folder, env=environment)
    return done.returncode, done.stdout, done.stderr


def printed_in_time(command, folder, lines):
    """What a command with a time limit prints until it has printed these lines. Its PEs have longer than the page's to start."""
    words, environment = prepared(re.sub(r"--timeout \d+", f"--timeout {SECONDS}", command))
    said = folder / "said"
    with open(said, "w") as file:
        job = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, cwd=folder, env=environment)
    try:
        until(lambda: set(lines) <= set(said.read_text().splitlines()) or job.poll() is not None, 2 * SECONDS)
    finally:
        job.terminate()
        job.wait(SECONDS)
    return said.read_text()


def of_all(line):
    """The line without the PE and its call where all PEs are refused: the first of them ends the job."""
    return re.sub(r"^PE \d+: ArgumentError: \w+: call: ", "PE: ArgumentError: call: ", line)


def unmeasured(line):
    """The line with another machine's rate."""
    return re.sub(r"[\d.]+ (GB|tokens)/s", r"... \1/s", line)


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize("page, command, shown", RUNS, ids=[f"{page}: {command}" for page, command, _ in RUNS])
def test_program_of_a_page_prints_what_the_page_shows(page, command, shown, tmp_path):
    for name, text in PROGRAMS[page].items():
        (tmp_path / name).write_text(text)
    if "symmetric.py" in command:
        if not has_compiler():
            pytest.skip("there is no C++ compiler")
        compiled()  # not within the time of the program
    timeline, trace = tmp_path / "out.json", {}
    if LESSON.match(page):
        trace = {"PYSHMEM_TRACE": str(timeline), "PYSHMEM_TRACE_EVENTS": "20000"}
    lines = shown.splitlines()
    if "..." in lines:  # a program that fails or hangs: these lines are among others
        lines = [line for line in lines if line != "..."]
        said = (
            printed_in_time(command, tmp_path, lines) if "--timeout" in command else "".join(run(command, tmp_path)[1:])
        )
        assert set(map(of_all, lines)) <= set(map(of_all, said.splitlines())), said
    else:
        status, out, err = run(command, tmp_path, **trace)
        assert status == 0, err
        assert sorted(map(unmeasured, out.splitlines())) == sorted(map(unmeasured, lines))  # PEs print in any order
    if trace:
        checked(timeline)


@pytest.mark.parametrize("page", COMPLETE)
def test_every_program_of_a_page_is_run_there(page):
    run_there = {word for name, command, _ in RUNS if name == page for word in shlex.split(command)}
    assert PROGRAMS[page] and not set(PROGRAMS[page]) - run_there - {"ring_triton.py"}


def test_ring_in_triton_prints_the_same_as_the_ring(tmp_path):
    """README shows the output once for both."""
    (tmp_path / "ring_triton.py").write_text(PROGRAMS["README.md"]["ring_triton.py"])
    shown = next(shown for page, command, shown in RUNS if page == "README.md")
    status, out, err = run("pyshmemrun -n 4 ring_triton.py", tmp_path)
    assert status == 0, err
    assert sorted(out.splitlines()) == sorted(shown.splitlines())


def test_the_blocks_of_model_operators_are_one_program(tmp_path):
    """They follow each other on the page, and all PEs come to the end."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/model-operators.md").read_text(), re.DOTALL)
    assert len(blocks) > 4
    (tmp_path / "page.py").write_text("\n".join([*blocks, "print(tuple(y.shape))"]))
    status, out, err = run("pyshmemrun -n 2 page.py", tmp_path)
    assert (status, out.splitlines()) == (0, ["(6, 64)"] * 2), err
