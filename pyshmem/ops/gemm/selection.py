"""The schedules, how an operator overlaps its product with its communication, and the choice of one."""

from __future__ import annotations

from typing import Any

import torch

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.ops.gemm import bulk_synchronous, copy_engine, few_rows, fused
from pyshmem.ops.gemm.orders import POLICIES
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.gemm.product import configuration, tiles_of
from pyshmem.ops.gemm.scaling import NONE
from pyshmem.ops.gemm.steps import Steps, lacks, lacks_kind
from pyshmem.ops.gemm.tuning import order_of
from pyshmem.ops.machine import machine
from pyshmem.ops.workspace import Workspace
from pyshmem.start.requirements import installed

# By schedule: (operator, split) -> class of (problem, a, b, space). An object of it performs the calls of a plan: it is
# called with (a, b, out) and the scales. Its ``space`` is the plan's memory, which it allocates if it gets None.
SCHEDULES: dict[str, dict[tuple[str, str], Any]] = {
    "bulk_synchronous": bulk_synchronous.STEPS,
    "copy_engine": copy_engine.STEPS,
    "fused": fused.STEPS,
}
# The schedules that an operator has, the best for large products first: measured on two H200s, see docs/overlap.md.
ABLE = {
    "gemm_all_gather": ("copy_engine", "fused", "bulk_synchronous"),
    "all_gather_gemm": ("copy_engine", "fused", "bulk_synchronous"),
    "gemm_reduce_scatter": ("copy_engine", "fused", "bulk_synchronous"),
    "gemm_all_reduce": ("fused", "bulk_synchronous"),
}
WHOLE = "data_parallel"  # the order of tiles that one program each makes
OURS = "; our kernel multiplies, for the library does not: "  # on this PE
BY_LIBRARY = ("copy_engine", "bulk_synchronous")
LEAST_FLOPS, LEAST_SIDE = 1e10, 256
LEAST_TILES = 1.5  # of a program, for the fused kernels
MOST_TILES = 2  # of a program, up to which gemm_reduce_scatter by them is faster than by copies: parts have too few
# Triton 3.6 fails in a pass for AMD GPUs where tiles of all PEs are added up.
UNCOMPILED = {("gemm_reduce_scatter", "fused"), ("gemm_all_reduce", "fused")}
OLDEST_FOR_AMD = (3, 7)
LEAST_K = 10000  # of products of 8-bit floats, for each peer: measured on two H100s, results of 2 bytes
STORES = "communication takes as long as the product, and stores of all programs are faster than copies"
FLOPS_PER_BYTE = 2500  # sent: 1.3 times what an H200 computes in the time that its link needs for a byte
# of AMD GPUs, of bfloat16: floating-point operations and bytes to one peer a second, and peers at this rate at once. None is
# measured here: 0.6 of the operations and 0.78 of the links of data sheets, which other libraries reach (docs/decisions.md)
RATES = {"gfx90a": (115e12, 39e9, 3), "gfx942": (784e12, 50e9, 7), "gfx950": (1380e12, 60e9, 7)}


def choose(problem: Problem) -> tuple[Problem, str]:
    """Return the problem with a schedule and an order in its options, and why these, the same on all PEs.

    Errors: those of scheduled.
    """
    problem, why = scheduled(problem)
    return ordered(problem, problem.options.order, why)


def scheduled(problem: Problem) -> tuple[Problem, str]:
    """Return the problem with a schedule in its options, and why this one, the same on all PEs.

    Errors: ArgumentError, on all PEs, for a schedule without this split, or an order that the schedule does not have.
    """
    options = problem.options
    schedule, why = options.schedule, "the caller named it"
    streams = "fused" in _able(problem.operator) and problem.dtype is not torch.float64
    if schedule == "auto" and options.order not in ("auto", WHOLE) and streams:
        schedule, why = "fused", "the caller named an order that streams tiles"
    elif schedule == "auto":
        schedule, why = _best(problem)
    _require_split(problem, schedule)
    if options.order not in ("auto", WHOLE) and schedule != "fused":
        got, wants = f"{options.order!r} with schedule={schedule!r}", f"auto or {WHOLE}: this schedule streams no tiles"
        refuse(ArgumentError, problem.operator, "order", got, wants)
    return problem._replace(options=options._replace(schedule=schedule)), why


