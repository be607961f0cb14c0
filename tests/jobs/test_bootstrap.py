"""9.1: who starts MPI, on which communicator, how often; and what is refused, on every PE alike, in one sentence."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from jobs import mpiexec, python

from pyshmem.start import how_started

HEAD = "import sys\nimport torch\nimport pyshmem as shmem\n"


def says(text, err):
    assert re.search(text, err), err


def test_one_pe_needs_no_launcher(tmp_path):
    program = HEAD + "shmem.init()\nx = shmem.ones(3)\nshmem.sum_reduce(x, x)\nprint(shmem.n_pes(), x.tolist())"
    assert python(program, tmp_path=tmp_path)[:2] == (0, "1 [1.0, 1.0, 1.0]\n")


ALONE = {"PMI_SIZE": None, "OMPI_COMM_WORLD_SIZE": None, "PMIX_RANK": None, "PYSHMEM_QUIET": None}


@pytest.mark.parametrize(
    "size, program, terminal, variables, said",
    [
        (1, "a/prog.py", True, {}, True),
        (1, "-c", True, {}, False),
        (1, "a/prog.py", False, {}, False),
        (2, "a/prog.py", True, {}, False),
        (1, "a/prog.py", True, {"PMI_SIZE": "1"}, False),
        (1, "a/prog.py", True, {"PYSHMEM_QUIET": "1"}, False),
    ],
)
def test_a_program_started_by_python_alone_at_a_terminal_says_so_once(
    size, program, terminal, variables, said, monkeypatch, capsys
):
    for name, value in {**ALONE, **variables}.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(how_started, "_noted", False)
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    for _ in range(2):
        how_started.note_single_pe(size)
    line = "pyshmem: only 1 PE; pyshmemrun -n 4 prog.py starts 4 (PYSHMEM_QUIET=1 hides this line)\n"
    assert capsys.readouterr().err == line * said


def test_init_says_at_a_terminal_that_there_is_one_pe(tmp_path):
    (tmp_path / "prog.py").write_text("import pyshmem as shmem\nshmem.init()\n")
    parent, child = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ALONE}
    done = subprocess.run([sys.executable, tmp_path / "prog.py"], stderr=child, env=variables, timeout=120)
    os.close(child)
    said = b""
    with suppress(OSError):  # at the end
        while more := os.read(parent, 4096):
            said += more
    os.close(parent)
    assert b"only 1 PE; pyshmemrun -n 4 prog.py" in said and done.returncode == 0


@pytest.mark.parametrize("first", ["from mpi4py import MPI\n", ""])
def test_init_takes_mpi_as_it_finds_it_and_leaves_it_up_at_finalize(first, tmp_path):
    program = first + HEAD + "shmem.init()\nprint(shmem.n_pes())\nshmem.finalize()\nfrom mpi4py import MPI\n"
    status, out, err = mpiexec(
        2, program + "MPI.COMM_WORLD.Barrier()\nassert not MPI.Is_finalized()", tmp_path=tmp_path
    )
    assert (status, out.split()) == (0, ["2", "2"]), err


def test_fifty_inits_leave_no_descriptor_mapping_or_communicator(tmp_path):
    program = (
        HEAD
        + """
import os
def held():
    maps = [line for line in open("/proc/self/maps") if "memfd" in line]
    return len(os.listdir("/proc/self/fd")), len(maps)
for turn in range(50):
    shmem.init()
    x = shmem.full(1000, shmem.my_pe() + turn, dtype=torch.int64)
    assert shmem.g(x[5:6], (shmem.my_pe() + 1) % 2) == (shmem.my_pe() + 1) % 2 + turn
    shmem.finalize()
    del x
    if turn == 0:
        first = held()
print("same" if held() == first else (first, held()))
"""
    )
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out) == (0, "same\nsame\n"), err


def test_init_is_counted_and_the_last_finalize_ends_all(tmp_path):
    program = (
        HEAD
        + """
