"""What the members of a process group tell each other of a call of torch, so that calls that differ are refused by name.

Most calls meet in a collective of the host, whose members compare routine, type, size and operator. ``compare`` is a meeting
of its own for what these do not see: roots, split sizes, and averages, which are sums to the host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NoReturn

from torch import Tensor
from torch.distributed import ReduceOp

from pyshmem.base.errors import ArgumentError, DtypeError, OutOfRangeError, grouped, listed, refuse
from pyshmem.diagnosis import mismatched_calls
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.diagnosis.mismatched_calls import CODES, Call
from pyshmem.memory.arguments import name_of
from pyshmem.transport.teams.meeting import Meeting
from pyshmem.transport.teams.operators import DONE

# what a call is described by, and the error if members differ in it; the first that differs is named
_ASPECTS = {
    "call": ArgumentError,
    "op": ArgumentError,
    "root": ArgumentError,
    "dtype": DtypeError,
    "size": OutOfRangeError,
    "sizes": OutOfRangeError,
}
Said = tuple[str, Tensor | None, Any, int | None, Sequence[int]]


class GroupMeeting(Meeting):
    """The meeting of a group's team. Its errors are those of torch's call, and count PEs in the world."""

    __slots__ = ("said",)
    said: Said  # the last call, as ``say`` describes it

    def __init__(self, name: str, pes: Sequence[int], me: int, area_index: int) -> None:
        super().__init__(name, pes, me, area_index)
        self.say("init_process_group")

    def say(
        self,
        routine: str,
        tensor: Tensor | None = None,
        op: Any = None,
        root: int | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        """Describe the call that begins. root: counts in the group."""
        self.said = routine, tensor, op, root, sizes

    def compare(self) -> None:
        """Meet, and refuse calls that differ. Collective."""
        digest = hashlib.blake2b("\n".join(self._facts()).encode(), digest_size=6).digest()
        word = CODES["share"] << 56 | int.from_bytes(digest, "little")
        left = self.agree(self.said[0], 0, word)
        if left != DONE:
            self._refuse(self.said[0], None, left)

    def _refuse_facts(self, routine: str, call: Call | None) -> None:
        told = mismatched_calls.exchange(self.wires, self.pes, self._facts())
        if not told:
            return
        mismatched_calls.refuse_earlier(self.name, self.said[0], told)
        for place, (argument, kind) in enumerate(_ASPECTS.items()):
            found = grouped({pe: each.facts[place] for pe, each in told.items() if len(each.facts) > place})
            if len(found) > 1:
                got = " and ".join(f"{text or 'none'} on {listed(pes)}" for text, pes in found.items())
                refuse(kind, self.said[0], argument, got, f"the same on {self.name}")
        refuse(ArgumentError, self.said[0], "call", "calls that differ", f"the same on {self.name}")

    def refuse_timeout(self, routine: str) -> NoReturn:
        """Report the missing members. Errors: WaitTimeoutError."""
        pes = [self.pes[pe] for pe in self.missing()]
        refuse_timeout(self.said[0], "group", f"no call from {listed(pes)}", f"one on {self.name}", pes)

    def _facts(self) -> list[str]:
        """Return the aspects of this PE's call, and its tensor."""
        routine, tensor, op, root, sizes = self.said
        where = "" if root is None else f"rank {root}"
        size, dtype = "", ""
        if tensor is not None:
            dtype = name_of(tensor.dtype)
            size = f"{tensor.numel()} elements"
        return [
            routine,
            "" if op is None else kind_of(op)[0].name,
            where,
            dtype,
            size,
            str(list(sizes)) if sizes else "",
            f"{size} of {dtype}" if size else "",
        ]


def kind_of(op: Any) -> tuple[Any, float | Tensor | None]:
    """Return the type of torch's operator, and the factor of PREMUL_SUM."""
    state = op.__getstate__() if isinstance(op, ReduceOp) else op
    kind, factor = state if isinstance(state, tuple) else (state, None)
    return ReduceOp.RedOpType(int(kind)), factor
