"""A length that changes from call to call compiles nothing anew: products with other rows have the kernels of the first."""

from types import SimpleNamespace

import pyshmem as shmem
import pytest
import torch
from compiling import cache_key, context
from pyshmem.kernels import bound_kernels
from pyshmem.ops.gemm import bulk_synchronous, copy_engine, exchanges, few_rows, fused
from pyshmem.ops.gemm import problem as problems
from pyshmem.ops.gemm import product
from pyshmem.ops.gemm.problem import Operand, Options, Problem
from pyshmem.ops.gemm.scaling import NONE
from pyshmem.ops.gemm.selection import SCHEDULES, steps_of, steps_that_serve
from pyshmem.ops.machine import Machine

N_PES, N, K = 2, 4096, 2048
BF16 = torch.bfloat16
TEAM = SimpleNamespace(size=N_PES, me=0, translate_pe=lambda pe, team: pe)
LENGTHS = sorted({1 << i for i in range(1, 13)} | {each * each + each % 3 for each in range(9, 47)})
TABLES = (bulk_synchronous, copy_engine, fused, few_rows)


class Space(dict):
    """The memory of a plan, without elements: kernels are told apart by types and alignments."""

    def __init__(self, problem, made, alike=(), **more):
        results = dict.fromkeys(("result 0", "result 1"), (problem.result, problem.dtype))
        super().__init__(
            {name: torch.empty(shape, dtype=dtype, device="meta") for name, (shape, dtype) in (results | more).items()}
        )


def problem_of(operator, split, length, schedule):
    """A call of ``length`` rows on this PE."""
    sizes = {"m": length, "n": N, "k": K}
    divided = problems._DIVIDED[operator, split]
    whole = {each.upper(): size * (N_PES if each.upper() in divided else 1) for each, size in sizes.items()}
    operands = {name: Operand(True, K, True, BF16) for name in "ab"}
    options = Options(schedule=schedule, order="data_parallel")
    return Problem(
        operator,
        **whole,
        **sizes,
        dtype=BF16,
        **operands,
        scaling=NONE,
        team=TEAM,
        split=split,
        options=options,
        aligned=True,
    )


@pytest.fixture
def variants(monkeypatch):
    """The kernels that plans ask for on a GPU with 132 multiprocessors, as Triton tells them apart."""
    found = set()

    def compiled(kernel, grid, fixed, operands, constants, early, options):
        found.add((kernel.__name__, cache_key(kernel, "nvidia", [*fixed, *operands, *constants.values()], **options)))
        return bound_kernels._Form(None)

    monkeypatch.setattr(bound_kernels, "_form", compiled)
    monkeypatch.setattr(shmem, "device_context", lambda team: context("nvidia", 0, N_PES))
    for module in TABLES:
        monkeypatch.setattr(module, "workspace_of", Space)
    for module in (product, few_rows, exchanges):
        monkeypatch.setattr(module, "machine", lambda: Machine("nvidia", 132, 1, True))
    monkeypatch.setattr(copy_engine, "Side", lambda **options: None)
    monkeypatch.setattr(copy_engine.Chunks, "__init__", lambda *args: None)
    monkeypatch.setattr(copy_engine.Chunks, "resized", lambda self, count: self)
    return found


# Tiles fill the product or reach beyond it. Few rows have a tile for each power of two.
FORMS = {"multiply_and_send": 2, "gather_and_multiply": 2, "multiply_and_exchange": 3}
CASES = [(schedule, *called) for schedule, table in SCHEDULES.items() for called in table]


@pytest.mark.parametrize("schedule, operator, split", CASES)
def test_products_of_fifty_lengths_have_as_many_kernels_as_forms(schedule, operator, split, variants):
    assert len(LENGTHS) == 50
    for length in LENGTHS:
        a, b = (torch.empty(shape, dtype=BF16, device="meta") for shape in ((length, K), (N, K)))
        problem = problem_of(operator, split, length, schedule)
        steps, fewer = steps_of(problem, a, b.T, None), problems.with_rows(problem, problem.M * 2 // 3)
        if steps_that_serve(fewer):
            steps.resized(fewer, a[: fewer.m], b.T)
    names = [name for name, _ in variants]
    assert all(names.count(name) <= FORMS.get(name, 1) for name in names), {name: names.count(name) for name in names}
