"""Irregular work: sparse matrices, whose rows differ in length, balanced over the programs of a kernel.

A matrix consists of tiles, its rows, and of atoms, its non-zeros. A schedule divides them over programs. A work
says what an atom adds to its tile, and what becomes of a tile's sum. Neither depends on the other, so every work runs on
every schedule.
Idea: Osama, Porumbescu, Owens (arXiv 2301.04792). See docs/irregular.md.
"""

from __future__ import annotations

import sys as _sys

from pyshmem.diagnosis import ranges as _ranges
from pyshmem.irregular.execution import SCHEDULES, Work, run
from pyshmem.irregular.matrix import CSR, csr
from pyshmem.irregular.plans import Plan, plan
from pyshmem.irregular.works.degrees import degree_histogram
from pyshmem.irregular.works.pagerank import pagerank_step
from pyshmem.irregular.works.spmm import spmm
from pyshmem.irregular.works.spmv import spmv
from pyshmem.irregular.works.triangles import triangle_count

__all__ = [
    "CSR", "SCHEDULES", "Plan", "Work", "csr", "degree_histogram", "pagerank_step", "plan", "run", "spmm",
    "spmv", "triangle_count",
]  # fmt: skip

_ranges.put_into(_sys.modules[__name__], "shmem.irregular.")
_ranges.put_into(Plan, "shmem.irregular.Plan.", "__call__", "close")
