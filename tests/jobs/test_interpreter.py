"""Where kernels run is chosen at import; versions that do not work are named there; a wait in a kernel gives up."""

import os
import subprocess
import sys

import pytest
from jobs import warm
from pyshmem.start import requirements

SECONDS = 100  # of one job; generous, machines are slow and shared
PREFIXES = ("PMI", "OMPI", "HYDRA", "TRITON", "PYSHMEM", "SHMEM")  # of a launcher above us, or of the user
PLAIN = {name: text for name, text in os.environ.items() if not name.startswith(PREFIXES)}
SAID = "pyshmem: no GPU here, so kernels run in Triton's interpreter on the CPU (PYSHMEM_QUIET=1 hides this line)\n"

KERNEL = """
@triton.jit
def kernel(ctx, word):
    dev.p(ctx, word, 7 + dev.my_pe(ctx), dev.my_pe(ctx))

shmem.init(heap_size="1m")
word = shmem.zeros(1, dtype=torch.int32)
kernel[(1,)](shmem.device_context(), word)
kernel[(1,)](shmem.device_context(), word)
assert word.item() == 7 + shmem.my_pe()
"""
PYSHMEM_FIRST = "import pyshmem as shmem, pyshmem.device as dev, torch, triton, triton.language as tl\n"
TRITON_FIRST = "import torch, triton, triton.language as tl, pyshmem as shmem, pyshmem.device as dev\n"
WITH_A_GPU = "import torch; torch.cuda.is_available = lambda: True\n"


def run(code, tmp_path, pes=1, **variables):
    """(status, output, errors) of a program that finds torch imported; of a file, for kernels have their source read."""
    program = tmp_path / "program.py"
    program.write_text(code)
    launcher = [f"{os.path.dirname(sys.executable)}/pyshmemrun", "-n", str(pes)] if pes > 1 else []
    command = [*launcher, *warm(), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env={**PLAIN, **variables})
    return done.returncode, done.stdout, done.stderr


def last_line(errors):
    return errors.strip().splitlines()[-1]


@pytest.mark.parametrize("pes", [1, 3])
def test_importing_pyshmem_before_triton_is_enough_and_pe_0_says_so_once(pes, tmp_path):
    status, output, errors = run(PYSHMEM_FIRST + KERNEL, tmp_path, pes)
    assert (status, output) == (0, SAID), errors


@pytest.mark.parametrize("quiet, said", [("1", ""), ("0", SAID)])
def test_pyshmem_quiet_hides_the_line(quiet, said, tmp_path):
    status, output, errors = run(PYSHMEM_FIRST + KERNEL, tmp_path, PYSHMEM_QUIET=quiet)
    assert (status, output) == (0, said), errors


def test_nothing_is_said_where_no_kernel_context_is_asked_for(tmp_path):
    status, output, errors = run("import pyshmem as shmem; shmem.init(heap_size='1m'); shmem.finalize()", tmp_path)
    assert (status, output) == (0, ""), errors


def test_the_host_api_imports_neither_triton_nor_the_device_api(tmp_path):
    code = "import sys, pyshmem; print([name for name in ('triton', 'pyshmem.device') if name in sys.modules])"
    assert run(code, tmp_path)[1] == "[]\n"


OF_TRITON = """
@triton.jit
def early(x, N: tl.constexpr):
    loaded = tl.load(x + tl.arange(0, N))
    return loaded.sum(0) + tl.max(loaded, 0)
import pyshmem as shmem, pyshmem.device as dev
@triton.jit
def late(ctx, word, x, N: tl.constexpr):
    dev.p(ctx, word, early(x, N) + tl.sum(tl.zeros((N,), tl.int32), 0) + cdiv(N, 3), dev.my_pe(ctx))
shmem.init(heap_size="1m")
word = shmem.zeros(1, dtype=torch.int32)
late[(1,)](shmem.device_context(), word, shmem.ones(8, dtype=torch.int32), 8)
assert word.item() == 8 + 1 + 3, word
"""


@pytest.mark.parametrize("pes", [1, 2])
def test_triton_may_be_imported_first(pes, tmp_path):
    """Its own functions and methods, and kernels that were decorated before, are then interpreted too."""
    status, output, errors = run(TRITON_FIRST + KERNEL, tmp_path, pes)
    assert (status, output) == (0, SAID), errors
    first = "import torch, triton, triton.language as tl\nfrom triton.language import cdiv\n"
    status, output, errors = run(first + OF_TRITON, tmp_path, pes)
    assert (status, output) == (0, SAID), errors