def ordered(problem: Problem, order: str, why: str) -> tuple[Problem, str]:
    """Return a problem, whose schedule has been chosen, with an order in its options, and why both.

    order: as the caller has named it.  why: the schedule.
    """
    options = problem.options
    if order == "auto":
        order, reason = _order(problem, options.schedule)
        why = f"{why}; order: {reason}"
    if problem.scaling != NONE and options.schedule in BY_LIBRARY and lacks(problem):
        why = f"{why}{OURS}{lacks(problem)}"
    if order != options.order:
        problem = problem._replace(options=options._replace(order=order))
    return problem, why


def steps_of(problem: Problem, a: torch.Tensor, b: torch.Tensor, space: Workspace | None) -> Any:
    """Return the steps of a problem whose schedule has been chosen. space: the plan's memory; None: they allocate it."""
    return _steps(problem)(problem, a, b, space)


def steps_that_serve(problem: Problem) -> bool:
    """Whether the steps of such a problem with more rows serve it."""
    steps = _steps(problem)
    return issubclass(steps, Steps) and steps.serves(problem)


def _steps(problem: Problem) -> Any:
    """The class of the steps of a problem."""
    schedule = problem.options.schedule
    if schedule == "fused" and few_rows.suits(problem):
        return few_rows.MultiplyAndExchange
    return SCHEDULES[schedule][problem.operator, problem.split]


def _require_split(problem: Problem, schedule: str) -> None:
    """Errors: ArgumentError if a schedule has no steps for the operator and its split."""
    if (problem.operator, problem.split) not in SCHEDULES[schedule]:
        got, wants = f"{schedule!r} with split={problem.split!r}", f"a schedule that has split={problem.split!r}: fused"
        refuse(ArgumentError, problem.operator, "schedule", got, wants)


def require_known(problem: Problem) -> None:
    """Errors: ArgumentError for a schedule or an order that the operator does not have."""
    options, able = problem.options, _able(problem.operator)
    if options.schedule != "auto" and options.schedule not in able:
        known = "a schedule" if options.schedule in SCHEDULES else "no schedule"
        if options.schedule in ABLE[problem.operator]:
            known = "which needs Triton 3.7 on AMD GPUs"
        refuse(
            ArgumentError, problem.operator, "schedule", f"{options.schedule!r}, {known}", "auto or " + ", ".join(able)
        )
    if options.order != "auto" and options.order not in POLICIES:
        refuse(ArgumentError, problem.operator, "order", repr(options.order), "auto or " + ", ".join(POLICIES))


def _order(problem: Problem, schedule: str) -> tuple[str, str]:
    """Return (order, why) for a problem by a schedule."""
    if schedule != "fused":
        return WHOLE, "this schedule streams no tiles"
    if schedule == "fused" and few_rows.suits(problem):
        return WHOLE, "a program has all rows of its columns"
    return order_of(problem)


def _able(operator: str) -> tuple[str, ...]:
    """The schedules that an operator has on this machine."""
    if machine().arch in ("nvidia", "interpreter") or installed("triton") >= OLDEST_FOR_AMD:
        return ABLE[operator]
    return tuple(name for name in ABLE[operator] if (operator, name) not in UNCOMPILED)


