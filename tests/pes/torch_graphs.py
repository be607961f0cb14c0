"""What tests of torch's compilers share: the backends, numbers that any PE can make, and a function in one graph."""

import shutil
from functools import partial

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop

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
        called = operators_of(graph.graph.nodes)
        seen.extend(called)
        if backend != "aot_eager":
            return torch._dynamo.backends.registry.lookup_backend(backend)(graph, examples)
        return aot_autograd(
            fw_compiler=boxed_nop, partition_fn=partial(partition, called), keep_inference_input_mutations=True
        )(graph, examples)

    return torch.compile(function, fullgraph=True, backend=noting)


def partition(called, joint, *operands, **options):
    """As aot_eager does. What a backward calls depends on its gradients: else PEs may call it in the forward pass, or not.

    called: the operators of the forward pass.
    """
    late = set()
    for node in joint.graph.nodes:
        if str(node.target).startswith("tangents") or late.intersection(node.all_input_nodes):
            late.add(node)
    assert sorted(operators_of(node for node in joint.graph.nodes if node not in late)) == sorted(called)
    return min_cut_rematerialization_partition(joint, *operands, **options)


def operators_of(nodes):
    """The names of the operators among nodes of a graph."""
    return [str(node.target).removesuffix(".default") for node in nodes if "pyshmem" in str(node.target)]