def test_triton_imported_first_runs_kernels_without_the_device_api(tmp_path):
    kernel = "@triton.jit\ndef add(x, N: tl.constexpr): tl.store(x, tl.sum(tl.load(x + tl.arange(0, N)), 0))\n"
    code = "import torch, triton, triton.language as tl, pyshmem as shmem\n" + kernel
    code += "x = torch.ones(8)\nadd[(1,)](x, 8)\nassert x.tolist() == [8] + 7 * [1]\n"
    status, _, errors = run(code, tmp_path)
    assert status == 0, errors


def test_triton_imported_first_does_not_matter_to_programs_without_kernels(tmp_path):
    code = "import triton, pyshmem as shmem; shmem.init(heap_size='1m'); shmem.zeros(1); shmem.finalize()"
    status, _, errors = run(code, tmp_path)
    assert status == 0, errors


@pytest.mark.parametrize("yes", ["1", "Y"])
def test_triton_imported_first_works_where_the_user_has_chosen_the_interpreter(yes, tmp_path):
    status, output, errors = run(TRITON_FIRST + KERNEL, tmp_path, TRITON_INTERPRET=yes)
    assert (status, output) == (0, ""), errors


def test_the_interpreter_may_be_chosen_after_triton_was_imported(tmp_path):
    late = "import os, triton; os.environ['TRITON_INTERPRET'] = '1'\n"
    status, _, errors = run(late + PYSHMEM_FIRST + KERNEL, tmp_path)
    assert status == 0, errors


KIND = "print(type(dev.put).__name__)"  # a plain function for the interpreter, a JITFunction for the compiler


@pytest.mark.parametrize("no", ["0", ""])
def test_an_interpreter_that_the_user_has_switched_off_stays_off(no, tmp_path):
    code = "import os\n" + PYSHMEM_FIRST + "print(os.environ['TRITON_INTERPRET'])\n" + KIND
    status, output, errors = run(code, tmp_path, TRITON_INTERPRET=no)
    assert (status, output) == (0, no + "\nJITFunction\n"), errors


def test_compiled_kernels_are_refused_the_heap_in_cpu_memory(tmp_path):
    code = PYSHMEM_FIRST + "shmem.init(heap_size='1m')\nshmem.device_context(device='cpu')"
    status, _, errors = run(code, tmp_path, TRITON_INTERPRET="0")
    wanted = "ArgumentError: device_context: PE 0: device: got 'cpu'; expected 'cuda': kernels are compiled here"
    assert status and wanted in errors


@pytest.mark.parametrize("first", [PYSHMEM_FIRST, TRITON_FIRST])
def test_with_a_gpu_kernels_are_compiled_and_the_interpreter_is_the_users_choice(first, tmp_path):
    code = WITH_A_GPU + first + KIND
    assert run(code, tmp_path) == (0, "JITFunction\n", "")
    assert run(code, tmp_path, TRITON_INTERPRET="1") == (0, "function\n", "")


def test_device_context_before_init_is_refused(tmp_path):
    status, _, errors = run("import pyshmem as shmem; shmem.device_context()", tmp_path)
    assert status
    wanted = "NotInitializedError: device_context: PE ?: not initialized: call shmem.init() first"
    assert last_line(errors).endswith(wanted)


# ---- waits that nobody ends ----

WAITING = """
@triton.jit
def waiting_kernel(ctx, word, signal, unsigned):
    {call}

shmem.init(heap_size="1m")
words = shmem.full(20, -3, dtype=torch.int64)
signals = shmem.full(20, 2**63 + 1, dtype=torch.uint64)
try:
    waiting_kernel[(1,)](shmem.device_context(), words[1], signals[2], signals[3])
except triton.runtime.errors.InterpreterError as error:
    print(type(error.__cause__).__name__, error.__cause__)
"""
MEETING = """
@triton.jit
def waiting_kernel(ctx):
    dev.{routine}(ctx)

from pyshmem.base.job import job
shmem.init(heap_size="1m")
job.timeout = 0.5
if shmem.my_pe():
    waiting_kernel[(1,)](shmem.device_context())
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()  # PE 0 waits where no time-out ends it
"""
TIMEOUTS = {
    "dev.wait_until(ctx, word, dev.CMP_GE, 4)": (
        "wait_until: PE 0: ivar: got -3 at heap offset 8 in 0.3 s; expected a value >= 4"
    ),
    "dev.signal_wait_until(ctx, signal, dev.CMP_LT, 5)": (
        "signal_wait_until: PE 0: sig_addr: got 9223372036854775809 at heap offset 208 in 0.3 s; expected a value < 5"
    ),
    "dev.wait_until(ctx, unsigned, dev.CMP_EQ, -1)": (
        "wait_until: PE 0: ivar: got 9223372036854775809 at heap offset 216 in 0.3 s; "
        "expected a value == 18446744073709551615"
    ),
}


