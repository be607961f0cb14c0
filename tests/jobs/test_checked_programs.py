"""The programs of all pages and the examples on 2 PEs: the checker is silent, and other schedules change no result."""

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

SECONDS = 500
pytestmark = pytest.mark.timeout(2 * SECONDS + 60)
LEFT_OUT = ("torch.md/by_torchrun.py", "memory.md/symmetric.py")  # torchrun starts it; a C++ compiler runs for minutes
SHOWS_FAULTS = ("checking.md",)
IN_TURN = """import runpy, sys

sys.stdout.reconfigure(line_buffering=True)
for path in sys.argv[1:]:
    sys.argv[1:] = ["early"]  # hidden.py takes it
    runpy.run_path(path, run_name="__main__")
"""


def examples():
    files = sorted((ROOT / "examples").rglob("*.py"))
    return {f"{path.relative_to(ROOT)}": path.read_text() for path in files}


def pages():
    return {
        f"{page}/{name}": text
        for page, programs in PROGRAMS.items()
        for name, text in programs.items()
        if page not in SHOWS_FAULTS and f"{page}/{name}" not in (*WRONG, *LEFT_OUT)
    }


def printed(option, names, folder):
    """What the programs print, one after the other in one job, as starting takes longest."""
    command = [BIN / "pyshmemrun", *option.split(), "-n", "2", *warm(), folder / "in_turn.py", *names]
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", "PYSHMEM_WAIT_TIMEOUT": "120"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(output):
    """The lines, without what differs from run to run."""
    return sorted(
        re.sub(r"\d+\.\d+", "...", OWN.sub("", line)) for line in output.splitlines() if "--check" not in line
    )


@pytest.mark.parametrize("programs", [pages, examples])
def test_checker_is_silent_and_other_schedules_change_no_result(programs, tmp_path):
    texts = programs()
    (tmp_path / "in_turn.py").write_text(IN_TURN)
    for source in (ROOT / "examples").glob("*.c"):
        (tmp_path / source.name).write_text(source.read_text())
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace(*SMALLER.get(name, ("", ""))))
    output = printed("--check", texts, tmp_path)
    assert "pyshmemrun --check: no findings" in output, output
    assert results(printed("--check=schedules --seed 1", texts, tmp_path)) == results(output)
