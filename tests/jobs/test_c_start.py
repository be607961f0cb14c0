"""C programs open their job without Python where nothing needs it, and then do what they do with it."""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest
from launching import PYSHMEMRUN
from test_c_library import CALLS, ERRORS

SOURCES = pathlib.Path(__file__).with_name("c")
BIN = pathlib.Path(sys.executable).parent
FOLDER = tempfile.TemporaryDirectory()
STARTS = ["auto", "python"]


@functools.cache
def compiled(*names, options=()):
    path = f"{FOLDER.name}/{names[0]}{''.join(options)}"
    sources = [SOURCES / f"{name}.c" for name in names]
    subprocess.run([BIN / "oshcc", "-O1", *options, *sources, "-lpthread", "-o", path], check=True)
    return path


def run(n, *words, start="auto", program=("start", "errors"), options=(), **variables):
    """Run the program on ``n`` PEs; (status, stdout, stderr)."""
    environment = {**os.environ, "PYSHMEM_C_START": start, "PYSHMEM_WAIT_TIMEOUT": "60", **variables}
    done = subprocess.run(
        [*PYSHMEMRUN, "-n", str(n), "--heap-size", "16m", compiled(*program, options=options), *words],
        capture_output=True, text=True, timeout=200, env=environment,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def starts(n, *words, **variables):
    """What the PEs run on: C, or Python."""
    status, out, err = run(n, "python", *words, **variables)
    assert status == 0 and len(out.splitlines()) >= n, err
    return {line.rpartition(": ")[2] for line in out.splitlines() if line.startswith("PE ")}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_c_program_on_one_host_without_gpus_starts_no_python(n):
    assert starts(n, PYSHMEM_HEAP="cpu") == {"C"}


def test_a_c_program_without_a_launcher_starts_no_python():
    own = {name: text for name, text in os.environ.items() if not name.startswith(("PMI_", "PYSHMEM_", "SHMEM_"))}
    variables = {**own, "SHMEM_SYMMETRIC_SIZE": "1m", "PYSHMEM_HEAP": "cpu"}
    done = subprocess.run(
        [compiled("start", "errors"), "python"], capture_output=True, text=True, timeout=100, env=variables
    )
    assert (done.returncode, done.stdout) == (0, "PE 0 of 1: C\n"), done.stderr


@pytest.mark.parametrize(
    ("variable", "opener"),
    [
        ("PYSHMEM_INTERFACE=lo", "Python"),
        ("PYSHMEM_C_START=python", "Python"),
        ("PYSHMEM_CHECK=0", "C"),
        ("SHMEM_DEBUG=no", "C"),
    ],
)
def test_what_needs_python_on_one_pe_starts_it_on_all(variable, opener):
    assert starts(3, variable, PYSHMEM_HEAP="cpu") == {opener}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PYSHMEM_WAIT_TIMEOUT", "soon", "PYSHMEM_WAIT_TIMEOUT: got 'soon'"),
        ("SHMEM_SYMMETRIC_SIZE", "900000g", "heap_size: got"),
        ("PYSHMEM_MAX_TEAMS", "1", "PYSHMEM_MAX_TEAMS: got 1"),
    ],
)
def test_a_variable_without_meaning_is_refused_as_in_python(name, text, said):
    environment = {**os.environ, name: text}
    done = subprocess.run(
        [*PYSHMEMRUN, "-n", "2", compiled("start", "errors"), "python"],
        capture_output=True, text=True, timeout=200, env=environment,
    )  # fmt: skip
    assert done.returncode and said in done.stderr, done.stderr


@pytest.mark.parametrize("what", ["allocate", "split", "again"])
@pytest.mark.parametrize("n", [1, 3, 4])
def test_memory_and_teams_are_the_same_with_and_without_python(n, what):
    found = [run(n, what, start=start) for start in STARTS]
    assert [status for status, _, _ in found] == [0, 0], found
    assert sorted(found[0][1].splitlines()) == sorted(found[1][1].splitlines())


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_call_of_each_kind_needs_no_python(n):
    status, out, err = run(n, program=("families",))
    assert (status, sorted(out.splitlines())) == (0, [f"PE {pe} of {n}: all families" for pe in range(n)]), err


