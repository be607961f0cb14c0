"""Run a C program whose inner loop is a Triton kernel: the halo exchange and the arrays stay in C, as c_stencil.c has them.

The kernel takes the place of C's sweep by the program's hook, and sees the C arrays as tensors. With a GPU, C allocates them
there, and its puts exchange the rows.

Run: pyshmemrun -n 4 examples/c_stencil.py
Prints: 4 PEs: 20 sweeps of 64 x 64 points, C's heat and the kernel's are equal up to 0.0e+00
After: docs/c.md, the third step."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import pyshmem as shmem  # selects Triton's interpreter if there is no GPU
import torch
import triton
import triton.language as tl


@triton.jit
def sweep_kernel(to, source, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = (tl.program_id(0) + 1) * columns + column
    inner = (column > 0) & (column < columns - 1)
    beside = tl.load(source + at - 1, inner) + tl.load(source + at + 1, inner)
    across = tl.load(source + at - columns, inner) + tl.load(source + at + columns, inner)
    tl.store(to + at, 0.25 * (beside + across), inner)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
def sweep(to, source, rows, columns):
    """C's sweep, as a kernel on C's memory."""
    here, there = (shmem.from_address(each, (rows + 2, columns), torch.float64) for each in (to, source))
    sweep_kernel[(rows,)](here, there, columns, BLOCK=triton.next_power_of_2(columns))


HINT_GPU = 1 << 16  # PYSHMEM_HINT_GPU of shmemx.h: memory of the GPU heap, if there is one
source = pathlib.Path(__file__).with_suffix(".c")
with tempfile.TemporaryDirectory() as folder:
    oshcc = pathlib.Path(sys.executable).with_name("oshcc")
    subprocess.run([oshcc, "-O2", "-shared", "-fPIC", source, "-o", f"{folder}/c_stencil.so"], check=True)
    os.environ["PYSHMEM_SYMMETRIC_LIBS"] = "c_stencil"  # its static data are symmetric
    library = ctypes.CDLL(f"{folder}/c_stencil.so")

heat, hook = ctypes.c_double.in_dll(library, "heat"), ctypes.c_void_p.in_dll(library, "sweep")
library.run()
in_c, hook.value = heat.value, ctypes.cast(sweep, ctypes.c_void_p).value
ctypes.c_long.in_dll(library, "hints").value = HINT_GPU
library.run()

shmem.init()
error = abs(heat.value - in_c) / in_c
assert in_c > 0 and error < 1e-12, (in_c, heat.value)
if shmem.my_pe() == 0:
    n = shmem.n_pes()
    print(f"{n} PEs: 20 sweeps of {16 * n} x 64 points, C's heat and the kernel's are equal up to {error:.1e}")
shmem.finalize()
