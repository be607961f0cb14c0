"""Other executions that the memory model allows: what calls do to PEs takes effect late, and in any order between fences.

``pyshmemrun --check=schedules --seed N`` runs a program so. One PE alone repeats itself exactly under the same seed; between
PEs the choices are the same, and their times are not.
"""

from __future__ import annotations

import atexit
import inspect
import random
import threading
import time
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any, NamedTuple

from pyshmem.host.contexts import CTX_DEFAULT
from pyshmem.host.rma import put
from pyshmem.host.signal import SIGNAL, signal_add, signal_set
from pyshmem.runtime.environment import read
from pyshmem.runtime.job import job

Call = Callable[..., Any]
_LATE = ("put", "put_nbi", "p", "iput", "ibput", "get_nbi", "signal_set", "signal_add")
_AT_ONCE = ("get", "g", "iget", "ibget", "signal_fetch", "test_lock")
_BLOCKING = ("wait_until", "signal_wait_until", "sync", "set_lock")
_PATIENCE = 0.05  # seconds that a blocking call may last while effects are held back
_PAUSE = 0.02  # seconds, at most, between two effects that quiet delivers
_PAUSES = 2.0  # all pauses of a PE


class Effect(NamedTuple):
    """``epoch``: how many fences came before it."""

    ctx: int
    pe: int
    epoch: int
    apply: Callable[[], Any]
    then: Callable[[], Any] | None  # what may follow it at some time: the signal of put_signal


