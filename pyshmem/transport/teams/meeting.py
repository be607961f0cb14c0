"""Synchronisation and collectives of teams, whose members synchronise through areas in CPU memory.

A member writes into the memory of near members by stores, and into that of far members by requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from pyshmem.base.errors import WaitTimeoutError, listed
from pyshmem.base.job import job
from pyshmem.diagnosis import mismatched_calls
from pyshmem.diagnosis.broken_teams import leave, leave_by, refuse_broken
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.diagnosis.mismatched_calls import Call, barriers, name_barrier, share_word
from pyshmem.memory import areas
from pyshmem.memory.arguments import may_be_private
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import Heap, views
from pyshmem.native import _native
from pyshmem.transport.teams import kernels, staging, tensors
from pyshmem.transport.teams.operators import (
    BROKEN,
    DONE,
    LOOPS,
    OPERATORS,
    REDUCE,
    REFUSED,
    STAGED,
    TARGET,
    UNLIKE,
    UNTOUCHED,
    Blocks,
    Fold,
    Uneven,
)

native_heap = cpu  # of which the C code performs the collectives: team/collectives.h, team/reductions.h


class Meeting:
    """Synchronisation and collectives of one team. All calls are collective over the team.

    Targets are ready on all members before any member calls, so members write into the targets of others at once.
    Addresses are those of this PE. Private arrays are passed through staging memory of the team, see staging.
    Errors of all calls: WaitTimeoutError, which names the missing members; those of mismatched_calls, on all members, if
    routine, dtype, size or root differ; BrokenTeamError, also in all later calls, if an exception has ended a call of some
    member: a later call of that member must not be combined with it.
    """

    __slots__ = ("area_index", "me", "name", "pes", "size", "spans", "wires")

    def __init__(self, name: str, pes: Sequence[int], me: int, area_index: int) -> None:
        """Describe a team.

        pes: the world PEs of the members, in their order.  me: this PE's number.  area_index: the area of the members.
        """
        self.name, self.me, self.area_index = name, me, area_index
        self.pes, self.size = pes, len(pes)
        self.spans = any(pe in cpu.far_deltas for pe in pes)  # several nodes
        # as the native module knows a team, see to_team in python/teams.c
        self.wires = areas.area(area_index), *_distances(pes, me, self.spans)

    def sync(self, routine: str, call: Call | None = None) -> None:
        """Wait until all members have called sync, with the same ``call``. The call is also a full fence."""
        try:
            word = barriers[routine] if call is None else call.word
        except KeyError:
            word = name_barrier(routine)
        try:
            left = _native.sync(self.wires, job.timeout, job.spins, word)
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        if left:
            self._refuse(routine, call, left)

    def share(self, routine: str, note: bytes, call: Call | None = None) -> list[bytes]:
        """Return the notes of all members, which have the same length of at most 256 bytes. The call is also a barrier.

        call: of which a refusal tells; another member may have found in its notes that they differ.
        """
        try:
            notes = _native.share(self.wires, job.timeout, job.spins, note, share_word(note))
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        if type(notes) is int:
            self._refuse(routine, call, notes)
        return [notes[first : first + len(note)] for first in range(0, len(notes), len(note))]

    def agree(self, routine: str, private: int, word: int) -> int:
        """Meet, and return what remains to be done: STAGED if ``private`` is not 0 on some member."""
        return self._step(_native.agree, private, word)

    def quick(self, routine: str, call: int, root: Any, target: Any, source: Any, size: Any) -> int:
        """Perform a collective by one native call, and return what remains to be done.

        UNTOUCHED: everything, because the arguments need the slow path. STAGED: the call has begun; some arrays are private.
        DIFFERENT, UNLIKE, BROKEN: the call must be refused.
        call: its number, of diagnosis.mismatched_calls. root: of a broadcast.
        """
        try:
            left: int = _native.quick(
                self.wires,
                job.timeout,
                job.spins,
                call,
                root,
                views,
                native_heap,
                target,
                source,
                size,
                may_be_private,
            )
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        return left

    def broadcast(
        self, routine: str, heap: Heap, root: int, what: Blocks, private: int = 0, left: int = UNTOUCHED
    ) -> None:
        """Copy the first block of the root's ``src`` to every ``dest``.

        private: TARGET and SOURCE, for the arrays of this PE that are private.  left: what quick has returned.
        Errors: ArgumentError if the target is symmetric on the root and private here, or this call is not the root's.
        """
        call = what.call(routine, heap)
        try:
            if left == UNTOUCHED:
                copy = what.dest, what.src, what.counts[0] * what.item
                if heap is native_heap:
                    left = self._step(_native.broadcast, root, *copy, private, call.word)
                else:
                    left = tensors.broadcast(routine, heap, self, private, call._replace(root=root).word, root, *copy)
            if left == REFUSED:
                staging.refuse_mixture(routine, self, root, private)
            if left == STAGED:
                staging.broadcast(routine, heap, self, root, what)
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        if left not in (DONE, STAGED):
            self._refuse(routine, call._replace(root=root), left)

    def scatter(self, routine: str, heap: Heap, what: Blocks, private: int = 0, left: int = UNTOUCHED) -> None:
        """Copy block j of ``src`` to member j, where it becomes the block of this PE in ``dest``."""
        call = what.call(routine, heap)
        try:
            if left == UNTOUCHED:
                item, count = what.item, what.counts[self.me]
                dest = what.dest + what.start(self.me) * item
                whole = what.tst == what.sst == 1
                steps = (count * item, 0, 0, 1) if whole else (item, what.tst * item, what.sst * item, count)
                copy = dest, what.src, what.skip * item, *steps
                if heap is native_heap:
                    left = self._step(_native.scatter, *copy, private & TARGET, call.word)
                else:
                    left = tensors.scatter(routine, heap, self, private & TARGET, call.word, *copy)
            if left == STAGED:
                staging.scatter(routine, heap, self, what, private)
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        if left not in (DONE, STAGED):
            self._refuse(routine, call, left)

    def pull(self, routine: str, heap: Heap, what: Uneven, staged: bool) -> None:
        """Get the blocks for this PE from all members, which have ``counts`` alike. staged: some sources are private."""
        try:
            (staging if staged else tensors).pull(routine, heap, self, what)
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)

    def fold(
        self, routine: str, heap: Heap, what: Fold, context: Callable[[], Any], private: int = 0, left: int = UNTOUCHED
    ) -> None:
        """Reduce or scan. context: returns the team's device context, for a reduction by a kernel."""
        loop, call = LOOPS.get(what.dtype), what.call(heap)
        try:
            if left == UNTOUCHED and heap is native_heap and loop is not None:
                places = what.dest, what.src, what.nelems, private, call.word
                left = self._step(_native.fold, what.mode, OPERATORS[what.op].code, loop, *places)
            elif left == UNTOUCHED:
                left = tensors.agree(routine, heap, self, private, call.word)
                by_kernel = left == DONE and what.mode == REDUCE and not self.spans
                if left == DONE and not (by_kernel and kernels.reduce(routine, heap, self, what, context)):
                    tensors.fold(routine, heap, self, what)
            if left == STAGED:
                staging.fold(routine, heap, self, what, context)
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        if left not in (DONE, STAGED):
            self._refuse(routine, call, left)

    def _step(self, step: Callable[..., int], *arguments: int) -> int:
        """Make a native call, and return what remains to be done."""
        return step(self.wires, job.timeout, job.spins, *arguments)

    def missing(self) -> list[int]:
        """Return the members that have not reached the call that this PE is in."""
        return [max(each, ~each) for each in _native.absent(self.wires, job.timeout, job.spins)]

    def _refuse(self, routine: str, call: Call | None, left: int) -> NoReturn:
        """Refuse a call, as ``left`` says."""
        if left == BROKEN:
            self.refuse_broken(routine)
        if left == UNLIKE and call is not None:
            mismatched_calls.refuse_unlike(self.name, routine, call)
        self.refuse_difference(routine, call)

    def refuse_difference(self, routine: str, call: Call | None = None) -> NoReturn:
        """Refuse the members' calls, which differ. Collective: a member learns of a difference if and only if all do."""
        try:
            self._refuse_facts(routine, call)
        except BaseException as error:  # noqa: BLE001
            self._leave(routine, error)
        self.refuse_broken(routine)

    def _refuse_facts(self, routine: str, call: Call | None) -> None:
        """Returns only if a member has left a call."""
        mismatched_calls.refuse(self.wires, self.name, routine, call)

    def _leave(self, routine: str, error: BaseException) -> NoReturn:
        """An exception ends this PE's call: unless it does so on all, the team makes no more calls. Errors: ``error``."""
        if isinstance(error, TimeoutError) and not isinstance(error, WaitTimeoutError):
            self.refuse_timeout(routine)
        leave_by(self.wires, routine, error)
        raise error

    def refuse_broken(self, routine: str) -> NoReturn:
        """Refuse a call of a team that makes no more. Errors: BrokenTeamError."""
        refuse_broken(self.wires, self.name, routine)

    def refuse_timeout(self, routine: str) -> NoReturn:
        """Report the missing members, and what is known about where they are. Errors: WaitTimeoutError."""
        absent = _native.absent(self.wires, job.timeout, job.spins)
        silent = [~each for each in absent if each < 0]
        behind = [each for each in absent if each >= 0]
        said = [f"no answer from {listed(silent)}"] if silent else []
        said += [f"no call from {listed(behind)}"] if behind or not silent else []
        got = " and ".join(said)
        leave(self.wires, routine, f"a time-out: {got} in {job.timeout:g} s")
        pes = [self.pes[pe] for pe in (*silent, *behind)]
        refuse_timeout(routine, "team", f"{got} of {self.name}", "all of them to call it", pes)


def _distances(pes: Sequence[int], me: int, spans: bool) -> tuple[Any, ...]:
    """Return where the members' memory is: what follows the area in the native module's description of a team."""
    away = [cpu.deltas[pe] if pe in cpu.deltas else cpu.far_deltas[pe] for pe in pes]
    step = away[1] - away[0] if len(pes) > 1 else 0
    if not spans and all(after - before == step for before, after in pairwise(away)):
        return step, me, len(pes)
    numbers = [job.nodes[pe] for pe in pes]
    present = sorted(set(numbers), key=numbers.index)
    node = [present.index(number) for number in numbers]
    leaders = [numbers.index(number) for number in present]
    locals_ = [i for i, number in enumerate(numbers) if number == numbers[me]]
    tables = (away, *((node, leaders, locals_) if spans else ((), (), ())))
    return (0, me, len(pes), *(np.array(table, np.int64).tobytes() for table in tables))
