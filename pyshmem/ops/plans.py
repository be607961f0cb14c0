"""The plans of calls: what the PEs of a team agree on and allocate once for calls of one kind, kept for later calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pyshmem.base.errors import HeapExhaustedError, ShmemError
from pyshmem.base.job import job
from pyshmem.host.teams import TEAM_WORLD, Team, member
from pyshmem.memory.arguments import require_init
from pyshmem.ops.agreement import require_alike, require_near, require_no_capture
from pyshmem.ops.workspace import Workspace

MOST_PLANS = 128  # of a team, with memory of their own
MOST_SHARING = 1024  # of a team, with memory that others have too
MOST_KNOWN = 2048  # calls whose arguments are remembered


class Call(NamedTuple):
    """A call, as far as its plan depends on it.

    team: its id.  shared: what all PEs give alike: options, types and shapes.
    private: what describes this PE's arrays; None: this is the call as all PEs know it.
    lengths: numbers in which plans may differ that share memory; None: this is what all of these have in common.
    """

    routine: str
    team: int
    shared: Any
    private: Any = None
    lengths: Any = None

    def agreed(self) -> Call:
        """Return the call as all PEs know it."""
        return self._replace(private=None)

    def common(self) -> Call:
        """Return the call without lengths."""
        return self._replace(lengths=None)


class Plan:
    """What calls of one kind share: memory and kernels. ``generation``: the init it belongs to."""

    team: Team
    space: Workspace
    generation: int
    call: Any = None  # as agreed
    used = 0  # greater than that of plans that were used before


class Request(NamedTuple):
    """What plan_for needs of a call whose plan is not ready.

    call: in which ``shared`` and ``lengths`` are the same on all PEs, so that all of them find the plan, or none does;
        private: what a call that needs no check is like in, beside these; None: every call needs one.
    check: checks the arguments, without communication. Returns what all PEs must have in common, or a function that returns
        it, and a function that makes the plan. That one takes a plan for other lengths, if there is one, of which the PEs
        need not agree again, and which may have what the new one needs.
    argument, wants: of the error if PEs ask differently.
    fits: returns whether arrays that are like those of an earlier call fit each other in their lengths; None: they do.
    lasting: returns what is kept for calls that are like this one but for lengths, or None if these must be checked.
    resized: returns the plan by one for other lengths and by what is kept; None: that one serves all lengths.
    steps: returns what calls like this one have of the plan, by it and by what is kept.
    plan: the one to use, which the caller has, and which takes the arguments.
    """

    call: Call
    team: Team
    check: Any = None
    argument: str = "x"
    wants: str = "the same call on all PEs of the team"
    fits: Callable[[], bool] | None = None
    lasting: Callable[[], Any] | None = None
    resized: Callable[[Any, Any], Any] | None = None
    steps: Callable[[Any, Any], Any] | None = None
    plan: Any = None


def team_of(routine: str, team: Team | None) -> Team:
    """Return the team of a call, which includes this PE. Errors: NotInitializedError, ArgumentError."""
    require_init(routine)
    return TEAM_WORLD if team is None else member(routine, team)


class Cache(dict[Call, Any]):
    """Plans by what they depend on. A plan has a ``team``, which may have ended, and the number of its last use."""

    def __init__(self, most: int, close: Callable[[Any], None]) -> None:
        """most: that a team may have, with memory each.  close: frees a plan's memory, collectively over its team."""
        super().__init__()
        self.most, self.close = most, close

    def live(self, call: Call) -> Any:
        """Return the plan of this call, or None if there is none, or it or its team has ended."""
        found = self.get(call)
        if found is None or not is_live(found):
            return None
        use(found)
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

    def _by_age(self, team: Team) -> list[Call]:
        """The keys of the team's plans, that of the one used longest ago first."""
        return sorted((key for key, plan in self.items() if plan.team is team), key=lambda key: int(self[key].used))

    def _close(self, keys: list[Call]) -> None:
        for key in keys:
            self.close(self.pop(key))
        if keys:
            drop_ended()


def _close(plan: Any) -> None:
    if job.generation == plan.generation:
        getattr(plan, "let_go", plan.space.close)()


_uses = itertools.count()
_plans = Cache(MOST_PLANS, _close)
_kin: dict[Call, Any] = {}  # the newest of the plans that serve other lengths, by what these have in common
_known: dict[Call, tuple[Any, Any]] = {}  # a plan, and what is kept with it, by calls that need no check


def plan_for(call: Any, prepare: Callable[..., Request], *given: Any) -> tuple[Any, Any]:
    """Return the plan of a call, and its steps. The first call of a kind makes it, collectively over the team.

    call: the fields of a Call, with all that this PE gives: a tuple of them is equal to it, and made in a third of its time.
        A call that is equal to an earlier one is only looked up. None: it is not kept for later ones.
    prepare: returns the request for the plan. It gets ``given``, and checks nothing that Request.check checks.
    Errors: those of Request.check on this PE; ArgumentError, on all PEs, if it refuses on another, or they ask differently.
    """
    known = ready(call)
    if known is not None:
        return known
    request = prepare(*given)
    plan, kept = (request.plan, None) if request.plan is not None else _like(request) or _found(request)
    steps = None if request.steps is None else request.steps(plan, kept)
    return (plan, steps) if call is None else _remember(call, plan, steps)


