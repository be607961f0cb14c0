"""Polls of several words at once, in the instructions of one statement, so that their ways to memory overlap.

Builtins: Triton compiles no list of operands.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.language import core

from pyshmem.device.arch.places import is_gfx90a


def _pointers(pointers: Any, step: Any, last: Any, count: int, semantic: Any) -> list[Any]:
    """The same places in the pieces of members 0 ... count - 1; where there are no more, in the last member's."""
    places = []
    for member in range(count):
        which = core.minimum(semantic.to_tensor(member), last, _semantic=semantic)
        away = semantic.mul(semantic.cast(which, tl.int64), semantic.cast(step, tl.int64), True)
        places.append(semantic.add(pointers, away, True))
    return places


@core.builtin
def spin(
    pointers: Any,
    step: Any,
    last: Any,
    wanted: Any,
    inside: Any,
    limit: Any,
    record: Any,
    count: Any,
    _semantic: Any = None,
) -> Any:
    """NVIDIA: poll words of 8 bytes, one of each member, until the upper half of all is ``wanted``; each thread for itself.

    The lower halves, then of each lane a member whose word did not come, or -1. It gives up after ``limit`` nanoseconds,
    or when the record is filled; both are looked at every 1024 polls. Lanes that are not ``inside`` do not wait.
    """
    n = core._unwrap_if_constexpr(count)
    operands = [*_pointers(pointers, step, last, n, _semantic), wanted, inside, limit, record]
    constraints = ",".join(["=&r"] * (n + 1) + ["l"] * n + ["r", "r", "l", "l"])
    kinds = (tl.int32,) * (n + 1)
    return core.inline_asm_elementwise(_spin_text(n), constraints, operands, kinds, False, 1, _semantic=_semantic)


def _spin_text(n: int) -> str:
    found, mark, inside, limit, record = range(n + 1), 2 * n + 1, 2 * n + 2, 2 * n + 3, 2 * n + 4
    text = [
        "{ .reg .pred p; .reg .b32 polls; .reg .b64 begun; .reg .b64 now;",
        *(f".reg .b64 word{k}; .reg .b32 mark{k};" for k in range(n)),
        *(f"mov.b32 ${k}, 0;" for k in found),
        f"mov.b32 ${n}, -1; mov.b32 polls, 0; mov.b64 begun, 0;",
        f"setp.eq.u32 p, ${inside}, 0; @p bra DONE;",
        "AGAIN:",
        *(f"ld.relaxed.sys.global.b64 word{k}, [${n + 1 + k}];" for k in range(n)),
        *(f"mov.b64 {{${k}, mark{k}}}, word{k};" for k in range(n)),
        f"mov.b32 ${n}, -1;",
        *(f"setp.ne.s32 p, mark{k}, ${mark}; @p mov.b32 ${n}, {k};" for k in range(n)),
        f"setp.lt.s32 p, ${n}, 0; @p bra DONE;",
        "add.u32 polls, polls, 1; and.b32 mark0, polls, 1023; setp.ne.u32 p, mark0, 0; @p bra AGAIN;",
        "mov.u64 now, %globaltimer; setp.eq.u64 p, begun, 0; @p mov.b64 begun, now; sub.u64 now, now, begun;",
        f"setp.eq.u64 p, ${limit}, 0; @p bra LOOK; setp.gt.u64 p, now, ${limit}; @p bra DONE;",
        f"LOOK: setp.eq.u64 p, ${record}, 0; @p bra AGAIN;",
        f"ld.relaxed.sys.global.b64 now, [${record}]; setp.eq.u64 p, now, 0; @p bra AGAIN;",
        "DONE: }",
    ]
    return " ".join(text)


@core.builtin
def load_many(where: Any, pointers: Any, step: Any, last: Any, count: Any, _semantic: Any = None) -> Any:
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
def words_of(found: Any, count: Any, _semantic: Any = None) -> Any:
    """The lower halves."""
    n = core._unwrap_if_constexpr(count)
    return core.tuple([_semantic.cast(found[k], tl.int32) for k in range(n)])
