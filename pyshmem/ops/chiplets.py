"""Order for GPUs of several chiplets: the GPU deals programs to chiplets in turn, and each chiplet has an L2 of its own.

Program p runs on chiplet p % chiplets. Renumbered programs of one chiplet are neighbours, so that they share its L2.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def renumbered(program, programs, CHIPLETS: tl.constexpr):
    """Return the number of ``program`` among ``programs``, with those of a chiplet in succession. CHIPLETS 1: unchanged."""
    if CHIPLETS == 1:
        return program
    else:
        chiplet = program % CHIPLETS
        more = programs % CHIPLETS  # so many chiplets run one program more than the others
        return chiplet * (programs // CHIPLETS) + min(chiplet, more) + program // CHIPLETS
