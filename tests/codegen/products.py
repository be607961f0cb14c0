"""The kernels of pyshmem.ops, compiled for a GPU with the tile sizes that they have there."""

import functools
import pathlib
import re
import subprocess
import tempfile

import torch
import triton
from compiling import TARGETS, array, compile, context, specialise
from pyshmem.device.arch.fields import encoded
from pyshmem.ops.gemm import all_gather_gemm_kernel, few_rows, gemm_kernel
from pyshmem.ops.gemm.product import configuration
from pyshmem.ops.gemm.few_rows import multiply_and_exchange
from pyshmem.ops.gemm.all_gather_gemm_kernel import gather_and_multiply
from pyshmem.ops.gemm.gemm_kernel import multiply_and_send
from pyshmem.ops.gemm.tile import Form, Schedule, shape_of
from pyshmem.kernels.occupancy import taken

CUOBJDUMP = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
PRECISION = {("nvidia", 4): "tf32", ("nvidia", 1): "promoted"}
CHIPLETS = {"gfx942": 8, "gfx950": 8}
CACHE = 64 << 10  # bytes of the instruction cache of two compute units
MEMORY = {
    multiply_and_send: gemm_kernel.Memory,
    gather_and_multiply: all_gather_gemm_kernel.Memory,
    multiply_and_exchange: few_rows.Memory,
}
SHAPE = shape_of(2048, 4096, 12288, 12288, 12288, 4096)
TILES = 404
SCHEDULE = Schedule(*map(encoded, (0, 0, 272, TILES, 132, 16)))


def pes_of(target):
    """For how many PEs kernels are compiled: on AMD GPUs for the eight of a machine, whose code is the largest."""
    return 2 if target == "nvidia" else 8


@functools.cache
def compiled(kernel, target, dtype=torch.bfloat16, edges=False, row=None, **constants):
    """A kernel for operands of ``dtype`` whose K is contiguous, as a plan compiles it. constants: those that are not as usual.

    Of 8-bit floats, it has scales of rows and columns and makes bfloat16.
    edges: whether tiles reach beyond the matrices.  row: the tile; None is that of the table.
    """
    n_pes = pes_of(target)
    row, eight = row or configuration(target, dtype, None), dtype.itemsize == 1
    result = torch.bfloat16 if eight else dtype
    sent = dtype if kernel is gather_and_multiply else result
    words, floats = array(torch.uint64), array(torch.float32)
    arrays = dict.fromkeys(("words", "tallies", "flags"), words) | {"sums": floats, "rows": array(dtype)}
    arrays |= dict.fromkeys(("parts", "slots"), array(result)) | {"scales": floats if eight else None}
    arrays["tall"] = encoded(1024)
    threads = row.warps * TARGETS[target].warp_size
    form = Form(
        row.BM, row.BN, row.BK, A_ALONG=True, B_ALONG=True, DESCRIBED=target == "nvidia", WHOLE=not edges and target != "nvidia", EDGES=edges,
        PRECISION=PRECISION.get((target, dtype.itemsize), "ieee"), FAN=n_pes - 1, GROUP=row.group,
        SLAB=max(threads * 16 // (row.BN * sent.itemsize), 1), CHIPLETS=CHIPLETS.get(target, 1), CUT=edges,
        VECTOR=16 // result.itemsize, EACH=eight, CLAMPED=target != "nvidia",
    )  # fmt: skip
    form = form._replace(**{name: value for name, value in constants.items() if name in Form._fields})
    memory = MEMORY[kernel](**{name: arrays[name] for name in MEMORY[kernel]._fields})
    values = {"ctx": context(target, 0, n_pes), "memory": memory, "shape": SHAPE, "encoded": SCHEDULE, "chunks": 8}
    values |= {"tiles": TILES, "a": array(dtype), "b": array(dtype), "c": array(result)}
    values |= dict.fromkeys(("scale_a", "scale_b"), floats if eight else None)
    values |= {"FORM": form, "EPILOGUE": None} | constants
    source, options = specialise(kernel, target, [values[name] for name in kernel.arg_names], **row.compiled)
    return compile(source, target=TARGETS[target], options=options.__dict__)


def text_of(found, target):
    """The PTX or the AMD instructions."""
    return found.asm["ptx" if target == "nvidia" else "amdgcn"]


def spilled(found, target):
    """The bytes of memory that a thread has for registers that it lacks."""
    if target != "nvidia":
        return int(re.search(r"\.private_segment_fixed_size:\s*(\d+)", found.asm["amdgcn"])[1])
    return resource(found, "STACK")


def excess(found, target, most=0):
    """What a kernel takes too much of, as a list of texts: ``most`` bytes for registers that it lacks, and of code."""
    found = {"bytes for registers": (spilled(found, target), most)} | (
        {} if target == "nvidia" else {"bytes of code": (taken(found).code, CACHE)}
    )
    return [f"{number} {name}, at most {limit}" for name, (number, limit) in found.items() if number > limit]


def registers(found):
    """The registers of a thread on an NVIDIA GPU."""
    return resource(found, "REG")


def resource(found, name):
    """What a thread of a kernel for NVIDIA takes of ``name``, from the binary that Triton has made."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(found.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    return int(re.search(rf"\b{name}:(\d+)", said.stdout)[1])
