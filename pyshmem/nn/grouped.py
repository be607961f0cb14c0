"""Products of groups of rows with a matrix for each group, whose sizes compilers do not know: one operator of a graph.

The two operators are each other's gradients. ``offsets``: where the rows of each group begin, and where the last one ends.
The host reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake

from pyshmem.ops.torch.team_names import needed_of


@custom_op("pyshmem::rows_by_group", mutates_args=())
def rows_by_group(rows: Tensor, matrices: Tensor, offsets: Tensor) -> Tensor:
    """Return the rows of each group times its matrix, (groups, K, N); zeros behind the last group."""
    made = rows.new_zeros(rows.shape[0], matrices.shape[2])
    for group, own in enumerate(_groups(offsets)):
        torch.mm(rows[own], matrices[group], out=made[own])
    return made


@custom_op("pyshmem::matrices_by_group", mutates_args=())
def matrices_by_group(rows: Tensor, others: Tensor, offsets: Tensor) -> Tensor:
    """Return for each group the product of its rows, transposed, and its rows of ``others``: (groups, K, N)."""
    made = rows.new_empty(offsets.shape[0] - 1, rows.shape[1], others.shape[1])
    for group, own in enumerate(_groups(offsets)):
        torch.mm(rows[own].T, others[own], out=made[group])
    return made


def _groups(offsets: Tensor) -> Iterator[slice]:
    return (slice(*ends) for ends in pairwise(offsets.tolist()))


register_fake("pyshmem::rows_by_group", lambda rows, matrices, offsets: rows.new_empty(len(rows), matrices.shape[2]))
register_fake(
    "pyshmem::matrices_by_group",
    lambda rows, others, offsets: rows.new_empty(len(offsets) - 1, rows.shape[1], others.shape[1]),
)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.needed = needed_of(inputs)


def _of_rows(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    rows, matrices, offsets = ctx.saved_tensors
    to_rows = rows_by_group(gradient, matrices.mT, offsets) if ctx.needed[0] else None
    to_matrices = matrices_by_group(rows, gradient, offsets) if ctx.needed[1] else None
    return to_rows, to_matrices, None


def _of_matrices(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    rows, others, offsets = ctx.saved_tensors
    to_rows = rows_by_group(others, gradient.mT, offsets) if ctx.needed[0] else None
    to_others = rows_by_group(rows, gradient, offsets) if ctx.needed[1] else None
    return to_rows, to_others, None


register_autograd("pyshmem::rows_by_group", _of_rows, setup_context=_keep)
register_autograd("pyshmem::matrices_by_group", _of_matrices, setup_context=_keep)
