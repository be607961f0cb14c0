"""The programs of all pages, the reference and the examples on 2 PEs: the checker is silent, other schedules change no result."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from jobs import warm
from test_doc_programs import PROGRAMS, ROOT

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
from removals import BIN, OWN, SMALLER, WRONG

SECONDS = 280  # of one job, which has the programs of a page or a few examples
pytestmark = pytest.mark.timeout(2 * SECONDS + 60)
LEFT_OUT = ("torch.md/by_torchrun.py", "memory.md/symmetric.py")  # torchrun starts it; a C++ compiler runs for minutes
SHOWS_FAULTS = ("checking.md",)
FOLDERS = {"examples": 4, "docs/chapters": 12}  # with others, and how many of their programs a job has
IN_TURN = """import runpy, sys

sys.stdout.reconfigure(line_buffering=True)
for path in sys.argv[1:]:
    print("---", path)
    sys.argv[1:] = ["early"]  # hidden.py takes it
    runpy.run_path(path, run_name="__main__")
"""


def jobs():
    """The programs of each job: those of a page, or some of a folder."""
    for page, programs in PROGRAMS.items():
        texts = {f"{page}/{name}": text for name, text in programs.items()}
        texts = {name: text for name, text in texts.items() if name not in (*WRONG, *LEFT_OUT)}
        if texts and page not in SHOWS_FAULTS:
            yield texts
    for folder, at_once in FOLDERS.items():
        files = sorted((ROOT / folder).rglob("*.py"))
        for first in range(0, len(files), at_once):
            yield {f"{path.relative_to(ROOT)}": path.read_text() for path in files[first : first + at_once]}


def printed(option, names, folder):
    """What the programs print, one after the other in one job, as starting takes longest; before each the PEs print its name."""
    command = [BIN / "pyshmemrun", "--label", *option.split(), "-n", "2", *warm(), folder / "in_turn.py", *names]
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "120"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, env=environment)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{late}:\n{(late.stdout or b'').decode()}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(output):
    """The lines of the PEs, each with its program, without what differs from run to run."""
    program, lines = {}, []
    for pe, line in re.findall(r"^\[(\d)\] (.*)$", output, re.MULTILINE):
        if line.startswith("--- "):
            program[pe] = line[4:]
        else:
            lines.append((program[pe], re.sub(r"\d+\.\d+", "...", OWN.sub("", line))))
    return sorted(lines)


@pytest.mark.parametrize("texts", list(jobs()), ids=lambda texts: " ".join(texts))
def test_checker_is_silent_and_other_schedules_change_no_result(texts, tmp_path):
    (tmp_path / "in_turn.py").write_text(IN_TURN)
    for source in (ROOT / "examples").glob("*.c"):
        (tmp_path / "examples").mkdir(exist_ok=True)
        (tmp_path / "examples" / source.name).write_text(source.read_text())
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace(*SMALLER.get(name, ("", ""))))
    output = printed("--check", texts, tmp_path)
    assert "pyshmemrun --check: no findings" in output, output
    assert results(printed("--check=schedules --seed 1", texts, tmp_path)) == results(output)
