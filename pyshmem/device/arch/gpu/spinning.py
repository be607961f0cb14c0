"""Polling in one inline statement. It loads several words at once, so that their latencies overlap, and each thread polls by
itself, without communication between threads.

The functions are builtins because Triton compiles no lists of operands.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import triton.language as tl
from triton.language import core

from pyshmem.base import kernel_timeouts
from pyshmem.device.arch import fields
from pyshmem.device.arch.targets import is_gfx90a

# Callers pass it to the builtins: the key of Triton's kernel cache covers the text of functions, but not of builtins.
EDITION = tl.constexpr(zlib.crc32(Path(__file__).read_bytes()))


def _pointers(ctx: Any, pointers: Any, last: Any, count: int, semantic: Any) -> list[Any]:
    """Return the same places in the pieces of members 0 ... count - 1. Those behind the last member repeat its piece."""
    step = semantic.cast(semantic.floordiv(semantic.to_tensor(ctx.piece), semantic.to_tensor(8)), tl.int64)
    final, places = semantic.to_tensor(last), []
    for member in range(count):
        which = semantic.cast(core.minimum(semantic.to_tensor(member), final, _semantic=semantic), tl.int64)
        places.append(semantic.add(pointers, semantic.mul(which, step, True), True))
    return places


@core.builtin
def spin_words(
    ctx: Any,
    routine: Any,
    pointers: Any,
    last: Any,
    wanted: Any,
    inside: Any,
    count: Any,
    edition: Any,
    _semantic: Any = None,
) -> Any:
    """NVIDIA: poll words of 8 bytes, one from each member, until the upper half of each is ``wanted``.

    Returns: the lower halves. Lanes that are not ``inside`` do not wait.
    """
    n = core._unwrap_if_constexpr(count)
    return _spin(ctx, routine, _pointers(ctx, pointers, last, n, _semantic), n, wanted, inside, _semantic)


@core.builtin
def spin_parts(
    ctx: Any,
    routine: Any,
    parts: Any,
    last: Any,
    wanted: Any,
    inside: Any,
    count: Any,
    edition: Any,
    _semantic: Any = None,
) -> Any:
    """NVIDIA: spin_words of several words of each member. parts: a tuple of pointers.

    Returns: the words of the first pointers from all members, then those of the next ones.
    """
    n = core._unwrap_if_constexpr(count)
    places = [place for pointers in parts for place in _pointers(ctx, pointers, last, n, _semantic)]
    return _spin(ctx, routine, places, n, wanted, inside, _semantic)


def _spin(ctx: Any, routine: Any, places: list[Any], count: int, wanted: Any, inside: Any, semantic: Any) -> Any:
    """Poll words at all ``places``: ``count`` members' of each part."""
    n = len(places)
    mark = f"${2 * n}"
    poll = [
        *(f"ld.relaxed.sys.global.b64 word{k}, [${n + k}];" for k in range(n)),
        *(f"mov.b64 {{${k}, mark{k}}}, word{k};" for k in range(n)),
        "mov.b32 missing, -1;",
        *(f"setp.ne.s32 p, mark{k}, {mark}; @p mov.b32 missing, {k % count};" for k in reversed(range(n))),
        "setp.lt.s32 p, missing, 0; @p bra DONE;",
    ]
    registers = [f".reg .b64 word{k}; .reg .b32 mark{k}; mov.b32 ${k}, 0;" for k in range(n)]
    text = _text(registers, f"${2 * n + 1}", poll, _limit(ctx, routine, 2 * n + 2))
    constraints = ",".join(["=&r"] * n + ["l"] * n + ["r", "r", *_CONSTRAINTS])
    operands = [*places, wanted, inside, *_operands(ctx, semantic)]
    kinds = (tl.int32,) * n if n > 1 else tl.int32
    found = core.inline_asm_elementwise(text, constraints, operands, kinds, False, 1, _semantic=semantic)
    return found if n > 1 else core.tuple([found])


@core.builtin
def spin_flags(
    ctx: Any, routine: Any, pointers: Any, wanted: Any, pe: Any, inside: Any, edition: Any, _semantic: Any = None
) -> Any:
    """NVIDIA: poll a flag of 8 bytes by acquire loads until it is at least ``wanted``.

    pe: the member that writes it.  inside: as in spin_words.
    """
    poll = ["ld.acquire.sys.global.b64 seen, [$1];", "setp.ge.s64 p, seen, $2; @p bra DONE;"]
    registers = [".reg .b64 seen; mov.b32 $0, 0; mov.b32 missing, $3;"]
    text = _text(registers, "$4", poll, _limit(ctx, routine, 5))
    operands = [pointers, wanted, pe, inside, *_operands(ctx, _semantic)]
    constraints = ",".join(["=&r", "l", "l", "r", "r", *_CONSTRAINTS])
    return core.inline_asm_elementwise(text, constraints, operands, tl.int32, False, 1, _semantic=_semantic)


_CONSTRAINTS = ["l", "l", "l", "r"]  # for ctx's limit, record, sync_area and me


