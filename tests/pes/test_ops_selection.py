"""What is chosen for a product: our kernels where they are not slower, alike on all PEs, and what a GPU cannot have."""

import pyshmem as shmem
import pytest
import torch
from pyshmem.ops.agreement import on_all
from pyshmem.ops.gemm import few_rows, selection
from pyshmem.ops.machine import Machine
from pyshmem.ops.gemm.problem import problem_of
from support import here

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
pytestmark = pytest.mark.usefixtures("plans_closed")


@pytest.mark.parametrize(
    ("arch", "release", "has"), [("gfx942", (3, 6), False), ("gfx942", (3, 7), True), ("nvidia", (3, 6), True)]
)
def test_a_schedule_that_triton_cannot_compile_for_the_gpu_is_refused(arch, release, has, monkeypatch):
    monkeypatch.setattr(selection, "machine", lambda: Machine(arch, 100, 1, False))
    monkeypatch.setattr(selection, "installed", lambda name: release)
    a, b = torch.ones(4, 8, device=here()), torch.ones(8, 8, device=here())
    problem = problem_of("gemm_all_reduce", a, b, None, "rows", {"schedule": "fused", "order": "data_parallel"})
    if has:
        selection.require_known(problem)
    else:
        with pytest.raises(shmem.ArgumentError, match="got 'fused', which needs Triton 3.7 on AMD GPUs"):
            selection.require_known(problem)


CHOICES = [  # operator, split, shape of a, columns of b, type, the schedule and a part of the reason
    ("gemm_all_reduce", "rows", (4096, 512), 4096, BF16, "fused", "fastest"),
    ("gemm_all_reduce", "rows", (4096, 513), 4096, BF16, "bulk_synchronous", "multiples of 16"),
    ("gemm_all_reduce", "rows", (4096, 512), 4096, torch.float32, "bulk_synchronous", "matrix units"),
    ("gemm_all_reduce", "rows", (1024, 4096), 2048, BF16, "bulk_synchronous", "a second tile"),
    ("gemm_all_reduce", "rows", (1024, 128), 2048, BF16, "bulk_synchronous", "too small"),
    ("gemm_all_reduce", "rows", (16, 128), 8192, BF16, "fused", "few rows"),
    ("gemm_all_reduce", "rows", (16, 128), 8192, torch.float32, "bulk_synchronous", "too small"),
    ("gemm_all_gather", "columns", (4096, 512), 4096, BF16, "fused", "columns"),
    ("gemm_all_gather", "columns", (4096, 513), 4096, BF16, "bulk_synchronous", "multiples of 16"),
    ("gemm_all_reduce", "rows", (4096, 16384), 4096, FP8, "bulk_synchronous", "8-bit"),
    ("gemm_all_reduce", "rows", (4096, 16384), 4096, torch.float8_e5m2, "fused", "fastest"),
    ("gemm_all_reduce", "rows", (4096, 2048), 4096, FP8, "fused", "fastest"),
    ("gemm_all_gather", "columns", (4096, 32768), 4096, FP8, "bulk_synchronous", "8-bit"),
    ("gemm_all_gather", "columns", (4096, 4096), 4096, FP8, "fused", "columns"),
    ("gemm_all_gather", "rows", (4096, 512), 4096, BF16, "fused", "as long as the product"),
    ("gemm_all_gather", "rows", (4096, 513), 4096, BF16, "copy_engine", "fastest"),
    ("all_gather_gemm", "rows", (4096, 513), 4096, BF16, "copy_engine", "fastest"),
    ("gemm_reduce_scatter", "rows", (1024, 4096), 4096, BF16, "bulk_synchronous", "so few tiles"),
    ("gemm_reduce_scatter", "rows", (2048, 8192), 4096, BF16, "fused", "have few tiles"),
    ("gemm_reduce_scatter", "rows", (4096, 512), 4096, BF16, "fused", "as long as the product"),
    ("gemm_reduce_scatter", "rows", (4096, 8192), 4096, BF16, "copy_engine", "fastest"),
    ("gemm_reduce_scatter", "rows", (2048, 8193), 4096, BF16, "copy_engine", "fastest"),
]


