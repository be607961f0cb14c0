"""Matrix products fused with their communication, on torch tensors: ``from pyshmem import ops``."""

from __future__ import annotations

import torch

from pyshmem.ops.plans import Plan, call, clear, find
from pyshmem.ops.workspace import reserve as _reserve


def gemm_all_gather(a, b, split="rows", out=None, team=None, plan=None, **options):
    return call("gemm_all_gather", a, b, out, team, plan, split, options)

def gemm_reduce_scatter(a, b, out=None, team=None, plan=None, **options):
    return call("gemm_reduce_scatter", a, b, out, team, plan, "rows", options)

def gemm_all_reduce(a, b, out=None, team=None, plan=None, **options):
    return call("gemm_all_reduce", a, b, out, team, plan, "rows", options)

def all_gather_gemm(a, b, out=None, team=None, plan=None, **options):
    return call("all_gather_gemm", a, b, out, team, plan, "rows", options)
