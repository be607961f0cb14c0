"""exchange's functions where kernels are interpreted: a program is one thread, which calls the host's atomics and waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from pyshmem.device.arch.refusals import array, number, refuse_call
from pyshmem.runtime import _native
from pyshmem.runtime.errors import OutOfRangeError, WaitTimeoutError
from pyshmem.runtime.job import job

_AT_LEAST = 3  # CMP.GE


def distance(ctx: Any, pe: Any, mask: Any = None) -> Any:
    """Bytes from an address in this PE's heap to the same place on ``pe``."""
    steps = array(pe).astype(np.int64) - (number(ctx.me) - 3) // 2
    kind = tl.block_type(tl.int64, list(steps.shape)) if getattr(pe, "type", None) and pe.type.is_block() else tl.int64
    return tl.tensor(TensorHandle(steps * number(ctx.stride), tl.int64), kind)


def tell_all(ctx: Any, address: Any, value: Any) -> None:
    """Store ``value`` as this PE's word of the array of int64 at ``address`` on every member, after everything before."""
    me = (number(ctx.me) - 3) // 2
    for pe in range(number(ctx.n_pes)):
        _native.set_int64(number(address) + 8 * me + (pe - me) * number(ctx.stride), number(value))


def await_all(ctx: Any, routine: str, address: Any, value: Any) -> None:
    """Wait as an acquire until each member's word of the array here has come to ``value``. Errors: WaitTimeoutError."""
    for pe in range(number(ctx.n_pes)):
        _await(routine, pe, number(address) + 8 * pe, number(value))


def tell_member(ctx: Any, address: Any, value: Any, pe: Any) -> None:
    """tell_all to one member."""
    me = (number(ctx.me) - 3) // 2
    _native.set_int64(number(address) + 8 * me + (number(pe) - me) * number(ctx.stride), number(value))


def await_member(ctx: Any, routine: str, address: Any, value: Any, pe: Any) -> None:
    """await_all for the word of one member. Errors: WaitTimeoutError."""
    _await(routine, number(pe), number(address) + 8 * number(pe), number(value))


def store_words(ctx: Any, address: Any, places: Any, later: Any, words: Any, mark: Any, mask: Any) -> None:
    """Store each int32 with the mark as one word of 8 bytes, at its place from ``address``: who sees that mark has both."""
    upper, first = number(mark) << 32, number(address) + number(later)
    values, lanes = array(words).astype(np.int64) & 0xFFFFFFFF, array(places)
    for lane in np.flatnonzero(array(mask)):
        _native.set_int64(first + 8 * int(lanes[lane]), upper | int(values[lane]))


def await_words(ctx: Any, routine: str, address: Any, places: Any, mark: Any, mask: Any, count: Any) -> list[Any]:
    """Wait for store_words of every member, the first from ``address`` and each a piece further. Errors: WaitTimeoutError.

    ``count`` tensors of int32, of the members 0 ... count - 1, the last member's where there are no more.
    """
    inside, lanes = array(mask), array(places)
    found = []
    for member in range(count.value if isinstance(count, tl.constexpr) else count):
        member = min(member, number(ctx.n_pes) - 1)
        first = number(address) + member * number(ctx.piece)
        words = np.zeros(inside.shape, np.int32)
        for lane in np.flatnonzero(inside):
            word = _await(routine, member, first + 8 * int(lanes[lane]), number(mark) << 32)
            words[lane] = np.uint32(word & 0xFFFFFFFF).view(np.int32)
        found.append(tl.tensor(TensorHandle(words, tl.int32), tl.block_type(tl.int32, list(inside.shape))))
    return found


def check_slot(ctx: Any, routine: str, program: Any) -> Any:
    """The program's number, -1 for calls by one program. Errors: OutOfRangeError where it has no slot."""
    if number(program) >= number(ctx.programs):
        most = max(number(ctx.programs), 0)
        wants = f"at most {most}: PYSHMEM_SCRATCH or device_context(scratch=) makes room for more"
        refuse_call(OutOfRangeError, routine, "grid", f"program {max(number(program), 0)}, so more programs", wants)
    return program


def _await(routine: str, member: int, address: int, value: int) -> int:
    try:
        return int(_native.wait_int64(address, _AT_LEAST, value, job.timeout, job.spins))
    except TimeoutError:
        got = f"no word from PE {member} of its team in {job.timeout:g} s"
        wants = "all of them to call it; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit"
        refuse_call(WaitTimeoutError, routine, "ctx", got, wants)