@pytest.mark.parametrize("n", [1, 2])
def test_a_program_with_sanitizers_has_symmetric_static_data(n):
    """The sanitizer keeps gaps between the variables, whose pages are copied into the heap and back."""
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    status, out, err = run(n, "again", options=options, ASAN_OPTIONS="detect_leaks=0")
    assert status == 0 and len(out.splitlines()) >= n and "Sanitizer" not in err, err


@pytest.mark.parametrize("n", [1, 2, 3])
def test_large_copies_are_whole_at_any_distance_within_a_page(n):
    status, out, err = run(n, "copy")
    assert (status, sorted(out.splitlines())) == (0, [f"PE {pe}: 0 wrong" for pe in range(n)]), err


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_without_python_is_the_same_line(case):
    status, out, err = run(1, "fail", case, PYSHMEM_WAIT_TIMEOUT="0.1")
    assert (status, out) == (1, "") and re.search(ERRORS[case], err), err


@pytest.mark.parametrize("first", range(len(CALLS)), ids=CALLS)
def test_two_different_collectives_without_python_are_an_error_that_names_both(first):
    status, _, err = run(2, f"call {first}")
    names = [f"{CALLS[(first + pe) % len(CALLS)]}\\b.* on PE {pe}" for pe in range(2)]
    assert status == 1 and re.search(rf"PE \d: call: got .*{names[0]} and .*{names[1]}", err), err


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "differ",
            r"shmem_long_fcollect: PE \d: size: got 1 int64 elements on PE 0 and 2 int64 elements on PE 1; expected",
        ),
        ("differ in size", r"shmem_calloc: PE \d: size: got 8 "),
        (
            "unlike",
            "shmem_long_broadcast: PE 1: call: got 2 int64 elements from root 0 here, and another size or type on",
        ),
    ],
)
def test_calls_of_other_sizes_without_python_are_refused(what, said):
    status, _, err = run(2, what)
    assert status == 1 and re.search(said, err), err


@pytest.mark.parametrize("start", STARTS)
def test_a_wait_for_a_pe_that_has_ended_says_so(start):
    status, _, err = run(2, "leave", start=start, PYSHMEM_WAIT_TIMEOUT="2")
    assert status == 1 and "PE 1 has come to the end of its program" in err, err


@pytest.mark.parametrize("n", [2, 3, 4])
def test_global_exit_of_one_pe_without_python_ends_all_with_its_status(n):
    """The others wait in a barrier."""
    status, _, err = run(n, "exit")
    assert status == 3, err


PYTHON_PE = """
import pyshmem as shmem
shmem.init()
shmem.finalize()
"""


@pytest.mark.parametrize("first", ["C", "Python"])
def test_pes_in_c_leave_the_job_to_python_where_another_pe_is_in_python(first, tmp_path):
    """Python then refuses it, on all, because only some of the PEs have static data."""
    (tmp_path / "program.py").write_text(PYTHON_PE)
    commands = [[compiled("start", "errors"), "python"], [sys.executable, str(tmp_path / "program.py")]]
    one, other = commands if first == "C" else reversed(commands)
    done = subprocess.run(
        [str(BIN / "mpiexec"), "-n", "2", *one, ":", "-n", "1", *other],
        capture_output=True, text=True, timeout=200,
        env={**os.environ, "SHMEM_SYMMETRIC_SIZE": "16m", "PYSHMEM_PYTHON": sys.executable},
    )  # fmt: skip
    said = set(re.findall(r"^init: PE (\d): static data: got 0 bytes on one PE", done.stderr, re.MULTILINE))
    assert done.returncode and said and said <= {"0", "1", "2"}, done.stderr
