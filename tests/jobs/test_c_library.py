"""libpyshmem: C programs, and C libraries under Python, on one job; what they are compiled with; how they end."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from jobs import mpiexec, python
from launching import PYSHMEMRUN
from pyshmem.base import environment
from pyshmem.version import __version__

SOURCES = pathlib.Path(__file__).with_name("c")
BIN = pathlib.Path(sys.executable).parent
FOLDER = tempfile.TemporaryDirectory()
AS_LIBRARY = ("-fPIC", "-shared", "-Wl,-Bsymbolic")

# Calls the main function of a C program that is compiled as a library, in a process of Python.
CALLER = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
status = library.main(1, (ctypes.c_char_p * 2)(b"program", None))
ctypes.CDLL(None).fflush(None)
sys.exit(status)
"""


@functools.cache
def compiled(name, *options):
    """A program of the folder c, compiled by oshcc."""
    path = f"{FOLDER.name}/{name}{len(options)}.so"
    command = [
        BIN / "oshcc", "-O1", "-Wall", "-Wextra", "-Werror", *options, SOURCES / f"{name}.c", "-o", path, "-lpthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


def run(name, n, tmp_path, environment=None):
    path = compiled(name, *AS_LIBRARY)
    variables = {"PYSHMEM_SYMMETRIC_LIBS": os.path.basename(path), **(environment or {})}
    return mpiexec(n, CALLER, path, tmp_path=tmp_path, environment=variables)


@pytest.mark.parametrize(
    ("n", "environment"),
    [(1, {}), (2, {"SHMEM_DEBUG": "1"}), (3, {}), (4, {"PYSHMEM_NODE_SIZE": "2", "PYSHMEM_FAR": "tcp"}),
     (4, {"PYSHMEM_NODE_SIZE": "3", "PYSHMEM_FAR": "tcp"})],
    ids=["1", "2, debug", "3", "2 + 2", "3 + 1"],
)  # fmt: skip
def test_a_call_of_each_kind_does_what_the_specification_says(n, environment, tmp_path):
    status, out, err = run("families", n, tmp_path, environment)
    assert (status, sorted(out.split("\n"))[1:]) == (0, [f"PE {pe} of {n}: all families" for pe in range(n)]), err


def test_a_non_blocking_fetching_atomic_does_not_wait_for_its_far_target(tmp_path):
    environment = {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp", "PYSHMEM_WAIT_TIMEOUT": "60"}
    assert run("later", 2, tmp_path, environment)[:2] == (0, "later\n")


# Lets the library take the CPU heap for GPU memory, in debug mode: there is no shorter way to an address then.
AS_GPU = """
import atexit
from pyshmem.capi import bridge, on_gpu
from pyshmem.memory.cpu_heap import cpu
on_gpu.gpu, used = cpu, set()
for name in on_gpu.CALLS:
    bridge._CALLS[name] = lambda a, name=name: used.add(name) or on_gpu.CALLS[name](a)
atexit.register(lambda: print("unused:", *on_gpu.CALLS.keys() - used))
"""


@pytest.mark.parametrize(
    ("n", "environment"),
    [(1, {}), (3, {}), (4, {"PYSHMEM_NODE_SIZE": "2", "PYSHMEM_FAR": "tcp"})],
    ids=["1", "3", "2 + 2"],
)
def test_calls_on_the_gpu_heap_take_the_routes_of_python(n, environment, tmp_path):
    path = compiled("on_gpu", *AS_LIBRARY)
    variables = {"PYSHMEM_SYMMETRIC_LIBS": os.path.basename(path), "SHMEM_DEBUG": "1", **environment}
    status, out, err = mpiexec(n, AS_GPU + CALLER, path, tmp_path=tmp_path, environment=variables)
    lines = [f"PE {pe} of {n}: all on the GPU heap" for pe in range(n)] + ["unused:"] * n
    assert (status, sorted(out.splitlines())) == (0, lines), err


# who opens the job of a C program: see test_c_start.py
STARTS = pytest.mark.parametrize("start", ["auto", "python"])


@STARTS
def test_a_c_program_starts_the_job_itself_and_its_static_data_are_symmetric(start, tmp_path):
    done = subprocess.run(
        [*PYSHMEMRUN, "-n", "2", "--heap-size", "16m", compiled("families")],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYSHMEM_C_START": start},
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == [f"PE {pe} of 2: all families" for pe in range(2)]


MIXED = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
import torch
import pyshmem as shmem
C_FIRST = sys.argv[2] == "C first"
library.begin() if C_FIRST else shmem.init()
shmem.init() if C_FIRST else library.begin()
me, n = shmem.my_pe(), shmem.n_pes()
assert (library.number(), library.count()) == (me, n)
library.make.restype = library.sum.restype = ctypes.c_long
mine = shmem.from_address(library.make(n), n, torch.int64)  # C's memory, as a tensor
assert shmem.is_symmetric(mine) and mine.tolist() == [-1] * n
shmem.barrier_all()
shmem.p(mine[me], 10 * me, (me + 1) % n)
shmem.barrier_all()
assert mine[(me - 1) % n] == 10 * ((me - 1) % n)
theirs = shmem.full(4, me, dtype=torch.int64)  # Python's memory, as a pointer
library.shift(ctypes.c_void_p(shmem.c_address(theirs)), 4)
assert theirs.tolist() == [(me - 1) % n] * 4
assert library.sum(ctypes.c_long(me + 1)) == n * (n + 1) // 2
library.end()
shmem.barrier_all()  # the other init still counts
assert mine[(me - 1) % n] == 10 * ((me - 1) % n)
shmem.finalize()
assert not library.has_begun()
shmem.init()  # another job, which the library finds
assert library.number() == me
shmem.finalize()
print("mixed")
"""


@pytest.mark.parametrize("order", ["C first", "Python first"])
def test_c_and_python_are_in_one_job_on_one_heap(order, tmp_path):
    status, out, err = mpiexec(2, MIXED, compiled("mixed", *AS_LIBRARY), order, tmp_path=tmp_path)
    assert (status, out.split()) == (0, ["mixed"] * 2), err


ERRORS = {
    "pe": r"shmem_long_p: PE 0: pe: got 5; expected a PE from 0 to 0",
    "private": r"shmem_double_put: PE 0: dest: got 32 bytes at 0x",
    "before": r"shmem_barrier_all: PE \?: not initialized: call shmem_init\(\) first",
    "lock": r"shmem_clear_lock: PE 0: lock: got a lock that is free; expected one that this PE has set",
    "team": r"shmem_int_sum_reduce: PE 0: team: got a team that has ended; expected a team this PE is in",
    "stride": r"shmem_long_iput: PE 0: dst: got 0; expected 1 or more",
    "freed": r"shmem_free: PE 0: ptr: got the address 0x\w+, at which no symmetric memory is allocated; expected an address that",
    "reallocated": r"shmem_realloc: PE 0: ptr: got the address 0x\w+, at which no symmetric memory is allocated",
    "never allocated": r"shmem_free: PE 0: ptr: got the address 0x\w+, at which no symmetric memory is allocated",
    "wait": r"shmem_long_wait_until: PE 0: ivar: got 0 at heap offset \d+ in 0.1 s; expected a value == 3; PYSHMEM_WAIT_TIMEOUT",
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_of_a_c_program_is_one_line_and_ends_the_job(case, tmp_path):
    library, program = (
        compiled("errors", *AS_LIBRARY),
        "import ctypes, sys; ctypes.CDLL(sys.argv[1]).fail(sys.argv[2].encode())",
    )
    status, out, err = python(program, library, case, tmp_path=tmp_path, environment={"PYSHMEM_WAIT_TIMEOUT": "0.1"})
    assert status == 1 and "Traceback" not in err and out == ""
    assert re.search(ERRORS[case], err), err


@pytest.mark.parametrize(
    ("what", "status", "printed", "said"),
    [
        ("return", 0, ["PE 0 ends", "PE 1 ends"], ""),
        ("exit", 7, [], "PE 1: exited with status 7\n"),
        ("kill", 137, [], "PE 1: killed by signal 9 (SIGKILL)\n"),
    ],
)
@STARTS
def test_a_c_program_that_does_not_finalize_ends_as_in_python(what, status, printed, said, start):
    command = [*PYSHMEMRUN, "-n", "2", "--heap-size", "16m", compiled("ends"), what]
    variables = {**os.environ, "PYSHMEM_C_START": start}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=variables)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (status, printed), done.stderr
    assert done.stderr.endswith(said) and (said or not done.stderr)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "differ",
            r"shmem_malloc: PE 0: call: got \S+ of 8 bytes aligned to 64 on cpu on PE 0 and \S+ of 9 bytes .* on cpu on PE 1;",
        ),
        ("wait", r"PE \d: ivar: got 0 at heap offset \d+ \(in \d+ to \d+\) in 1 s; expected a value == 1; "),
    ],
)
def test_errors_of_a_c_program_name_no_line_where_they_know_none(what, said):
    variables = {**os.environ, "SHMEM_DEBUG": "1", "PYSHMEM_WAIT_TIMEOUT": "1"}
    command = [*PYSHMEMRUN, "-n", "2", "--heap-size", "16m", compiled("ends"), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=variables)
    assert done.returncode == 1 and re.search(said, done.stderr), done.stderr
    assert not re.search(r" at (\?|$)", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.parametrize(
    ("what", "routine"), [("wait", "long_wait_until"), ("static", "long_wait_until"), ("sync", "sync_all")]
)
@pytest.mark.parametrize(("debug", "start"), [("0", "auto"), ("0", "python"), ("1", "auto")])
def test_pe_0_says_once_in_a_long_wait_of_a_c_program_which_call_waits(what, routine, debug, start):
    """In debug mode also where the other PE is. The wait then ends with the job, by its time-out."""
    variables = {
        "SHMEM_DEBUG": debug,
        "PYSHMEM_WAIT_NOTICE": "0.2",
        "PYSHMEM_WAIT_TIMEOUT": "5",
        "PYSHMEM_C_START": start,
    }
    command = [*PYSHMEMRUN, "-n", "2", "--heap-size", "16m", compiled("ends"), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **variables})
    others = "PE 1 is in shmem_long_wait_until" if debug == "1" else "SHMEM_DEBUG=1 says where the other PEs are"
    missing = ": no call yet from PE 1 of TEAM_WORLD" if (what, debug) == ("sync", "1") else ""
    line = f"pyshmem: PE 0 has waited 0.2 s in shmem_{routine}{missing}; {others}; PYSHMEM_WAIT_NOTICE sets the seconds"
    assert done.returncode == 1 and done.stderr.count("pyshmem: PE 0 has waited") == done.stderr.count(line) == 1, (
        done.stderr
    )
    assert what != "static" or re.search(r"PE \d: ivar: got 0 at 0x[0-9a-f]+ in static data in 5 s", done.stderr), (
        done.stderr
    )


# No PE ends the job before all have said why.
TOGETHER = """
import ctypes, sys
from mpi4py.MPI import COMM_WORLD
from pyshmem.diagnosis import exits
abort = exits.abort
exits.abort = lambda status: COMM_WORLD.Barrier() or abort(status)
"""


def test_different_collective_calls_in_c_are_refused_on_all_pes(tmp_path):
    library = compiled("errors", *AS_LIBRARY)
    program = TOGETHER + "ctypes.CDLL(sys.argv[1]).differ()"
    status, _, err = mpiexec(2, program, library, tmp_path=tmp_path)
    assert status and "Traceback" not in err
    for pe in range(2):
        assert (
            f"shmem_long_fcollect: PE {pe}: size: got 1 int64 elements on PE 0 and 2 int64 elements on PE 1; expected"
            in err
        )


CALLS = ["barrier_all", "sum_reduce", "sync_all", "fcollect", "malloc", "alltoall", "broadcast"]


@pytest.mark.parametrize("first", range(len(CALLS)), ids=CALLS)
def test_two_different_collectives_in_c_are_an_error_on_both_pes_that_names_both(first, tmp_path):
    library = compiled("errors", *AS_LIBRARY)
    program = TOGETHER + "ctypes.CDLL(sys.argv[1]).differ_in_call(int(sys.argv[2]))"
    status, _, err = mpiexec(2, program, library, str(first), tmp_path=tmp_path)
    names = [f"{CALLS[(first + pe) % len(CALLS)]}\\b.* on PE {pe}" for pe in range(2)]
    said = re.findall(rf"PE (\d): call: got .*{names[0]} and .*{names[1]}", err)
    assert status and sorted(said) == ["0", "1"], err


def test_different_sizes_of_an_allocation_in_c_are_refused_by_its_c_name(tmp_path):
    library = compiled("errors", *AS_LIBRARY)
    program = TOGETHER + "ctypes.CDLL(sys.argv[1]).differ_in_size()"
    status, _, err = mpiexec(2, program, library, tmp_path=tmp_path)
    assert status and all(f"\nshmem_calloc: PE {pe}: size: got 8 " in f"\n{err}" for pe in range(2)), err


def test_a_broadcast_in_c_that_is_not_the_roots_is_refused(tmp_path):
    library = compiled("errors", *AS_LIBRARY)
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).broadcast_other_than_root()"
    status, _, err = mpiexec(2, program, library, tmp_path=tmp_path)
    assert (
        status
        and "shmem_long_broadcast: PE 1: call: got 2 int64 elements from root 0 here, and another size or type on the root"
        in err
    )


def test_without_checks_a_pe_out_of_range_is_not_refused(tmp_path):
    library = compiled("errors", *AS_LIBRARY)
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).accepts_private_memory())"
    for check, answer in (("0", "1"), ("1", "")):
        status, out, err = python(program, library, tmp_path=tmp_path, environment={"PYSHMEM_CHECK": check})
        assert (status, out.strip()) == (int(check), answer), err


def test_a_library_of_another_version_is_refused_by_both_versions(tmp_path):
    library = compiled("errors", *AS_LIBRARY)
    program = "import ctypes, sys\nfrom pyshmem.capi import bridge\nbridge.__version__ = '0.0.1'\nctypes.CDLL(sys.argv[1]).begin()"
    status, _, err = python(program, library, tmp_path=tmp_path)
    assert status == 1 and "got libpyshmem of pyshmem 0.1.0, and the package of 0.0.1" in err


def test_oshcc_compiles_with_the_header_and_links_with_the_library(tmp_path):
    shown = subprocess.run([BIN / "oshcc", "--show", "x.c", "-o", "x"], capture_output=True, text=True).stdout
    object_ = subprocess.run([BIN / "oshcc", "--show", "-c", "x.c"], capture_output=True, text=True).stdout
    assert "-lpyshmem" in shown and "-Wl,-rpath" in shown and "x.c -o x" in shown
    assert "-lpyshmem" not in object_ and "-I" in object_
    missing = tmp_path / "missing.c"
    missing.write_text(
        "#include <shmem.h>\nvoid shmem_no_such_routine(void);\nint main(void) { shmem_no_such_routine(); }\n"
    )
    done = subprocess.run([BIN / "oshcc", missing, "-o", tmp_path / "missing"], capture_output=True, text=True)
    assert done.returncode and "undefined reference to `shmem_no_such_routine'" in done.stderr


def test_shmem_info_prints_what_the_library_is_and_each_variable_with_its_value(tmp_path):
    def info(**variables):
        done = subprocess.run(
            [BIN / "shmem_info"], capture_output=True, text=True, cwd=tmp_path, env=os.environ | variables
        )
        return done.returncode, done.stdout, done.stderr

    status, out, err = info(PYSHMEM_WAIT_TIMEOUT="7", PYSHMEM_CC="mycc -x")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines()[:6])
    listed = {line.split()[1]: line.split()[0] for line in out.splitlines()[7:]}
    header = re.match(r"(\S+/shmem\.h): (\d+) functions, \d+ generic names", rows["header"])
    declared = pathlib.Path(header[1]).read_text().split("/* for tools */")[0].count(");\n")
    assert (status, err, rows["OpenSHMEM"], rows["vendor"]) == (0, "", "1.6", f"pyshmem {__version__}")
    assert int(header[2]) == declared
    assert rows["oshcc runs"].startswith("mycc -x -I") and os.path.exists(rows["library"])
    assert listed.keys() == environment.VARIABLES.keys() and listed["PYSHMEM_WAIT_TIMEOUT"] == "7.0"
    status, _, err = info(PYSHMEM_WAIT_TIMEOUT="soon")
    assert status == 1 and "PYSHMEM_WAIT_TIMEOUT: got 'soon'; expected a number of seconds" in err


CPP = """
#include <shmemx.h>
#include <type_traits>
#define IS(TYPE, ...) static_assert(std::is_same<decltype(__VA_ARGS__), TYPE>::value, #__VA_ARGS__)
IS(float, shmem_g(static_cast<float *>(0), 0));
IS(unsigned char, shmem_g(SHMEM_CTX_DEFAULT, static_cast<const unsigned char *>(0), 0));
IS(long long, shmem_atomic_fetch_add(static_cast<long long *>(0), 1, 0));
IS(int, shmem_sum_reduce(SHMEM_TEAM_WORLD, static_cast<double *>(0), static_cast<double *>(0), 1));
IS(size_t, shmem_wait_until_any(static_cast<int *>(0), 1, 0, SHMEM_CMP_EQ, 0));
IS(void, shmem_sync(0, 0, 1, 0));
IS(int, shmem_sync(SHMEM_TEAM_WORLD));
IS(void, shmem_signal_add(SHMEM_CTX_DEFAULT, static_cast<uint64_t *>(0), 1, 0));
IS(void, shmemx_ibput(static_cast<short *>(0), static_cast<short *>(0), 1, 1, 1, 1, 0));
int main() {
    long x = 0;
    shmem_put(&x, &x, 1, 0);
    shmem_put(SHMEM_CTX_DEFAULT, &x, &x, 1, 0);
    return static_cast<int>(shmem_long_g(&x, 0)) + SHMEM_CMP_EQ;
}
"""


def test_cpp_programs_have_the_names_without_a_type_as_overloads(tmp_path):
    source = tmp_path / "program.cpp"
    source.write_text(CPP)
    command = [BIN / "oshc++", "-std=c++11", "-Wall", "-Wextra", "-Werror", source, "-o", tmp_path / "program"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


VERSION = """
#include <shmem.h>
#include <stdio.h>
int main(void) {
    int major, minor;
    shmem_info_get_version(&major, &minor);
    printf("%d.%d", major, minor);
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(program C)
find_package(pyshmem REQUIRED)
add_executable(program program.c)
target_link_libraries(program pyshmem::pyshmem)
"""


@pytest.mark.parametrize("tool", ["pkg-config", "cmake"])
def test_other_builds_find_the_library(tool, tmp_path):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    (tmp_path / "program.c").write_text(VERSION)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    prefix = subprocess.run([BIN / "oshcc", "--prefix"], capture_output=True, text=True, check=True).stdout.strip()
    commands = {
        "pkg-config": f"PKG_CONFIG_PATH={prefix}/pkgconfig; export PKG_CONFIG_PATH;"
        " cc program.c $(pkg-config --cflags --libs pyshmem) -o program",
        "cmake": f"cmake -Dpyshmem_DIR={prefix}/cmake . && cmake --build .",
    }
    built = subprocess.run(["sh", "-ec", commands[tool]], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    assert subprocess.run([tmp_path / "program"], capture_output=True, text=True).stdout == "1.6"


def test_the_library_has_every_name_of_the_table_and_its_profiling_name():
    import ctypes

    from pyshmem.c_names.rows import names
    from pyshmem.c_names.table import ROWS
    from pyshmem.capi.compiler import HERE

    library = ctypes.CDLL(str(HERE / "libpyshmem.so"))
    missing = [prefix + name for name in names(ROWS) for prefix in ("", "p") if not hasattr(library, prefix + name)]
    assert missing == []
