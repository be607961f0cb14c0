"""What the kernels of one call leave in memory for each other: the locality that a schedule pays for."""

from __future__ import annotations

from pyshmem.ops.gemm.copy_engine import adds_to_slots
from pyshmem.ops.gemm.problem import Problem
from pyshmem.ops.shares import share_of

ONE_KERNEL = ("fused", "workgroup_specialized")


def bytes_reread(problem: Problem) -> int:
    """The bytes of this PE's memory that a kernel or copy of a call writes, here or on a peer, and a later one reads.

    Bytes count once, however often they are read. A kernel that all PEs launch together is one. problem: with its schedule.
    """
    schedule = problem.options.schedule
    if schedule in ONE_KERNEL:
        return 0
    return _ELEMENTS[problem.operator](problem, schedule == "bulk_synchronous") * problem.sent.itemsize


def _gathered_product(problem: Problem, bulk: bool) -> int:
    """The product's own part, which is sent; columns are copied to the result, too."""
    columns = bulk and problem.split == "columns"
    return problem.m * problem.n if columns or problem.n_pes > 1 else 0


def _gathered_operand(problem: Problem, bulk: bool) -> int:
    """The rows of all PEs; those of this PE are multiplied where they are, but for bulk_synchronous, which copies them."""
    return (problem.M if bulk else problem.M - problem.m) * problem.K


def _scattered(problem: Problem, bulk: bool) -> int:
    """The parts, which are sent or added, and the slots, which are added. A product that adds to a slot needs no part."""
    own = share_of(problem.M, problem.me, problem.n_pes)
    parts = problem.M - own if not bulk and adds_to_slots(problem) else problem.M
    return (parts + (problem.n_pes - 1) * own) * problem.N


def _reduced(problem: Problem, bulk: bool) -> int:
    """The parts, which are reduced in place, and for an epilogue their sums."""
    return (int(problem.n_pes > 1) + int(problem.options.epilogue is not None)) * problem.M * problem.N


_ELEMENTS = {
    "gemm_all_gather": _gathered_product,
    "all_gather_gemm": _gathered_operand,
    "gemm_reduce_scatter": _scattered,
    "gemm_all_reduce": _reduced,
}
