"""Data words with marks in interpreted kernels: 4 bytes of data and a mark of 4 bytes form one word of 8 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from pyshmem.device.arch.interpreter.team_flags import await_word
from pyshmem.device.arch.interpreter.values import array, decoded, number
from pyshmem.native import _native


def store_words(ctx: Any, address: Any, places: Any, later: Any, words: Any, mark: Any, mask: Any) -> None:
    """Store each int32 and the mark as one word of 8 bytes at ``places`` from ``address``: both become visible at once."""
    upper, first = number(mark) << 32, number(address) + number(later)
    values, lanes = array(words).astype(np.int64) & 0xFFFFFFFF, array(places)
    for lane in np.flatnonzero(array(mask)):
        _native.set_int64(first + 8 * int(lanes[lane]), upper | int(values[lane]))


def await_words(ctx: Any, routine: str, address: Any, places: Any, mark: Any, mask: Any, count: Any) -> list[Any]:
    """Wait for the words of every member: member i's are i * ctx.piece bytes after ``address``. Errors: WaitTimeoutError.

    Returns ``count`` tensors of int32, those of members 0 to count - 1. The last member's is repeated if there are fewer.
    """
    inside, lanes = array(mask), array(places)
    found = []
    for member in range(count.value if isinstance(count, tl.constexpr) else count):
        member = min(member, decoded(number(ctx.n_pes)) - 1)
        first = number(address) + member * number(ctx.piece)
        words = np.zeros(inside.shape, np.int32)
        for lane in np.flatnonzero(inside):
            word = await_word(ctx, routine, member, first + 8 * int(lanes[lane]), number(mark) << 32)
            words[lane] = np.uint32(word & 0xFFFFFFFF).view(np.int32)
        found.append(tl.tensor(TensorHandle(words, tl.int32), tl.block_type(tl.int32, list(inside.shape))))
    return found


def await_parts(
    ctx: Any, routine: str, address: Any, place: Any, most: Any, mark: Any, count: Any, parts: Any
) -> tuple[Any, ...]:
    """await_words of ``parts`` words a lane: part k is k blocks behind ``place``. Places behind ``most`` get its word."""
    found = []
    for part in range(parts.value if isinstance(parts, tl.constexpr) else parts):
        places = tl.minimum(place + part * int(place.shape[0]), most)
        found.append(await_words(ctx, routine, address, places, mark, place >= 0, count))
    return tuple(found)
