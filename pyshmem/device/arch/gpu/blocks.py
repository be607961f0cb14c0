"""Blocks and numbers as Triton's and as Gluon's kernels make them.

A device function called from a Gluon kernel is compiled anew for Gluon, where a block says which thread holds what. That
is all that differs, so device functions take their blocks from here.
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl
from triton.language import core


@core.builtin
def in_gluon(_semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Whether this call is compiled for a Gluon kernel."""
    return tl.constexpr(_generator.is_gluon)


@core.builtin
def in_partition(_semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Whether this call is made by some warps of a Gluon kernel, which are not the program's first."""
    return tl.constexpr(_generator.caller_context is not None)


@core.builtin
def num_warps(_semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """How many warps make this call: the program's, or those of a Gluon kernel's partition."""
    partition = _generator.caller_context
    return tl.constexpr(_semantic.builder.options.num_warps if partition is None else partition.num_warps)


@core.builtin
def arange(count: Any, each: Any = 1, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """0 ... count - 1. each: how many neighbours a thread holds; Triton chooses by itself."""
    return _semantic.arange(0, _plain(count), *_layout(each, _semantic, _generator))


@triton.jit
def apart(count: tl.constexpr):
    """0 ... 4 * count - 1 for ``count`` threads: a thread's four are not neighbours, and no access has two of them."""
    if in_gluon():
        return arange(4 * count)
    else:  # in two dimensions: among blocks of one shape Triton would choose the same layout for these as for wide ones
        return tl.arange(0, 4)[:, None] * count + tl.arange(0, count)[None, :]


@core.builtin
def zeros(count: Any, dtype: Any, _semantic: Any = None, _generator: Any = None) -> tl.tensor:
    """count times 0, one a thread."""
    return _semantic.full([_plain(count)], 0, _plain(dtype), *_layout(1, _semantic, _generator))


@core.builtin
def number(value: Any, dtype: Any, _semantic: Any = None) -> tl.tensor:
    """A number that the compiler knows, as a scalar."""
    return _semantic.make_scalar(_plain(value), _plain(dtype))


@core.builtin
def in_registers(value: Any, _semantic: Any = None) -> Any:
    """A number that the compiler knows, as a kernel's argument of 1, as a scalar; all else as it is."""
    return _semantic.to_tensor(value) if isinstance(_plain(value), (bool, int, float)) else value


@core.builtin
def spread(value: tl.tensor, like: tl.tensor, _semantic: Any = None) -> tl.tensor:
    """A scalar as a block of the shape of ``like`` where that is one. Gluon's atomics do not do it by themselves."""
    return _semantic.broadcast_impl_value(value, like)[0]


@core.builtin
def lanes(mask: Any, like: tl.tensor, _semantic: Any = None) -> tl.tensor:
    """A mask of the shape of ``like``, of None and of a Python bool too: Triton 3.6 takes none."""
    chosen = _plain(mask)
    if not isinstance(chosen, tl.tensor):
        chosen = _semantic.make_scalar(chosen is None or chosen, tl.int1)
    return _semantic.broadcast_impl_value(chosen, like)[0]


@core.builtin
def too_few(block: tl.tensor, threads: Any, _semantic: Any = None, _generator: Any = None) -> tl.constexpr:
    """Whether a block of Triton's has fewer elements than there are threads; of Gluon's nobody can make larger ones."""
    few = block.type.is_block() and math.prod(block.shape) < _plain(threads)
    return tl.constexpr(few and not _generator.is_gluon)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _layout(each: Any, semantic: Any, generator: Any) -> tuple[Any, ...]:
    """The argument that Gluon's blocks have and Triton's have not: threads in a row, each with its neighbours."""
    if not generator.is_gluon:
        return ()
    from triton.experimental.gluon.language import BlockedLayout

    threads = semantic.builder.options.warp_size
    warps = num_warps(_semantic=semantic, _generator=generator).value
    return (BlockedLayout([_plain(each)], [threads], [warps], [0]),)
