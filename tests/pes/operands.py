"""Operands and wanted results for the operators of pyshmem.ops, and how results are compared."""

import pyshmem as shmem
import pytest
import torch
from pyshmem import ops
from pyshmem.ops.shares import share_of, start_of
from support import from_pe, here

TILE = (16, 16, 16)
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
SIZES = (37, 28, 34)


def random(seed, *shape, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).to(here())


def placed(arguments):
    """The arguments, with tensors beside the default heap."""
    return {name: each.to(here()) if isinstance(each, torch.Tensor) else each for name, each in arguments.items()}


def odd(array):
    """A copy of an array, contiguous, at an address that is no multiple of 16."""
    if isinstance(array, ops.Scaled):
        return ops.Scaled(*map(odd, array))
    room = torch.empty(array.numel() + 1, dtype=array.dtype, device=array.device)
    return room[1:].view(array.shape).copy_(array)


def close_to(result, wanted, bound, note=""):
    """Assert a relative error below ``bound``. wanted: in float64."""
    error = (result.double() - wanted).norm() / wanted.norm().clamp(min=1e-30)
    assert error < bound, f"PE {shmem.my_pe()}: {note}: relative error {error:.1e}"


def equal_on_all_pes(result, note=""):
    """Assert that all PEs have the same bits. result: symmetric."""
    shmem.barrier_all()
    for pe in range(shmem.n_pes()):
        assert torch.equal(from_pe(result, pe), result), f"{note}: PE {pe} has other bits than PE {shmem.my_pe()}"
    shmem.barrier_all()


def refused_on_all_pes(operator, given, name, got="got torch.float16", wrong=None):
    """Assert that all PEs refuse a call in which PE 1 has something wrong. operator: its name in pyshmem.ops.

    wrong: what PE 1 has as ``name``; by default the right array in another type.  got: what the message says of it.
    """
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    message = f"{name}: {got}"
    if shmem.my_pe() == 1:
        given[name] = given[name].to(torch.float16) if wrong is None else wrong
    else:
        message = f"team: got a refusal of PE 1 .*{message}"
    with pytest.raises(shmem.ShmemError, match=rf"^{operator}: PE \d+: {message}"):
        getattr(ops, operator)(**given)


def of_the_caller(call, results=lambda given: (given,)):
    """Assert that results of ``call`` stay while later ones are made, and that reuse=True gives two in turn.

    call: with more keywords.  results: the tensors of what it returns.
    """
    kept = [results(call()) for _ in range(3)]
    before = [[each.clone() for each in one] for one in kept]
    places = {each.data_ptr() for one in kept for each in one if each.numel()}
    assert len(places) == sum(each.numel() > 0 for one in kept for each in one), "each has memory of its own"
    turns = [results(call(reuse=True)) for _ in range(3)]
    for one, other in zip(turns[0], turns[2], strict=True):
        assert one.data_ptr() == other.data_ptr()
    for one, other in zip(turns[0], turns[1], strict=True):
        assert not one.numel() or one.data_ptr() != other.data_ptr()
    for one, copies in zip((*kept, turns[1]), (*before, before[0]), strict=True):
        assert all(map(torch.equal, one, copies))


def replayed(call):
    """Return what the last two of three calls in a graph have returned, after 20 replays. The call is made once before."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = [call() for _ in range(3)]
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    return results[1:]


def mine(size):
    me, n = shmem.my_pe(), shmem.n_pes()
    return slice(start_of(size, me, n), start_of(size, me, n) + share_of(size, me, n))


class Case:
    """The operands of this PE, the length that the PEs divide, and the result that is wanted here, in float64."""

    def __init__(self, operator, split="rows", sizes=SIZES, dtype=torch.float32, seed=1):
        M, N, K = sizes
        self.operator, self.split, self.dtype, self.columns = operator, split, dtype, {}
        a, b = random(seed, M, K, dtype=dtype), random(seed + 1, K, N, dtype=dtype)
        whole = a.double() @ b.double()
        if operator == "gemm_all_gather":
            rows = split == "rows"
            self.a, self.b = (a[mine(M)], b) if rows else (a, b[:, mine(N)].contiguous())
            self.wanted, self.size = whole, M if rows else N
        elif operator == "all_gather_gemm":
            self.a, self.b = a[mine(M)], b[:, mine(N)].contiguous()
            self.wanted, self.size, self.columns = whole[:, mine(N)], M, {"columns": N}
        else:
            self.a, self.b, self.size = a[:, mine(K)].contiguous(), b[mine(K)], K
            self.wanted = whole[mine(M)] if operator == "gemm_reduce_scatter" else whole

    def call(self, **options):
        options.setdefault("tile", TILE)
        if self.operator == "gemm_all_gather":
            options["split"] = self.split
        return getattr(ops, self.operator)(self.a, self.b, size=self.size, **self.columns, **options)

    def check(self, result, note=""):
        assert result.shape == self.wanted.shape
        close_to(result, self.wanted, BOUNDS[self.dtype], f"{self.operator} {note}")