@pytest.mark.parametrize(
    ("arch", "copies", "n_pes", "least"),
    [("gfx942", False, 8, 2912), ("gfx942", True, 2, 20384), ("gfx950", False, 8, 4271), ("nvidia", True, 8, 2500)],
)
def test_ratios_are_those_of_the_gpu_and_its_links(arch, copies, n_pes, least, monkeypatch):
    """On MI300X each peer has a link of its own, so two PEs need seven times the product to hide what they send."""
    monkeypatch.setattr(selection, "machine", lambda: Machine(arch, 304, 8, False, copies))
    assert round(selection._least(1, n_pes)) == least


@pytest.mark.parametrize(("copies", "schedule"), [(False, "fused"), (True, "copy_engine")])
def test_auto_takes_copy_engines_only_where_copies_are_theirs(copies, schedule, monkeypatch):
    if shmem.n_pes() == 1:
        pytest.skip("a team of one PE sends nothing")
    for module in (selection, few_rows):
        monkeypatch.setattr(module, "machine", lambda: Machine("gfx942", 8, 8, False, copies))
    a, b = torch.empty(4096, 4096, dtype=BF16), torch.empty(4096, 4096, dtype=BF16)
    problem = problem_of("all_gather_gemm", a.to(here()), b.to(here()), None, "rows", {})
    assert selection._best(problem)[0] == schedule


@pytest.mark.parametrize("release, schedule", [((3, 6), "copy_engine"), ((3, 7), "fused")])
def test_auto_takes_no_schedule_that_triton_cannot_compile_for_the_gpu(release, schedule, monkeypatch):
    """Its communication takes as long as the product, so that our kernel would be faster."""
    if shmem.n_pes() == 1:
        pytest.skip("a team of one PE sends nothing")
    for module in (selection, few_rows):
        monkeypatch.setattr(module, "machine", lambda: Machine("gfx942", 8, 8, False, True))
    monkeypatch.setattr(selection, "installed", lambda name: release)
    a, b = torch.empty(4096, 512, dtype=BF16, device=here()), torch.empty(512, 4096, dtype=BF16, device=here())
    problem = problem_of("gemm_reduce_scatter", a, b, None, "rows", {})
    assert selection._best(problem)[0] == schedule


def chosen(operator, split, a, b):
    scales = (torch.ones(1, device=here()), torch.ones(1, device=here())) if a.dtype.itemsize == 1 else ()
    problem = problem_of(operator, a, b, None, split, {}, scales)
    return selection.choose(problem._replace(aligned=on_all(operator, shmem.TEAM_WORLD, problem.aligned)))


@pytest.fixture
def h200(monkeypatch):
    """Choices as on a GPU with 132 multiprocessors."""
    for module in (selection, few_rows):
        monkeypatch.setattr(module, "machine", lambda: Machine("nvidia", 132, 1, True))


@pytest.mark.parametrize("operator, split, shape, columns, dtype, schedule, reason", CHOICES)
def test_auto_takes_our_kernels_only_where_they_are_not_slower(
    operator, split, shape, columns, dtype, schedule, reason, h200
):
    if shmem.n_pes() == 1:
        schedule, reason = "bulk_synchronous", "sends nothing"
    a, b = (torch.empty(size, dtype=dtype, device=here()) for size in (shape, (shape[1], columns)))
    problem, why = chosen(operator, split, a, b)
    assert problem.options.schedule == schedule and reason in why


def test_auto_chooses_alike_on_all_pes_though_one_has_other_addresses(h200, me, npes):
    a, b = torch.empty(4096, 512, dtype=BF16, device=here()), torch.empty(512 * 4096 + 1, dtype=BF16, device=here())
    last = npes > 1 and me == npes - 1
    problem, why = chosen("gemm_all_reduce", "rows", a, b[int(last) : b.numel() - (not last)].view(512, 4096))
    assert problem.options.schedule == "bulk_synchronous"
    assert npes == 1 or "multiples of 16" in why
