"""Iris (the package tokenspeed-iris): its all_reduce from Python, and its calls in kernels.

Its other collectives, and its other fast variants of this one, pass an option to Triton that exists for AMD's GPUs alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar

import iris
import torch
import torch.distributed as dist
import triton
import triton.language as tl
from iris.ccl import Config
from mpi4py import MPI

from benchmarks.peers.on_gpus import BLOCK, OnGpus, programs

HEAP = 4 << 30  # bytes: it frees nothing
MOST_POLLS = tl.constexpr(100_000_000)
HINT = tl.constexpr(16)  # elements that follow each other in memory: it loads and stores them by 16 bytes
COLUMNS = 256  # of the matrices that its collectives take


@triton.jit
def stores(bases, dest, source, nelems, turns, BLOCK: tl.constexpr):
    """PE 0 loads tiles and stores them on PE 1, as in benchmarks.sweep_kernels."""
    for _ in range(turns):
        for start in range(tl.program_id(0) * BLOCK, nelems, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            iris.store(dest + at, tl.load(source + at, mask=at < nelems), 0, 1, bases, mask=at < nelems, hint=HINT)


@triton.jit
def loads(bases, dest, source, nelems, turns, parts, BLOCK: tl.constexpr):
    """PE 0 loads tiles on PE 1 and stores them here, each turn from another part of ``source``."""
    for turn in range(turns):
        part = source + (turn % parts).to(tl.int64) * nelems
        for start in range(tl.program_id(0) * BLOCK, nelems, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(dest + at, iris.load(part + at, 0, 1, bases, mask=at < nelems, hint=HINT), mask=at < nelems)


@triton.jit
def adds(bases, word, seen, turns):
    last = tl.full([], 0, tl.int64)
    for _ in range(turns):
        last = iris.atomic_add(word, 1, 0, 1, bases, sem="relaxed", scope="sys")
    tl.store(seen, last)


@triton.jit
def ping_pong(bases, flag, begun, turns, ME: tl.constexpr):
    """A number goes back and forth between PEs 0 and 1, on from what ``begun`` holds."""
    first = tl.load(begun)
    for turn in range(turns):
        if ME == 0:
            iris.atomic_xchg(flag, first + turn, 0, 1, bases, sem="release", scope="sys")
            wait(flag, first + turn)
        else:
            wait(flag, first + turn)
            iris.atomic_xchg(flag, first + turn, 1, 0, bases, sem="release", scope="sys")


@triton.jit
def wait(flag, number):
    """Poll this PE's own word by Triton's atomic, as Iris's examples do; MOST_POLLS times at most."""
    polls = 0
    while (tl.atomic_add(flag, 0, sem="acquire", scope="sys") != number) & (polls < MOST_POLLS):
        polls += 1


class Library(OnGpus):
    statements: ClassVar = {
        "all_reduce": "ccl.all_reduce(target.view(-1, columns), source.view(-1, columns), config=one_shot)"
    }

    def __init__(self) -> None:
        comm = MPI.COMM_WORLD
        torch.cuda.set_device(comm.rank % torch.cuda.device_count())
        self.folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else "")
        store = dist.FileStore(os.path.join(self.folder, "store"), comm.size)
        device = torch.device("cuda", torch.cuda.current_device())
        dist.init_process_group("nccl", store=store, rank=comm.rank, world_size=comm.size, device_id=device)
        self.iris = iris.iris(HEAP, allocator_type="vmem_chunked")
        super().__init__(comm)
        self.names = {"ccl": self.iris.ccl, "columns": COLUMNS, "one_shot": Config(all_reduce_variant="one_shot")}
        self.bases = self.iris.get_heap_bases()
        self.free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}  # arrays of earlier cases
        self.kernels = {
            "tile_store": self._store, "tile_load": self._load, "fetch_add": self._add, "ping_pong": self._ping,
        }  # fmt: skip

    def facts(self) -> dict[str, str]:
        try:
            found = version("tokenspeed-iris")
        except PackageNotFoundError:
            found = getattr(iris, "__version__", "unknown")
        return {"Iris": found, "heap": "vmem_chunked", "torch.distributed": "NCCL"}

    def symmetric(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        known = self.free.get((count, dtype))
        array = known.pop() if known else self.iris.zeros(count, dtype=dtype)
        self.live.append(array)
        return array.zero_()

    def forget(self) -> None:
        """Keep the arrays for later cases."""
        for array in self.live:
            self.free.setdefault((array.numel(), array.dtype), []).append(array)
        self.live.clear()

    def close(self) -> None:
        """Without the end of torch's group, as in benchmarks.operations."""
        self.barrier()
        if self.me == 0:
            shutil.rmtree(self.folder)
        MPI.Finalize()
        os._exit(0)

    # -- kernels

    def _store(self, there: torch.Tensor, here: torch.Tensor, turns: int) -> None:
        stores[(programs(here.nbytes),)](self.bases, there, here, here.numel(), turns, BLOCK, num_warps=8)

    def _load(self, there: torch.Tensor, here: torch.Tensor, turns: int) -> None:
        count = here.numel()
        loads[(programs(here.nbytes),)](
            self.bases, here, there, count, turns, there.numel() // count, BLOCK, num_warps=8
        )

    def _add(self, word: torch.Tensor, fetched: torch.Tensor, turns: int) -> None:
        adds[(1,)](self.bases, word, fetched, turns, num_warps=1)

    def _ping(self, flag: torch.Tensor, begun: torch.Tensor, turns: int) -> None:
        ping_pong[(1,)](self.bases, flag, begun, turns, ME=self.me, num_warps=1)
