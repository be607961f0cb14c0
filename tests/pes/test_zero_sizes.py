"""Calls of no elements write nothing: programs of random host calls, and every call of kernels.

Guards are at the start and at the end of the heaps, where the address of an empty array may be, and around each array.
They have other values on each PE, so a word that another PE's call has copied is seen.
Also on pretended nodes: PYSHMEM_NODE_SIZE=1 or 2.
"""

import random
from contextlib import suppress

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import triton
from support import here, on_one_node

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.memory.heap import heaps
from pyshmem.base.job import job

COUNT, EDGE = 24, 64  # elements of an array, bytes of a guard
ONE_SIDED = ("put", "get", "put_nbi", "get_nbi")
STRIDED = ("iput", "iget", "ibput", "ibget")
FOLDS = (
    "sum_reduce",
    "prod_reduce",
    "min_reduce",
    "max_reduce",
    "and_reduce",
    "or_reduce",
    "xor_reduce",
    "sum_inscan",
    "sum_exscan",
)
GROUPED = ("broadcast", "collect", "fcollect", "alltoall", "alltoalls", *FOLDS)
ON_STREAM = (
    "reduce_on_stream", "reduce_scatter_on_stream", "sum_inscan_on_stream", "fcollect_on_stream", "alltoall_on_stream",
    "broadcast_on_stream", "put_on_stream",
)  # fmt: skip
OF_WORDS = tuple(
    f"{verb}_{which}{form}"
    for verb in ("wait_until", "test")
    for which in ("all", "any", "some")
    for form in ("", "_vector")
)
OF_MEMORY = ("malloc", "malloc_with_hints", "calloc", "align", "zeros", "empty", "array", "free", "realloc")
CALLS = (*ONE_SIDED, *STRIDED, "put_signal", "put_signal_nbi", *GROUPED, *ON_STREAM, *OF_WORDS, *OF_MEMORY, "pe_quiet")
DTYPES = (torch.int64, torch.int32, torch.uint8)


class Program:
    """The arrays of a program of calls, and what they held before it."""

    def __init__(self, device):
        self.me, self.n = shmem.my_pe(), shmem.n_pes()
        mark = 100 + self.me
        self.first = shmem.full(EDGE, mark, dtype=torch.uint8, device="cpu")  # in the first hole of the heap
        self.arrays = {dtype: [self._filled(dtype, device) for _ in range(2)] for dtype in DTYPES}
        self.private = {dtype: torch.full((COUNT,), mark, dtype=dtype, device=here()) for dtype in DTYPES}
        self.signal, self.added = shmem.zeros(1, dtype=torch.uint64, device=device), 0
        self.edges = [
            edge
            for heap in heaps.values()
            for edge in (heap.bytes_at(heap.base, EDGE), heap.bytes_at(heap.base + heap.size - EDGE, EDGE))
        ]
        self.edges[self._end_of_cpu()].fill_(mark)  # check: ignore, it is free, but a wrong call writes it
        self.before = [edge.clone() for edge in self.edges]  # check: ignore, what is free is compared too
        shmem.barrier_all()

    def _end_of_cpu(self):
        return 2 * list(heaps).index("cpu") + 1

    def _filled(self, dtype, device):
        return shmem.full(COUNT, 100 + self.me, dtype=dtype, device=device)

    def check(self, calls):
        shmem.barrier_all()
        mark = 100 + self.me
        whole = [self.first, *(each for pair in self.arrays.values() for each in pair), *self.private.values()]
        for array in whole:
            assert (array == mark).all(), (calls, array)
        for edge, old in zip(self.edges, self.before, strict=True):
            assert torch.equal(edge, old), (calls, edge, old)  # check: ignore, what is free is compared too
        assert shmem.signal_fetch(self.signal) == self.added, calls
        shmem.barrier_all()


