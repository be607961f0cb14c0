"""Launches compiled kernels from C, in a third of the time of ``kernel[grid](...)``.

The compiled variant is looked up once for each kind of arguments. pyshmem launches its own kernels in this way on GPUs;
Triton launches interpreted kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from threading import Thread
from typing import Any, NamedTuple, NoReturn

import torch

from pyshmem.base.errors import LaunchError, refuse
from pyshmem.kernels.signature import WORDS, parameters_of, plan_of, words_of
from pyshmem.memory.gpu.driver import cuda_version, launch_function
from pyshmem.memory.heap import views
from pyshmem.native._native import call_kernel, kernel_key, launch_prepared

_current_device = torch._C._cuda_getDevice if hasattr(torch._C, "_cuda_getDevice") else lambda: 0
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
_BY_SIZE = bool(torch.version.hip)


class Loaded(NamedTuple):
    """A kernel that is loaded on the GPU, and the conversion of its arguments to words. ``compiled`` keeps it loaded.

    plan: a kind of signature.py, or a tuple of kinds, for each argument; None: only Triton can launch it.
    scratch: the bytes of global memory for each program that the kernel takes as one more argument.
    parameters: as parameters_of returns.
    """

    compiled: Any
    function: int
    threads: int
    shared: int
    plan: Any
    scratch: int = 0
    parameters: tuple[Any, ...] = ()

    def __call__(self, grid: tuple[int, ...], stream: int, args: tuple[Any, ...]) -> None:
        if self.plan is None or self.scratch:
            x, y, z = (*grid, 1, 1)[:3]
            metadata = self.compiled.packed_metadata
            self.compiled.run(x, y, z, stream, self.function, metadata, None, None, None, *args)
            return
        self.require_launched(launch_prepared(self.prepared(*grid), stream, *words_of(args, self.plan)))

    def prepared(self, x: int, y: int = 1, z: int = 1, *, words: tuple[int, ...] = (), early: bool = False) -> bytes:
        """Return a plan for _native.launch_prepared: this kernel, its grid and the words of its first parameters.

        early: the kernel may begin before its predecessor has ended; it waits for it before it accesses memory.
        """
        launcher = early_launcher() if early else _launcher()
        return packed((launcher, self.function, x, y, z, self.threads, self.shared, early, *words))

    def known(self, args: tuple[Any, ...]) -> tuple[bytes, bytes, tuple[bytes | None, ...]]:
        """Return the entry of _native.call_kernel for arguments of the kind of ``args``."""
        kinds = bytes(WORDS if isinstance(kind, tuple) else kind for kind in self.plan)
        pairs = zip(args, self.plan, strict=True)
        held = tuple(packed(words_of(each, kind)) if isinstance(kind, tuple) else None for each, kind in pairs)
        return self.prepared(1), kinds, held

    def require_launched(self, code: int) -> None:
        """Errors: LaunchError if the driver returned an error code."""
        if code:
            refuse_launch("launch", f"kernel {self.compiled.name}", code)


class CachedKernel:
    """A kernel of triton.jit. Call it as ``cached(grid, *args, num_warps=4)``, with an argument for every parameter.

    The first call with arguments of a kind compiles the kernel. If PEs wait for each other in a kernel, let all of them
    compile it with ``compile`` before. Hooks of profilers are not called.
    """

    __slots__ = ("compiled", "constants", "kernel", "known")

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.constants = tuple(param.is_constexpr for param in kernel.params)
        self.compiled: dict[Any, Loaded] = {}  # by _native.kernel_key
        self.known: dict[Any, Any] = {}  # entries of _native.call_kernel, by keys that hold tuples as they are

    def __call__(self, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        device = _current_device()
        stream = current_stream(device)
        chosen = (device, *options.values(), *small_ones(args))
        key = call_kernel(views, self.known, chosen, self.constants, grid, stream, args)
        if key == 0:
            return
        found = self.find(*args, **options)
        if isinstance(key, int):
            found.require_launched(key)
        if found.plan is not None and not found.scratch:
            self.known[key] = found.known(args)
        found(grid, stream, args)

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile the kernel for these arguments, unless a call with arguments of their kind has launched it before."""
        chosen = (_current_device(), *options.values(), *small_ones(args))
        if call_kernel(views, self.known, chosen, self.constants, None, 0, args) != 0:
            self.find(*args, **options)

    def find(self, *args: Any, **options: Any) -> Loaded:
        """Return the kernel for these arguments. Compiles it for the first call; does not access tensors."""
        key = kernel_key(views, (_current_device(), *options.items(), *small_ones(args)), self.constants, args)
        found = self.compiled.get(key)
        if found is None:
            found = self.compiled[key] = self._compile(args, options)
        return found

    def _compile(self, args: tuple[Any, ...], options: dict[str, Any]) -> Loaded:
        hashing().join()
        compiled = self.kernel.warmup(*args, grid=(1,), **options)
        compiled._init_handles()
        metadata = compiled.metadata
        threads = metadata.num_warps * metadata.target.warp_size
        scratch = getattr(metadata, "global_scratch_size", 0)
        plan, parameters = _plan(compiled, args), parameters_of(compiled.src)
        return Loaded(compiled, compiled.function, threads, metadata.shared, plan, scratch, parameters)