assert not shmem.query_initialized()
shmem.init()
x, ctx = shmem.zeros(4), shmem.device_context()
shmem.init()
shmem.finalize()
assert shmem.query_initialized() and shmem.is_symmetric(x)
shmem.finalize()
assert not shmem.query_initialized() and not shmem.is_symmetric(x)
x.add_(1)  # still memory
shmem.init()
for call in (lambda: shmem.put(x, torch.ones(4), 0), lambda: shmem.free(x), lambda: shmem.ptr(x, 0)):
    try:
        call()
    except shmem.NotSymmetricError as error:
        assert "of an earlier init" in str(error), error
    else:
        raise AssertionError("an array of an older init was taken")
assert shmem.device_context() is not ctx
print("done")
"""
    )
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out) == (0, "done\ndone\n"), err


REFUSALS = {
    "torchrun": ({"TORCHELASTIC_RUN_ID": "x"}, "init()",
     r"LaunchError: init: PE \?: launcher: got torchrun's variables without RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
    "foreign mpiexec": ({"OMPI_COMM_WORLD_SIZE": "4"}, "init()",
     r"LaunchError: init: PE \?: launcher: got Open MPI's mpiexec, while mpi4py loads MPICH"),
    "n jobs of one PE": ({"PMI_SIZE": "4"}, "init()",
     r"LaunchError: init: .* got 4 processes from MPICH's mpiexec, which MPI does not connect"),
    "comm": ({}, "init(7)", r"ArgumentError: init: PE \?: comm: got int; expected an mpi4py intracommunicator"),
    "device": ({}, "init(device='tpu')", r"ArgumentError: init: PE \?: device: got 'tpu'; expected 'cpu'"),
    "thread level": ({}, "init(thread_level=9)",
     r"ArgumentError: init: PE \?: thread_level: got 9; expected one of shmem"),
    "heap_size": ({}, "init(heap_size=-1)", r"ArgumentError: init: PE 0: heap_size: got -1; expected a number of bytes"),
    "malformed size": ({"SHMEM_SYMMETRIC_SIZE": "12q"}, "init()",
     r"ArgumentError: init: PE 0: SHMEM_SYMMETRIC_SIZE: got '12q'; expected a number of bytes"),
    "negative size": ({"SHMEM_SYMMETRIC_SIZE": "-1"}, "init()", r"SHMEM_SYMMETRIC_SIZE: got '-1'; expected"),
    "too large": ({}, "init(heap_size='900t')",
     r"HeapExhaustedError: init: PE 0: heap_size: got \d+ bytes for each of 1"),
    "time-out": ({"PYSHMEM_WAIT_TIMEOUT": "soon"}, "init()",
     r"PYSHMEM_WAIT_TIMEOUT: got 'soon'; expected a number of seconds"),
    "finalize": ({}, "finalize()", r"NotInitializedError: finalize: PE \?: not initialized"),
}  # fmt: skip


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What each call of REFUSALS said, all made by one process, which may start after all of them."""
    program = (
        HEAD
        + f"""
import json, os
said = {{}}
for case, (environment, call, _) in {REFUSALS!r}.items():
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        eval("shmem." + call)
    except shmem.ShmemError as error:
        said[case] = f"{{type(error).__name__}}: {{error}}"
    os.environ.clear()
    os.environ.update(before)
    assert not shmem.query_initialized()
shmem.init()
print(json.dumps(said))
"""
    )
    library = {"MPI4PY_LIBMPI": f"{sys.prefix}/lib/libmpi.so.12"}
    status, out, err = python(program, tmp_path=tmp_path_factory.mktemp("refused"), environment=library)
    assert status == 0, err
    return json.loads(out)


@pytest.mark.parametrize("case", REFUSALS)
def test_init_refuses_what_cannot_work_and_may_be_tried_again(case, refused):
    says(REFUSALS[case][2], refused[case])