class Call:
    """One call, drawn alike on all PEs; which collectives' arrays are private is drawn for each PE."""

    def __init__(self, program, name, seed):
        self.program, self.name, self.chance = program, name, random.Random(f"{name} {seed}")
        self.dtype, self.empty = self.chance.choice(DTYPES), self.chance.random() < 0.4
        if name in ("and_reduce", "or_reduce", "xor_reduce") or name in OF_WORDS:
            self.dtype = torch.int64
        self.pe = self.chance.randrange(program.n)
        self.size = {} if self.empty else {"size": 0}

    def cut(self, array):
        start = self.chance.choice((0, 1, COUNT))
        return array[start:start] if self.empty else array[start:] if self.chance.random() < 0.5 else array

    def symmetric(self, which=0):
        return self.cut(self.program.arrays[self.dtype][which])

    def side(self, which, by_pe=False):
        """A symmetric or private array."""
        draws = [self.chance.random() < 0.5 for _ in range(self.program.n)]
        own, private = self.symmetric(which), self.cut(self.program.private[self.dtype])
        return private if draws[self.program.me if by_pe else 0] else own

    def make(self):
        name, call = self.name, getattr(shmem, self.name)
        if name in ONE_SIDED:
            arrays = (self.symmetric(), self.side(1)) if "put" in name else (self.side(1), self.symmetric())
            call(*arrays, self.pe, **self.size)
        elif name in STRIDED:
            self._strided(call)
        elif name.startswith("put_signal"):
            sigop = shmem.SIGNAL.ADD
            call(self.symmetric(), self.side(1), self.pe, self.program.signal, 1, sigop, **self.size)
            self.program.added += self.program.n * (self.pe == self.program.me)
        elif name in ON_STREAM and self.program.arrays[self.dtype][0].device.type == "cuda" and not on_one_node():
            with suppress(shmem.UnreachableError):  # what is empty may be taken as lying anywhere
                call(self.symmetric(0), self.symmetric(1), *self._detail(), **self.size)
        elif name in GROUPED or name in ON_STREAM:
            self._grouped(call)
        elif name in OF_WORDS:
            self._of_words(call)
        elif name == "pe_quiet":
            call([])
        else:
            self._of_memory(call)

    def _strided(self, call):
        arrays = (self.symmetric(), self.side(1)) if "put" in self.name else (self.side(1), self.symmetric())
        tst, sst = (self.chance.choice((1, 3, 2**40, 2**62)) for _ in range(2))
        if self.name in ("iput", "iget"):
            call(*arrays, self.pe, tst, sst, **self.size)
        else:
            block, number = self.chance.choice(((0, 0), (0, 3), (1, 0), (0, 2**61)))
            call(*arrays, self.pe, tst, sst, block, number)

    def _grouped(self, call):
        on_stream = self.name in ON_STREAM
        target, source = (
            (self.symmetric(0), self.symmetric(1)) if on_stream else (self.side(0, True), self.side(1, True))
        )
        if self.name.endswith("_on_stream"):
            call(target, source, *self._detail(), **self.size)
        elif self.name == "broadcast":
            call(target, source, self.pe, **self.size)
        elif self.name == "alltoalls":
            call(target, source, self.chance.choice((1, 2, 3)), self.chance.choice((1, 2, 3)), **self.size)
        else:
            call(target, source, **self.size)

    def _detail(self):
        """The PE or the operator of a call on a stream."""
        if self.name == "put_on_stream":
            return ((self.program.me + 1) % self.program.n,)
        return {"broadcast": (self.pe,), "reduce": ("sum",), "reduce_scatter": ("sum",)}.get(self.name[:-10], ())

    def _of_words(self, call):
        self.empty = True
        value = [] if self.name.endswith("_vector") else 5
        found = call(self.symmetric(), self.chance.choice(("==", "!=", "<")), value)
        assert found in (None, True) if "_all" in self.name else found is None if "_any" in self.name else found == []

    def _of_memory(self, call):
        given = {
            "malloc_with_hints": (0, 0), "align": (64, 0), "array": (torch.empty(0, device=here()),),
            "free": (self.program.first[:0],), "realloc": (None, 0), "calloc": self.chance.choice(((0, 8), (8, 0))),
        }.get(self.name, (0,))  # fmt: skip
        found = call(*given)
        assert self.name == "free" or found.numel() == 0