def small_ones(args: tuple[Any, ...]) -> tuple[bool, ...]:
    """Return which tensors have storages of at most 2 GiB: for AMD GPUs Triton compiles 32-bit offsets for them."""
    return tuple(_small(args)) if _BY_SIZE else ()


def _small(args: Iterable[Any]) -> Iterator[bool]:
    for each in args:
        if isinstance(each, tuple):
            yield from _small(each)
        elif isinstance(each, torch.Tensor):
            yield each.untyped_storage().nbytes() < 1 << 31
        elif isinstance(each, _Like):
            yield each.ptr_range() < 1 << 31


class _Like:
    """What Triton compiles for of a tensor, which is not kept."""

    __slots__ = ("_nbytes", "_place", "dtype")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype, self._place, self._nbytes = tensor.dtype, tensor.data_ptr() % 16, tensor.untyped_storage().nbytes()

    def data_ptr(self) -> int:
        return self._place

    def ptr_range(self) -> int:
        return self._nbytes


def like(argument: Any) -> Any:
    """Return what compiles the same kernel as ``argument``, a tensor or a tuple of them, without keeping its memory."""
    if isinstance(argument, torch.Tensor):
        return _Like(argument)
    if not isinstance(argument, tuple):
        return argument
    fields = map(like, argument)
    return type(argument)(*fields) if hasattr(argument, "_fields") else tuple(fields)


@cache
def hashing() -> Thread:
    """Return the thread that hashes Triton's own files, which it keeps: half a second before the first kernel otherwise."""
    thread = Thread(target=_hash, name="pyshmem: hash of Triton", daemon=True)
    thread.start()
    return thread


def _hash() -> None:
    from triton.runtime.cache import triton_key  # a job without kernels does not import it

    triton_key()


def refuse_launch(routine: str, what: str, code: int) -> NoReturn:
    """Report an error code of the driver. Errors: LaunchError."""
    refuse(LaunchError, routine, "stream", f"error {code} of the GPU driver for {what}", "a launch without an error")


def _plan(compiled: Any, args: tuple[Any, ...]) -> Any:
    """Return the kind of each argument, from the compiled signature; None: only Triton can launch this kernel."""
    metadata = compiled.metadata
    unusual = ("launch_cooperative_grid", "launch_pdl", "profile_scratch_size")
    if any(getattr(metadata, name, 0) for name in unusual) or getattr(metadata, "num_ctas", 1) != 1:
        return None
    return plan_of(compiled.src, args)


def packed(words: Sequence[int]) -> bytes:
    """Return words as a plan of _native.launch_prepared has them."""
    return struct.pack(f"<{len(words)}Q", *[word & (1 << 64) - 1 for word in words])


def on_grid(prepared: bytes, grid: tuple[int, ...]) -> bytes:
    """Return the plan of Loaded.prepared with another grid."""
    return prepared[:16] + packed((*grid, 1, 1)[:3]) + prepared[40:]


@cache
def _launcher() -> int:
    return launch_function("hip" if torch.version.hip else "cuda", "launch")


@cache
def graph_launcher() -> int:
    """Return the driver function that launches graphs."""
    return launch_function("hip" if torch.version.hip else "cuda", "launch_graph")


@cache
def early_launcher() -> int:
    """Return the driver function that launches kernels which may begin early; 0 if there is none.

    It requires an NVIDIA GPU from Hopper on, and CUDA 12.3, the first version that supports such launches in graphs.
    """
    if torch.version.hip or torch.cuda.get_device_capability() < (9, 0) or cuda_version() < 12030:
        return 0
    return launch_function("cuda", "launch_early")
