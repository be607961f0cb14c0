"""The examples, run as their readers run them: each says that it is right, and leaves nothing but the files it promises."""

import ast
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from jobs import warm
from PIL import Image
from trace_format import checked

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"
SECONDS = 360  # of one job; generous, machines are slow and shared
GRACE = 15  # for the launcher to end its job
pytestmark = pytest.mark.timeout(SECONDS + 60)
LINES, LONGER = 60, {"cholesky.py": 90, "llama_decode.py": 100}  # of code


def _mesh(n):
    """The mesh of n PEs, up to four of them."""
    return {1: "1 x 1", 2: "1 x 2", 3: "1 x 3", 4: "2 x 2"}[n]


# What an example prints on n PEs, a pattern a line, or several lines.
EXAMPLES = {
    "c_stencil.py": lambda n: (
        rf"{n} PEs: 20 sweeps of {16 * n} x 64 points, C's heat and the kernel's are equal up to \d\.\de[-+]\d\d"
    ),
    "cholesky.py": lambda n: (
        rf"{n} PEs: A = L @ L.T, 160 x 160 in float32, blocks of 32 on a {_mesh(n)} mesh, relative error \d\.\de-0[678]"
    ),
    "conjugate_gradients.py": lambda n: (
        rf"{n} PEs: 256 unknowns, {16 * (n > 1)} elements from others for each product, \d+ iterations, relative residual \d\.\de-1[01]"
    ),
    "data_parallel.py": lambda n: (
        rf"{n} PEs: 20 steps, the loss fell from 7.36 to 1.42, and the weights are those of one PE up to \d\.\de[-+]\d\d"
    ),
    "device_grid.py": lambda n: (
        rf"{n} PEs: rows of A @ B, relative error \d\.\de-0[67]; x \+ y summed on all PEs; rows of sums on their PEs"
    ),
    "expert_layer.py": lambda n: (
        rf"{n} PEs: {2 * n} experts, {24 * n} tokens, {48 * n} rows, \d+ to \d+ of an expert, relative error at most \d\.\de-0[678]"
    ),
    "gemm_all_scatter.py": lambda n: (
        rf"{n} PEs: all have C = A @ B, 512 x 512 x 512 in float16, relative error \d\.\de-0[67]"
    ),
    "gemm_partitioned.py": lambda n: (
        rf"{n} PEs: C = A @ B, 256 x 256 x 256 in float16, rows in blocks of 32 in turn, relative error \d\.\de-0[67]"
    ),
    "gemm_specialized.py": lambda n: (
        rf"{n} PEs: C = A @ B by one kernel and by two, 128 x 128 x 128 in float16, relative error \d\.\de-0[678]"
    ),
    "heat.py": lambda n: (
        f"{n} PEs: 600 steps on 240 x 240 points, equal to the serial solution in every bit, drawn in heat.png"
    ),
    "gpt_block.py": lambda n: (
        rf"{n} PEs: {n if n % 2 else n // 2} replicas of {2 - n % 2} PEs, 20 steps, loss 2\.\d\d to 0\.\d\d, weights differ from those of one process by at most \de-1[0-9]"
    ),
    "hello.py": lambda n: "\n".join([rf"PE {pe} of {n} is process \d+" for pe in range(n)]),
    "llama_decode.py": lambda n: (
        "1 step is done\n"
        rf"{n} PEs: 2 steps of 2 sequences through 2 layers, the tokens of one PE, logits with a relative error of \d\.\de-0[67]"
    ),
    "pi.py": lambda n: rf"{n} PEs, 1000000 midpoints: pi = 3\.14159265358\d+, error \d\.\de-1[34]",
    "pipeline.py": lambda n: rf"{n} PEs: {n} stages, 6 microbatches, gradients as on one PE up to \d\.\de[-+]\d\d",
    "pipelined_loads.py": lambda n: (
        rf"{n} PEs: C = A @ B of the next PE, 128 x 128 x 256 in float16, 1 to 4 stages, all equal, relative error \d\.\de-0[678]"
    ),
    "reduce_in_kernel.py": lambda n: (
        f"{n} PEs: 1000 sums on PE 0 by loads, and on all PEs by loads and stores and by dev.all_reduce, all equal"
    ),
    "remote_store.py": lambda n: f"{n} PEs: PE 0 has filled the 4096 elements of PE {1 % n}",
    "ring.py": lambda n: f"{n} PEs: the list came back signed by {re.escape(str([*range(n)]))}",
    "ring_broadcast.py": lambda n: f"{n} PEs: 1000 elements came round, by host calls and by a kernel",
    "stencil_3d.py": lambda n: rf"{n} PEs, a mesh of \d x \d x \d: 3 steps on 8 x 8 x 8 points, error \d\.\de-0[678]",
    "summa.py": lambda n: (
        rf"{n} PEs: C = A @ B, 128 x 128 x 256, on a {_mesh(n)} mesh and by all_gather_gemm, relative errors \d\.\de-0[678] and \d\.\de-04"
    ),
    "tensor_parallel_mlp.py": lambda n: (
        rf"{n} PEs: forward and backward of a 64 x 32 x 96 layer, in one compiled graph, relative error at most \d\.\de-0[67]"
    ),
}
PICTURES = ["heat.png"]