@hypothesis.given(st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 10**6)), min_size=1, max_size=12))
@hypothesis.settings(max_examples=25)
def test_programs_of_calls_without_elements_write_nothing(calls):
    program = Program(job.device)
    for name, seed in calls:
        Call(program, name, seed).make()
    program.check(calls)
    _forget(program)


@pytest.mark.parametrize("name", CALLS)
def test_every_host_call_without_elements_writes_nothing(name, device):
    program = Program(device)
    for seed in range(8):
        Call(program, name, seed).make()
    program.check(name)


def _forget(program):
    """Free the arrays of one of many programs in a test."""
    for array in (program.first, program.signal, *(each for pair in program.arrays.values() for each in pair)):
        shmem.free(array)


# ---- kernels ----


@triton.jit
def one_sided(ctx, x, y, signal, pe, none):
    dev.put(ctx, x, y, none, pe)
    dev.get(ctx, x, y, none, pe)
    dev.put_nbi(ctx, x, y, none, pe)
    dev.get_nbi(ctx, x, y, none, pe)
    dev.iput(ctx, x, y, 2, 3, none, pe)
    dev.iget(ctx, x, y, 2, 3, none, pe)
    dev.ibput(ctx, x, y, 2, 3, none, 2, pe)
    dev.ibput(ctx, x, y, 2, 3, 2, none, pe)
    dev.ibget(ctx, x, y, 2, 3, none, 2, pe)
    dev.ibget(ctx, x, y, 2, 3, 2, none, pe)
    dev.put_signal(ctx, x, y, none, signal, 1, dev.SIGNAL_ADD, pe)
    dev.put_signal_nbi(ctx, x, y, none, signal, 1, dev.SIGNAL_ADD, pe)
    dev.quiet(ctx)


@triton.jit
def collectives(ctx, x, y, none):
    dev.broadcast(ctx, x, y, none, 0)
    dev.collect(ctx, x, y, none)
    dev.fcollect(ctx, x, y, none)
    dev.alltoall(ctx, x, y, none)
    dev.alltoalls(ctx, x, y, 2, 3, none)
    dev.sum_reduce(ctx, x, y, none)
    dev.max_reduce(ctx, x, y, none)
    dev.and_reduce(ctx, x, y, none)
    dev.sum_inscan(ctx, x, y, none)
    dev.sum_exscan(ctx, x, y, none)


@triton.jit
def words(ctx, x, found, indices, values, none):
    dev.wait_until_all(ctx, x, none, None, dev.CMP_EQ, 5)
    dev.wait_until_all_vector(ctx, x, none, None, dev.CMP_EQ, values)
    dev.wait_until_any(ctx, x, none, None, dev.CMP_EQ, 5)
    dev.test_any(ctx, x, none, None, dev.CMP_EQ, 5)
    dev.wait_until_some(ctx, x, none, indices, None, dev.CMP_EQ, 5)
    dev.test_some(ctx, x, none, indices, None, dev.CMP_EQ, 5)
    dev.test_all(ctx, x, none, None, dev.CMP_EQ, 5)


@pytest.mark.parametrize("at", [0, COUNT], ids=["arrays", "behind their end"])
def test_every_call_of_kernels_without_elements_writes_nothing(at, device):
    program, context = Program(device), shmem.device_context()
    x, y = (each[at:] for each in program.arrays[torch.int64])
    for pe in range(program.n):
        one_sided[(1,)](context, x, y, program.signal, pe, 0)
        program.added += 2 * program.n * (pe == program.me)
    indices, values = (torch.full((4,), 7, dtype=dtype, device=here()) for dtype in (torch.uint64, torch.int64))
    words[(1,)](context, x, indices, indices, values, 0)
    if on_one_node():
        collectives[(1,)](context, x, y, 0)
    program.check("kernels")
    assert indices.tolist() == [7] * 4