@pytest.mark.parametrize("call", TIMEOUTS)
def test_a_wait_in_a_kernel_that_nobody_ends_names_what_it_saw_and_wanted(call, tmp_path):
    code = PYSHMEM_FIRST + WAITING.format(call=call)
    status, output, errors = run(code, tmp_path, PYSHMEM_WAIT_TIMEOUT="0.3", PYSHMEM_QUIET="1")
    assert status == 0, errors
    ends = "; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit\n"
    assert output == f"WaitTimeoutError kernel waiting_kernel: {TIMEOUTS[call]}{ends}"


@pytest.mark.parametrize("routine", ["barrier_all", "sync_all"])
def test_a_barrier_in_a_kernel_that_a_pe_does_not_come_to_ends_the_job(routine, tmp_path):
    code = PYSHMEM_FIRST + MEETING.format(routine=routine)
    status, _, errors = run(code, tmp_path, pes=2, PYSHMEM_QUIET="1")
    assert status
    assert (
        f"kernel waiting_kernel: {routine}: PE 1: ctx: got no call from PE 0 of its team in 0.5 s; expected all"
        in errors
    )


# ---- versions ----

GOOD = {"torch": "2.13.0+cpu", "triton": "3.7.1", "numpy": "2.4.6", "mpi4py": "4.1.2"}


@pytest.fixture
def installed(monkeypatch):
    """Makes requirements.check see other versions."""

    def install(**other):
        found = {**GOOD, **{name.replace("_", "-"): text for name, text in other.items()}}
        monkeypatch.setattr(requirements, "version_of", lambda name: found.get(name, ""))

    return install


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"triton": "3.6.0", "numpy": "2.3.5"},
        {"triton": "3.6.0", "numpy": "1.26.4"},
        {"triton": "3.7.0", "numpy": "2.4.0"},
        {"triton": "3.9.0", "numpy": "2.10.1"},
        {"triton": "3.10.0+git1234abcd"},
        {"torch": "2.14.0a0+git0123", "numpy": "2.5rc1", "mpi4py": "4.2.dev0"},
        {"triton": "", "triton_rocm": "3.7.0"},
        {"triton": "", "pytorch_triton_rocm": "3.6.0", "numpy": "2.3.5"},
    ],
    ids=str,
)
def test_versions_that_work_are_accepted(other, installed):
    installed(**other)
    requirements.check()
    requirements.check_interpreter()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"torch": "2.10.1"}, "pyshmem needs torch >= 2.11; 2.10 is installed: pip install -U torch"),
        ({"triton": "3.5.1"}, "pyshmem needs triton >= 3.6; 3.5 is installed: pip install -U triton"),
        ({"numpy": "1.25.2"}, "pyshmem needs numpy >= 1.26; 1.25 is installed: pip install -U numpy"),
        ({"mpi4py": "3.1.6"}, "pyshmem needs mpi4py >= 4.1; 3.1 is installed: pip install -U mpi4py"),
        ({"mpi4py": ""}, "pyshmem needs mpi4py >= 4.1, which is not installed: pip install mpi4py"),
        ({"triton": ""}, "pyshmem needs triton >= 3.6, which is not installed: pip install triton"),
        *[
            (
                {"triton": "3.6.0", "numpy": numpy},
                f"triton 3.6 cannot interpret range(n) under NumPy {numpy[:3]}: pip install 'numpy<2.4', or 'triton>=3.7'",
            )
            for numpy in ("2.4.0", "2.4.6", "2.5.0")
        ],
    ],
    ids=str,
)
def test_versions_that_do_not_work_are_named_with_what_to_install(other, words, installed):
    installed(**other)
    with pytest.raises(ImportError) as caught:
        requirements.check()
        requirements.check_interpreter()
    assert str(caught.value) == words


def test_a_pair_that_only_the_interpreter_cannot_use_is_accepted_for_compiled_kernels(installed):
    installed(triton="3.6.0", numpy="2.5.0")
    requirements.check()


def test_the_versions_here_are_accepted():
    requirements.check()