# What a port prints on n PEs.
PORTS = {
    "bale_histogram.py": lambda n: (
        f"{n} PEs: {n * 4096} updates of {n * 1000} counters by host calls and by a kernel, every counter right"
    ),
    "bale_index_gather.py": lambda n: (
        f"{n} PEs: {n * 4096} elements read from a table of {n * 1000} by host calls and by a kernel, all equal"
    ),
    "heat_c_names.py": lambda n: (
        f"{n} PEs: 200 steps on {n * 64} points by deprecated calls, equal to the serial solution in every bit"
    ),
    "isx_sort.py": lambda n: (
        f"{n} PEs: {n * 16384} keys sorted, the order, the count of every key and the sum of all are right"
    ),
    "pipelined_reduction.py": lambda n: (
        f"{n} PEs: 65536 sums in 16 stages, two of them on their way at a time, every sum right"
    ),
    "transpose.py": lambda n: (
        f"{n} PEs: {n * 48} x {n * 64} transposed by alltoall, and back, every element in its place"
    ),
}
DEPRECATED = ["shmalloc", "shmem_barrier", "shmem_double_max_to_all", "shmem_fcollect64", "start_pes"]
ALL_OF_THEM = """import os, pathlib, runpy, sys

sys.stdout.reconfigure(line_buffering=True)  # lines of several PEs come in the order of programs
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
    if "PYSHMEM_TRACE" in os.environ:  # a timeline for each program
        from mpi4py.MPI import COMM_WORLD
        from pyshmem.timelines.recording import recorder
        recorder.stop()
        COMM_WORLD.Barrier()
        if COMM_WORLD.rank == 0:
            os.rename(os.environ["PYSHMEM_TRACE"], pathlib.Path(path).with_suffix(".json").name)
        COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize("n", [1, 3])
def test_examples_are_right(n, tmp_path):
    """One after the other in one job, since starting takes longest: each begins and ends the library anew."""
    names = [name for name in EXAMPLES if n > 1 or name != "c_stencil.py"]  # which takes long
    output, _ = run_traced([FOLDER / name for name in names], n, tmp_path)
    assert re.fullmatch(_text([EXAMPLES[name](n) for name in names]), output), output
    _drawn(tmp_path, PICTURES)


def _text(lines):
    return "".join(line + "\n" for line in lines)


def _drawn(folder, pictures):
    """Nothing lies in the folder but these pictures, and they show something."""
    assert sorted(os.listdir(folder)) == sorted(pictures)
    for picture in pictures:
        with Image.open(folder / picture) as image:
            assert len(image.convert("RGB").getcolors(image.width * image.height)) > 100


@pytest.mark.parametrize("n", [1, 3])
def test_ports_are_right(n, tmp_path):
    output, errors = run_traced([FOLDER / "ports" / name for name in PORTS], n, tmp_path)
    assert re.fullmatch(_text([prints(n) for prints in PORTS.values()]), output), output
    assert sorted(re.findall(r"DeprecationWarning: (\w+)", errors)) == sorted(DEPRECATED * n)


def test_ports_are_right_on_4_pes(tmp_path):
    names = ["isx_sort.py", "pipelined_reduction.py"]
    output, _ = run_all([FOLDER / "ports" / name for name in names], 4, tmp_path)
    assert re.fullmatch(_text([PORTS[name](4) for name in names]), output), output


def test_every_example_is_run():
    ports = [f"ports/{name}" for name in PORTS]
    assert sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.py")) == sorted([*EXAMPLES, *ports])


@pytest.mark.parametrize("name", [*EXAMPLES, *(f"ports/{name}" for name in PORTS)])
def test_example_is_short_and_its_docstring_true(name):
    text = (FOLDER / name).read_text()
    first = ast.parse(text).body[0]
    code = [line for line in text.splitlines()[first.end_lineno :] if re.match(r"\s*[^\s#]", line)]
    assert len(code) <= LONGER.get(name, LINES)
    assert f"\nRun: pyshmemrun -n 4 examples/{name}\n" in first.value.value
    prints = EXAMPLES[name] if name in EXAMPLES else PORTS[name.removeprefix("ports/")]
    assert re.search("Prints: " + prints(4).split("\n")[0], first.value.value)


def run_all(paths, n, folder, environment=()):
    """Run programs in one job of n PEs; their output and errors."""
    (folder / "all_of_them.py").write_text(ALL_OF_THEM)
    status, output, errors = run(folder / "all_of_them.py", n, folder, *paths, environment=environment)
    assert status == 0, errors
    (folder / "all_of_them.py").unlink()
    return output, errors


def run_traced(paths, n, folder):
    """run_all; on several PEs with a timeline of each program, which is as Chrome's format wants it."""
    trace = {"PYSHMEM_TRACE": str(folder / "out.json"), "PYSHMEM_TRACE_EVENTS": "8000"} if n > 1 else {}
    found = run_all(paths, n, folder, trace)
    for path in paths if trace else ():
        timeline = folder / path.with_suffix(".json").name
        assert {each["pid"] for each in checked(timeline)} == set(range(n)), path.name
        timeline.unlink()
    return found


def run(path, n, cwd, *arguments, environment=()):
    """Run a program on n PEs in the folder cwd; its exit status, output and errors."""
    command = [f"{os.path.dirname(sys.executable)}/pyshmemrun", "-n", str(n), *warm(), str(path), *map(str, arguments)]
    # no line on where kernels run; no time spent on reserving memory that nobody needs
    environment = {**os.environ, "PYSHMEM_QUIET": "1", "SHMEM_SYMMETRIC_SIZE": "64m", **dict(environment)}
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
