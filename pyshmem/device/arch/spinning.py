"""Polls in the instructions of one statement: of several words at once, so that their ways to memory overlap, and by each
thread for itself, with no word between threads.

Builtins: Triton compiles no list of operands.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import triton.language as tl
from triton.language import core

from pyshmem.device import record
from pyshmem.device.arch.places import is_gfx90a

# Given to the builtins by who calls them: Triton's cache of compiled kernels knows the text of functions, not of these.
EDITION = tl.constexpr(zlib.crc32(Path(__file__).read_bytes()))


def _pointers(pointers: Any, step: Any, last: Any, count: int, semantic: Any) -> list[Any]:
    """The same places in the pieces of members 0 ... count - 1; where there are no more, in the last member's."""
    places = []
    for member in range(count):
        which = core.minimum(semantic.to_tensor(member), last, _semantic=semantic)
        away = semantic.mul(semantic.cast(which, tl.int64), semantic.cast(step, tl.int64), True)
        places.append(semantic.add(pointers, away, True))
    return places


def _address(left: Any, semantic: Any) -> Any:
    return semantic.cast(semantic.to_tensor(left), tl.int64)


@core.builtin
def spin_words(
    pointers: Any,
    step: Any,
    last: Any,
    wanted: Any,
    inside: Any,
    limit: Any,
    left: Any,
    me: Any,
    routine: Any,
    count: Any,
    edition: Any,
    _semantic: Any = None,
) -> Any:
    """NVIDIA: poll words of 8 bytes, one of each member, until the upper half of all is ``wanted``; the lower halves.

    Lanes that are not ``inside`` do not wait. limit, left, me, routine: ctx's limit and record, this PE, and who waits.
    """
    n = core._unwrap_if_constexpr(count)
    word = [f"${n + k}" for k in range(n)]
    mark, among = f"${2 * n}", f"${2 * n + 1}"
    poll = [
        *(f"ld.relaxed.sys.global.b64 word{k}, [{word[k]}];" for k in range(n)),
        *(f"mov.b64 {{${k}, mark{k}}}, word{k};" for k in range(n)),
        "mov.b32 missing, -1;",
        *(f"setp.ne.s32 p, mark{k}, {mark}; @p mov.b32 missing, {k};" for k in reversed(range(n))),
        "setp.lt.s32 p, missing, 0; @p bra DONE;",
    ]
    registers = [f".reg .b64 word{k}; .reg .b32 mark{k}; mov.b32 ${k}, 0;" for k in range(n)]
    over, place, own = (f"${2 * n + k}" for k in range(2, 5))
    text = _text(registers, among, poll, over, _leave(left, place, over, own, routine))
    constraints = ",".join(["=&r"] * n + ["l"] * n + ["r", "r", "l", "l", "l"])
    operands = [
        *_pointers(pointers, step, last, n, _semantic),
        wanted,
        inside,
        limit,
        _address(left, _semantic),
        me,
    ]
    kinds = (tl.int32,) * n if n > 1 else tl.int32
    found = core.inline_asm_elementwise(text, constraints, operands, kinds, False, 1, _semantic=_semantic)
    return found if n > 1 else core.tuple([found])


@core.builtin
def spin_flags(
    pointers: Any,
    wanted: Any,
    pe: Any,
    inside: Any,
    limit: Any,
    left: Any,
    me: Any,
    routine: Any,
    edition: Any,
    _semantic: Any = None,
) -> Any:
    """NVIDIA: poll a flag of 8 bytes, as acquires, until it has come to ``wanted``. pe: whose it is; others: spin_words'."""
    poll = [
        "ld.acquire.sys.global.b64 seen, [$1];",
        "setp.ge.s64 p, seen, $2; @p bra DONE;",
    ]
    registers = [".reg .b64 seen; mov.b32 $0, 0; mov.b32 missing, $3;"]
    text = _text(registers, "$4", poll, "$5", _leave(left, "$6", "$5", "$7", routine))
    operands = [pointers, wanted, pe, inside, limit, _address(left, _semantic), me]
    return core.inline_asm_elementwise(text, "=&r,l,l,r,r,l,l,l", operands, tl.int32, False, 1, _semantic=_semantic)


