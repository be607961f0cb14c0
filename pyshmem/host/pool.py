"""The pool: a part of a symmetric heap from which torch allocates, so that parameters, activations and gradients are
symmetric as they come.

In GPU memory it is a torch.cuda.MemPool, whose blocks come from the C functions of native/base/pool.h. Torch has no such
door for CPU memory: there each new tensor of an operator is copied into the pool, for development and tests.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from pyshmem.base import layout
from pyshmem.base.errors import HeapExhaustedError, refuse
from pyshmem.base.job import job
from pyshmem.host.allocation import allocate, finish, heap_for
from pyshmem.host.init import listeners
from pyshmem.host.teams import TEAM_WORLD
from pyshmem.memory.arguments import count_of, require_init
from pyshmem.memory.cpu_heap import STALE
from pyshmem.memory.heap import Device, Heap
from pyshmem.native import _native
from pyshmem.transport.teams.compared_calls import Watched

__all__ = ["pool"]

_UNIT = 2 << 20  # bytes; torch takes GPU memory in multiples of this
_KINDS = dict(zip(("cpu", "cuda"), layout.numbers("POOL_CPU", "POOL_GPU"), strict=True))
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_OWNED = "a tensor of the pool", "nothing: its memory is free again once the tensor is gone"  # by free and realloc


def pool(size: int | None = None, device: Device | torch.device | None = None) -> Pool:
    """Return the pool: in ``with shmem.pool(size):`` torch allocates in the symmetric heap. One pool exists for each heap.

    size: bytes to add to the pool; its memory does not grow by itself. None adds nothing to a pool that has memory, and
        to an empty one a quarter of what is free. The pool has its memory until finalize.
    device: "cuda" or "cpu", the heap; None means the default heap. In CPU memory the pool copies what operators return.
    Order: collective over TEAM_WORLD; a barrier on return. All PEs make the same tensors, of the same
        sizes and in the same order, and let go of them alike. In debug mode leaving the pool compares what it holds.
        The memory of a tensor that has died is used again without a barrier, in stream order.
    Errors: HeapExhaustedError, OutOfRangeError, ArgumentError, NotInitializedError, on all PEs alike.
    """
    require_init("pool")
    heap = heap_for("pool", device)
    nbytes = 0 if size is None else count_of("pool", "size", size)
    found = _pools.get(heap.device) or Pool(heap)
    if size is None and not found.size:
        nbytes = _room(heap)
    found.added = found.add(nbytes) if nbytes else None
    TEAM_WORLD.meeting.sync("pool")
    _pools[heap.device] = found
    return found


def _room(heap: Heap) -> int:
    """A quarter of what is free where least is. Collective over TEAM_WORLD."""
    free = torch.cuda.mem_get_info(heap.index)[0] if heap.streams else heap.allocator.largest_hole()
    notes = TEAM_WORLD.meeting.share("pool", free.to_bytes(8, "little"))
    return min(int.from_bytes(note[:8], "little") for note in notes) // 4


class Pool:
    """What pool returns: a context manager, in which torch allocates in the pool. ``size`` are its bytes."""

    def __init__(self, heap: Heap) -> None:
        self.size, self._heap = 0, heap
        self._entered: list[ExitStack] = []
        self._process = os.getpid()
        self._regions: list[torch.Tensor] = []
        self.added: torch.Tensor | None = None  # what the last call of pool has added, for the checker
        self._torchs: Any = None
        if heap.streams:
            functions = "pyshmem_pool_take", "pyshmem_pool_give"
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(_native.__file__, *functions)
            self._torchs = torch.cuda.MemPool(self._allocator.allocator())  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        return f"<shmem.Pool of {self.size} bytes on {self._heap.device}>"

    @property
    def id(self) -> Any:
        """What ``torch.cuda.graph(graph, pool=pool.id)`` takes, so that a capture allocates in the pool; None on CPUs."""
        return self._torchs and self._torchs.id

    def add(self, size: int) -> torch.Tensor:
        """Add ``size`` bytes of the heap, and return them. Collective over TEAM_WORLD."""
        heap, size = self._heap, -(-size // _UNIT) * _UNIT
        memory = finish("pool", allocate("pool", (size,), torch.uint8, heap.device, 4096))
        self._regions.append(memory)
        heap.owned[memory.data_ptr() - heap.base] = _OWNED
        _native.pool_add(memory.data_ptr(), size, _KINDS[heap.device])
        self.size += size
        return memory

    def end(self) -> None:
        """Give the memory back to the heap. Every PE has passed a barrier after its last access.

        Tensors in CPU memory keep their values, and need the mapping as long as they live.
        """
        self._torchs = None
        if not self._heap.streams and self.blocks():
            _outlived.extend(self._regions)
        for offset in (each.data_ptr() - self._heap.base for each in self._regions):
            self._heap.owned.pop(offset, None)
            self._heap.allocator.release(offset)
            self._heap.note_use()
            self._heap.sites.pop(offset, None)

    def __enter__(self) -> Pool:
        require_init("pool")
        with ExitStack() as stack:
            if self._torchs:
                # makes its workspace, 32 MiB on Hopper, outside the pool
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
                stack.enter_context(torch.cuda.use_mem_pool(self._torchs, self._heap.index))
                # torch's threads of backward would allocate elsewhere
                stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            else:
                stack.enter_context(_InPool(self))
            self._entered.append(stack.pop_all())
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        self._entered.pop().__exit__(kind, *error)
        if job.debug and kind is None:
            self._compare()

    def _compare(self) -> None:
        """Check that the pools of all PEs hold the same. Errors: OutOfRangeError, on all PEs."""
        blocks = [(start - self._heap.base, size) for start, size in self.blocks()]
        held = f"{len(blocks)} blocks of {sum(size for _, size in blocks)} bytes"
        cast(Watched, TEAM_WORLD.meeting).compare("pool", f"that holds {held}, {hash(tuple(blocks)):x}")

    def is_here(self) -> bool:
        """Return whether this process is the PE: the child of a fork, as a worker of a DataLoader, has the same memory."""
        return os.getpid() == self._process

    def blocks(self) -> list[tuple[int, int]]:
        """Return (address, bytes) of each block that a tensor holds, in order of address."""
        if not self._torchs:
            return _native.pool_blocks(_KINDS["cpu"])
        return sorted(
            (block["address"], block["size"])
            for segment in self._torchs.snapshot()
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        )


class _InPool(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Copies into the pool whatever operators return in CPU memory of their own."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pool = pool

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            # tensors made of others, such as DTensor, unwrap themselves: their parts come here next
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        if not self._pool.is_here():
            return result
        fresh = func is torch.ops.aten.lift_fresh.default  # which returns what no operator has made
        given = () if fresh else tree_leaves((args, kwargs))
        moved = {each.untyped_storage().data_ptr(): None for each in given if _has_storage(each)}
        return tree_map(lambda each: self._moved(each, moved), result)

    def _moved(self, tensor: Any, moved: dict[int, Any]) -> Any:
        """moved: the new storage of each that has been seen, by address; None for one that stays."""
        if type(tensor) not in _TENSORS or tensor.device.type != "cpu" or not _has_storage(tensor):
            return tensor
        storage = tensor.untyped_storage()
        if not storage.resizable() or tensor.is_nested or tensor.is_quantized:
            return tensor  # not of torch's allocator, but of NumPy, of a file, or of the pool
        place = storage.data_ptr()
        if place not in moved:
            moved[place] = self._copy(storage)
        new = moved[place]
        if new is None or not storage.nbytes():
            return tensor
        return torch.empty(0, dtype=tensor.dtype, device="cpu").set_(
            new, tensor.storage_offset(), tensor.shape, tensor.stride()
        )

    def _copy(self, storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
        nbytes = storage.nbytes()
        memory = _native.pool_tensor(nbytes) if nbytes else None
        if memory is None and nbytes:
            got = f"a tensor of {nbytes} bytes, which no gap of the pool has room for"
            refuse(
                HeapExhaustedError,
                "pool",
                "size",
                got,
                f"more than {self._pool.size} bytes: shmem.pool(size) adds some",
            )
        if memory is None:
            return None
        new: torch.UntypedStorage = torch.utils.dlpack.from_dlpack(memory).untyped_storage()
        new.copy_(storage)
        return new


def _has_storage(value: Any) -> bool:
    """Whether this is a tensor with memory: of torch's class, or a subclass that adds methods alone."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


_pools: dict[str, Pool] = {}
_outlived: list[torch.Tensor] = []  # memory of pools that have ended, which tensors hold


def pool_of(device: torch.device) -> Pool | None:
    """Return the pool in the memory of ``device``, if there is one."""
    return _pools.get(device.type)


def _forget(begun: bool) -> None:
    """The job begins, or it ends and takes the heap with it."""
    if not _native.pool_blocks(STALE):
        _outlived.clear()
    if not begun:
        for each in _pools.values():
            each.end()
        _pools.clear()
        _native.pool_end()


listeners.append(_forget)