def ready(call: Any) -> tuple[Any, Any] | None:
    """Return what plan_for does for a call that is equal to an earlier one; None for others, which need a request."""
    try:
        known = _known.get(call)
    except TypeError:  # an argument that cannot be in a key, which is refused
        return None
    if known is None:
        return None
    plan = known[0]
    if plan.space.closed or plan.generation != job.generation or not plan.team.size:  # as in is_live
        return None
    plan.used = next(_uses)
    return known


def _remember(call: Any, plan: Any, kept: Any) -> tuple[Any, Any]:
    if len(_known) >= MOST_KNOWN:
        drop_ended()
    _known[call] = plan, kept
    return plan, kept


def _like(request: Request) -> Any:
    """Return (plan, what is kept) for a call that needs no check, because it is like an earlier one but for lengths.

    None: it is like none.
    """
    call, resized = request.call, request.resized
    if call.private is None:
        return None
    try:
        known = _known.get(call.common())
    except TypeError:
        return None
    if known is None or not is_live(known[0]) or not (request.fits is None or request.fits()):
        return None
    if resized is None:
        use(known[0])
        return known
    kin = _kin.get(call.agreed().common())
    if kin is None or job.debug or not is_live(kin):
        return None
    agreed = call.agreed()
    return _plans.live(agreed) or _keep(agreed, kin.team, partial(resized, kin, known[1])), known[1]


def _found(request: Request) -> tuple[Any, Any]:
    """Return (plan, what is kept) for a call whose arguments are checked. All PEs make such calls in the same order."""
    plan, call, kept = _checked(request), request.call, None
    if request.lasting is not None:
        kept = request.lasting()
        if kept is not None and call.private is not None:
            _remember(call.common(), plan, kept)
    return plan, kept


def _checked(request: Request) -> Any:
    agreed, team = request.call.agreed(), request.team
    try:
        found, kin = _plans.live(agreed), None if agreed.lengths is None else _kin.get(agreed.common())
    except TypeError:
        found = kin = None
    if found is not None:
        request.check(team)  # this PE's arguments may be wrong alone
        return found
    if kin is not None and is_live(kin) and not job.debug:
        return _keep(agreed, team, partial(request.check(team)[1], kin))
    maker = _agree(request)
    _plans.make_room(team)
    return _keep(agreed, team, maker)


def _keep(agreed: Call, team: Team, maker: Callable[[], Any]) -> Any:
    """Return the new plan that is found by the call from now on."""
    require_no_capture(agreed.routine)
    if len(_plans) >= MOST_SHARING:
        _plans.make_room(team)
    found = _plans[agreed] = _made(team, maker)  # in place of one that its user has closed, if there is one
    found.call, found.used = agreed, next(_uses)
    if agreed.lengths is not None:
        _kin[agreed.common()] = found
    return found


def _made(team: Team, maker: Callable[[], Any]) -> Any:
    """Return a new plan. Where the heap is full, on all PEs alike, the plans used longest ago make room for it."""
    while True:
        try:
            return maker()
        except HeapExhaustedError:
            if not _plans.close_oldest(team):
                raise


def _agree(request: Request) -> Any:
    """Return what makes the plan, when all PEs of the team have asked for the same one."""
    error, maker, routine, team = None, None, request.call.routine, request.team
    try:
        require_no_capture(routine)
        require_near(routine, team)
        text, maker = request.check(team)
        text = text() if callable(text) else text
    except ShmemError as problem:
        error, text = problem, str(problem)
    require_alike(routine, team, request.argument, text, request.wants, error)
    return maker


def use(plan: Any) -> None:
    """Note that a plan was used: it is the last to go when there are too many."""
    plan.used = next(_uses)


def is_live(plan: Any) -> bool:
    """Return whether neither the plan nor its team nor the library has ended."""
    return not plan.space.closed and plan.generation == job.generation and plan.team.size > 0


def drop_ended() -> None:
    """Forget the calls of plans that have ended, and all of them if there are too many."""
    for call in [call for call, (plan, _) in _known.items() if not is_live(plan)]:
        del _known[call]
    for common in [common for common, plan in _kin.items() if not is_live(plan)]:
        del _kin[common]
    if len(_known) >= MOST_KNOWN:
        _known.clear()


def clear() -> None:
    """Close all plans, which frees their memory.

    Order: collective over all PEs, which have made the same plans.
    Errors: NotInitializedError.
    Spec: none.
    """
    _plans.close_all()
    drop_ended()


def twin(made: Any) -> Any:
    """Return another object with the same attributes, in a third of the time of copy.copy."""
    found = object.__new__(type(made))
    found.__dict__.update(made.__dict__)
    return found