def _operands(ctx: Any, semantic: Any) -> list[Any]:
    addresses = (semantic.cast(semantic.to_tensor(each), tl.int64) for each in (ctx.limit, ctx.record, ctx.sync_area))
    return [*addresses, ctx.me]


def _text(registers: list[str], among: str, poll: list[str], limit: list[str]) -> str:
    """Return a loop around ``poll``, which jumps to DONE or sets ``missing``. It reads the clock every 1024 iterations,
    and pauses as instructions.pause does.

    The rarely executed code precedes the loop, so that the code after the wait directly follows it and is prefetched.
    """
    text = [
        "{ .reg .pred p; .reg .b32 polls; .reg .b32 some; .reg .b32 missing; .reg .b64 begun; .reg .b64 now;",
        *registers,
        f"mov.b32 polls, 0; mov.b64 begun, 0; setp.eq.u32 p, {among}, 0; @p bra DONE; bra AGAIN;",
        "CLOCK: mov.u64 now, %globaltimer; setp.eq.u64 p, begun, 0; @p mov.b64 begun, now; sub.u64 now, now, begun;",
        *limit,
        "AGAIN:",
        *poll,
        "add.u32 polls, polls, 1; and.b32 some, polls, 1023; setp.ge.u32 p, some, 64; @p nanosleep.u32 1000;",
        "setp.ne.u32 p, some, 0; @p bra AGAIN; bra CLOCK;",
        "DONE: }",
    ]
    return " ".join(text)


def _limit(ctx: Any, routine: Any, first: int) -> list[str]:
    """Return the code that continues the loop, or ends it when the wait or another one has timed out.

    Its operands begin at number ``first``. The first wait that times out claims the record and fills it, the routine last.
    Words that barriers do not set stay 0.
    """
    limit, left, area, me = (f"${first + k}" for k in range(4))
    over = [f"setp.eq.u64 p, {limit}, 0; @p bra LOOK; setp.gt.u64 p, now, {limit}; @p bra LEAVE;"]
    if isinstance(ctx.record, tl.constexpr):  # there is none
        return [*over, "LOOK: bra AGAIN; LEAVE: bra DONE;"]
    words = {
        "PE": f"sub.s32 some, {me}, {fields.ODD}; shr.s32 some, some, 1; cvt.s64.s32 now, some;",
        "MISSING": "cvt.s64.s32 now, missing;",
        "LIMIT": f"mov.b64 now, {limit};",
        "AREA": f"mov.b64 now, {area};",
    }
    return [
        *over,
        f"LOOK: setp.eq.u64 p, {left}, 0; @p bra AGAIN;",
        f"ld.relaxed.sys.global.b64 now, [{left}]; setp.eq.u64 p, now, 0; @p bra AGAIN; bra DONE;",
        f"LEAVE: setp.eq.u64 p, {left}, 0; @p bra DONE;",
        f"mov.b64 now, 1; atom.relaxed.sys.global.exch.b64 now, [{left} + {8 * kernel_timeouts.CLAIM}], now;",
        "setp.ne.u64 p, now, 0; @p bra DONE;",
        *(
            f"{value} st.global.b64 [{left} + {8 * getattr(kernel_timeouts, name)}], now;"
            for name, value in words.items()
        ),
        f"mov.b64 now, {kernel_timeouts.CODES[core._unwrap_if_constexpr(routine)]}; fence.acq_rel.sys;",
        f"atom.relaxed.sys.global.exch.b64 now, [{left} + {8 * kernel_timeouts.ROUTINE}], now;",
    ]


@core.builtin
def load_many(ctx: Any, pointers: Any, last: Any, count: Any, edition: Any, _semantic: Any = None) -> Any:
    """AMD: load the words of 8 bytes at the same places in each member's piece, bypassing all caches."""
    n = core._unwrap_if_constexpr(count)
    past = "glc" if core._unwrap_if_constexpr(is_gfx90a(core._unwrap_if_constexpr(ctx.where))) else "sc0 sc1"
    loads = [f"global_load_dwordx2 ${k}, ${n + k}, off {past}" for k in range(n)]
    text = "\n ".join([*loads, "s_waitcnt vmcnt(0)"])
    constraints = ",".join(["=&v"] * n + ["v"] * n)
    operands = _pointers(ctx, pointers, last, n, _semantic)
    kinds = (tl.int64,) * n if n > 1 else tl.int64
    found = core.inline_asm_elementwise(text, constraints, operands, kinds, False, 1, _semantic=_semantic)
    return found if n > 1 else core.tuple([found])


@core.builtin
def as_many(value: Any, count: Any, _semantic: Any = None) -> Any:
    return core.tuple([value] * core._unwrap_if_constexpr(count))


@core.builtin
def words_of(found: Any, count: Any, _semantic: Any = None) -> Any:
    """Return the lower halves."""
    n = core._unwrap_if_constexpr(count)
    return core.tuple([_semantic.cast(found[k], tl.int32) for k in range(n)])


@core.builtin
def by_part(found: Any, count: Any, _semantic: Any = None) -> Any:
    """Return what spin_parts found as a tuple for each part."""
    n = core._unwrap_if_constexpr(count)
    return core.tuple([core.tuple([found[k + i] for i in range(n)]) for k in range(0, len(found), n)])
