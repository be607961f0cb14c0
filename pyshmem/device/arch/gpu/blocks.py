"""Creation of blocks and scalars in Triton's and Gluon's kernels.

A device function called from a Gluon kernel is compiled again for Gluon, where a block has an explicit layout. This is the
only difference, so device functions create their blocks by these functions.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import triton
import triton.language as tl
from triton.language import core


@core.builtin
def in_gluon(_semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Return whether this call is compiled for a Gluon kernel."""
    return tl.constexpr(_generator.is_gluon)


@core.builtin
def in_partition(_semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Return whether a warp partition of a Gluon kernel makes this call, which excludes the program's first warps."""
    return tl.constexpr(_generator.caller_context is not None)


@core.builtin
def num_warps(_semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Return the number of warps that make this call: the program's, or a Gluon partition's."""
    partition = _generator.caller_context
    return tl.constexpr(_semantic.builder.options.num_warps if partition is None else partition.num_warps)


@core.builtin
def arange(count: Any, each: Any = 1, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """Return 0 ... count - 1. each: the contiguous elements per thread in Gluon; Triton chooses by itself."""
    return _semantic.arange(0, _plain(count), *_layout(each, _semantic, _generator))


@triton.jit
def apart(count: tl.constexpr):
    """Return 0 ... 4 * count - 1 for ``count`` threads. A thread's four are not contiguous, so accesses are not merged."""
    if in_gluon():
        return arange(4 * count)
    else:  # in two dimensions: Triton would give a block of one dimension the layout of the wide accesses
        return tl.arange(0, 4)[:, None] * count + tl.arange(0, count)[None, :]


@core.builtin
def zeros(count: Any, dtype: Any, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """Return a block of ``count`` zeros, one per thread."""
    return _semantic.full([_plain(count)], 0, _plain(dtype), *_layout(1, _semantic, _generator))


@core.builtin
def along(block: tl.tensor, dim: Any, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """Return 0 ... extent - 1 along dimension ``dim`` of ``block``, with an extent of 1 along the others."""
    dim = _plain(dim)
    others, layout = [each for each in range(len(block.shape)) if each != dim], ()
    if _generator.is_gluon:
        layout = (functools.reduce(lambda whole, each: _slice(each, whole), reversed(others), block.type.layout),)
    numbers = _semantic.arange(0, int(_plain(block.shape[dim])), *layout)
    return functools.reduce(_semantic.expand_dims, others, numbers)


@core.builtin
def blank(shape: Any, dtype: Any, like: tl.tensor, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """Return a block of zeros. In Gluon it has the layout of ``like``, or without its first dimension the slice of that."""
    extents = [int(_plain(extent)) for extent in _plain(shape)]
    layout = _layout(1, _semantic, _generator)
    if _generator.is_gluon and like.type.is_block():
        whole = like.type.layout
        layout = (whole if len(extents) == len(like.shape) else _slice(0, whole),)
    return _semantic.full(extents, 0, _plain(dtype), *layout)


@core.builtin
def laid_out(block: tl.tensor, like: tl.tensor, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """Return ``block``, in Gluon in the layout of ``like``."""
    return _semantic.convert_layout(block, like.type.layout) if _generator.is_gluon else block


@core.builtin
def number(value: Any, dtype: Any, _semantic: Any = None) -> tl.tensor:
    """Return a constant as a scalar tensor."""
    return _semantic.make_scalar(_plain(value), _plain(dtype))


@core.builtin
def in_registers(value: Any, _semantic: Any = None) -> Any:
    """Return a constant, such as a kernel's argument of 1, as a scalar tensor; return other values unchanged."""
    return _semantic.to_tensor(value) if isinstance(_plain(value), (bool, int, float)) else value


@core.builtin
def spread(value: tl.tensor, like: tl.tensor, _semantic: Any = None) -> tl.tensor:
    """Broadcast a scalar to the shape of ``like``. Gluon's atomics do not do so by themselves."""
    return _semantic.broadcast_impl_value(value, like)[0]


@core.builtin
def lanes(mask: Any, like: tl.tensor, _semantic: Any = None) -> tl.tensor:
    """Broadcast a mask, None or a Python bool to the shape of ``like``: Triton 3.6 accepts no bool as a mask."""
    chosen = _plain(mask)
    if not isinstance(chosen, tl.tensor):
        chosen = _semantic.make_scalar(chosen is None or chosen, tl.int1)
    return _semantic.broadcast_impl_value(chosen, like)[0]


@core.builtin
def too_few(block: tl.tensor, threads: Any, _semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Return whether a block has fewer elements than threads. It is False in Gluon, whose blocks cannot be enlarged."""
    few = block.type.is_block() and math.prod(block.shape) < _plain(threads)
    return tl.constexpr(few and not _generator.is_gluon)


def _slice(dim: int, whole: Any) -> Any:
    from triton.experimental.gluon.language import SliceLayout

    return SliceLayout(dim, whole)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _layout(each: Any, semantic: Any, generator: Any) -> tuple[Any, ...]:
    """Return the layout argument that Gluon's blocks need: contiguous elements per thread, in the order of threads."""
    if not generator.is_gluon:
        return ()
    from triton.experimental.gluon.language import BlockedLayout

    threads = semantic.builder.options.warp_size
    warps = num_warps(_semantic=semantic, _generator=generator).value
    return (BlockedLayout([_plain(each)], [threads], [warps], [0]),)
