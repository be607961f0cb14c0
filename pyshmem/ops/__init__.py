"""Matrix products fused with their communication, on torch tensors: ``from pyshmem import ops``.

n PEs, of a team, hold parts of the operands; M, N and K are the sizes of the whole product.

| call | operands of a PE | result |
| --- | --- | --- |
| gemm_all_gather(a, b, split="rows") | a (M/n, K), its rows; b (K, N) | (M, N) on all |
| gemm_all_gather(a, b, split="columns") | a (M, K); b (K, N/n), its columns | (M, N) on all |
| all_gather_gemm(a, b) | a (M/n, K), its rows; b (K, N/n), its columns | (M, N/n) |
| gemm_reduce_scatter(a, b) | a (M, K/n); b (K/n, N) | (M/n, N), its rows of the sum |
| gemm_all_reduce(a, b) | a (M, K/n); b (K/n, N) | (M, N) on all |

Of models: all_reduce_rms_norm(x, residual, weight), reduce_scatter_rms_norm(x, residual, weight) and, for all PEs,
reduce_scatter_rms_norm_all_gather(x, residual, weight), attention(q, k, v), flash_decode(q, k, v), moe_dispatch(x, indices,
weights, experts) and moe_combine(rows, handle), see docs/model-operators.md; of training: GradientReducer(model),
send_activations(x, pe=) and recv_activations(x, pe=), see docs/training.md.

Sums are made in float32. Operands of 8-bit floats have scales, scale_a and scale_b, and out_dtype=. Calls are enqueued on
torch's current stream; a result is complete for this PE when the stream gets there. Calls follow each other without
barriers, and CUDA graphs capture them after a first call. The first call of a kind makes a plan, collectively over the
team. On GPUs the PEs of a team are in one node; otherwise the first call raises UnreachableError. Idea: Iris (arXiv
2511.12500); schedules: docs/overlap.md.
"""

from __future__ import annotations

import sys as _sys

from pyshmem.diagnosis import ranges as _ranges
from pyshmem.ops.attention.decode import Plan as _PlanOfDecode
from pyshmem.ops.attention.decode import flash_decode
from pyshmem.ops.attention.prefill import Plan as _PlanOfAttention
from pyshmem.ops.attention.prefill import attention
from pyshmem.ops.experts.operators import moe_combine, moe_dispatch
from pyshmem.ops.float8 import Scaled
from pyshmem.ops.gemm import tuning
from pyshmem.ops.gemm.operators import all_gather_gemm, gemm_all_gather, gemm_all_reduce, gemm_reduce_scatter, plan
from pyshmem.ops.gemm.plan import Plan
from pyshmem.ops.gemm.tuning import tune
from pyshmem.ops.norms.all_reduce_rms_norm import all_reduce_rms_norm
from pyshmem.ops.norms.problem import Plan as _PlanOfNorms
from pyshmem.ops.norms.reduce_scatter_rms_norm import reduce_scatter_rms_norm, reduce_scatter_rms_norm_all_gather
from pyshmem.ops.plans import clear
from pyshmem.ops.training.activations import recv_activations, send_activations
from pyshmem.ops.training.reducer import GradientReducer
from pyshmem.ops.workspace import reserve, reserve_bytes

__all__ = [
    "GradientReducer", "Plan", "Scaled", "all_gather_gemm", "all_reduce_rms_norm", "attention", "clear",
    "flash_decode", "gemm_all_gather", "gemm_all_reduce", "gemm_reduce_scatter", "moe_combine", "moe_dispatch", "plan",
    "recv_activations", "reduce_scatter_rms_norm", "reduce_scatter_rms_norm_all_gather", "reserve", "reserve_bytes",
    "send_activations", "tune",
]  # fmt: skip

_ranges.put_into(_sys.modules[__name__], "shmem.ops.")
_ranges.put_into(Plan, "shmem.ops.Plan.", "__call__", "close")
_ranges.note_plans(Plan, "perform")
for _kind in (_PlanOfNorms, _PlanOfDecode, _PlanOfAttention):
    _ranges.note_plans(_kind, "__call__")
_ranges.note_plans(_PlanOfAttention, "summed")
