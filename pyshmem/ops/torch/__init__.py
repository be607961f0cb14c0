"""The operators for torch.compile and autograd: ``from pyshmem.ops import torch as tp`` registers torch.ops.pyshmem.*.

They are functions without side effects, as compilers want them: each call returns a new tensor. For gemm_all_gather and
gemm_all_reduce this costs a copy of the result; where it matters, call ops.gemm_all_gather with out= or reuse=True instead,
outside of compiled code. A team goes by the name that name_team gave it; epilogues are for the functions of ops only.

CUDA graphs: the first call of a kind makes a plan, which allocates, and so does the first call of a collective that stages
its operands. Make one call of each kind, forward and backward, before you capture. torch.compile(mode="reduce-overhead")
does so by itself. All PEs must make the same calls in the same order: compile the same function for the same shapes, and
let the same operands require gradients, on all PEs.
"""

from types import ModuleType as _ModuleType

from pyshmem.diagnosis import ranges as _ranges
from pyshmem.ops.torch.attention import *
from pyshmem.ops.torch.collectives import *
from pyshmem.ops.torch.experts import *
from pyshmem.ops.torch.norms import *
from pyshmem.ops.torch.products import *
from pyshmem.ops.torch.team_names import *
from pyshmem.ops.torch.team_names import calls as _calls

_ranges.put_into(_calls, "shmem.ops.torch.")

__all__ = sorted(
    name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _ModuleType)
)
