"""Plans: what the PEs of a team agree on and allocate once for calls of one kind, kept for later calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

import torch

import pyshmem as shmem
from pyshmem.base.errors import ArgumentError, DtypeError, HeapExhaustedError, ShmemError, refuse
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team, member, require_one_node
from pyshmem.memory.arguments import is_number, require_init
from pyshmem.memory.heap import default, views
from pyshmem.native._native import layout
from pyshmem.ops.agreement import require_alike, require_near, require_no_capture
from pyshmem.ops.machine import device
from pyshmem.ops.workspace import Workspace, room_for

MOST_PLANS = 128  # of a team, with memory of their own
MOST_SHARING = 1024  # of a team, with memory that others have too
MOST_KNOWN = 2048  # calls whose arguments are remembered
WITHOUT_TILES = ("bulk_synchronous", "copy_engine", "reduce_on_stream")  # schedules that reach PEs on other nodes
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DOUBLE = "bulk_synchronous"
WITH_DOUBLE = (*DTYPES, torch.float64)  # of operators whose DOUBLE schedule computes float64 by torch: no kernel does


class Plan(Protocol):
    """What calls of one kind share: memory and kernels."""

    team: Team
    space: Workspace
    generation: int
    key: Any  # what it is found by
    used: int  # greater than that of plans that were used before


class InTurn:
    """The two results of a plan that calls take in turn: one lives until the next call but one."""

    def __init__(self, make: Callable[[int], Any], room: Any = None) -> None:
        """make: returns the result of a parity.  room: where they are already, with other plans' results; None: nowhere."""
        self._made: dict[int, Any] = {}
        self._make, self._counts, self.parity = make, room or self, 0

    def take(self) -> Any:
        """Return the result of this call."""
        counts = self._counts
        counts.parity ^= 1
        found = self._made.get(counts.parity)
        if found is None:  # without a room both are made, before a graph is captured
            for parity in range(2) if counts is self else (counts.parity,):
                self._made[parity] = self._make(parity)
            found = self._made[counts.parity]
        return found

    def clear(self) -> None:
        """Let go of both, as at first."""
        self._made = {}