def test_shmem_info_lists_every_variable_once_and_shmem_version_the_version(tmp_path):
    environment = {"SHMEM_INFO": "1", "SHMEM_VERSION": "1", "PYSHMEM_TIMEOUT": "3"}
    status, out, err = mpiexec(2, HEAD + "shmem.init()", tmp_path=tmp_path, environment=environment)
    assert status == 0
    assert out.count("OpenSHMEM 1.6") == 1
    for name in ("SHMEM_SYMMETRIC_SIZE", "SHMEM_DEBUG", "PYSHMEM_WAIT_TIMEOUT", "PYSHMEM_HEAP", "PYSHMEM_QUIET"):
        assert out.count(name) == 1
    assert re.search(r"16777216 +SHMEM_SYMMETRIC_SIZE", out), "the size in force, not the default"
    assert err.count("nothing reads PYSHMEM_TIMEOUT; did you mean PYSHMEM_WAIT_TIMEOUT?") == 1


def test_shmem_debug_refuses_allocations_that_differ_and_lists_what_is_never_freed(tmp_path):
    program = (
        HEAD
        + """
shmem.init()
kept = shmem.zeros(10)
try:
    shmem.zeros(10 + shmem.my_pe())
except shmem.OutOfRangeError as error:
    print("refused:", error)
shmem.finalize()
"""
    )
    status, out, err = mpiexec(2, program, tmp_path=tmp_path, environment={"SHMEM_DEBUG": "1"})
    assert status == 0, err
    assert out.count("refused: zeros") == 2
    assert len(re.findall(r"PE \d: never freed: 40 bytes at heap offset 0 on cpu, from program\.py:\d", err)) == 2


