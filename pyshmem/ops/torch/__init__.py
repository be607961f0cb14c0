"""The operators for torch.compile and autograd: ``from pyshmem.ops import torch as tp`` registers torch.ops.pyshmem.*.

They are functions without side effects, as compilers want them: each call returns a new tensor. For gemm_all_gather and
gemm_all_reduce this costs a copy of the result; where it matters, call ops.gemm_all_gather with out= or reuse=True instead,
outside of compiled code. A team goes by the name that name_team gave it; epilogues are for the functions of ops only.

CUDA graphs: the first call of a kind makes a plan, which allocates, and so does the first call of a collective that stages
its operands. Make one call of each kind, forward and backward, before you capture. torch.compile(mode="reduce-overhead")
does so by itself. All PEs must make the same calls in the same order: compile the same function for the same shapes, and
let the same operands require gradients, on all PEs.
"""

from pyshmem.ops.torch.attention import attention, flash_decode
from pyshmem.ops.torch.collectives import (
    all_reduce,
    alltoall_on_stream,
    alltoallv_on_stream,
    barrier_on_stream,
    broadcast_on_stream,
    clear,
    fcollect_on_stream,
    gather_rows,
    reduce_on_stream,
    reduce_scatter_on_stream,
    reduce_scatter_rows,
    sum_exscan_on_stream,
    sum_inscan_on_stream,
)
from pyshmem.ops.torch.experts import moe_combine, moe_dispatch, scaled_moe_dispatch
from pyshmem.ops.torch.norms import (
    all_reduce_rms_norm,
    reduce_scatter_rms_norm,
    reduce_scatter_rms_norm_all_gather,
    scaled_all_reduce_rms_norm,
    scaled_reduce_scatter_rms_norm,
    scaled_reduce_scatter_rms_norm_all_gather,
)
from pyshmem.ops.torch.products import (
    all_gather_gemm,
    gemm_all_gather,
    gemm_all_reduce,
    gemm_reduce_scatter,
    scaled_all_gather_gemm,
    scaled_gemm_all_gather,
    scaled_gemm_all_reduce,
    scaled_gemm_reduce_scatter,
)
from pyshmem.ops.torch.team_names import name_team

__all__ = [
    "all_gather_gemm",
    "all_reduce",
    "all_reduce_rms_norm",
    "alltoall_on_stream",
    "alltoallv_on_stream",
    "attention",
    "barrier_on_stream",
    "broadcast_on_stream",
    "clear",
    "fcollect_on_stream",
    "flash_decode",
    "gather_rows",
    "gemm_all_gather",
    "gemm_all_reduce",
    "gemm_reduce_scatter",
    "moe_combine",
    "moe_dispatch",
    "name_team",
    "reduce_on_stream",
    "reduce_scatter_on_stream",
    "reduce_scatter_rms_norm",
    "reduce_scatter_rms_norm_all_gather",
    "reduce_scatter_rows",
    "scaled_all_gather_gemm",
    "scaled_all_reduce_rms_norm",
    "scaled_gemm_all_gather",
    "scaled_gemm_all_reduce",
    "scaled_gemm_reduce_scatter",
    "scaled_moe_dispatch",
    "scaled_reduce_scatter_rms_norm",
    "scaled_reduce_scatter_rms_norm_all_gather",
    "sum_exscan_on_stream",
    "sum_inscan_on_stream",
]