class InTurnBySize:
    """Private arrays of two parities, of which plans for other numbers of rows have parts: the largest one made them.

    parity: of the next call that takes a result.
    """

    def __init__(self) -> None:
        self.parity = 0
        self._made: dict[tuple[str, torch.dtype], list[torch.Tensor]] = {}

    def of(self, name: str, parity: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return the array of this name and parity. Those of both parities are made at once, before a graph is captured.

        Only the first plan makes them as small as it needs them: lengths that change grow.
        """
        count = math.prod(shape)
        made = self._made.get((name, dtype))
        if made is None or len(made[0]) < count:
            most = room_for(count) if made else count
            made = [torch.empty(most, dtype=dtype, device=device()) for _ in range(2)]
            self._made[name, dtype] = made
        return made[parity][:count].view(shape)


def _close(plan: Plan) -> None:
    if job.generation == plan.generation:
        getattr(plan, "let_go", plan.space.close)()


class Cache(dict[tuple[Any, ...], Any]):
    """Plans by what they depend on. A plan has a ``team``, which may have ended, and the number of its last use."""

    def __init__(self, most: int, close: Callable[[Any], None]) -> None:
        """most: that a team may have, with memory each.  close: frees a plan's memory, collectively over its team."""
        super().__init__()
        self.most, self.close = most, close

    def live(self, key: tuple[Any, ...]) -> Any:
        """Return the plan of this key, or None if there is none, or it or its team has ended."""
        found = self.get(key)
        if found is None or not found.team or found.space.closed:
            return None
        found.used = next(_uses)
        return found

    def make_room(self, team: Team) -> None:
        """Close the plans of teams that have ended, and the oldest ones of ``team`` if it has as many as there may be.

        Collective over the team, whose members use its plans in one order. Those of other teams stay, as not all members of
        these are here to close them; so do ended ones whose memory all PEs of the job must free together.
        """
        whole = team.size == job.n_pes
        ended = [key for key, plan in self.items() if not plan.team and (whole or not plan.space.of_all)]
        self._close(ended)
        if len(self) < self.most:
            return
        own = self._by_age(team)
        if len(own) >= MOST_SHARING:  # many at once: there are calls with new lengths
            several = 1 + len(own) - MOST_SHARING + MOST_SHARING // 8
            self._close(own[:several])
            del own[:several]
        while own and len({id(self[key].space.room) for key in own}) >= self.most:
            self._close([own.pop(0)])

    def close_oldest(self, team: Team) -> bool:
        """Close the plan of ``team`` that was used longest ago. Collective over the team. Return whether there was one."""
        own = self._by_age(team)
        self._close(own[:1])
        return bool(own)

    def close_all(self) -> None:
        """Collective over all PEs, which have made the same plans."""
        self._close(list(self))

    def _by_age(self, team: Team) -> list[tuple[Any, ...]]:
        """The keys of the team's plans, that of the one used longest ago first."""
        return sorted((key for key, plan in self.items() if plan.team is team), key=lambda key: int(self[key].used))

    def _close(self, keys: list[tuple[Any, ...]]) -> None:
        for key in keys:
            self.close(self.pop(key))
        if keys:
            drop_ended()


_uses = itertools.count()
_plans = Cache(MOST_PLANS, _close)
_kin: dict[tuple[Any, ...], Any] = {}  # the newest of the plans that serve other lengths, by what these have in common
_known: dict[tuple[Any, ...], tuple[Plan, Any]] = {}  # a plan and its steps by the arguments of calls that it has taken


def shared(*arrays: Any) -> tuple[Any, ...]:
    """Return what PEs know alike of tensors: shapes and types. Layouts and addresses are private. Others by their types."""
    return tuple([(each.shape, each.dtype) if isinstance(each, torch.Tensor) else type(each) for each in arrays])


def described(*arrays: Any) -> Any:
    """Return what is equal for tensors of equal types, devices, shapes, strides and alignments.

    The first of them are alike in whether they are symmetric, too.
    """
    return layout(views, *arrays) or (*map(_described, arrays), shmem.is_symmetric(arrays[0]))


def all_but(*words: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function of what described returns: all of it but these words, of 8 bytes, in their order.

    A word stands for None. A tensor has two for its kind and its device, then its length and stride in each dimension.
    """
    starts, ends = (0, *[8 * word + 8 for word in words]), (*[8 * word for word in words], None)
    return itemgetter(*map(slice, starts, ends))


def twin(made: Any) -> Any:
    """Return another object with the same attributes, in a third of the time of copy.copy."""
    found = object.__new__(type(made))
    found.__dict__.update(made.__dict__)
    return found


def symmetric(array: Any) -> bool:
    """Do what shmem.is_symmetric does, in less time for plain tensors."""
    found = layout(views, array) if isinstance(array, torch.Tensor) and array.numel() else None
    return bool(found[0] & 2) if found else shmem.is_symmetric(array)


def _described(array: Any) -> Any:
    """Describe one object. Only subclasses of tensors, such as parameters, come here."""
    if not isinstance(array, torch.Tensor):
        return type(array)
    return array.shape, array.stride(), array.dtype, array.device, array.data_ptr() % 16 == 0


def key_of(routine: str, team: Team, alike: tuple[Any, ...], asked: Any) -> tuple[Any, ...]:
    """Return what a plan is found by. Plans that share what they have differ in the last part of it alone."""
    return routine, alike, team.meeting.wires, team.size, job.generation, asked


def use(plan: Any) -> None:
    """Note that a plan was used: it is the last to go when there are too many."""
    plan.used = next(_uses)


def recall(asked: tuple[Any, ...]) -> Any:
    """Return (plan, steps) of a call that has been remembered under ``asked``, and note its use; None if there is none."""
    try:
        known = _known.get(asked)
    except TypeError:  # an argument that cannot be in a key, which find refuses
        return None
    if known is None or not is_live(known[0]):
        return None
    known[0].used = next(_uses)
    return known


def remember(asked: tuple[Any, ...], plan: Plan, steps: Any = None) -> tuple[Plan, Any]:
    """Let recall return (plan, steps) for calls like this, whose arguments have been checked. Return them."""
    if len(_known) >= MOST_KNOWN:
        drop_ended()
    _known[asked] = plan, steps
    return plan, steps


def drop_ended() -> None:
    """Forget the calls of plans that have ended, and all of them if there are too many."""
    for asked in [asked for asked, (plan, _) in _known.items() if not is_live(plan)]:
        del _known[asked]
    for common in [common for common, plan in _kin.items() if not is_live(plan)]:
        del _kin[common]
    if len(_known) >= MOST_KNOWN:
        _known.clear()


def is_live(plan: Plan) -> bool:
    """Return whether neither the plan nor its team nor the library has ended."""
    return not plan.space.closed and plan.generation == job.generation and plan.team.size > 0


def call(
    routine: str, team: Team | None, private: Any, options: tuple[Any, ...], first: Callable[..., Any], *given: Any
) -> Any:
    """Return what ``first(*given)`` finds, a plan, but only look up a call like one that has passed the checks.

    private: what describes this PE's arrays.  options: all else that is given.
    """
    like = routine, private, id(TEAM_WORLD if team is None else team), *typed(options)
    return (recall(like) or remember(like, first(*given)))[0]


def typed(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return options as keys of recall have them: 4.0 and True are equal to 4 and 1, but checks may refuse them."""
    return *options, *map(type, options)


def another(like: tuple[Any, ...], asked: Any, make: Callable[[Any, Any], Any]) -> Any:
    """Return (plan, known) for other lengths of a call whose arguments have been checked; None: find must check this one.

    like: what describes the call on this PE but for lengths, under which remember has the plan of others, and what is known
    of the operands.  asked: as of find.  make: returns the plan for one with which it shares, and for what is known.
    """
    try:
        known = _known.get(like)
    except TypeError:  # as in recall
        return None
    if known is None or not is_live(known[0]):
        return None
    common = known[0].key[:-1]
    kin = _kin.get(common)
    if kin is None or job.debug or not is_live(kin):
        return None
    key = (*common, asked)
    return _plans.live(key) or _kept(key, kin.team, partial(make, kin, known[1])), known[1]


def find(
    routine: str, team: Team | None, asked: Any, make: Callable[[Team], tuple[Any, Any]],
    argument: str = "x", wants: str = "the same call on all PEs of the team", alike: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    """Return the plan for what is ``asked``. The first call makes it, collectively over the team.

    asked: only what all PEs know alike, so that all of them find the plan, or none does; lengths alone if there is alike.
    make: checks the arguments of every call, without communication, and returns what all PEs must have in common, or a
        function that returns it, and a function that makes the plan. That one takes a plan of the same ``alike``, if there
        is one, of which the PEs need not agree again, and which may have what the new one needs. () stands for none.
    argument, wants: of the error if PEs ask differently.
    Errors: those of ``make`` on this PE; ArgumentError, on all PEs, if it refuses on another, or if they ask differently.
    """
    require_init(routine)
    group = TEAM_WORLD if team is None else member(routine, team)
    key = key_of(routine, group, alike, asked)
    try:
        found, kin = _plans.live(key), _kin.get(key[:-1]) if alike else None
    except TypeError:
        found = kin = None  # an argument that cannot be in a key, which make refuses
    if found is not None:
        make(group)  # this PE's arguments may be wrong alone
        return found
    if kin is not None and is_live(kin) and not job.debug:
        return _kept(key, group, partial(make(group)[1], kin))
    maker = _agreed(routine, group, make, argument, wants)
    _plans.make_room(group)
    return _kept(key, group, maker)


def _kept(key: tuple[Any, ...], team: Team, maker: Callable[[], Any]) -> Any:
    """Return the new plan that is found by the key from now on."""
    require_no_capture(key[0])
    if len(_plans) >= MOST_SHARING:
        _plans.make_room(team)
    found = _plans[key] = _made(team, maker)  # in place of one that its user has closed, if there is one
    found.key, found.used = key, next(_uses)
    if key[1]:
        _kin[key[:-1]] = found
    return found


def _made(team: Team, maker: Callable[[], Any]) -> Any:
    """Return a new plan. Where the heap is full, on all PEs alike, the plans used longest ago make room for it."""
    while True:
        try:
            return maker()
        except HeapExhaustedError:
            if not _plans.close_oldest(team):
                raise


def _agreed(routine: str, team: Team, make: Callable[[Team], tuple[str, Any]], argument: str, wants: str) -> Any:
    error, maker = None, None
    try:
        require_no_capture(routine)
        require_near(routine, team)
        text, maker = make(team)
        text = text() if callable(text) else text
    except ShmemError as problem:
        error, text = problem, str(problem)
    require_alike(routine, team, argument, text, wants, error)
    return maker


def clear() -> None:
    """Close all plans. Collective over all PEs, which have made the same plans."""
    _plans.close_all()
    drop_ended()


# ---- checks that operators share


def schedule_of(
    routine: str, schedule: Any, usual: str, known: Collection[str], team: Team, dtype: torch.dtype | None = None
) -> str:
    """Return the name of the schedule, ``usual`` for "auto". dtype: of operands, where it may be float64.

    Errors: ArgumentError if it is not ``known``; UnreachableError if it stores tiles, and ``team`` spans nodes.
    """
    if dtype is torch.float64:
        require_for_double(routine, schedule)
        return DOUBLE
    if schedule == "auto":
        return usual
    if not isinstance(schedule, str) or schedule not in known:
        refuse(ArgumentError, routine, "schedule", repr(schedule), "auto or " + ", ".join(known))
    if schedule not in WITHOUT_TILES:
        wants = "auto or " + ", ".join(each for each in known if each in WITHOUT_TILES)
        require_one_node(routine, team, "schedule", f"{schedule!r} for ", wants)
    return schedule


def require_for_double(routine: str, schedule: Any) -> None:
    """Errors: ArgumentError for a schedule that does not take float64."""
    if schedule not in ("auto", DOUBLE):
        refuse(ArgumentError, routine, "schedule", f"{schedule!r} with torch.float64", f"auto or {DOUBLE}")


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors have memory in common."""
    starts = one.data_ptr(), other.data_ptr()
    return starts[0] < starts[1] + other.nbytes and starts[1] < starts[0] + one.nbytes


def require_own(routine: str, out: torch.Tensor, **read: torch.Tensor) -> None:
    """Errors: ArgumentError if out is in memory of an array that is read, which is named."""
    for name, array in read.items():
        if overlap(out, array):
            refuse(ArgumentError, routine, "out", f"memory of {name}", "memory of its own")


def factor_of(routine: str, scale: Any, width: int) -> float:
    """Return what products of queries and keys of ``width`` elements are multiplied by. Errors: ArgumentError."""
    if scale is None:
        return float(width**-0.5)
    if not is_number(scale) or not math.isfinite(scale):
        refuse(ArgumentError, routine, "scale", repr(scale), "a number, or None")
    return float(scale)


def require_array(
    routine: str, name: str, array: Any, shape: Mapping[str, int | None] | tuple[int, ...],
    dtypes: tuple[torch.dtype, ...] = (),
) -> None:  # fmt: skip
    """Check a contiguous tensor beside the heap. shape: its own, or the names of dimensions, with lengths where they matter.

    dtypes: those that it may have; none are given where any may be.
    Errors: ArgumentError, DtypeError.
    """
    wanted = shape if isinstance(shape, tuple) else tuple(shape.values())
    if not isinstance(array, torch.Tensor):
        refuse(ArgumentError, routine, name, type(array).__name__, "a torch tensor")
    fits = array.dim() == len(wanted) and all(w in (None, s) for s, w in zip(array.shape, wanted, strict=False))
    if not fits:
        refuse(ArgumentError, routine, name, f"shape {tuple(array.shape)}", f"shape {_spelled(shape)}")
    if not array.is_contiguous():
        refuse(ArgumentError, routine, name, f"strides {array.stride()}", "a contiguous tensor")
    if array.device.type != default().device:
        refuse(ArgumentError, routine, name, f"a tensor on {array.device}", f"one on {default().device}")
    if dtypes:
        require_dtype(routine, name, array, dtypes)


def require_dtype(routine: str, name: str, array: torch.Tensor, wanted: tuple[torch.dtype, ...]) -> None:
    """Errors: DtypeError."""
    if array.dtype not in wanted:
        refuse(DtypeError, routine, name, str(array.dtype), "one of " + ", ".join(map(str, wanted)))


def _spelled(shape: Mapping[str, int | None] | tuple[int, ...]) -> str:
    if isinstance(shape, tuple):
        return str(shape)
    return "(" + ", ".join(name if length is None else f"{name} {length}" for name, length in shape.items()) + ")"