def _text(registers: list[str], among: str, poll: list[str], limit: str, leave: list[str]) -> str:
    """A loop around ``poll``, which jumps to DONE or says who is ``missing``; every 1024 turns a look at the clock.

    leave: what is done at LEAVE, over the limit, and before that at LOOK, where a wait that is not over goes on or gives up.
    """
    text = [
        "{ .reg .pred p; .reg .b32 polls; .reg .b32 some; .reg .b32 missing; .reg .b64 begun; .reg .b64 now;",
        *registers,
        f"mov.b32 polls, 0; mov.b64 begun, 0; setp.eq.u32 p, {among}, 0; @p bra DONE;",
        "AGAIN:",
        *poll,
        "add.u32 polls, polls, 1; and.b32 some, polls, 1023; setp.ne.u32 p, some, 0; @p bra AGAIN;",
        "mov.u64 now, %globaltimer; setp.eq.u64 p, begun, 0; @p mov.b64 begun, now; sub.u64 now, now, begun;",
        f"setp.eq.u64 p, {limit}, 0; @p bra LOOK; setp.gt.u64 p, now, {limit}; @p bra LEAVE;",
        *leave,
        "DONE: }",
    ]
    return " ".join(text)


def _leave(left: Any, place: str, limit: str, me: str, routine: Any) -> list[str]:
    """The first wait over its limit claims the record and fills it, the routine last; one that finds it filled gives up too.

    What barriers do not say stays 0. left: the record's address, which is ``place``, or the constant 0 where there is none.
    """
    if isinstance(left, tl.constexpr) and not left.value:
        return ["LOOK: bra AGAIN; LEAVE: bra DONE;"]
    words = {"PE": f"mov.b64 now, {me};", "MISSING": "cvt.s64.s32 now, missing;", "LIMIT": f"mov.b64 now, {limit};"}
    return [
        f"LOOK: setp.eq.u64 p, {place}, 0; @p bra AGAIN;",
        f"ld.relaxed.sys.global.b64 now, [{place}]; setp.eq.u64 p, now, 0; @p bra AGAIN; bra DONE;",
        f"LEAVE: setp.eq.u64 p, {place}, 0; @p bra DONE;",
        f"mov.b64 now, 1; atom.relaxed.sys.global.exch.b64 now, [{place} + {8 * record.CLAIM}], now;",
        "setp.ne.u64 p, now, 0; @p bra DONE;",
        *(f"{value} st.global.b64 [{place} + {8 * getattr(record, name)}], now;" for name, value in words.items()),
        f"mov.b64 now, {record.CODES[core._unwrap_if_constexpr(routine)]}; fence.acq_rel.sys;",
        f"atom.relaxed.sys.global.exch.b64 now, [{place} + {8 * record.ROUTINE}], now;",
    ]


@core.builtin
def load_many(where: Any, pointers: Any, step: Any, last: Any, count: Any, edition: Any, _semantic: Any = None) -> Any:
    """AMD: the words of 8 bytes at the same places in each member's piece, as they are in memory now."""
    n = core._unwrap_if_constexpr(count)
    past = "glc" if core._unwrap_if_constexpr(is_gfx90a(core._unwrap_if_constexpr(where))) else "sc0 sc1"
    loads = [f"global_load_dwordx2 ${k}, ${n + k}, off {past}" for k in range(n)]
    text = "\n ".join([*loads, "s_waitcnt vmcnt(0)"])
    constraints = ",".join(["=&v"] * n + ["v"] * n)
    operands = _pointers(pointers, step, last, n, _semantic)
    kinds = (tl.int64,) * n if n > 1 else tl.int64
    found = core.inline_asm_elementwise(text, constraints, operands, kinds, False, 1, _semantic=_semantic)
    return found if n > 1 else core.tuple([found])


@core.builtin
def as_many(value: Any, count: Any, _semantic: Any = None) -> Any:
    return core.tuple([value] * core._unwrap_if_constexpr(count))


@core.builtin
def words_of(found: Any, count: Any, _semantic: Any = None) -> Any:
    """The lower halves."""
    n = core._unwrap_if_constexpr(count)
    return core.tuple([_semantic.cast(found[k], tl.int32) for k in range(n)])