def test_use_before_init_and_after_finalize_is_refused_by_every_routine(tmp_path):
    program = (
        HEAD
        + """
x = torch.zeros(1, dtype=torch.int64)
u = torch.zeros(1, dtype=torch.uint64)
calls = {
    "my_pe": (), "n_pes": (), "query_thread": (), "global_exit": (), "finalize": (), "fence": (), "quiet": (),
    "barrier_all": (), "sync_all": (), "sync": (), "put": (x, x, 0), "get": (x, x, 0), "put_nbi": (x, x, 0),
    "get_nbi": (x, x, 0), "p": (x, 1, 0),
    "g": (x, 0), "iput": (x, x, 0, 1, 1, 1), "iget": (x, x, 0, 1, 1, 1), "put_signal": (x, x, 0, u, 1, 0),
    "put_signal_nbi": (x, x, 0, u, 1, 0), "signal_fetch": (u,), "signal_set": (u, 1, 0), "signal_add": (u, 1, 0),
    "signal_wait_until": (u, "==", 0), "wait_until": (x, "==", 0), "test": (x, "==", 0), "broadcast": (x, x, 0),
    "reduce": (x, x, "sum"), "free": (x,), "malloc": (8,), "malloc_with_hints": (8, 0), "calloc": (1, 8), "align": (8, 8),
    "realloc": (x, 8), "ptr": (x, 0), "device_context": (), "empty": (1,), "zeros": (1,), "ones": (1,), "rand": (1,),
    "randn": (1,), "full": (1, 1), "array": ([1],), "as_symmetric": (x,), "arange": (3,), "linspace": (0, 1, 3),
    "randint": (0, 3, (2,)), "empty_like": (x,), "zeros_like": (x,), "ones_like": (x,), "full_like": (x, 1),
    "atomic_fetch": (x, 0), "atomic_inc": (x, 0), "atomic_fetch_inc": (x, 0), "atomic_compare_swap": (x, 0, 1, 0),
}
calls |= {f"atomic_{op}": (x, 1, 0) for op in "set add and or xor swap fetch_add fetch_and fetch_or fetch_xor".split()}
calls |= {f"atomic_{op}_nbi": (x, x, 1, 0) for op in "swap fetch_add fetch_and fetch_or fetch_xor".split()}
calls |= {f"atomic_{op}_nbi": (x, x, 0) for op in ("fetch", "fetch_inc")}
calls |= {"atomic_compare_swap_nbi": (x, x, 0, 1, 0), "ibput": (x, x, 0, 1, 1, 1, 1), "ibget": (x, x, 0, 1, 1, 1, 1)}
calls |= {f"{op}_reduce": (x, x) for op in "sum prod min max and or xor".split()}
calls |= {name: (x, x) for name in "collect fcollect alltoall sum_inscan sum_exscan".split()}
calls |= {"partitioned": ((4, 4),), "launch": (print, 1), "barrier_on_stream": (), "from_dtensor": (1,)}
calls |= {"pe_accessible": (0,), "addr_accessible": (x, 0)}
calls |= {"alltoallv": (x, x, [1]), "alltoallv_on_stream": (x, x, x, x), "heap_bases": (), "peer_addresses": (x,), "c_address": (x,)}
calls |= {"pool": (), "register": (x,), "unregister": (x,)}
calls |= {"from_address": (0, 1, torch.int64), "trace": ("out.json",)}
calls |= {f"{name}_on_stream": (x, x) for name in "reduce reduce_scatter sum_inscan sum_exscan fcollect alltoall".split()}
calls |= {"put_on_stream": (x, x, 0), "put_signal_on_stream": (x, x, 0, u, 1, 0), "quiet_on_stream": ()}
calls |= {"signal_on_stream": (u, 1, 0, 0), "signal_wait_until_on_stream": (u, ">=", 0)}
calls |= {"broadcast_on_stream": (x, x, 0)}
calls |= {"alltoalls": (x, x, 1, 1, 1), "pe_quiet": ([0],), "team_ptr": (x, 0, shmem.TEAM_WORLD)}
calls |= {f"{op}_lock": (x,) for op in ("set", "test", "clear")}
calls |= {f"{kind}_{how}_vector": (x, "==", [0]) for kind in ("wait_until", "test") for how in ("all", "any", "some")}
calls |= {f"{kind}_{how}": (x, "==", 0) for kind in ("wait_until", "test") for how in ("all", "any", "some")}
legal = {"init", "init_thread", "query_initialized", "info_get_name", "info_get_version"}
legal |= {"is_symmetric", "pcontrol", "jit", "grid"}
routines = {name for name in shmem.__all__ if callable(getattr(shmem, name)) and name[0].islower()}
assert routines == set(calls) | legal, routines ^ (set(calls) | legal)
world, ctx = shmem.TEAM_WORLD, shmem.CTX_DEFAULT
methods = [world.my_pe, world.n_pes, world.translate_pe, world.get_config, world.split_strided, world.create_ctx, world.sync]
methods += [world.to_group, shmem.TEAM_INVALID.my_pe, ctx.fence, ctx.quiet, shmem.Ctx.create, shmem.Lock]
methods += [lambda: world.split_2d(1), lambda: world.from_group(None)]
for turn, state in enumerate(("not initialized", "finalized")):
    refused = [(name, getattr(shmem, name), arguments) for name, arguments in calls.items()]
    for name, call, arguments in refused + [("", method, ()) for method in methods]:
        try:
            call(*arguments)
        except shmem.NotInitializedError as error:
            text = str(error)
            assert text.startswith(name) and text.endswith(f": {state}: call shmem.init() first"), error
        else:
            raise AssertionError(f"{name or call} was allowed")
    assert not shmem.is_symmetric(x)
    if turn == 0:
        shmem.init()
        x, u = shmem.zeros(1, dtype=torch.int64), shmem.zeros(1, dtype=torch.uint64)
        new = {torch.int64: x, torch.uint64: u}
        calls = {name: tuple(new.get(getattr(a, "dtype", None), a) for a in some) for name, some in calls.items()}
        shmem.finalize()
print("all refused")
"""
    )
    status, out, err = python(program, tmp_path=tmp_path)
    assert (status, out) == (0, "all refused\n"), err
