"""What the members of a team tell each other of a collective call, so that calls that differ are refused and not combined.

Each call has a word, which members exchange as they meet (_barriers.h). If the words differ, all members end up in `refuse`.
In a broadcast of less than 512 KiB nobody meets: the members compare their words with the root's, and those whose word is
another end up in `refuse_unlike`. Nor does the host meet the others in a call on a stream: the later of two PEs compares the
words (_streamed.h), and ends up there too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from pyshmem.runtime import _native, errors
from pyshmem.runtime.arguments import KINDS, name_of
from pyshmem.runtime.job import job

_AT_OFFSETS = ("allocate", "realloc", "free")
BARRIER = 0  # the word of a mere barrier
# the numbers of calls; the first three and those of reductions are those of _quick.h
CODES = {
    name: code
    for code, name in enumerate(
        ("broadcast", "fcollect", "alltoall", "alltoalls", "collect", "share", *_AT_OFFSETS, "register", "unregister"),
        start=1,
    )
}
FIRST_FOLD = 16
_KINDS = {dtype: kind for kind, dtype in KINDS.items()} | {np.dtype("longdouble"): 254, np.dtype("clongdouble"): 255}
_OTHER = 253  # dtypes of NumPy alone
_NOTE = 256
_SPREAD = 0x9E3779B97F4A7C15  # odd: no two places give one word


class Call(NamedTuple):
    """What a member calls. ``place``: a heap offset or stride that must be equal too."""

    code: int
    dtype: Any
    nelems: int
    device: str = "cpu"
    place: int = 0

    @property
    def word(self) -> int:
        """The call in 64 bits: code and heap, type, bytes and place."""
        nbytes = self.nelems * self.dtype.itemsize ^ self.place * _SPREAD
        routine = self.code | (self.device != "cpu") << 7
        return int(routine << 56 | _KINDS.get(self.dtype, _OTHER) << 48 | nbytes & (1 << 48) - 1)

    @property
    def size(self) -> str:
        """Such as "8 float32 elements at heap offset 64"."""
        names = dict.fromkeys((CODES[each] for each in _AT_OFFSETS), "heap offset") | {CODES["unregister"]: "offset"}
        place = names.get(self.code, "stride")
        at = f" at {place} {self.place}" if self.place or place != "stride" else ""
        return f"{self.nelems} {name_of(self.dtype)} elements{' in GPU memory' * (self.device != 'cpu')}{at}"


def share_word(note: bytes) -> int:
    """The word of an exchange of notes, whose lengths must be equal."""
    return CODES["share"] << 56 | len(note)


def refuse(wires: Any, team: str, routine: str, call: Call | None) -> NoReturn:
    """Exchange the calls of the members and refuse them, on all members. call: None is a barrier.

    Errors: ArgumentError if the routines differ, DtypeError, OutOfRangeError if the sizes do; TimeoutError.
    """
    facts = (routine, "", "", "") if call is None else (routine, name_of(call.dtype), str(call.nelems), call.size)
    note = "\n".join(facts).encode()[:_NOTE].ljust(_NOTE)
    notes = _native.share(wires, job.timeout, job.spins, note, share_word(note))
    told = [notes[at : at + _NOTE].decode().rstrip(" ").split("\n") for at in range(0, len(notes), _NOTE)]
    routines, dtypes, sizes = (len({each[i] for each in told}) > 1 for i in range(3))
    groups = errors.grouped({pe: f"{each[0]} of {each[3]}" if each[3] else each[0] for pe, each in enumerate(told)})
    got = " and ".join(
        f"{text if routines else text.partition(' of ')[2]} on {errors.listed(pes)}" for text, pes in groups.items()
    )
    if routines:
        errors.refuse(errors.ArgumentError, routine, "call", got, f"the same call on all PEs of {team}")
    kind = errors.DtypeError if dtypes else errors.OutOfRangeError if sizes else errors.ArgumentError
    argument = "dtype" if dtypes else "size" if sizes else "call"
    errors.refuse(kind, routine, argument, got, f"the same on all PEs of {team}")


def refuse_unlike(team: str, routine: str, call: Call, other: str = "size or type on the root") -> NoReturn:
    """Refuse this PE's call, which is not that of another. The others know nothing of it. Errors: ArgumentError.

    other: what differs, and where.
    """
    got = f"{call.size} here, and another {other}, in this call or one before"
    errors.refuse(errors.ArgumentError, routine, "call", got, f"the same on all PEs of {team}")