def _best(problem: Problem) -> tuple[str, str]:
    """Return (schedule, why) for a problem, the same on all PEs."""
    if problem.dtype is torch.float64:
        return "bulk_synchronous", "no kernel computes float64"
    if machine().arch == "interpreter":
        return "bulk_synchronous", "kernels are interpreted: the library's product is faster"
    if problem.n_pes == 1:
        return "bulk_synchronous", "a team of one PE sends nothing"
    able, slow = _able(problem.operator), _slow(problem)
    if not machine().copies:  # the library's product leaves no room for the kernels that copies are
        able = tuple(name for name in able if name != "copy_engine")
    if few_rows.suits(problem) and few_rows.fills(problem) and "fused" in able and not slow:
        return "fused", "few rows: the product is bound by reading b, and one kernel exchanges the tiles"
    flops, side = problem.typical
    if flops < LEAST_FLOPS or side < LEAST_SIDE:
        return "bulk_synchronous", "the product is too small to hide communication behind it"
    short = _short(problem)
    slower = slow or short or _outweighed(problem)
    columns = problem.operator == "gemm_all_gather" and problem.split == "columns"
    if (columns or able[0] == "fused") and slower:
        return "bulk_synchronous", slower
    if columns:
        return "fused", "only kernels store columns without another pass"
    exposed = not slower and _exposed(problem)
    if problem.operator == "gemm_all_gather" and exposed:
        return "fused", STORES
    if problem.operator == "gemm_reduce_scatter" and "fused" in able and problem.scaling == NONE and not slow:
        if short:
            return "bulk_synchronous", "the product has so few tiles that parts of it would leave programs idle"
        if exposed:
            return "fused", STORES
        if _tiles(problem) <= MOST_TILES:
            return "fused", "parts of the product would have few tiles"
    return able[0], "the fastest of the table for large products on this architecture"


def _exposed(problem: Problem) -> bool:
    """Whether a product takes at most 1.3 times as long as its communication, which is that of its result."""
    rows = -(-problem.M // problem.n_pes)
    sent = problem.sent.itemsize * (problem.n_pes - 1) * rows * problem.N
    return problem.typical[0] < _least(sent, problem.n_pes)


def _least(sent: int, n_pes: int) -> float:
    """Return the operations of a product that takes 1.3 times as long as a PE needs to send so many bytes to its peers."""
    if machine().arch not in RATES:
        return FLOPS_PER_BYTE * sent
    flops, link, links = RATES[machine().arch]
    return 1.3 * flops * sent / (link * min(n_pes - 1, links))


def _slow(problem: Problem) -> str:
    """Return why our kernels multiply much slower than the library; "" if they do not."""
    if not problem.aligned:
        return "operands are not at multiples of 16 bytes, where our kernels load them wide"
    if machine().arch == "nvidia" and problem.a.dtype is torch.float32:
        return "float32 is multiplied without matrix units, where the library is faster"
    return ""


def _outweighed(problem: Problem) -> str:
    """Return why the library's product of 8-bit floats and communication that nothing hides are faster than our kernel.

    "" if they are not. Both operators that ask send bytes in proportion to M * N, so that K decides.
    """
    n_pes, lines = problem.n_pes, 16 * problem.n_pes  # elements, of which each PE has multiples of 16
    if machine().arch != "nvidia" or problem.scaling == NONE or problem.options.use_fast_accum or lacks_kind(problem):
        return ""
    least = LEAST_K * (n_pes - 1) * problem.sent.itemsize // 2
    if problem.N % lines or problem.K % lines or least > problem.K:
        return ""
    return "8-bit floats: the library's faster product of this K saves more time than communication takes"


def _short(problem: Problem) -> str:
    """Return why a program has no next tile in whose K loop it could send; "" if most have one."""
    few = _tiles(problem) < LEAST_TILES
    return "few programs would have a second tile, in whose K loop they send the first" if few else ""


def _tiles(problem: Problem) -> float:
    """Return how many tiles of our kernels a program would have."""
    here, options = machine(), problem.options
    row = configuration(here.arch, problem.a.dtype, options.tile, options.use_fast_accum)
    return tiles_of(problem.largest, row) / here.programs
