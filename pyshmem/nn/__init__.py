"""Layers whose weights and tokens are divided among the PEs of a team, made of the operators: ``from pyshmem import nn``.

A team goes by the name that ops.torch.name_team gave it, as in ops.torch. Between layers each PE has a share of the tokens,
the first dimension of activations: (tokens of this PE, ..., width). Gradients are those of the sum of the losses of the
team's PEs, and each PE has the whole gradient of what is not divided.

| of torch | divided |
| --- | --- |
| Linear | ColumnParallelLinear, then RowParallelLinear; SequenceParallelLinear has all of it on each PE |
| RMSNorm, LayerNorm, Embedding | SequenceParallelRMSNorm, SequenceParallelLayerNorm, SequenceParallelEmbedding |
| Attention, Experts of this module | the same, with a team; ContextParallelAttention divides tokens in place of heads |

parallelize(model, plan) replaces the layers of a model; gather_state_dict and scatter_state_dict save and load whole models,
gather_optimizer_state_dict and scatter_optimizer_state_dict what optimizers keep for them.
"""

from pyshmem.nn.attention import Attention, ContextParallelAttention
from pyshmem.nn.experts import Experts
from pyshmem.nn.linear import ColumnParallelLinear, RowParallelLinear
from pyshmem.nn.parallelize import columns, context, divided, parallelize, rows, whole
from pyshmem.nn.replicated import (
    SequenceParallelEmbedding,
    SequenceParallelLayerNorm,
    SequenceParallelLinear,
    SequenceParallelRMSNorm,
)
from pyshmem.nn.state import (
    GradScaler,
    clip_grad_norm_,
    gather_optimizer_state_dict,
    gather_state_dict,
    scatter_optimizer_state_dict,
    scatter_state_dict,
)

__all__ = [
    "Attention", "ColumnParallelLinear", "ContextParallelAttention", "Experts", "GradScaler", "RowParallelLinear",
    "SequenceParallelEmbedding", "SequenceParallelLayerNorm", "SequenceParallelLinear", "SequenceParallelRMSNorm",
    "clip_grad_norm_", "columns", "context", "divided", "gather_optimizer_state_dict", "gather_state_dict",
    "parallelize", "rows", "scatter_optimizer_state_dict", "scatter_state_dict", "whole",
]  # fmt: skip