class Schedule:
    """What this PE's calls have still to do."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.pending: list[Effect] = []
        self.fences: dict[int, int] = {}
        self.lock = threading.RLock()
        self.left = _PAUSES

    def add(self, ctx: int, pe: int, apply: Callable[[], Any], then: Callable[[], Any] | None = None) -> None:
        with self.lock:
            self.pending.append(Effect(ctx, pe, self.fences.get(ctx, 0), apply, then))
        self.step()

    def step(self) -> None:
        """At any time, some effects take place."""
        while self.pending and self.chance.random() < 0.4:
            self._deliver(lambda effect: True)

    def fence(self, ctx: int, own: int) -> None:
        """Later stores of this PE itself are at once: what it has put into its own memory comes before them."""
        with self.lock:
            self.fences[ctx] = self.fences.get(ctx, 0) + 1
        self.deliver(lambda effect: effect.ctx == ctx and effect.pe == own)
        self.step()

    def deliver(self, which: Callable[[Effect], bool], pauses: bool = False) -> None:
        """Deliver all of these. pauses: in between, other PEs may see what has arrived so far."""
        while self._deliver(which):
            pause = min(self.left, _PAUSE * self.chance.random()) if pauses else 0.0
            self.left -= pause
            time.sleep(pause)

    def _deliver(self, which: Callable[[Effect], bool]) -> bool:
        """Deliver one of these effects, or one that comes before it. Whether there was any."""
        with self.lock:
            wanted = [effect for effect in self.pending if which(effect)]
            if not wanted:
                return False
            lines = {(effect.ctx, effect.pe) for effect in wanted}
            first = {line: min(e.epoch for e in self.pending if (e.ctx, e.pe) == line) for line in lines}
            able = [e for e in self.pending if first.get((e.ctx, e.pe)) == e.epoch]
            effect = self.chance.choice(able)
            effect.apply()
            at = next(index for index, each in enumerate(self.pending) if each is effect)
            self.pending[at : at + 1] = [effect._replace(apply=effect.then, then=None)] if effect.then else []
            return True


def install(package: ModuleType) -> None:
    """Hold back the calls of ``pyshmem``, from its init on."""
    seed, schedule = str(read("PYSHMEM_SCHEDULE")), Schedule("")
    spaces = vars(package)

    def begin(call: Call, *arguments: Any, **options: Any) -> Any:
        found = call(*arguments, **options)
        if job.inits == 1:
            schedule.chance.seed(f"{seed} {job.my_pe}")
            atexit.register(schedule.deliver, lambda effect: True, True)  # before the library's own exit
        return found

    for name in package.__all__:
        if inspect.isfunction(call := spaces[name]):
            made = partial(begin, call) if name in ("init", "init_thread") else _made_for(name, call, schedule)
            setattr(package, name, wraps(call)(made))
    for name in ("fence", "quiet", "destroy"):
        call = getattr(package.Ctx, name)
        setattr(package.Ctx, name, _order(name, call, schedule, inspect.signature(call)))
    for owner, blocking, names in (
        (package.Team, True, ("sync",)),
        (package.Lock, True, ("acquire", "__enter__")),
        (package.Lock, False, ("release", "__exit__")),
        (package.PartitionedTensor, False, ("scatter", "gather")),
    ):
        for name in names:
            setattr(owner, name, (_blocking if blocking else _settled)(getattr(owner, name), schedule))


def _made_for(name: str, call: Call, schedule: Schedule) -> Call:
    signature = inspect.signature(call)
    if name in ("put_signal", "put_signal_nbi"):
        return _put_signal(name, schedule, signature)
    if name in _LATE or (
        name.startswith("atomic_") and (("fetch" not in name and "swap" not in name) or "_nbi" in name)
    ):
        return _late(name, call, schedule, signature)
    if name in _AT_ONCE or name.startswith(("atomic_", "test")):
        return _at_once(call, schedule, signature)
    if name in ("fence", "quiet", "pe_quiet"):
        return _order(name, call, schedule, signature)
    if name.startswith(_BLOCKING):
        return _blocking(call, schedule)
    if name in ("my_pe", "n_pes", "query_initialized", "ptr", "is_symmetric"):
        return call
    return _settled(call, schedule)


def _context(ctx: Any) -> int:
    return 0 if ctx is None or ctx is CTX_DEFAULT else id(ctx)


def _line(given: dict[str, Any]) -> tuple[int, int]:
    """Context and PE of a call."""
    ctx, pe = given.get("ctx"), given.get("pe", job.my_pe)
    return _context(ctx), int(pe) if ctx is None else int(ctx.team._world_pe("check", int(pe)))


def _held(given: dict[str, Any]) -> None:
    """The source of a blocking call is free when it returns."""
    source: Any = given.get("source")
    if hasattr(source, "clone"):
        given["source"] = source.clone()
    elif hasattr(source, "copy"):
        given["source"] = source.copy()


def _late(name: str, call: Call, schedule: Schedule, signature: inspect.Signature) -> Call:
    def delayed(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options).arguments
        if not name.endswith("_nbi"):
            _held(given)
        schedule.add(*_line(given), partial(call, **given))

    return delayed


def _put_signal(name: str, schedule: Schedule, signature: inspect.Signature) -> Call:
    def delayed(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options).arguments
        if not name.endswith("_nbi"):
            _held(given)
        data = {key: given[key] for key in ("target", "source", "pe", "size", "ctx") if key in given}
        update = signal_add if int(given["sigop"]) == SIGNAL.ADD else signal_set
        signal = partial(update, given["signal"], given["value"], given["pe"], given.get("ctx"))
        schedule.add(*_line(given), partial(put, **data), signal)

    return delayed


def _at_once(call: Call, schedule: Schedule, signature: inspect.Signature) -> Call:
    """What fences have ordered before it comes first."""

    def immediate(*arguments: Any, **options: Any) -> Any:
        ctx, pe = _line(signature.bind(*arguments, **options).arguments)
        now = schedule.fences.get(ctx, 0)
        schedule.deliver(lambda effect: (effect.ctx, effect.pe) == (ctx, pe) and effect.epoch < now)
        schedule.step()
        return call(*arguments, **options)

    return immediate


def _order(name: str, call: Call, schedule: Schedule, signature: inspect.Signature) -> Call:
    def ordered(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        ctx = _context(given.get("ctx", given.get("self")))
        if name == "fence":
            schedule.fence(ctx, job.my_pe)
        else:
            schedule.deliver(lambda effect: effect.ctx == ctx, True)
        return call(*arguments, **options)

    return ordered


def _blocking(call: Call, schedule: Schedule) -> Call:
    """What is held back comes in the end, also while this PE waits."""

    def waiting(*arguments: Any, **options: Any) -> Any:
        schedule.step()
        late = threading.Timer(_PATIENCE, schedule.deliver, (lambda effect: True, True))
        late.start()
        try:
            return call(*arguments, **options)
        finally:
            late.cancel()

    return waiting


def _settled(call: Call, schedule: Schedule) -> Call:
    """A call before which everything takes effect: barriers and allocations complete it, the others may."""

    def settled(*arguments: Any, **options: Any) -> Any:
        schedule.deliver(lambda effect: True, True)
        return call(*arguments, **options)

    return settled
