"""What the members of a team tell each other of a collective call, so that calls that differ are refused and not combined.

Each call has a word, which members exchange as they meet (team/barrier.h), with the number of the call. If these differ, or
if members wait for each other in different ways (team/differences.h), all members end up in `refuse`.
In a broadcast of less than 512 KiB nobody meets: the members compare their words with the root's, and those whose word is
another end up in `refuse_unlike`. Nor does the host meet the others in a call on a stream: the later of two PEs compares the
words (team/streamed.h), and ends up there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pyshmem.base import errors, layout
from pyshmem.base.job import job
from pyshmem.memory.arguments import KINDS, name_of
from pyshmem.native import _native

_AT_OFFSETS = ("allocate", "realloc", "free")
_COLLECTIVES = ("broadcast", "fcollect", "alltoall", "alltoalls", "alltoallv", "collect")
_CALLS = (*_COLLECTIVES, "share", *_AT_OFFSETS, "register", "unregister")
CODES = {name: layout.number(f"WORD_{name.upper()}") for name in _CALLS}
FIRST_FOLD, _NOTE = layout.numbers("WORD_FOLD", "NOTE")
_KINDS = {dtype: kind for kind, dtype in KINDS.items()} | {np.dtype("longdouble"): 254, np.dtype("clongdouble"): 255}
_OTHER = 253  # dtypes of NumPy alone
_SPREAD = 0x9E3779B97F4A7C15  # odd: no two places give one word


class Call(NamedTuple):
    """What a member calls. ``place``: a heap offset or stride that must be equal too."""

    code: int
    dtype: Any
    nelems: int
    device: str = "cpu"
    place: int = 0
    root: int = -1  # of a broadcast

    @property
    def word(self) -> int:
        """The call in 64 bits: code and heap, type, bytes and place."""
        nbytes = self.nelems * self.dtype.itemsize ^ self.place * _SPREAD ^ (self.root + 1) * _SPREAD
        routine = self.code | (self.device != "cpu") << 7
        return int(routine << 56 | _KINDS.get(self.dtype, _OTHER) << 48 | nbytes & (1 << 48) - 1)

    @property
    def size(self) -> str:
        """Such as "8 float32 elements at heap offset 64"."""
        names = dict.fromkeys((CODES[each] for each in _AT_OFFSETS), "heap offset") | {CODES["unregister"]: "offset"}
        place = names.get(self.code, "stride")
        at = f" at {place} {self.place}" if self.place or place != "stride" else ""
        at += f" from root {self.root}" * (self.root >= 0)
        return f"{self.nelems} {name_of(self.dtype)} elements{' in GPU memory' * (self.device != 'cpu')}{at}"


def share_word(note: bytes) -> int:
    """The word of an exchange of notes, whose lengths must be equal."""
    return CODES["share"] << 56 | len(note)


barriers: dict[str, int] = {}  # the words of mere barriers, by their names


def name_barrier(routine: str) -> int:
    """Return the word of a mere barrier, and note it in ``barriers``. libpyshmem makes the same ones.

    Python passes numbers of up to 30 bits to C faster than larger ones.
    """
    word = 0xCBF29CE484222325
    for byte in routine.encode():
        word = (word ^ byte) * 0x100000001B3 % 2**64
    barriers[routine] = word = word >> 35 | 1
    return word


class Told(NamedTuple):
    """What a member says of its calls: the number and facts of this one, and the word and root of the last ones."""

    number: int
    facts: tuple[str, ...]  # the routine first; last what it is called with, "" of a barrier
    calls: tuple[tuple[int, int], ...]  # this one first; the word of one that has been refused is 0

    def call(self, number: int) -> tuple[int, int] | None:
        """The word and root of a call, if it is known."""
        back = self.number - number
        return self.calls[back] if 0 <= back < len(self.calls) and self.calls[back][0] else None

    def text(self, number: int) -> str:
        """Such as "sum_reduce of 8 float32 elements"."""
        if number < self.number:
            return _described(*self.calls[self.number - number])
        return f"{self.facts[0]} of {self.facts[-1]}" if self.facts[-1] else self.facts[0]


def _described(word: int, root: int) -> str:
    """Describe a call by what is kept of it."""
    code = word >> 56 & 127
    names = {number: name for name, number in CODES.items()} | {0: "a barrier", CODES["share"]: "an exchange of notes"}
    for name, each in barriers.items():
        if each == word:
            names[code] = name
    if code != CODES["broadcast"] or word >> 63:
        return names.get(code, "a reduction or scan")
    kinds = {kind: dtype for dtype, kind in _KINDS.items()}
    dtype, nbytes = kinds.get(word >> 48 & 255), word & (1 << 48) - 1
    what = f"{nbytes} bytes" if dtype is None else f"{nbytes // dtype.itemsize} {name_of(dtype)} elements"
    return f"broadcast of {what} from root {root}"


def exchange(wires: Any, pes: Iterable[int], facts: Sequence[str]) -> dict[int, Told]:
    """Return what each member has told of its calls, by ``pes``. Collective. facts: those of this PE, see Told.

    Returns nothing only if a member has left a call. Errors: TimeoutError.
    """
    note = "\n".join(facts).encode()[:_NOTE].ljust(_NOTE)
    notes = _native.refuse(wires, job.timeout, job.spins, note)
    if type(notes) is int:
        return {}
    return {
        pe: Told(last, tuple(text.decode(errors="replace").rstrip(" ").split("\n")), calls)
        for pe, (last, text, calls) in zip(pes, notes, strict=False)
    }


def refuse(wires: Any, team: str, routine: str, call: Call | None) -> bool:
    """Exchange the calls of the members and refuse them, on all members. call: None is a barrier.

    Returns, with True, only if a member has left a call.
    Errors: ArgumentError if the routines differ, DtypeError, OutOfRangeError if the sizes do; TimeoutError.
    """
    facts = (routine, "", "", "") if call is None else (routine, name_of(call.dtype), str(call.nelems), call.size)
    told = exchange(wires, count(), facts)
    if not told:
        return True
    refuse_earlier(team, routine, told)
    routines, dtypes, sizes = (len({each.facts[i] for each in told.values()}) > 1 for i in range(3))
    groups = errors.grouped({pe: each.text(each.number) for pe, each in told.items()})
    got = " and ".join(
        f"{text if routines else text.partition(' of ')[2]} on {errors.listed(pes)}" for text, pes in groups.items()
    )
    if routines:
        errors.refuse(errors.ArgumentError, routine, "call", got, f"the same call on all PEs of {team}")
    kind = errors.DtypeError if dtypes else errors.OutOfRangeError if sizes else errors.ArgumentError
    roots = call is not None and call.root >= 0 and len({each.facts[3] for each in told.values()}) > 1
    argument = "dtype" if dtypes else "size" if sizes else "root" if roots else "call"
    errors.refuse(kind, routine, argument, got, f"the same on all PEs of {team}")


def refuse_earlier(team: str, routine: str, told: dict[int, Told]) -> None:
    """Refuse the first call in which members differ, unless that is the one all are in. Errors: ArgumentError."""
    last = max(each.number for each in told.values())
    if all(each.number == last for each in told.values()) and len({each.facts for each in told.values()}) > 1:
        return
    for number in range(last - max(len(each.calls) for each in told.values()) + 1, last + 1):
        known = {pe: each.call(number) for pe, each in told.items() if each.call(number) is not None}
        if len(set(known.values())) > 1 and any(each.number > number for each in told.values()):
            groups = errors.grouped({pe: told[pe].text(number) for pe in known})
            got = " and ".join(f"{text} on {errors.listed(pes)}" for text, pes in groups.items())
            wants = f"the same call on all PEs of {team}"
            errors.refuse(errors.ArgumentError, routine, "call", f"{got}{_ago(last - number)}", wants)
    if len({each.number for each in told.values()}) > 1:
        groups = errors.grouped({pe: f"call {each.number} of the team" for pe, each in told.items()})
        got = " and ".join(f"{text} on {errors.listed(pes)}" for text, pes in groups.items())
        errors.refuse(errors.ArgumentError, routine, "call", got, f"as many calls before on all PEs of {team}")


def _ago(calls: int) -> str:
    return "" if not calls else ", a call before this" if calls == 1 else f", {calls} calls before this"


def refuse_unlike(team: str, routine: str, call: Call, other: str = "size or type on the root") -> NoReturn:
    """Refuse this PE's call, which is not that of another. The others know nothing of it. Errors: ArgumentError.

    other: what differs, and where.
    """
    got = f"{call.size} here, and another {other}, in this call or one before"
    errors.refuse(errors.ArgumentError, routine, "call", got, f"the same on all PEs of {team}")
