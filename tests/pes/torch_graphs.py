"""What tests of torch's compilers share: the backends, numbers that any PE can make, and a function in one graph."""

import shutil

import pytest
import torch

import pyshmem as shmem
from support import here

BACKENDS = ["eager", "aot_eager"]
backends = pytest.mark.parametrize("backend", BACKENDS)


def numbers(pe, shape, dtype=torch.float32):
    """What the array of PE ``pe`` holds: any PE can make it."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(pe * 7 + shape[0])).to(dtype).to(here())


def near(seen, reference):
    torch.testing.assert_close(seen.double(), reference, rtol=1e-4, atol=1e-4)


def compiled(function, backend, seen):
    """The function, compiled in one graph. The names of the operators that came to the compiler are added to ``seen``."""
    if backend == "inductor" and not torch.cuda.is_available():
        if not (shutil.which("g++") or shutil.which("clang++")):
            pytest.skip("inductor has no compiler here")
        if shmem.n_pes() > 2:
            pytest.skip("each PE compiles C++: it runs on 1 and 2 PEs")

    def noting(graph, examples):
        seen.extend(str(node.target) for node in graph.graph.nodes if "pyshmem" in str(node.target))
        return torch._dynamo.backends.registry.lookup_backend(backend)(graph, examples)

    return torch.compile(function, fullgraph=True, backend=noting)
