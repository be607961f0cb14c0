"""Irregular kernels executed: rows whole and in parts. The emulator has no buffer atomics, so no histogram."""

import pytest
import torch
from pyshmem import irregular
from pyshmem.irregular import execution
from matrices import LENGTHS, dense, numbers, sparse


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    """Matrices in CPU memory are the emulated GPU's."""
    monkeypatch.setattr(execution.interpreter, "active", lambda: True)


@pytest.mark.parametrize("schedule", irregular.SCHEDULES)
def test_spmv_adds_the_products_of_each_row(schedule):
    matrix, x = sparse(LENGTHS["uneven"]), numbers(17)
    y = irregular.spmv(irregular.csr(matrix), x, schedule, 6)
    assert torch.equal(y.double(), dense(matrix) @ x.double())


@pytest.mark.parametrize(("schedule", "columns"), [("by_length", 3), ("row_by_row", 130)])
def test_spmm_adds_the_products_of_each_row_and_column(schedule, columns):
    matrix, b = sparse(LENGTHS["uneven"]), numbers(17, columns)
    c = irregular.spmm(irregular.csr(matrix), b, schedule, 6)
    assert torch.equal(c.double(), dense(matrix) @ b.double())
