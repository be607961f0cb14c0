"""An uncaught error of pyshmem shows the lines of the program; pyshmem's own appear with SHMEM_DEBUG."""

import pytest
from jobs import mpiexec, python

PROGRAM = """
import sys
import pyshmem as shmem
import pyshmem.device as dev
import torch
import triton

@triton.jit
def kernel(ctx, word):
    dev.p(ctx, word, 1, 9)

def of_the_user():
    word = shmem.zeros(1, dtype=torch.int64)
    if sys.argv[1] == "host":
        shmem.p(word, 1, 9)
    kernel[(1,)](shmem.device_context(), word)

if sys.argv[1] == "before init":
    of_the_user()
shmem.init()
of_the_user()
"""
SHOWN = {
    "before init": ["of_the_user()", "word = shmem.zeros(1, dtype=torch.int64)"],
    "host": ["of_the_user()", "shmem.p(word, 1, 9)"],
    "kernel": ["of_the_user()", "kernel[(1,)](shmem.device_context(), word)", "dev.p(ctx, word, 1, 9)"],
}
LAST = {
    "before init": "pyshmem.NotInitializedError: zeros: PE ?: not initialized: call shmem.init() first",
    "host": "pyshmem.OutOfRangeError: p: PE 0: pe: got 9; expected a PE from 0 to 0",
}


@pytest.mark.parametrize("case", SHOWN)
def test_traceback_has_the_programs_lines_alone(case, tmp_path):
    status, _, err = python(PROGRAM, case, tmp_path=tmp_path)
    assert status == 1
    files = {line.split('"')[1] for line in err.splitlines() if line.startswith("  File ")}
    assert files == {str(tmp_path / "program.py")}, err
    assert all(line in err for line in SHOWN[case])
    assert "of pyshmem's own calls; SHMEM_DEBUG=1 shows them]" in err and "During handling" not in err
    assert LAST.get(case, "") in err.splitlines() or case == "kernel"


@pytest.mark.parametrize("call", ["p(word, 1, 0)", "put(word, word, 1, 0)", "quiet()"])
def test_a_call_in_a_kernel_without_its_context_says_so(call, tmp_path):
    """Its other arguments move up by one, so Python misses the last of them."""
    status, _, err = python(PROGRAM.replace("p(ctx, word, 1, 9)", call), "kernel", tmp_path=tmp_path)
    name = call.partition("(")[0]
    assert status == 1 and f"\n{name}: PE 0: ctx: got a call with too few arguments; expected dev.{name}(ctx" in err, (
        err
    )


def test_debug_mode_shows_all_lines(tmp_path):
    status, _, err = python(PROGRAM, "host", tmp_path=tmp_path, environment={"SHMEM_DEBUG": "1"})
    assert status == 1 and "/pyshmem/host/rma.py" in err and "own calls" not in err and "During handling" not in err


WRITES = """
import sys, threading
import pyshmem as shmem

class Watched:
    def __init__(self, stream):
        self.stream, self.writes = stream, []
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def write(self, text):
        self.writes.append(text)
        return self.stream.write(text)

sys.stderr = watched = Watched(sys.stderr)
failing = {"name": lambda: shmem.zeross, "pyshmem": lambda: shmem.zeros(1)}[sys.argv[2]]
def deep(n):
    return deep(n - 1) if n else failing()
if sys.argv[1] == "thread":
    thread = threading.Thread(target=deep, args=(3,))
    thread.start()
    thread.join()
else:
    try:
        deep(3)
    except Exception:
        sys.excepthook(*sys.exc_info())
print([text.count("Traceback") for text in watched.writes], "zeros'?" in watched.writes[0])
"""


@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize("error", ["name", "pyshmem"])
@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_traceback_is_one_write_so_that_those_of_pes_do_not_mix(where, error, debug, tmp_path):
    """And the hint for a mistyped name is kept."""
    _, out, err = python(WRITES, where, error, tmp_path=tmp_path, environment={"SHMEM_DEBUG": debug})
    assert out == f"[1] {error == 'name'}\n", err


@pytest.mark.parametrize("error", ["ZeroDivisionError", "pyshmem.OutOfRangeError"])
def test_the_last_line_names_the_error_in_an_interpreted_kernel_not_tritons(error, tmp_path):
    program = PROGRAM.replace("dev.p(ctx, word, 1, 9)", "1 // 0") if error == "ZeroDivisionError" else PROGRAM
    _, _, err = mpiexec(2, program, "kernel", tmp_path=tmp_path)
    assert f"\nPE 0: {error.rpartition('.')[2]}: " in err or f"\nPE 1: {error.rpartition('.')[2]}: " in err, err
    assert "During handling" not in err


def test_other_exceptions_are_shown_whole(tmp_path):
    program = "import pyshmem as shmem\nshmem.init()\nshmem.init.__wrapped__"
    _, _, err = python(program, tmp_path=tmp_path)
    assert err.startswith("Traceback") and "own calls" not in err and "AttributeError" in err
